"""Ids of two inputs as the sidecar decodes them: told apart wherever they stand, however they are written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from tests.property.test_spark_core import spark
from validator.codecs.columns import DECODED, UNDECODABLE
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.reconcile.facts import Side, aggregate, completed
from validator.stream.decode import decode_events, decode_results
from validator.stream.sources import oracle_of, spaces_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["spark"]
pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]

START = "1970-01-01T00:00:00.000"
Ids = tuple[list[int], list[str]]


def config() -> Config:
    return loads(EXAMPLES["join"], "/etc", [], {})


def from_kafka(spark: SparkSession, records: list[dict[str, Any]]) -> DataFrame:
    """Records as Spark's source hands them over."""
    rows = [(at, json.dumps(record)) for at, record in enumerate(records)]
    return spark.createDataFrame(rows, "offset bigint, text string").select(
        F.lit(None).cast("binary").alias("key"),
        F.col("text").cast("binary").alias("value"),
        F.lit("topic").alias("topic"),
        F.lit(0).alias("partition"),
        "offset",
        F.lit(0).cast("timestamp").alias("timestamp"),
    )


def result(clicks: object, updates: object) -> dict[str, object]:
    return {"page": "/help", "windowStart": START, "clickIds": clicks, "updateIds": updates}


RESULTS: list[tuple[object, object, Ids | None]] = [
    ([7], [7], ([7], ["update/7"])),
    (["7"], ["7"], ([7], ["update/7"])),
    (["a", 7], [7, "a"], ([7], ["click/a", "update/7", "update/a"])),
    (["update/7"], [7], ([], ["click/update/7", "update/7"])),
    ([], [], ([], [])),
    ([7, 7], [], ([7, 7], [])),
    ([7], [None], None),
    ([None], [7], None),
    ([7], None, None),
]


def test_the_ids_of_a_result_say_their_input(spark: SparkSession) -> None:
    setup = config()
    records = from_kafka(spark, [result(clicks, updates) for clicks, updates, _ in RESULTS])
    decoded = decode_results(records, 0, setup.outputs[0], oracle_of(setup), "auto", spaces_of(setup))
    found = decoded.orderBy("offset").collect()
    for row, (clicks, updates, wanted) in zip(found, RESULTS, strict=True):
        said = f"{clicks}, {updates}"
        assert row["status"] == (UNDECODABLE if wanted is None else DECODED), said
        if wanted is not None:
            assert (row["result"]["ids"], sorted(row["result"]["text_ids"])) == wanted, said
            assert row["contributions"] == len(wanted[0]) + len(wanted[1]), said


def fingerprints(decoded: DataFrame) -> list[tuple[int, int]]:
    """Of each record, as the facts table has it."""
    apart = decoded.withColumn("partition", F.col("offset").cast("int"))
    grouped = aggregate(apart, 1, lookup_us=0, max_ahead_us=0, with_first_event=False).toArrow()
    facts = completed(grouped, [(Side.INPUT, "topic")], batch=1, lookup_us=0, epoch=0).sort_by("partition")
    return list(zip(facts["hash_a"].to_pylist(), facts["hash_b"].to_pylist(), strict=True))


def test_an_event_has_the_fingerprint_of_the_result_that_carries_it_and_of_no_other(spark: SparkSession) -> None:
    setup = config()
    spaces = spaces_of(setup)
    given: list[object] = [7, "7", "a"]
    hashes: dict[tuple[str, object], tuple[int, int]] = {}
    for at, entry in enumerate(setup.inputs):
        events = from_kafka(spark, [{"id": id_, "page": "/help", "timestamp": START} for id_ in given])
        rows = decode_events(events, 0, entry, oracle_of(setup), 0, "auto", spaces[entry.topic])
        lists = [([id_], []) if at == 0 else ([], [id_]) for id_ in given]
        results = from_kafka(spark, [result(*pair) for pair in lists])
        same = decode_results(results, 0, setup.outputs[0], oracle_of(setup), "auto", spaces)
        for id_, event, carried in zip(given, fingerprints(rows), fingerprints(same), strict=True):
            assert event == carried
            hashes[entry.topic, id_] = event
    assert hashes["click", 7] == hashes["click", "7"]
    assert hashes["update", 7] == hashes["update", "7"]
    assert len(set(hashes.values())) == 4

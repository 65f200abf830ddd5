"""Ids of two inputs, as the sidecar decodes them, stay distinct wherever and however they are written."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from validator.codecs.columns import DECODED, UNDECODABLE
from validator.codecs.plain_events import RECORD_SCHEMA
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.stream.decode import Reader, event_reader, result_reader
from validator.stream.stage import Stage

pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]

START = "1970-01-01T00:00:00.000"
Ids = tuple[list[int], list[str]]


def config() -> Config:
    return loads(EXAMPLES["join"], "/etc", [], {})


def from_kafka(records: list[dict[str, Any]]) -> pa.RecordBatch:
    """Records in the form in which Spark passes them."""
    rows = [
        {"value": json.dumps(record).encode(), "partition": at, "offset": at, "time_us": 0}
        for at, record in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, RECORD_SCHEMA)


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


def test_ids_of_a_result_name_their_input() -> None:
    setup = config()
    records = from_kafka([result(clicks, updates) for clicks, updates, _ in RESULTS])
    reader = result_reader(setup.outputs[0], setup.oracle, "auto", setup.oracle.spaces(setup.inputs))
    found = pa.Table.from_batches(reader.batches(iter([records]))).sort_by("offset").to_pylist()
    for row, (clicks, updates, wanted) in zip(found, RESULTS, strict=True):
        said = f"{clicks}, {updates}"
        assert row["status"] == (UNDECODABLE if wanted is None else DECODED), said
        if wanted is not None:
            assert (row["ids"], sorted(row["text_ids"])) == wanted, said


def fingerprints(reader: Reader, records: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """The fingerprint of each record, as in the facts table."""
    stage = Stage([reader], 0, with_first_event=False)
    (facts,) = stage.facts(0, iter([from_kafka(records)]))
    facts = facts.sort_by("partition")
    return list(zip(facts["hash_a"].to_pylist(), facts["hash_b"].to_pylist(), strict=True))


def test_an_event_has_the_fingerprint_of_the_result_that_carries_it_and_of_no_other() -> None:
    setup = config()
    spaces = setup.oracle.spaces(setup.inputs)
    given: list[object] = [7, "7", "a"]
    hashes: dict[tuple[str, object], tuple[int, int]] = {}
    for at, entry in enumerate(setup.inputs):
        events = [{"id": id_, "page": "/help", "timestamp": START} for id_ in given]
        of_events = fingerprints(event_reader(entry, setup.oracle, 0, "auto", spaces[entry.topic]), events)
        lists = [([id_], []) if at == 0 else ([], [id_]) for id_ in given]
        results = [result(*pair) for pair in lists]
        of_results = fingerprints(result_reader(setup.outputs[0], setup.oracle, "auto", spaces), results)
        for id_, event, carried in zip(given, of_events, of_results, strict=True):
            assert event == carried
            hashes[entry.topic, id_] = event
    assert hashes["click", 7] == hashes["click", "7"]
    assert hashes["update", 7] == hashes["update", "7"]
    assert len(set(hashes.values())) == 4

"""The plan of the testbed's Spark job on batch DataFrames, one per input, without a broker or a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from testbed.engines.spark_job import results
from testbed.engines.spark_settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def event(number: int, second: int, page: str = "/a") -> str:
    return json.dumps({"id": number, "timestamp": f"1970-01-01T00:00:{second:02}.000", "page": page})


def answers(spark: SparkSession, workload: str, *inputs: list[str]) -> list[tuple[str, dict[str, Any]]]:
    settings = SparkSettings(bootstrap_servers="127.0.0.1:1", workload=workload, window_ms=2000)
    records = [spark.createDataFrame([(bytearray(one, "utf-8"),) for one in given], "value binary") for given in inputs]
    rows = results(records, settings).collect()
    return sorted(((row["key"], json.loads(row["value"])) for row in rows), key=str)


def result(page: str, second: int, clicks: list[int], updates: list[int]) -> tuple[str, dict[str, Any]]:
    times = {"windowStart": f"1970-01-01T00:00:{second:02}.000", "windowEnd": f"1970-01-01T00:00:{second + 2:02}.000"}
    return json.dumps(page), {"page": page, **times, "clickIds": clicks, "updateIds": updates}


def test_a_join_emits_each_id_once_for_cells_with_both_sides(spark: SparkSession) -> None:
    clicks = [event(1, 0), event(1, 0), event(2, 2), event(3, 0, "/b"), event(4, 5), "no click", event(5, 7)]
    updates = [event(1, 1), event(1, 1), event(7, 3, "/b"), event(9, 4), "{}"]
    assert answers(spark, "mst", clicks, updates) == [result("/a", 0, [1], [1]), result("/a", 4, [4], [9])]


def test_a_count_emits_each_copy_for_every_cell(spark: SparkSession) -> None:
    clicks = [event(1, 0), event(1, 1), event(3, 0, "/b"), "no click", event(5, 2)]
    assert answers(spark, "sst", clicks) == [
        result("/a", 0, [1, 1], []), result("/a", 2, [5], []), result("/b", 0, [3], [])
    ]  # fmt: skip

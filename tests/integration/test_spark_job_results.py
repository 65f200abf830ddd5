"""The plan of the testbed's Spark job on batch DataFrames, one per input, without a broker or a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from generator.streambench import NUMBERS_COLUMNS, TEXT_COLUMNS
from testbed.engines.spark_operators import results
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


def line(columns: tuple[str, ...], **fields: object) -> str:
    return "\t".join(str(fields.get(name, 7)) for name in columns)


def bid(number: int, second: int, **fields: object) -> str:
    return json.dumps({"id": number, "dateTime": 1000 * second, "auction": 1000, "site": "s", "price": 100} | fields)


def seconds(start: int, end: int) -> dict[str, str]:
    return {"windowStart": f"1970-01-01T00:00:{start:02}.000", "windowEnd": f"1970-01-01T00:00:{end:02}.000"}


def result(page: str, second: int, clicks: list[int], updates: list[int]) -> tuple[str, dict[str, Any]]:
    return json.dumps(page), {"page": page, **seconds(second, second + 2), "clickIds": clicks, "updateIds": updates}


def test_a_join_emits_each_id_once_for_cells_with_both_sides(spark: SparkSession) -> None:
    clicks = [event(1, 0), event(1, 0), event(2, 2), event(3, 0, "/b"), event(4, 5), "no click", event(5, 7)]
    updates = [event(1, 1), event(1, 1), event(7, 3, "/b"), event(9, 4), "{}"]
    assert answers(spark, "mst", clicks, updates) == [result("/a", 0, [1], [1]), result("/a", 4, [4], [9])]


def test_a_count_emits_each_copy_for_every_cell(spark: SparkSession) -> None:
    clicks = [event(1, 0), event(1, 1), event(3, 0, "/b"), "no click", event(5, 2)]
    assert answers(spark, "sst", clicks) == [
        result("/a", 0, [1, 1], []), result("/a", 2, [5], []), result("/b", 0, [3], [])
    ]  # fmt: skip


CLICKS = [event(1, 0), event(1, 0), event(2, 3), "no click"]
TIED = {"timestamp": "1970-01-01T00:00:03.000"}
TEXTS = [line(TEXT_COLUMNS, id=5, time=3000, user=8, word="back"), line(TEXT_COLUMNS, id=6, word="bat"), "one\tcolumn"]
RECORDS = [
    line(NUMBERS_COLUMNS, id=n, time=3000, flow=9, draw=draw, measure1=n) for n, draw in ((4, 99_999), (5, 100_000))
]
ROWS: dict[str, tuple[list[list[str]], list[dict[str, Any]]]] = {
    "passthrough": ([CLICKS[2:]], [{"page": "/a", "id": 2, **TIED}]),
    "distinct": ([CLICKS[:2]], [{"page": "/a", **seconds(0, 2), "clickIds": [1], "updateIds": []}]),
    "running_aggregate": ([CLICKS[1:]], [{"page": "/a", "clickIds": [1, 2], "updateIds": []}]),
    "sliding_window": (
        [CLICKS[2:]],
        [{"page": "/a", **seconds(n, n + 2), "clickIds": [2], "updateIds": []} for n in (2, 3)],
    ),
    "session_window": (
        [CLICKS],
        [
            {"page": "/a", **seconds(0, 1), "clickIds": [1, 1], "updateIds": []},
            {"page": "/a", **seconds(3, 4), "clickIds": [2], "updateIds": []},
        ],
    ),
    "nexmark_q1": (
        [[bid(1, 0, bidder=3)]],
        [{"auction": 1000, "id": 1, "dateTime": seconds(0, 1)["windowStart"], "bidder": 3, "price": "82.00"}],
    ),
    "nexmark_q7": (
        [[bid(1, 0), bid(2, 1, price=101), bid(3, 2)]],
        [
            {"site": "s", **seconds(0, 2), "bids": 2, "price": 101},
            {"site": "s", **seconds(2, 4), "bids": 1, "price": 100},
        ],
    ),
    "nexmark_q20": (
        [[json.dumps({"id": 1000, "dateTime": 3000})], [bid(1, 2), bid(2, 3), bid(3, 5), bid(4, 6)]],
        [{"id": 1000, **seconds(3, 3), "auctionIds": [1000], "bidIds": [n]} for n in (2, 3)],
    ),
    "nexmark_q3": (
        [
            [json.dumps({"id": n, "dateTime": 3000, "state": state}) for n, state in ((1, "OR"), (2, "WA"))],
            [
                json.dumps({"id": n, "dateTime": 3000, "seller": n % 2 + 1, "category": c})
                for n, c in ((6, 10), (7, 10), (8, 11))
            ],
        ],
        [{"id": 1, **seconds(2, 4), "personIds": [1], "auctionIds": [6]}],
    ),
    "grep": ([TEXTS], [{"user": "8", "id": 5, "time": TIED["timestamp"], "word": "back", "text": "7"}]),
    "sample": ([RECORDS], [{"flow": "9", "id": 4, "time": TIED["timestamp"], "draw": "99999"}]),
    "statistics": ([RECORDS], [{"flow": "9", "records": 2, "total": 9, "least": 4, "largest": 5, "mean": 4.5}]),
}
"""Workload -> events of each stream, and the results."""


@pytest.mark.parametrize("kind", ROWS)
def test_an_operator_has_the_results_of_its_workload(spark: SparkSession, kind: str) -> None:
    inputs, expected = ROWS[kind]
    assert [value for _, value in answers(spark, kind, *inputs)] == expected

"""Runs of plain events: what is grouped, and what is left to the rule. That both decode alike is a property test."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest

from validator.codecs import plain_fields, plain_json
from validator.codecs.batches import EventBatches
from validator.codecs.one_record import Decoded, Record, RecordDecoder, Tombstone, Undecodable
from validator.codecs.plain_events import TAKEN, PlainEvents
from validator.codecs.times import instant_of_text
from validator.config.model import Input

SECOND_US = 1_000_000
PLAIN = PlainEvents(
    key_bytes=16_384,
    id=("id",),
    key=(("page",),),
    event_time=("at",),
    factor=SECOND_US,
    size_us=10 * SECOND_US,
    offset_us=0,
    closed_right=False,
    slack_us=0,
)


def value(number: int, page: str = "/a", at: int = 0) -> bytes:
    return json.dumps({"id": number, "page": page, "at": at}).encode()


class Rule(RecordDecoder):
    """Remembers which values it was asked for."""

    def __init__(self, at: dict[str, str] | str) -> None:
        super().__init__(Input.model_validate({"topic": "t", "fields": {"id": "id", "key": "page", "event_time": at}}))
        self.asked: list[bytes | None] = []

    def decode(self, record: Record) -> Decoded | Tombstone | Undecodable:
        self.asked.append(record.value)
        return super().decode(record)


def decoded(values: list[bytes | None], plain: PlainEvents = PLAIN) -> tuple[pa.Table, list[bytes | None]]:
    """The rows of `EventBatches`, and the values that were left to the rule."""
    rule = Rule("at" if plain.factor is None else {"path": "at", "unit": "s"})
    size = len(values)
    columns = [values, [1] * size, [100 + at for at in range(size)], [1000 - at for at in range(size)]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, TAKEN, strict=True)]
    read = EventBatches(rule, plain, None)(iter([pa.RecordBatch.from_arrays(arrays, schema=TAKEN)]))
    return pa.Table.from_batches(list(read)), rule.asked


def test_a_run_holds_the_events_of_one_window_and_key() -> None:
    found, left = decoded([value(n, f"/{n % 2}", at=n) for n in range(9, 19)])
    assert left == []
    by_cell = {(row["run"]["key"], row["run"]["window_start_us"]): row for row in found.to_pylist()}
    # 9 is alone in its window.
    assert {cell: row["run"]["ids"] for cell, row in by_cell.items()} == {
        ("/1", 0): [9],
        ("/0", 10 * SECOND_US): [10, 12, 14, 16, 18],
        ("/1", 10 * SECOND_US): [11, 13, 15, 17],
    }
    row = by_cell["/0", 10 * SECOND_US]
    assert (row["offset"], row["run"]["last_offset"], row["run"]["offsets"]) == (101, 109, [101, 103, 105, 107, 109])
    assert (row["time_us"], row["run"]["last_time_us"]) == (991, 999)
    assert (row["run"]["first_event_time_us"], row["run"]["event_time_us"]) == (10 * SECOND_US, 18 * SECOND_US)
    assert (row["run"]["records"], row["run"]["min_id"], row["run"]["max_id"]) == (5, 10, 18)


def test_an_odd_record_costs_its_block_and_no_more() -> None:
    values: list[bytes | None] = [value(n + 1) for n in range(2_000)]
    values[600], values[700], values[1_999] = b'{"id": 1.5, "page": "/a", "at": 0}', None, b"no JSON"
    _, found = decoded(values)
    assert {b'{"id": 1.5, "page": "/a", "at": 0}', None, b"no JSON"} <= set(found)
    # What does not look like an object is known before a block is tried.
    assert len(found) == plain_json.BLOCK + 2


def test_large_batches_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[bytes | None] = [value(n + 1, f"/{n % 3}") for n in range(2_000)]
    whole = decoded(values)
    monkeypatch.setattr(plain_json, "AT_ONCE", 1_000)
    assert decoded(values) == whole


def test_runs_of_hardly_any_records_are_not_worth_it() -> None:
    values: list[bytes | None] = [value(n, f"/{n}") for n in range(100)]
    found, left = decoded(values)
    assert (found["run"].null_count, found["id"].to_pylist(), left) == (100, list(range(100)), [])


@pytest.mark.parametrize(
    ("more", "plain"),
    [
        ('"x": ' + "1" * 400 + "." + "1" * 50, True),
        # Neither part has 500 digits, together they are more than a number may have.
        ('"x": ' + "1" * 499 + "." + "1" * 499 + "e-" + "0" * 499, False),
        ('"x": ' + "[" * 499 + "]" * 499, True),
        ('"x": ' + "[" * 500 + "]" * 500, False),
        (f'"{"n" * 50_001}": 1', True),
        (f'"x": "{"n" * 50_001}"', True),
        (f'"x": ["{"n" * 50_001}", 1]', True),
    ],
    ids=["number", "long number", "deep", "too deep", "long name", "long text", "long text in a list"],
)
def test_what_may_go_beyond_a_limit_is_left_to_the_rule(more: str, plain: bool) -> None:
    values: list[bytes | None] = [
        f'{{"id": {n}, "page": "/a", "at": 0, {more}, "y": "{"y" * 1000}"}}'.encode() for n in (1, 2, 3)
    ]
    assert decoded(values)[1] == ([] if plain else values)


def test_keys_of_many_fields_are_told_apart() -> None:
    """2**13 values in each of five fields are 2**65 keys, more than a 64-bit number can tell apart."""
    count = 2**13
    keys = [*((n, n, n, n, n) for n in range(count)), (0, 1, 1, 1, 1), (count // 2, 1, 1, 1, 1)]
    codes = [np.array(column, dtype=np.int64) for column in zip(*keys, strict=True)]
    assert len(np.unique(plain_fields.one_number(codes))) == len(keys)


@pytest.mark.parametrize("zone", ["", "Z", "+02:00"])
@pytest.mark.parametrize("closed_right", [False, True])
def test_times_finer_than_a_microsecond_are_rounded_as_the_rule_does(zone: str, closed_right: bool) -> None:
    plain = dataclasses.replace(PLAIN, factor=None, closed_right=closed_right)
    for digits in ("123456", "1234567", "000000001", "000000000"):
        at = f"2026-01-01T00:00:00.{digits}{zone}"
        values: list[bytes | None] = [json.dumps({"id": n, "page": "/a", "at": at}).encode() for n in range(6)]
        (row,) = decoded(values, plain)[0].to_pylist()
        assert row["run"]["event_time_us"] == instant_of_text(at, "up" if closed_right else "down"), at

"""Plain events: the records that Arrow decodes, and those left to the decoder of one record. A property test compares
both.
"""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.codecs import plain_fields, plain_json
from validator.codecs.plain_events import RECORD_SCHEMA, Events, PlainEvents
from validator.codecs.times import Rounding, instant_of_text

SECOND_US = 1_000_000
PLAIN = PlainEvents(
    key_bytes=16_384,
    id=(("id",),),
    key=(("page",),),
    event_time=("at",),
    factor=SECOND_US,
)


def value(number: int, page: str = "/a", at: int = 0) -> bytes:
    return json.dumps({"id": number, "page": page, "at": at}).encode()


def taken(values: list[bytes | None], plain: PlainEvents = PLAIN) -> Events | None:
    size = len(values)
    columns = [values, [1] * size, [100 + at for at in range(size)], [1000 - at for at in range(size)]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)]
    return plain.read(pa.RecordBatch.from_arrays(arrays, schema=RECORD_SCHEMA))


def left(values: list[bytes | None]) -> list[bytes | None]:
    events = taken(values)
    rows = set() if events is None else set(events.rows.tolist())
    return [value for row, value in enumerate(values) if row not in rows]


@given(st.lists(st.none() | st.from_regex(r"\A[-+ ]?[0-9xXaF_ ]{0,20}\Z") | st.integers().map(str), max_size=5))
@settings(max_examples=500, deadline=None)
def test_a_text_is_an_integer_as_the_rule_says(texts: list[str | None]) -> None:
    found, known = plain_fields.integers(pa.array(texts, pa.string()))
    are = [re.fullmatch(r"0|-?[1-9][0-9]{0,18}", text or "") and -(2**63) <= int(text or 0) < 2**63 for text in texts]
    assert known.tolist() == list(map(bool, are))
    assert found[known].tolist() == [int(text or 0) for text, known_too in zip(texts, are, strict=True) if known_too]


def test_an_odd_record_slows_down_only_its_block() -> None:
    values: list[bytes | None] = [value(n + 1) for n in range(2_000)]
    values[600], values[700], values[1_999] = b'{"id": 1.5, "page": "/a", "at": 0}', None, b"no JSON"
    found = left(values)
    assert {b'{"id": 1.5, "page": "/a", "at": 0}', None, b"no JSON"} <= set(found)
    # A value that does not look like an object is recognised before its block is decoded.
    assert len(found) == plain_json.BLOCK + 2


def test_large_batches_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[bytes | None] = [value(n + 1, f"/{n % 3}") for n in range(2_000)]
    whole = taken(values)
    monkeypatch.setattr(plain_json, "AT_ONCE", 1_000)
    in_blocks = taken(values)
    assert whole is not None
    assert in_blocks is not None
    assert in_blocks.rows.tolist() == whole.rows.tolist() == list(range(2_000))
    assert in_blocks.ids.integers.tolist() == whole.ids.integers.tolist() == list(range(1, 2_001))
    assert in_blocks.keys.column.to_pylist() == whole.keys.column.to_pylist()


@pytest.mark.parametrize(
    ("more", "plain"),
    [
        ('"x": ' + "1" * 400 + "." + "1" * 50, True),
        # Neither part has 500 digits, but together they exceed the limit of a number.
        ('"x": ' + "1" * 499 + "." + "1" * 499 + "e-" + "0" * 499, False),
        ('"x": ' + "[" * 499 + "]" * 499, True),
        ('"x": ' + "[" * 500 + "]" * 500, False),
        (f'"{"n" * 50_001}": 1', True),
        (f'"x": "{"n" * 50_001}"', True),
        (f'"x": ["{"n" * 50_001}", 1]', True),
    ],
    ids=["number", "long number", "deep", "too deep", "long name", "long text", "long text in a list"],
)
def test_records_that_may_exceed_a_limit_are_decoded_by_the_rule(more: str, plain: bool) -> None:
    values: list[bytes | None] = [
        f'{{"id": {n}, "page": "/a", "at": 0, {more}, "y": "{"y" * 1000}"}}'.encode() for n in (1, 2, 3)
    ]
    assert left(values) == ([] if plain else values)


def test_keys_of_many_fields_stay_distinct() -> None:
    """2**13 values in each of five fields make 2**65 keys, more than a 64-bit number can distinguish."""
    count = 2**13
    keys = [*((n, n, n, n, n) for n in range(count)), (0, 1, 1, 1, 1), (count // 2, 1, 1, 1, 1)]
    codes = [np.array(column, dtype=np.int64) for column in zip(*keys, strict=True)]
    assert len(np.unique(plain_fields.one_number(codes))) == len(keys)


@pytest.mark.parametrize("zone", ["", "Z", "+02:00"])
@pytest.mark.parametrize("closed_right", [False, True])
def test_times_finer_than_a_microsecond_are_rounded_as_the_rule_does(zone: str, closed_right: bool) -> None:
    rounding: Rounding = "up" if closed_right else "down"
    plain = dataclasses.replace(PLAIN, factor=None, rounding=rounding)
    for digits in ("123456", "1234567", "000000001", "000000000"):
        at = f"2026-01-01T00:00:00.{digits}{zone}"
        values: list[bytes | None] = [json.dumps({"id": n, "page": "/a", "at": at}).encode() for n in range(6)]
        events = taken(values, plain)
        assert events is not None
        assert set(events.times.tolist()) == {instant_of_text(at, rounding)}, at

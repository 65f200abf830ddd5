"""The condition of a filter in Arrow against the decoder of one record: they agree on every record that Arrow
decides.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from tests.property.test_plain_events import BYTES, batch, rows_of
from tests.worlds import some
from validator.codecs.batches import EventBatches
from validator.codecs.columns import DECODED, SKIPPED, TOMBSTONE, UNDECODABLE, UNOWED
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.stream.decode import event_reader

pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]

RECORDS: Final = 1_500
POOLS: Final[dict[str, list[str]]] = {
    "integers": ["0", "1", "5", "7", "99", "100", "101", "-1", "-100", "9007199254740993", "9223372036854775807",
                 "-9223372036854775808"],
    "doubles": ["0.5", "7.25", "99.5", "100.5", "101.25", "-3.5", "1e2", "99.999", "100.00001", "1e299", "-1e299"],
    "amounts": ["12", "12.5", "99", "100", "100.5", "100.0", "7", "0", "0.0", "1e0"],
    "texts": ['"paid"', '"open"', '"refunded"', '"\u00e4"', '"true"', '""', '"\\u0070aid"'],
    "texts of numbers": ['"1"', '"100"', '"99"', '"-5"', '"5"'],
    "truths": ["true", "false"],
    "odd": ["null", "{}", "[1]", "[]", "1e-2000", "1e2000", "1E2", "-0", "-0.0", "-1e-400", '"1e2"', '"1.0"', '"+5"',
            '" 5"', '"0x5"', '"100.0"', '"99.99999999999999999999"', "99.99999999999999999999", '"nan"', '"Infinity"',
            "100.00000000000000000001", "9223372036854775808", "-9223372036854775809", "NaN", "0.1", '"\\ud800"',
            "1" * 400, "0." + "0" * 400 + "1", "1" + "0" * 320, "4.9e-324", "1.7976931348623157e308", "01", '"1e9999"'],
}  # fmt: skip
CONDITIONS: Final[dict[str, set[str]]] = {
    "{one_of: [paid, refunded, true]}": {"integers", "doubles", "texts", "texts of numbers", "truths"},
    "{one_of: [1, 100, '5']}": {"integers", "texts", "texts of numbers", "truths"},
    "{one_of: [0.5, false, 9223372036854775807]}": {"integers", "texts", "texts of numbers", "truths"},
    "{none_of: [paid, 100, 7.25]}": {"integers", "texts", "texts of numbers", "truths"},
    "{at_least: 100}": {"integers", "texts of numbers"},
    "{at_least: 0.1, below: 100.25}": {"integers", "doubles", "texts of numbers"},
    "{below: -100}": {"integers", "doubles", "texts of numbers"},
    "{at_least: 9223372036854775808}": {"integers", "doubles", "texts of numbers"},
    "{below: '-1e30'}": {"integers", "texts of numbers"},
    "{at_least: '99.99999999999999999999'}": {"integers", "texts of numbers"},
    "{equals: 100}": {"integers", "texts", "texts of numbers", "truths"},
    "{above: 0.1, at_most: 100.25}": {"integers", "doubles", "texts of numbers"},
    "{above: 99, at_most: 100}": {"integers", "texts of numbers"},
    "{matches: '^(pa|5$)|r'}": {"integers", "texts", "texts of numbers", "truths"},
    "{exists: true}": {"integers", "doubles", "texts", "texts of numbers", "truths"},
    "{any: [{path: v.status, equals: paid}, {path: v.status, at_least: 100}]}": {"integers", "texts of numbers"},
    "{all: [{path: v, exists: true}, {not: {path: v.status, one_of: [open, 5]}}, {path: order, at_least: 3}]}": {
        *{"integers", "texts", "texts of numbers", "truths"}
    },
}
"""Condition -> the pools in which Arrow decides every value without the decoder of one record."""


WINDOWS: Final = [
    "inputs.0.fields={id: order, key: customer, event_time: ordered_at}",
    "outputs.0={topic: out, fields: {ids: ids, key: customer, window_start: start}}",
    "late=[]",
]


KINDS: Final = {"filter": UNOWED, "tumbling_window, size: 1m": SKIPPED, "session_window, gap: 1m": TOMBSTONE}
"""Oracle -> what an event is for which the condition does not hold."""


def both_ways(where: str, kind: str = "filter") -> tuple[EventBatches, EventBatches]:
    whole = where if where[1:4] in ("all", "any", "not") else f"{{path: v.status, {where[1:]}"
    condition = f"oracle={{kind: {kind}, where: {whole}}}"
    config = loads(EXAMPLES["filter"], "/etc", [condition, *(WINDOWS if kind != "filter" else [])], {})
    reader = event_reader(config.inputs[0], config.oracle, 0, "auto", limits=config.limits)
    assert isinstance(reader.batches, EventBatches)
    return reader.batches, replace(reader.batches, plain=None)


def records(pool: list[str], number: int, chance: random.Random, *, changed: float = 0.0) -> list[bytes]:
    found = []
    for at in range(number):
        value = f'{{"order":{at},"customer":"c{at % 3}","ordered_at":"2026-01-01T10:00:0{at % 10}Z","v":{{"status":'
        record = (value + chance.choice(pool) + "}}").encode()
        if chance.random() < changed:
            place = chance.randrange(len(record) + 1)
            record = record[:place] + chance.choice(BYTES) + record[place + chance.choice([0, 0, 1]) :]
        found.append(record)
    return found


@pytest.mark.parametrize("kind", some(KINDS))
@pytest.mark.parametrize("where", some(CONDITIONS))
def test_the_condition_holds_the_same_alone_and_among_others(where: str, kind: str) -> None:
    with_arrow, by_the_rule = both_ways(where, kind)
    assert with_arrow.plain is not None
    chance, seen = random.Random(5), Counter[Any]()
    mixed = [value for pool in POOLS.values() for value in pool]
    for pool in (*POOLS.values(), mixed):
        values = records(pool, RECORDS, chance, changed=0.05)
        wanted = rows_of(by_the_rule, values)
        assert rows_of(with_arrow, values) == wanted
        seen.update(row["status"] for row in wanted)
        for value, row in zip(values[:150], wanted, strict=False):
            [alone] = rows_of(with_arrow, [value])
            assert alone | {"offset": row["offset"]} == row, value
    assert min(seen[status] for status in (DECODED, KINDS[kind], UNDECODABLE)) > 50


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_of_another_kind_needs_no_other_field(kind: str) -> None:
    with_arrow, by_the_rule = both_ways("{none_of: [login]}", kind)
    unowed = KINDS[kind]
    click = b'{"order":1,"customer":"c","ordered_at":"2026-01-01T10:00:00Z","v":{"status":"click"}}'
    values = [
        click,
        b'{"v":{"status":"login"}}',
        b'{"v":{"status":"login"},"ordered_at":"2026-01-01T10:00:00Z"}',
        click.replace(b"click", b"login"),
        b'{"v":{"status":"click"}}',
        b'{"v":{}}',
    ]
    for reader in (with_arrow, by_the_rule):
        rows = rows_of(reader, values)
        assert [row["status"] for row in rows] == [DECODED, TOMBSTONE, TOMBSTONE, unowed, UNDECODABLE, UNDECODABLE]
        assert [row["event_time_us"] is None for row in rows] == [False, True, False, False, True, True]


@pytest.mark.parametrize(
    ("where", "name"), [(where, name) for where in CONDITIONS for name in sorted(CONDITIONS[where])]
)
def test_plain_values_are_decoded_by_arrow(where: str, name: str) -> None:
    with_arrow, _ = both_ways(where)
    assert with_arrow.plain is not None
    values = records(POOLS[name], RECORDS, random.Random(6))
    events = with_arrow.plain.read(batch(values))
    assert events is not None
    assert np.array_equal(np.sort(events.rows), np.arange(RECORDS))


def test_integers_among_fractions_are_decoded_by_arrow() -> None:
    with_arrow, _ = both_ways("{at_least: 50}")
    assert with_arrow.plain is not None
    values = records(["12", "12.5", "99", "100.25", "7"], RECORDS, random.Random(6))
    events = with_arrow.plain.read(batch(values))
    assert events is not None
    assert len(events.rows) == RECORDS
    assert isinstance(pa.array(events.owed), pa.BooleanArray)
    assert 0 < events.owed.sum() < RECORDS

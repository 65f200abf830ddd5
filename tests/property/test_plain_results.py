"""A batch of results decodes with Arrow exactly as its records do one at a time."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.property.test_plain_events import BYTES, KEYS, OTHERS, TIMES, batch
from validator.codecs.batches import ResultBatches
from validator.codecs.columns import DECODED, TOMBSTONE, UNDECODABLE
from validator.codecs.one_record import Record, RecordDecoder, Result, Tombstone
from validator.config.model import Output

pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]

LISTS = ["[]", "[1]", "[1,2,3]", "[ 4 , 5 ]", "[-0]", "[9223372036854775807,-9223372036854775808]", "[null]", "null",
         "7", "[9223372036854775808]",
         '["1","a"]', "[1.0]", "[1e2]", "[true]", "[[1]]", "[{}]", "[1,]", "[01]", '"[1]"',
         "{}", "[NaN]", '["[1]"]', "[1,null]"]  # fmt: skip
SHAPES = {
    '{"page":%(key)s,"windowStart":%(time)s,"a":%(a)s,"b":%(b)s%(other)s}': {
        "key": "page", "window_start": "windowStart", "ids": ["a", "b"]},
    '{"k":{"page":%(key)s,"w":"x"},"ids":{"a":%(a)s,"b":%(b)s},"at":%(time)s%(other)s}': {
        "key": ["k.w", "k.page"], "window_start": {"path": "at", "unit": "ms"}, "ids": "ids.a"},
    '{"at":%(time)s,"page":%(key)s,"ids":%(a)s%(other)s}': {
        "key": "page", "window_start": {"path": "at", "unit": "ns"}, "window_end": "$timestamp", "ids": "ids"},
    '{"until":%(time)s,"page":%(key)s,"ids":%(a)s%(other)s}': {
        "key": "page", "window_end": {"path": "until", "unit": "ms"}, "ids": "ids"},
    '{"e":{"at":%(time)s},"page":%(key)s,"ids":%(a)s%(other)s}': {
        "key": "page", "event_time": {"path": "e.at", "unit": "us"}, "ids": "ids"},
    '{"page":%(key)s,"ids":%(a)s,"at":%(time)s%(other)s}': {"key": "page", "event_time": "at", "ids": "ids"},
    '{"page":%(key)s,"a":%(a)s,"b":%(b)s,"at":%(time)s%(other)s}': {"key": "page", "ids": ["a", "b"]},
    '{"page":%(key)s,"o":{"at":%(time)s},"n":"x%(other)s"}': {"key": "page", "id": ["n", "o.at"]},
}  # fmt: skip


NAMES = ("window_start", "event_time", "window_end")


def odd_results(shape: str, fields: dict[str, Any], number: int, chance: random.Random) -> list[bytes]:
    pools = {"key": KEYS, "time": TIMES, "a": LISTS, "b": LISTS, "other": OTHERS}
    values = []
    for at in range(number):
        has_unit = isinstance(next((fields[name] for name in NAMES if name in fields), None), dict)
        time = "1767225600000" if has_unit else '"2026-01-01T00:00:00"'
        given = {"key": f'"/page-{at % 3}"', "time": time, "a": f"[{at},{at + 1}]", "b": f"[{-at}]", "other": ""}
        for name in chance.sample(list(pools), chance.choice([0, 0, 1, 1, 2])):
            given[name] = chance.choice(pools[name])
        record = (shape % given).encode("utf-8", "surrogatepass")
        if chance.random() < 0.2:
            place = chance.randrange(len(record) + 1)
            record = record[:place] + chance.choice(BYTES) + record[place + chance.choice([0, 0, 1]) :]
        values.append(record)
    return values


def said(decoder: RecordDecoder, value: bytes | None) -> tuple[object, ...]:
    """The row that the decoder of one record yields."""
    found = decoder.decode(Record(value, timestamp_us=5))
    if not isinstance(found, Result):
        return (TOMBSTONE if isinstance(found, Tombstone) else UNDECODABLE, None, None, [], [])
    ids = [id_ for ids in found.ids for id_ in ids]
    integers, texts = ([id_ for id_ in ids if type(id_) is kind] for kind in (int, str))
    return DECODED, found.window_start_us, found.key, integers, texts


WHERE = {"any": [{"path": "page", "matches": "[01]$"}, {"path": "k.page", "none_of": ["/page-2"]}]}


@pytest.mark.parametrize("where", [None, WHERE])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_result_decodes_the_same_alone_and_among_others(shape: str, where: dict[str, Any] | None) -> None:
    fields = SHAPES[shape]
    evidence = "id" if "id" in fields else "ids"
    output = Output.model_validate({"topic": "output", "evidence": evidence, "fields": fields, "where": where})
    window_us = None if "window_start" in fields else 60_000_000
    decoder = RecordDecoder(output, window_us=window_us, condition=output.where and output.where.condition("ignored"))
    read = ResultBatches(decoder, ())
    chance = random.Random(7)
    alone = 0
    for number in (*[1] * 600, *[3] * 100, 2_000):
        values: list[bytes | None] = [*odd_results(shape, fields, number, chance)]
        if number > 1:
            values[chance.randrange(number)] = chance.choice([None, b""])
        rows = pa.Table.from_batches(list(read(iter([batch(values)])))).sort_by("offset").to_pylist()
        assert [row["offset"] for row in rows] == list(range(number))
        for row, value in zip(rows, values, strict=True):
            found = (row["status"], row["window_start_us"], row["key"], row["ids"], row["text_ids"])
            assert found == said(decoder, value), value
            alone += found[0] == DECODED
    assert alone > (500 if where is None else 300) or fields.get("window_end") == "$timestamp", alone

"""Decoding of events by Arrow against the decoder of one record, which defines the result.

Thousands of unusual records: some fields come from pools of unusual values, then some bytes are changed at random. Each
record is decoded alone and among others.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from tests.property.test_spark_core import spark
from validator.codecs.batches import EventBatches
from validator.codecs.columns import DECODED
from validator.codecs.digests import hashes_of, of_integer, signed
from validator.codecs.fingerprints import hash_a, hash_b, text_numbers
from validator.codecs.plain_events import RECORD_SCHEMA
from validator.config.load import loads
from validator.config.model import Config, Limits
from validator.model.stated_values import Digest, Hash
from validator.reconcile.grouping import facts_of_events
from validator.stream.decode import event_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]
pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]

RECORDS = 1_500
"""Records per shape. Half of them have changed bytes."""
SLACK_US = 1_500_000
DEFAULT = Limits()

IDS = ["7", "-7", "0", "-0", "007", "1e3", "1.0", "9223372036854775807", "9223372036854775808", '"7"', '"-0"',
       '"07"', '" 7"', '"+7"', '"a"', '""', "null", "true", "NaN", "{}", "[7]", "-", "7 ", "\t7", '"7\\u0030"',
       '"\u0663"']  # fmt: skip
TIMES = ['"2026-01-01T00:00:00"', '"2026-01-01T00:00:00.5"', '"2026-01-01T00:00:00.123456"', '"2026-01-01 00:00:00.1"',
         '"2026-01-01T00:00:00.1234567"', '"2026-01-01T00:00:00Z"', '"2026-01-01T00:00:00.5Z"',
         '"2026-01-01T00:00:00+02:00"', '"2026-01-01T00:00:00-0100"', '"2026-01-01"', '"2026-01-01T10"',
         '"2026-01-01T10:11"', '"2026-02-30T00:00:00"', '"2026-01-01T24:00:00"', '"2026-01-01T23:59:60"',
         '"0000-01-01T00:00:00"', '"0001-01-01T00:00:00"', '"1582-10-10T00:00:00"', '"9999-12-31T23:59:59.999999"',
         '"12026-01-01T00:00:00"', '"-2026-01-01T00:00:00"', '" 2026-01-01T00:00:00"', '"2026-01-01T00:00:00 UTC"',
         '"2026-1-1T00:00:00.000"', '"2026-01-01T0:00:00.00"', '"2026-01-01T00:00:00."', '"2026-01-01T00:00:00,5"',
         '"T00:00:00.000000000"', '"00:00:00.0000000000"', '""', "null", "0", "-0", "-1", "1767225600000",
         "1767225600000.5", '"1767225600000"', '"1767225600000.25"', "1e12", "9223372036854775", "9223372036854775807",
         "4611686018427387", "4611686018427388", "-4611686018427388", "-9223372036854775",
         "4611686018427387904", "4611686018427387905", "-4611686018427387905", "-9223372036854775808",
         "-4611686018427387904.5", "true", "{}", '"2026-01-01T00:00Z"', '"2026-01-01T00:00:00,5Z"',
         '"20260101T000000.123Z"', '"2026-01-01t00:00:00z"', '"2026-01-01T24:00:00.000"', '"2026-01-01T00+05:30"',
         '"2026-01-01T00:00:00.123456789Z"', '"2026-01-01T000000.5"', '"2026-01-01T00:00:00 Z"',
         '"0000-02-29T00:00:00Z"', '"2026-01-01T00:00:00[UTC]"', '"+2026-01-01T00:00:00"', '"2026-01-01T00:00:60Z"',
         '"2026-01-01T00:00:00.123ZZ"', '"2026-01-01T00:00:00.5+00:00[UTC]"']  # fmt: skip
KEYS = ['"/help"', '"/a b"', '"\u00e4\u2713\U0001f600"', '""', '"a/b"', '"[1]"', '"{}"', '"{\\"a\\":1}"', '"\\u0041"',
        '"\\ud800"', '"\x7f"', '"\t"', "7", "0", "-0", "007", "1.50", "1e2", "null", "true", "[]", "{}",
        '{"a":1}', "123456789012345678901234567890"]  # fmt: skip
OTHERS = [
    "",
    ',"x":1',
    ',"x":{"id":9}',
    ',"id":8',
    ',"x":[{},[1,2]]',
    ',"x":1e999',
    ',"x":01',
    ',"x":.5',
    ',"x":NaN',
    ",",
]
OTHERS += [
    ',"x":"' + "y" * 1200 + '"',
    ',"x":' + "1" * 1200,
    ',"x":' + "1" * 499 + "." + "1" * 499 + "e-" + "0" * 499,
    ',"x":{"' + "y" * 50_001 + '":1}',
    ',"x":' + "[" * 1100 + "]" * 1100,
    ',"key":"/b"',
    ',"ID":8',
    ',"x":"NaN"',
    ',"x":[1, -Infinity]',
    ',"x":Inf',
    "} junk {",
    '}{"id":9',
    ',"x":/**/1',
    ",'x':1",
]
BYTES = [b'"', b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\\", b"0", b"-", b"e", b"\x00", b"\x80", b"\xff",
         b"\xc3\xa4", b"\xed\xa0\x80", b"\xc0\xaf", b"}{", b'"id":5,', b"\xef\xbb\xbf", b"\r",
         b"\t", b"\v", b"//", b"'"]  # fmt: skip


class Shape(NamedTuple):
    """The form of a topic's records, and its configuration."""

    record: str
    fields: str
    result_key: str
    window: str


SHAPES = {
    "flat, ISO times": Shape(
        '{"id":%(id)s,"timestamp":%(time)s,"page":%(key)s%(other)s}',
        "{id: id, key: page, event_time: timestamp}",
        "page",
        "{kind: tumbling_window, size: 60s}",
    ),
    "nested, milliseconds, two keys": Shape(
        '{"m":{"id":%(id)s,"at":%(time)s},"k":{"a":%(key)s,"b":"x"}%(other)s}',
        "{id: m.id, key: [k.b, k.a], event_time: {path: m.at, unit: ms}}",
        "[b, a]",
        "{kind: tumbling_window, size: 7s, offset: 3s, closed: right}",
    ),
    "key first, microseconds": Shape(
        ' {"key": %(key)s, "id" : %(id)s , "at":\t%(time)s%(other)s} '.replace("\t", " ").strip(),
        "{id: id, key: key, event_time: {path: at, unit: us}}",
        "page",
        "{kind: tumbling_window, size: 60s}",
    ),
    "an id of two fields": Shape(
        '{"line":%(id)s,"timestamp":%(time)s,"order":%(key)s%(other)s}',
        "{id: [order, line], key: line, event_time: timestamp}",
        "page",
        "{kind: tumbling_window, size: 60s}",
    ),
}


def config(shape: Shape, form: str = "json") -> Config:
    text = CONFIG % (form, shape.fields, shape.result_key, shape.window)
    if "id: [" in shape.fields:
        text = text.replace("ids: clickIds}", "id: [order, line]}, evidence: id")
    return loads(text, "/etc", [], {})


CONFIG = """
pipeline: plain
guarantee: exactly_once
kafka: {bootstrap_servers: "localhost:9092"}
inputs: [{topic: click, format: %s, fields: %s}]
outputs: [{topic: output, fields: {key: %s, window_start: windowStart, ids: clickIds}}]
oracle: %s
state: {path: /tmp/unused}
"""


def odd_records(shape: Shape, seed: int) -> list[bytes]:
    """Records with some fields from the pools. Every second record also has a changed byte."""
    chance = random.Random(seed)
    pools = {"id": IDS, "time": TIMES, "key": KEYS, "other": OTHERS}
    records = []
    for number in range(RECORDS):
        fields = usual_fields(shape, number)
        for name in chance.sample(list(pools), chance.choice([0, 1, 1, 1, 2])):
            fields[name] = chance.choice(pools[name])
        record = (shape.record % fields).encode("utf-8", "surrogatepass")
        if number % 2:
            at = chance.randrange(len(record) + 1)
            record = record[:at] + chance.choice(BYTES) + record[at + chance.choice([0, 0, 1]) :]
        records.append(record)
    return records


def usual_fields(shape: Shape, number: int) -> dict[str, str]:
    second = number // 97
    time = f'"2026-01-01T00:{second // 60:02}:{second % 60:02}.5"'
    if "unit" in shape.fields:
        time = str(1767225600000 + second * 1000)
    return {"id": str(number), "time": time, "key": f'"/page-{number % 3}"', "other": ""}


def mixed_records(shape: Shape) -> list[bytes]:
    """Regular records with unusual ones between them, some in groups and some alone."""
    odd = odd_records(shape, 2)
    usual = [(shape.record % usual_fields(shape, number)).encode() for number in range(6_000)]
    return [*usual[:2_500], *odd[:-20], *usual[2_500:4_000], *odd[-20:-10], *usual[4_000:], *odd[-10:]]


def batch(values: list[bytes]) -> pa.RecordBatch:
    numbers = range(len(values))
    columns = [values, [0 for _ in numbers], list(numbers), [5 for _ in numbers]]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)],
        schema=RECORD_SCHEMA,
    )


def rows_of(batches: EventBatches, values: list[bytes]) -> list[dict[str, Any]]:
    """The decoded row of each record."""
    found = pa.Table.from_batches(list(batches(iter([batch(values)])))).to_pylist()
    return sorted(found, key=lambda row: row["offset"])


def both_ways(setup: Config, limits: Limits = DEFAULT) -> tuple[EventBatches, EventBatches]:
    """The reader with Arrow, and the one without."""
    reader = event_reader(setup.inputs[0], setup.oracle, SLACK_US, "auto", limits=limits)
    assert isinstance(reader.batches, EventBatches)
    return reader.batches, replace(reader.batches, plain=None)


@pytest.mark.parametrize("name", SHAPES)
def test_the_rule_decodes_as_arrow_does(name: str) -> None:
    shape = SHAPES[name]
    with_arrow, by_the_rule = both_ways(config(shape))
    assert with_arrow.plain is not None
    outcome = Counter[str]()
    values = odd_records(shape, 1)
    for row, value in zip(rows_of(by_the_rule, values), values, strict=True):
        events = with_arrow.plain.read(batch([value]))
        taken = events is not None and len(events.rows) > 0
        decoded = row["event_time_us"] is not None
        outcome[f"{'taken' if taken else 'left'}, {'decoded' if decoded else 'undecodable'}"] += 1
        (alone,) = rows_of(with_arrow, [value])
        assert alone | {"offset": row["offset"]} == row, value
        assert decoded or not taken, value
    print(name, dict(outcome))
    assert outcome["taken, decoded"] > RECORDS // 8
    assert outcome["left, undecodable"] > RECORDS // 8


TIGHT = Limits(value_bytes=150, key_bytes=9, id_bytes=6)


@pytest.mark.parametrize(
    ("name", "limits"), [*((name, DEFAULT) for name in SHAPES), (next(iter(SHAPES)), TIGHT)], ids=[*"abcde"]
)
def test_records_decode_the_same_among_others(name: str, limits: Limits) -> None:
    shape = SHAPES[name]
    with_arrow, by_the_rule = both_ways(config(shape), limits)
    values = mixed_records(shape)
    wanted = rows_of(by_the_rule, values)
    assert rows_of(with_arrow, values) == wanted
    unexamined = {
        found[1] for row in wanted if (found := re.match(r"its (\w+) has \d+ bytes, above limits", row["key"] or ""))
    }
    assert unexamined == ({"value", "key", "id"} if limits is TIGHT else set())


def test_a_long_value_is_known_by_its_digest() -> None:
    shape = Shape(
        "", "{id: $value, key: $partition, event_time: $timestamp}", "page", "{kind: tumbling_window, size: 1m}"
    )
    with_arrow, by_the_rule = both_ways(config(shape, "text"))
    texts = ["7", "a" * 64, "\u00e4" * 32, "a" * 65, "\u00e4" * 33, "1" * 65, '{"a": 1}', *["b" * 1_000] * 2]
    rows = rows_of(with_arrow, [text.encode() for text in texts])
    assert rows == rows_of(by_the_rule, [text.encode() for text in texts])
    assert with_arrow.plain is not None
    events = with_arrow.plain.read(batch([text.encode() for text in texts]))
    assert events is not None
    assert len(events.rows) == len(texts)
    assert [row["text_id"] for row in rows[:3]] == [None, *texts[1:3]]
    assert [len(row["text_id"]) for row in rows[3:]] == [71, 71, 71, 8, 71, 71]
    assert len({row["text_id"] for row in rows}) == len(texts) - 1


@pytest.mark.parametrize(("name", "factor"), [(list(SHAPES)[1], 1000), (list(SHAPES)[2], 1)])
def test_times_at_the_limits_of_64_bits_do_not_decode(name: str, factor: int) -> None:
    """If a window or the slack were subtracted from such a time, it would wrap around to the far future and close every
    cell."""
    shape = SHAPES[name]
    setup = config(shape)
    farthest = 2**62 // factor
    times: list[int | str] = [2**63 - 1, farthest + 1, farthest, -farthest, -farthest - 1, -(2**63) // factor, -(2**63)]
    for batches, more in zip(both_ways(setup), ([], [f'"-{farthest + 1}.5"', f'"{farthest + 1}.5"']), strict=True):
        records = [(shape.record % {**usual_fields(shape, 1), "time": time}).encode() for time in [*times, *more]]
        found = {row["event_time_us"] for row in rows_of(batches, [record for record in records for _ in range(60)])}
        assert found == {None, farthest * factor, -farthest * factor}
        decoded = pa.Table.from_batches(list(batches(iter([batch(records)]))))
        facts = facts_of_events(decoded, 0, setup.oracle, SLACK_US, 2**62, with_first_event=False)
        reaches = [row["reach_us"] for row in facts.to_pylist() if row["status"] == DECODED]
        assert len(reaches) == 2
        assert all(reach < time for reach, time in zip(sorted(reaches), sorted(found - {None}), strict=True))


def test_hashes_are_those_of_spark(spark: SparkSession) -> None:
    texts = ["", "a", "ä" * 20, "x" * 4_096, *(f"{number:036}" for number in range(50))]
    hashed = spark.createDataFrame([(text,) for text in texts], "t string")
    numbers_of_texts = [row[0] for row in hashed.select(F.xxhash64(F.lit("streamproof"), "t")).collect()]
    assert text_numbers(pa.array(texts)).tolist() == numbers_of_texts
    of_kinds = {
        "crc32": F.crc32("t"),
        "md5": F.conv(F.substring(F.md5("t"), 1, 16), 16, 10),
        "xxhash64": F.xxhash64("t"),
    }
    for kind, column in of_kinds.items():
        found = [signed(int(row[0])) for row in hashed.select(column).collect()]
        assert hashes_of(pa.array(texts), cast("Hash", kind)).tolist() == found
    chance = np.random.default_rng(3)
    numbers = np.concatenate([chance.integers(-(2**63), 2**63 - 1, 500), [0, 1, -1, 2**63 - 1, -(2**63)]])
    frame = spark.createDataFrame([(int(number),) for number in numbers], "n bigint")
    # These are the statements of docs/evidence.md: exact, so that nothing wraps.
    [sums] = frame.selectExpr(
        "sum(CAST(n AS DECIMAL(20)))", "sum(pmod(CAST(n AS DECIMAL(20)) * n, 18446744073709551616))"
    ).collect()
    of_each = (
        [of_integer(int(number), Digest(is_squared=is_squared)) for number in numbers] for is_squared in (False, True)
    )
    assert [signed(int(total)) for total in sums] == [signed(sum(each)) for each in of_each]
    spark.conf.set("spark.sql.ansi.enabled", "false")  # the product wraps
    rows = frame.select("n", F.xxhash64("n").alias("a"), (F.col("n") * F.col("n")).alias("b")).collect()
    spark.conf.unset("spark.sql.ansi.enabled")
    asked = np.array([row["n"] for row in rows], dtype=np.int64)
    assert [row["a"] for row in rows] == hash_a(asked).tolist()
    assert [row["b"] for row in rows] == hash_b(asked).tolist()

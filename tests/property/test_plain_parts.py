"""Batches through Arrow against one record at a time, for fields from the record's key, headers and timestamp, for text
ids, and for other time formats.
"""

from __future__ import annotations

import base64
import math
import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.property.test_plain_events import BYTES, IDS, KEYS, OTHERS, TIMES
from tests.worlds import some
from validator.codecs.batches import EventBatches, ResultBatches
from validator.codecs.columns import DECODED, TOMBSTONE, UNDECODABLE, UNEXAMINED
from validator.codecs.one_record import OmittedPart, Record, RecordDecoder, Result, Tombstone, Unexamined
from validator.codecs.plain_fields import Readers
from validator.codecs.plain_times import instants_of_texts
from validator.codecs.times import Rounding, instant_of_text
from validator.config.model import Input, Limits, Output
from validator.model.id_spaces import IdSpace
from validator.oracles.tumbling_window import TumblingWindow
from validator.stream.decode import plain_events_of

pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary()), ("size", pa.int32())]))
RAW: list[bytes | None] = [None, b"", b"7", b"-0", b"007", b"a", b"\xff", "ä".encode(), b"9223372036854775808",
                           b"-9223372036854775808", b"1767225600000", b"2026-01-01T00:00:00Z", b"long enough",
                           b"2026-01-01T00:00:00.1234567+02:00", b"12345678901234567890", b"[1]"]  # fmt: skip
TEXTS = ['"019b-11"', '"019b-12"', '"\\u0061b"', '"a\\nb"', '"9223372036854775808"', '"12"', '"[1]"', '"\\ud800"', "5"]
KEYS_AND_NONE = [*KEYS, "null", "null", '"[null]"']
LIMITS = Limits(value_bytes=150, key_bytes=9, id_bytes=10)
STAMPS = [-1_000, 2**62, 2**62 + 1, -(2**62), -(2**62) - 1, 2**63 - 1, -(2**63)]
EVENTS: list[dict[str, Any]] = [
    {"id": "id", "key": "page", "event_time": "at"},
    {"id": "$header.id", "key": ["$key", "page"], "event_time": "at"},
    {"id": "id", "key": "$key", "event_time": "$timestamp"},
    {"id": "$offset", "key": "$partition", "event_time": {"path": "$header.id", "unit": "ms"}},
    {"id": "$key", "key": "$header.id", "event_time": "$header.id"},
    {"id": "id", "key": "page", "event_time": {"path": "at", "unit": "ns"}},
]


def records(chance: random.Random, number: int, *, texts: bool, numbers: bool) -> pa.RecordBatch:
    values: list[bytes | None] = []
    for at in range(number):
        time = str(1767225600000 + at) if numbers else f'"2026-01-01T00:00:{at % 60:02}.{at % 1000:03}+02:00"'
        given = {"id": f'"019b-{at}"' if texts else str(at), "time": time, "page": f'"/{at % 3}"', "other": ""}
        pools = {"id": [*IDS, *TEXTS], "time": TIMES, "page": KEYS_AND_NONE, "other": OTHERS}
        for name in chance.sample(list(pools), chance.choice([0, 0, 0, 1, 2])):
            given[name] = chance.choice(pools[name])
        space = chance.choice(["", "", "\n  ", "\t"])
        shape = '{%(s)s"id":%(id)s,%(s)s"page": %(page)s,"at":%(time)s,"ids":[%(id)s]%(other)s%(s)s}'
        value = (shape % {**given, "s": space}).encode("utf-8", "surrogatepass")
        if chance.random() < 0.1:
            place = chance.randrange(len(value) + 1)
            value = value[:place] + chance.choice(BYTES) + value[place + chance.choice([0, 0, 1]) :]
        values.append(chance.choice([None, b"", b"\x00too large: 5", value]) if chance.random() < 0.1 else value)
    keys = [chance.choice(RAW) if chance.random() < 0.3 else b"/k" for _ in values]
    of_headers = [chance.sample(["id", "id", "x"], chance.choice([0, 1, 1, 2, 3])) for _ in values]
    headers = [[{"key": name, **content("value", "size", chance.choice(RAW))} for name in row] for row in of_headers]
    parts = [content("key", "key_size", key) for key in keys]
    columns = [
        pa.array(values, pa.binary()),
        pa.array([at % 2 for at in range(number)], pa.int32()),
        pa.array(range(number), pa.int64()),
        pa.array([chance.choice(STAMPS) if chance.random() < 0.1 else at * 1000 for at in range(number)], pa.int64()),
        pa.array([part["key"] for part in parts], pa.binary()),
        pa.array([part["key_size"] for part in parts], pa.int32()),
        pa.array(headers, HEADERS),
    ]
    names = ["value", "partition", "offset", "time_us", "key", "key_size", "headers"]
    return pa.RecordBatch.from_arrays(columns, names)


def content(name: str, size: str, given: bytes | None) -> dict[str, Any]:
    """A key or header as `validator.stream.decode.cut` returns it: null if it is above its limit, and its size."""
    return {name: None if given is not None and len(given) > 30 else given, size: None if given is None else len(given)}


def singly(batches: EventBatches, batch: pa.RecordBatch) -> list[tuple[object, ...]]:
    """One row per record: offset, id, key, time and status. An undecodable record has null in their place."""
    rows = pa.Table.from_batches(list(batches(iter([batch])))).to_pylist()
    return sorted(
        tuple(row[name] for name in ("offset", "id", "text_id", "key", "event_time_us", "status")) for row in rows
    )


@pytest.mark.parametrize("fields", some(EVENTS), ids=str)
@pytest.mark.parametrize("id_type", ["auto", "integer", "string"])
@pytest.mark.parametrize("limits", [Limits(), LIMITS], ids=["usual", "tight"])
@pytest.mark.parametrize("closed_right", [False, True])
def test_an_event_decodes_the_same_alone_and_among_others(
    fields: dict[str, Any], id_type: str, limits: Limits, closed_right: bool
) -> None:
    topic = Input.model_validate({"topic": "click", "fields": fields})
    oracle = TumblingWindow.of(60_000_000, 0, closed="right" if closed_right else "left")
    chance = random.Random(str((fields, id_type, closed_right)))
    missing_key = chance.choice(["undecodable", "skip", "owed"])
    decoder = RecordDecoder(topic, id_type, limits=limits, rounding=oracle.rounding, missing_key=missing_key)
    decoded = 0
    for space in (None, IdSpace("click", keeps_integers=True), IdSpace("click", keeps_integers=False)):
        plain = plain_events_of(topic, oracle, id_type, space, limits, missing_key)
        for number in (*[1] * 40, *[3] * 20, 700):
            batch = records(chance, number, texts=chance.random() < 0.5, numbers="unit" in str(fields))
            wanted = {row[0]: row for row in singly(EventBatches(decoder, None, space), batch)}
            found = singly(EventBatches(decoder, plain, space), batch)
            assert {row[0] for row in found} == set(wanted)
            assert len(found) == number
            for row in found:
                assert row == wanted[row[0]], batch["value"][int(str(row[0]))]
                decoded += row[4] is not None
    assert decoded > 20 or (id_type, limits) != ("auto", Limits()), decoded


DOUBLES = [0.0, -0.0, 1.0, 1.5, -2.25, 1e15, 1e16, 2.0**53, 2.0**53 - 1, 2.0**63, 1e22, 1e300, 1e-4, 1e-5, 1e-6, 0.1,
           1 / 3, 123456.789, 1767225600000.0, 16777217.0, 3.4e38, math.nan, math.inf, -math.inf, 5e-324]  # fmt: skip
PRIMITIVES: dict[str, list[bytes]] = {
    "double": [struct.pack(">d", number) for number in DOUBLES],
    "float": [np.array(number).astype(">f4").tobytes() for number in DOUBLES if not 3.5e38 < number < math.inf],
    "long": [struct.pack(">q", number) for number in (0, 7, -1, 2**62, -(2**63))],
    "short": [struct.pack(">h", number) for number in (0, 7, -1)],
    "boolean": [b"\0", b"\1", b"\2"],
    "bytes": [base64.b64decode("1234"), base64.b64decode("true"), b"a", b"\xff\0", bytes(40)],
    "uuid": [b"019B0000-0000-7000-8000-000000000001", b"1-1-1-1-1"],
    "text": [b"1.5", b"7", b"a"],
    "time_windowed": [b"a" + struct.pack(">q", 5), struct.pack(">q", -5)],
    "windowed_text": [b"[a@1/2]", b"[a@b@1/2]", b"[@1/2]", b"[a@2/1]", b"[a@1/99999999999999999999]", b"[a\n@-5/07]",
                      b"[\xff@1/2]", b"[\v@1/2]", b"[a@1/2]]"],
}  # fmt: skip
"""Format -> the bytes of values."""


@pytest.mark.parametrize("kind", PRIMITIVES)
@pytest.mark.parametrize("id_type", ["auto", "integer", "string"])
@pytest.mark.parametrize(
    "fields",
    [
        {"id": "$key", "key": "$value", "event_time": "$timestamp"},
        {"id": "$value", "key": "$key", "event_time": "$timestamp"},
        {"id": ["$offset", "$key"], "key": ["$key", "$value"], "event_time": {"path": "$value", "unit": "ms"}},
    ],
    ids=str,
)
def test_primitives_decode_the_same_alone_and_among_others(kind: str, id_type: str, fields: dict[str, Any]) -> None:
    given = {"format": "text" if "windowed" in kind else kind, "key_format": kind}
    topic = Input.model_validate({"topic": "click", "fields": fields, **given})
    oracle, chance, decoded = TumblingWindow.of(60_000_000), random.Random(kind), 0
    decoder = RecordDecoder(topic, id_type, rounding=oracle.rounding)
    plain = plain_events_of(topic, oracle, id_type, None, readers=Readers(decoder.reader, decoder.key_reader))
    pool = [*PRIMITIVES[kind], b"123", b"", b"12345678"]
    for number in (*[1] * 10, *[3] * 5, 60):
        parts = [(chance.choice(pool), chance.choice(pool)) for _ in range(number)]
        batch = records(chance, number, texts=False, numbers=False)
        for name, column in zip(("value", "key"), zip(*parts, strict=True), strict=True):
            batch = batch.set_column(batch.schema.get_field_index(name), name, pa.array(column, pa.binary()))
        sizes = pa.array([len(key) for _, key in parts], pa.int32())
        batch = batch.set_column(batch.schema.get_field_index("key_size"), "key_size", sizes)
        wanted = singly(EventBatches(decoder, None, None), batch)
        assert singly(EventBatches(decoder, plain, None), batch) == wanted
        decoded += sum(row[4] is not None for row in wanted)
    assert decoded or id_type == "integer" or "unit" in str(fields)


@pytest.mark.parametrize("id_type", some(["auto", "integer", "string"]))
@pytest.mark.parametrize("limits", [None, LIMITS], ids=["none", "tight"])
@pytest.mark.parametrize(
    "fields",
    [
        {"key": "page", "window_start": "at", "ids": "ids"},
        {"key": ["$key", "page"], "window_start": "$timestamp", "ids": "ids"},
        {"key": "$header.id", "window_start": {"path": "at", "unit": "ns"}, "id": "id"},
        {"key": "page", "window_start": "at", "window_end": "$timestamp", "ids": "$key"},
    ],
    ids=str,
)
def test_a_result_decodes_the_same_alone_and_among_others(
    fields: dict[str, Any], id_type: str, limits: Limits | None
) -> None:
    evidence = {"evidence": "id"} if "id" in fields else {}
    chance = random.Random(str((fields, id_type)))
    topic, missing_key = (
        Output.model_validate({"topic": "o", "fields": fields, **evidence}),
        chance.choice(["", "owed"]),
    )
    decoder = RecordDecoder(topic, id_type, None, limits, missing_key=missing_key or None)
    of_kind = {Result: DECODED, Tombstone: TOMBSTONE, Unexamined: UNEXAMINED}
    for spaces in ([], [IdSpace("in", keeps_integers=False)], [IdSpace("in", keeps_integers=True)]):
        for number in (*[1] * 60, *[3] * 20, 1_500):
            batch = records(chance, number, texts=chance.random() < 0.5, numbers="unit" in str(fields))
            parts = list(ResultBatches(decoder, spaces)(iter([batch])))
            found = pa.Table.from_batches(parts).sort_by("offset").to_pylist()
            assert len(found) == number
            for row, given in zip(found, batch.to_pylist(), strict=True):
                headers = [(header["key"], part(header["value"], header["size"])) for header in given["headers"]]
                place = (given["time_us"], given["partition"], given["offset"])
                key = part(given["key"], given["key_size"])
                wanted = decoder.decode(Record(given["value"], key, headers, *place))
                assert row["status"] == of_kind.get(type(wanted), UNDECODABLE), given
                if isinstance(wanted, Result):
                    ids = [spaces[0].named(id_) if spaces else id_ for id_ in wanted.ids[0]]
                    assert (row["key"], row["window_start_us"]) == (wanted.key, wanted.window_start_us), given
                    assert row["ids"] == [id_ for id_ in ids if type(id_) is int], given
                    assert row["text_ids"] == [id_ for id_ in ids if type(id_) is str], given


def part(given: bytes | None, size: int | None) -> bytes | OmittedPart | None:
    return OmittedPart(size) if given is None and size is not None else given


def odd_time(chance: random.Random, form: int) -> str:
    year = chance.choice([chance.randrange(10_000), 2024, 2000, 1900, 0])
    day = f"{year:04}-{chance.randrange(14):02}-{chance.choice([chance.randrange(33), 28, 29, 30, 1]):02}"
    text = f"{day}{chance.choice('TTTt ')}{chance.randrange(26):02}:{chance.randrange(62):02}:{chance.randrange(62):02}"
    if form % 10:
        text += chance.choice("...,") + "".join(chance.choice("0005123") for _ in range(form % 10))
    offset = f"{chance.choice('+-')}{chance.randrange(21):02}"
    minute = f"{chance.randrange(62):02}"
    text += ["", "Z", "z", offset, offset + minute, f"{offset}:{minute}"][form // 10]
    if chance.random() < 0.1:
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice("0:-+.Z \u0663x9") + text[at + chance.choice([0, 1]) :]
    return text


@pytest.mark.parametrize("rounding", ["down", "up"])
def test_a_column_of_times_is_read_as_each_of_them(rounding: Rounding) -> None:
    chance = random.Random(3)
    for form in range(60):
        forms = range(60) if form % 3 == 0 else [form]
        texts = [*[odd_time(chance, form) for _ in range(300)], *[odd_time(chance, other) for other in forms], None, ""]
        instants, known = instants_of_texts(pa.array(texts, pa.string()), rounding)
        for text, instant, is_known in zip(texts, instants.tolist(), known.tolist(), strict=True):
            wanted = None if text is None else instant_of_text(text, rounding)
            assert (instant if is_known else None) == (wanted if isinstance(wanted, int) else None), text

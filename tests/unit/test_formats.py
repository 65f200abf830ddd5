"""Texts, the primitive serializers and windowed keys: each against an encoder of its own, in values and in keys, and
whole batches against the rule."""

from __future__ import annotations

import json
import math
import pickle
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit import decoders
from tests.unit.decoders import windowed
from validator.codecs.one_record import Event, Record, RecordDecoder, Result, Undecodable
from validator.model.field_values import TypedTime, Windowed
from validator.settings.formats.seam import ColumnReader, Part, Unreadable, ValueReader
from validator.settings.topics import Input, Output

pytestmark = pytest.mark.unit

MS: Final = 1_767_225_600_000


def reader(given: object, part: Part = "value") -> ValueReader:
    """A reader as a worker gets it."""
    entry = Input.model_validate(
        {"topic": "i", "format": given, "fields": {"id": "$offset", "key": "$offset", "event_time": "$timestamp"}}
    )
    found: ValueReader = pickle.loads(pickle.dumps(entry.format.reader(part, {})))
    return found


integers = st.one_of(st.sampled_from([0, 1, -1]), st.integers(-(2**63), 2**63 - 1))
names = st.text(st.sampled_from("ab@/[]→\n 1"), max_size=5)


@dataclass(frozen=True)
class Case:
    """``written``: pairs of a value, and its bytes by another encoder. ``decoded``: another decoder, which raises an
    error for illegal bytes. ``illegal``: bytes, and the reason."""

    format: object
    written: st.SearchStrategy[tuple[object, bytes]]
    decoded: Callable[[bytes], object]
    illegal: tuple[tuple[bytes, str], ...] = ()


def of_struct(code: str, least: int, most: int) -> st.SearchStrategy[tuple[object, bytes]]:
    """Java's ByteBuffer is big-endian."""
    return st.integers(least, most).map(lambda number: (number, struct.pack(code, number)))


def of_float(code: str, width: int) -> st.SearchStrategy[tuple[object, bytes]]:
    return st.floats(width=width, allow_nan=False).map(lambda number: (number, struct.pack(code, number)))


of_single: Final = st.floats(width=32, allow_nan=False, allow_infinity=False).map(
    lambda number: (decoders.single(struct.pack(">f", number)), struct.pack(">f", number))
)


def every_raw_type() -> tuple[dict[str, Any], st.SearchStrategy[tuple[object, bytes]]]:
    """A format with a field of each type and byte order, and values in it."""
    fields: dict[str, Any] = {}
    codes: dict[str, str] = {}
    offset = 0
    for kind, size, order in decoders.EVERY_TYPE:
        code = {"int": "bhiq", "uint": "BHIQ", "float": "  fd"}[kind.rstrip("0123456789")][size.bit_length() - 1]
        fields[f"{kind}_{order}"] = {"offset": offset, "type": kind, "byte_order": order}
        codes[f"{kind}_{order}"] = (">" if order == "big" else "<") + code
        offset += size
    fields["text"] = {"offset": offset, "type": "text", "size": 2}
    fields["bytes"] = {"offset": offset + 2, "type": "bytes", "size": 2}

    def whole(one: tuple[bytes, str, bytes]) -> tuple[object, bytes]:
        given, text, rest = one
        found: dict[str, object] = {}
        raw, at = b"", 0
        for name, code in codes.items():
            size = struct.calcsize(code)
            part, at = given[at : at + size], at + size
            [number] = struct.unpack(code, part)
            if number != number or abs(number) == math.inf:
                number, part = 0.0, bytes(size)
            in_order = part if code[0] == ">" else part[::-1]
            found[name] = decoders.single(in_order) if code[1] == "f" else number
            raw += part
        return {**found, "text": text, "bytes": rest}, raw + text.encode() + rest + b"more"

    two = st.binary(min_size=2, max_size=2)
    given = st.tuples(st.binary(min_size=offset, max_size=offset), st.sampled_from(["ab", "é", "1 "]), two)
    return {"kind": "raw", "fields": fields}, given.map(whole)


def forms(value: object, chance: random.Random) -> list[bytes]:
    """Every form that the MessagePack specification has for a value. Its parts have any of theirs."""
    match value:
        case None | True | False:
            return [bytes([{None: 0xC0, False: 0xC2, True: 0xC3}[value]])]
        case TypedTime():
            seconds, nanoseconds = divmod(value, 10**9)
            found = [struct.pack(">BBbIq", 0xC7, 12, -1, nanoseconds, seconds)]
            if 0 <= seconds < 2**34:
                found.append(struct.pack(">BbQ", 0xD7, -1, nanoseconds << 34 | seconds))
            if 0 <= seconds < 2**32 and not nanoseconds:
                found.append(struct.pack(">BbI", 0xD6, -1, seconds))
            return found
        case int():
            sizes = [(0xCC + n, 0, 256 ** (1 << n), f">B{code}") for n, code in enumerate("BHIQ")]
            sizes += [(0xD0 + n, -(256 ** (1 << n)) // 2, 256 ** (1 << n) // 2, f">B{c}") for n, c in enumerate("bhiq")]
            short = [struct.pack(">b", value)] if -32 <= value < 128 else []
            return short + [struct.pack(form, byte, value) for byte, low, end, form in sizes if low <= value < end]
        case float():
            return [struct.pack(">Bd", 0xCB, value)]
        case str():
            raw = value.encode()
            return headed(raw, len(raw), (0xA0, 32), (0xD9, 0xDA, 0xDB))
        case bytes():
            return headed(value, len(value), (0, 0), (0xC4, 0xC5, 0xC6))
        case list():
            return headed(
                b"".join(chance.choice(forms(one, chance)) for one in value), len(value), (0x90, 16), b"-\xdc\xdd"
            )
        case dict():
            pairs = b"".join(chance.choice(forms(one, chance)) for pair in value.items() for one in pair)
            return headed(pairs, len(value), (0x80, 16), b"-\xde\xdf")
    raise AssertionError(value)


def headed(content: bytes, size: int, short: tuple[int, int], codes: Sequence[int]) -> list[bytes]:
    found = [bytes([short[0] | size])] if size < short[1] else []
    heads = zip(codes, (">BB", ">BH", ">BI"), (256, 2**16, 2**32), strict=True)
    found += [struct.pack(form, code, size) for code, form, end in heads if size < end and code != ord("-")]
    return [head + content for head in found]


scalars: Final = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=300)
    | st.binary(max_size=300) | st.integers(-(2**62), 2**62).map(lambda number: TypedTime(number, "ns"))
)  # fmt: skip
trees: Final = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=20), max_leaves=20
)

json_texts: Final = st.text(st.sampled_from('a"\\/\n\t\x00é→😀'), max_size=5)
json_values: Final = st.recursive(
    st.none() | st.booleans() | integers | json_texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(json_texts, inner, max_size=3),
    max_leaves=8,
)

CASES: Final = {
    "msgpack": Case(
        "msgpack",
        st.tuples(trees, st.randoms(use_true_random=False)).map(
            lambda one: (one[0], one[1].choice(forms(one[0], one[1])))
        ),
        decoders.messagepack,
        (
            (b"", "is not MessagePack, or is cut off"),
            (b"\xc1", "is not MessagePack, or is cut off"),
            (b"\x92\x01", "is not MessagePack, or is cut off"),
            (b"\x81\x90\x01", "is not MessagePack, or is cut off"),
            (b"\x91" * 5_000 + b"\x01", "is not MessagePack, or is cut off"),
            (b"\x01\x02", "has bytes after its first value"),
            (b"\xa1\xff", "has a text that is not UTF-8"),
        ),
    ),
    "json_schema": Case(
        "json_schema",
        st.tuples(json_values, st.booleans(), st.integers(0, 2**32 - 1)).map(
            lambda one: (one[0], struct.pack(">BI", 0, one[2]) + json.dumps(one[0], ensure_ascii=one[1]).encode())
        ),
        decoders.json_after_prefix,
        (
            (b"{}", "does not begin with Confluent's wire prefix (a zero byte and the id of a schema)"),
            (b"\0\0\0\0\1", "does not begin with Confluent's wire prefix (a zero byte and the id of a schema)"),
            (b"\0\0\0\0\1{} 2", "has content after its first JSON value, at character 2"),
        ),
    ),
    "long": Case(
        "long",
        of_struct(">q", -(2**63), 2**63 - 1),
        decoders.number(">q"),
        ((b"\0" * 7, "has 7 bytes, and the format has 8"), (b"\0" * 9, "has 9 bytes, and the format has 8")),
    ),
    "int": Case(
        "int",
        of_struct(">i", -(2**31), 2**31 - 1),
        decoders.number(">i"),
        ((b"12345678", "has 8 bytes, and the format has 4"),),
    ),
    "short": Case(
        "short",
        of_struct(">h", -(2**15), 2**15 - 1),
        decoders.number(">h"),
        ((b"1", "has 1 bytes, and the format has 2"),),
    ),
    "float": Case("float", of_single, decoders.single, ((b"12345678", "has 8 bytes, and the format has 4"),)),
    "double": Case(
        "double", of_float(">d", 64), decoders.number(">d"), ((b"1234", "has 4 bytes, and the format has 8"),)
    ),
    "boolean": Case(
        "boolean", st.booleans().map(lambda b: (b, bytes([b]))), decoders.boolean, ((b"\2", "is not one byte, 0 or 1"),)
    ),
    "uuid": Case(
        "uuid",
        st.uuids().map(lambda one: (str(one), str(one).encode())),
        decoders.uuid_text,
        ((b"1-1-1-1-1", "is not the text of a UUID"), (bytes(16), "is not the text of a UUID")),
    ),
    "bytes": Case("bytes", st.binary(min_size=1).map(lambda raw: (raw, raw)), bytes),
    "text": Case(
        "text",
        names.map(lambda text: (text, text.encode())),
        decoders.text,
        ((b"a\xff", "is not UTF-8 text, at byte 1"),),
    ),
    "text with groups": Case(
        {"kind": "text", "pattern": r"(?P<key>[a-z]+)=(?P<n>-?\d+)?;.*"},
        st.tuples(st.text("abc", min_size=1), st.integers(), st.text("xé", max_size=2)).map(
            lambda one: ({"key": one[0], "n": str(one[1])}, f"{one[0]}={one[1]};{one[2]}".encode())
        ),
        decoders.groups,
        (
            (b"=1;", "is a text that the pattern does not match"),
            (b"a=1;\n", "is a text that the pattern does not match"),
        ),
    ),
    "raw": Case(
        {
            "kind": "raw",
            "fields": {
                "n": {"offset": 8, "type": "int64"},
                "small": {"offset": 2, "type": "uint16", "byte_order": "little"},
                "name": {"offset": 4, "type": "text", "size": 3},
                "rest": {"offset": 7, "type": "bytes", "size": 1},
            },
        },
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**16 - 1), st.binary(min_size=1, max_size=1)).map(
            lambda one: (
                {"n": one[0], "small": one[1], "name": "abc", "rest": one[2]},
                b"xx" + struct.pack("<H", one[1]) + b"abc" + one[2] + struct.pack(">q", one[0]) + b"more",
            )
        ),
        decoders.raw_fields,
        (
            (bytes(15), "has 15 bytes, and the field n ends at byte 16"),
            (b"\xff" * 16, "has a field name that is not UTF-8 text"),
        ),
    ),
    "raw of every type": Case(
        *every_raw_type(),
        decoders.raw_of_every_type,
        ((bytes(58), "has 58 bytes, and the field uint64_little ends at byte 60"),),
    ),
    "time windows": Case(
        {"kind": "time_windowed", "inner": "long", "size": "15s"},
        st.tuples(integers, st.integers(0, 2**62)).map(
            lambda one: (windowed(one[1], one[1] + 15_000, one[0]), struct.pack(">qq", *one))
        ),
        decoders.time_window(decoders.number(">q"), 15_000),
        ((b"\0" * 7, "has 7 bytes, fewer than the window"), (b"\0" * 10, "has 2 bytes, and the format has 8")),
    ),
    "time windows of texts": Case(
        "time_windowed",
        st.tuples(names, st.integers(0, 2**62)).map(
            lambda one: (windowed(one[1], None, one[0]), one[0].encode() + struct.pack(">q", one[1]))
        ),
        decoders.time_window(decoders.text),
    ),
    "sessions": Case(
        "session_windowed",
        st.tuples(names, st.integers(0, 2**62), st.integers(0, 2**61)).map(
            lambda one: (
                windowed(one[1], one[1] + one[2], one[0]),
                one[0].encode() + struct.pack(">qq", one[1] + one[2], one[1]),
            )
        ),
        decoders.session,
        ((b"a" + struct.pack(">qq", 1, 2), "has a session that ends before it begins"),),
    ),
    "windows as text": Case(
        "windowed_text",
        st.tuples(names, st.integers(0, 2**62), st.integers(0, 2**61)).map(
            lambda one: (
                windowed(one[1], one[1] + one[2], one[0]),
                f"[{one[0]}@{one[1]}/{one[1] + one[2]}]".encode(),
            )
        ),
        decoders.window_text,
        (
            (b"[a@1]", "is not a text of the form [key@start/end]"),
            (b"[a@2/1]", "has a window that ends before it begins"),
        ),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_value_of_another_encoder_is_read_unchanged(case: Case) -> None:
    read = reader(case.format)

    @given(case.written)
    def same(one: tuple[object, bytes]) -> None:
        assert read.value(one[1]) == one[0]
        assert type(read.value(one[1])) is type(one[0])

    same()
    for raw, reason in case.illegal:
        with pytest.raises(Unreadable) as refused:
            read.value(raw)
        assert str(refused.value) == reason


def damaged(raw: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(raw) + 1)
    return chance.choice((raw[:at], raw + chance.randbytes(1), raw[:at] + chance.randbytes(1) + raw[at + 1 :], raw))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_damaged_bytes_are_read_as_by_another_decoder(case: Case) -> None:
    read = reader(case.format, "key")
    count = {True: 0, False: 0}

    @given(case.written, st.randoms(use_true_random=False))
    @settings(max_examples=300, deadline=None)
    def same(one: tuple[object, bytes], chance: random.Random) -> None:
        raw = damaged(one[1], chance)
        try:
            found = repr(read.value(raw))
        except Unreadable:
            found = "illegal"
        try:
            wanted = repr(case.decoded(raw))
        except (ValueError, LookupError, TypeError, struct.error):
            wanted = "illegal"
        assert found == wanted, raw
        count[found == "illegal"] += 1

    same()
    assert min(count.values()) > 10 or case.format == "bytes", count


def test_a_float_has_the_digits_that_java_writes() -> None:
    read = reader("float")
    found = [read.value(struct.pack(">f", number)) for number in (0.1, 1e10, 16777216.0, 3.4e38)]
    assert found == [0.1, 1e10, 16777216.0, 3.4e38]
    assert math.isnan(read.value(struct.pack(">f", math.nan)))  # type: ignore[arg-type]


def paths_of(found: object) -> Iterator[tuple[str, ...]]:
    if isinstance(found, Windowed):
        yield ("window_start",)
        if found.window_end is not None:
            yield ("window_end",)
        found = found.key
    yield from [(name,) for name in found] if isinstance(found, dict) else [()]


def at(found: object, path: tuple[str, ...]) -> object:
    if isinstance(found, Windowed):
        found = getattr(found, path[0]) if path and path[0].startswith("window_") else found.key
    return found[path[0]] if isinstance(found, dict) and path else found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_batches_are_read_as_single_values(case: Case) -> None:
    read = reader(case.format)
    if not isinstance(read, ColumnReader):
        return
    places: set[tuple[str, ...]] = set()

    @given(st.lists(st.one_of(case.written, st.binary(max_size=20).map(lambda raw: (None, raw))), max_size=6))
    def same(written: list[tuple[object, bytes]]) -> None:
        found = []
        for _, raw in written:
            try:
                found.append(read.value(raw))
            except Unreadable:
                found.append(None)
        places.update(path for one in found if one is not None for path in paths_of(one))
        values = pa.array([raw for _, raw in written], pa.binary())
        # A slice has its first value elsewhere.
        padded = pa.array([b"12345678901234567", *values.to_pylist()], pa.binary()).slice(1)
        columns = read.read_columns(padded, sorted(places), ())
        for path in places if columns is not None else ():
            assert columns is not None
            cells = columns[path].cast(pa.int64()) if pa.types.is_timestamp(columns[path].type) else columns[path]
            for one, cell in zip(found, cells.to_pylist(), strict=True):
                assert cell is None or cell == at(one, path)
        for number, (wanted, _) in enumerate(written):
            if wanted is not None and columns is not None and "\v" not in str(wanted):
                left = [at(wanted, path) for path in columns if not columns[path][number].is_valid]
                assert all(one in ("", None) or (type(one) is int and one >= 2**63) for one in left)

    same()
    assert places


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?P<a>\S+) (?P<b>.*)",
        r"(?P<a>[^ ]*?) ?(?P<b>\w*)",
        r"(?:(?P<a>a)|(?P<b>\d|é))*.*",
        r"(?i)(?P<a>[a-k]+)(?P<b>.*)",
        r"(?P<a>a{,2})(?P<b>.*)",
        r"(?P<a>[[:a]*)(?P<b>.*)",
        r"(?P<a>a|ab)(?P<b>c|bcd)?.*",
        r"(?P<a>.*)$(?P<b>\s*)",
        r"(?P<a>(?=.)\w*)(?P<b>.*)",
        r"(?P<a>\w+)\b(?P<b>\s?[^\d]*)",
    ],
)
@pytest.mark.filterwarnings("ignore:Possible nested set")
def test_a_batch_of_texts_has_the_groups_that_python_finds(pattern: str) -> None:
    read = reader({"kind": "text", "pattern": pattern})
    assert isinstance(read, ColumnReader)

    @given(st.lists(st.text(st.sampled_from("ab1cd é \n\v\t:[{,2}K\u212a"), max_size=7), max_size=8))
    def same(texts: list[str]) -> None:
        values = pa.array([text.encode() for text in texts], pa.binary())
        columns = read.read_columns(values, [("a",), ("b",)], ())
        for name in "ab" if columns is not None else "":
            assert columns is not None
            for text, cell in zip(texts, columns[name,].to_pylist(), strict=True):
                if cell is not None:
                    found = read.value(text.encode())
                    assert isinstance(found, dict)
                    assert found[name] == cell, text

    same()


def event(**given: Any) -> RecordDecoder:
    fields = {"id": "id", "key": "page", "event_time": {"path": "at", "unit": "ms"}, **given.pop("fields", {})}
    return RecordDecoder(Input.model_validate({"topic": "i", "fields": fields, **given}))


@pytest.mark.parametrize(
    ("decoder", "record", "wanted"),
    [
        (
            event(format="long", fields={"id": "$value", "key": "$key", "event_time": "$timestamp"}),
            Record(struct.pack(">q", -5), b"a", timestamp_us=7),
            Event(-5, "a", 7),
        ),
        (
            event(
                format={"kind": "text", "pattern": r"(?P<id>\w+) (?P<page>\S+) (?P<at>\d+)"},
                fields={"id": "id"},
            ),
            Record(f"x7 /a {MS}".encode()),
            Event("x7", "/a", MS * 1000),
        ),
        (
            event(
                key_format="json", fields={"id": "$value", "key": ["$key.k.1", "$key.n"], "event_time": "$timestamp"}
            ),
            Record(b" 12 ", b'{"k":["a","b"],"n":1.50}', timestamp_us=7),
            Event(12, '["b","1.5"]', 7),
        ),
        (
            event(fields={"id": "$value.0", "key": "$value.1", "event_time": {"path": "$value.2", "unit": "ms"}}),
            Record(b'[7,"a",1]'),
            Event(7, "a", 1000),
        ),
        (
            event(key_format="int", fields={"key": "$key"}),
            Record(b'{"id":1,"at":2}', b"123"),
            Undecodable("key", "$key", "has 3 bytes, and the format has 4"),
        ),
        (
            event(fields={"id": "$value.7", "key": "$value.1", "event_time": "$timestamp"}),
            Record(b'[7,"a"]'),
            Undecodable("id", "$value.7", "is absent"),
        ),
        (
            event(key_format={"kind": "session_windowed", "inner": "json"}, fields={"key": "$key.u"}),
            Record(b'{"id":1,"at":2}', b'{"u":"a"}' + struct.pack(">qq", 9, 4)),
            Event(1, "a", 2000),
        ),
    ],
)
def test_fields_of_values_and_keys_decode(decoder: RecordDecoder, record: Record, wanted: object) -> None:
    assert pickle.loads(pickle.dumps(decoder)).decode(record) == wanted


def test_a_result_is_named_by_a_windowed_key() -> None:
    fields = {"key": "$key", "window_start": "$key.window_start", "window_end": "$key.window_end", "ids": "$value"}
    for key_format, key in (
        ({"kind": "time_windowed", "size": "15s"}, b"/a" + struct.pack(">q", MS)),
        ("session_windowed", b"/a" + struct.pack(">qq", MS + 15_000, MS)),
        ("windowed_text", f"[/a@{MS}/{MS + 15_000}]".encode()),
    ):
        topic = Output.model_validate({"topic": "o", "key_format": key_format, "fields": fields})
        decoder = RecordDecoder(topic, window_us=15_000_000)
        assert decoder.decode(Record(b"[1,2]", key)) == Result("/a", MS * 1000, ([1, 2],))
    ms = {**fields, "window_start": {"path": "$key.window_start", "unit": "ms"}}
    seconds = {**fields, "window_start": {"path": "$key.window_start", "unit": "s"}}
    for chosen, wanted in (
        (ms, Result("/a", MS * 1000, ([],), window_end_us=MS * 1000)),
        (
            seconds,
            Undecodable(
                "window_start", "$key.window_start", "is a time in ms by its type, but the unit s is configured"
            ),
        ),
    ):
        topic = Output.model_validate({"topic": "o", "key_format": "windowed_text", "fields": chosen})
        assert RecordDecoder(topic).decode(Record(b"[]", f"[/a@{MS}/{MS}]".encode())) == wanted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"format": "long"}, "a value of format long has no fields"),
        ({"format": "text"}, "id is not a field of a text without a pattern"),
        ({"format": {"kind": "text", "pattern": "(?P<id>.)"}}, "page is not a group of the pattern"),
        ({"format": {"kind": "text", "pattern": "(.)"}}, "it has no named group"),
        ({"format": {"kind": "text", "pattern": "("}}, "it is not a regular expression"),
        ({"fields": {"key": "$key.a"}}, "a is not a field of a text without a pattern"),
        ({"key_format": "time_windowed", "fields": {"event_time": "$key.window_end"}}, "do not have the end"),
        ({"key_format": {"kind": "time_windowed", "inner": "xml"}}, "'xml' is not a format"),
        ({"format": {"kind": "raw", "fields": {"id": {"offset": 0, "type": "int8"}}}}, "page is not a field"),
        ({"format": {"kind": "raw", "fields": {"id": {"offset": 0, "type": "text"}}}}, "text needs it"),
        ({"fields": {"key": "$offset.a"}}, "is not a part of a record"),
    ],
)
def test_a_field_that_no_record_has_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        event(**given)


def test_confluents_prefix_is_recognised() -> None:
    for raw, what in ((b'{"id":1}', "JSON after it"), (b"\x02\xff", "Avro or Protobuf after it")):
        found = event().decode(Record(b"\0\0\0\1\7" + raw))
        assert isinstance(found, Undecodable)
        assert f"Confluent's wire prefix of schema 263, with {what}" in found.reason


def test_fields_of_messagepack_decode_as_those_of_json() -> None:
    fields = {"id": "id", "key": ["k.name", "tags.0"], "event_time": "at"}
    decoder = RecordDecoder(Input.model_validate({"topic": "i", "format": "msgpack", "fields": fields}))
    at, odd = TypedTime(MS * 10**6, "ns"), b"\xc7\x01\x05x"
    row = {"id": 7, "k": {"name": "a"}, "tags": [1.5], "at": at}
    chance = random.Random(1)
    raw = forms(row, chance)[0]
    assert decoder.decode(Record(raw)) == Event(7, '["a","1.5"]', MS * 1000)
    twice = b"\x85" + raw[1:] + b"\xa2id\x08"
    assert decoder.decode(Record(twice)) == Undecodable(
        "id", "id", "is ambiguous: the name 'id' occurs more than once in one object"
    )
    assert decoder.decode(Record(b"\x81\xa2id" + odd)) == Undecodable("id", "id", "is an object")

"""Avro against fastavro, an independent implementation: generated schemas and values, damaged bytes, other versions of
a schema, and whole batches against the rule."""

from __future__ import annotations

import io
import json
import pickle
import random
import string
import struct
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from validator.codecs.one_record import Event, Record, RecordDecoder, Undecodable
from validator.model.field_values import TypedTime
from validator.model.schemas import RegisteredSchema, Schemas, SchemaUnknown
from validator.settings.formats.avro import AvroReader
from validator.settings.formats.seam import Unreadable
from validator.settings.topics import Input

pytestmark = pytest.mark.unit

Schema = Any
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


class Made:
    """A random schema and values of it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._names = 0

    def _name(self) -> str:
        self._names += 1
        return f"N{self._names}"

    def schema(self, depth: int = 0) -> Schema:
        kinds = [*PRIMITIVES, "enum", "fixed"] + (["record", "array", "map", "union"] * 3 if depth < 3 else [])
        kind = self.chance.choice(kinds) if depth else "record"
        match kind:
            case "record":
                fields = [{"name": f"f{i}", "type": self.schema(depth + 1)} for i in range(self.chance.randrange(1, 5))]
                return {"type": "record", "name": self._name(), "namespace": "a.b", "fields": fields}
            case "enum":
                return {"type": "enum", "name": self._name(), "symbols": ["A", "B", "C"]}
            case "fixed":
                return {"type": "fixed", "name": self._name(), "size": self.chance.randrange(0, 4)}
            case "array":
                return {"type": "array", "items": self.schema(depth + 1)}
            case "map":
                return {"type": "map", "values": self.schema(depth + 1)}
            case "union":
                return ["null", self.chance.choice(["long", "string", "bytes"]), self.schema_of_record(depth)]
        return kind

    def schema_of_record(self, depth: int) -> Schema:
        return {"type": "record", "name": self._name(), "fields": [{"name": "g", "type": self.schema(depth + 1)}]}

    def value(self, schema: Schema) -> Any:
        chance = self.chance
        if isinstance(schema, list):
            branch = chance.choice(schema)
            return self.value(branch)
        kind = schema if isinstance(schema, str) else schema["type"]
        match kind:
            case "null":
                return None
            case "boolean":
                return chance.random() < 0.5
            case "int":
                return chance.choice([0, -1, 2**31 - 1, -(2**31), chance.randrange(-1000, 1000)])
            case "long":
                return chance.choice([0, -1, 2**63 - 1, -(2**63), 2**55, chance.getrandbits(chance.randrange(1, 63))])
            case "float":
                return struct.unpack(">f", struct.pack(">f", chance.uniform(-1e6, 1e6)))[0]
            case "double":
                return chance.uniform(-1e9, 1e9)
            case "bytes":
                return chance.randbytes(chance.randrange(5))
            case "string":
                return "".join(chance.choices(string.ascii_letters + "é→𝄞", k=chance.randrange(6)))
            case "enum":
                return chance.choice(schema["symbols"])
            case "fixed":
                return chance.randbytes(schema["size"])
            case "array":
                return [self.value(schema["items"]) for _ in range(chance.choice([0, 1, 3, 70]))]
            case "map":
                return {f"k{i}": self.value(schema["values"]) for i in range(chance.randrange(3))}
        return {one["name"]: self.value(one["type"]) for one in schema["fields"]}


def written(schema: Schema, value: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return buffer.getvalue()


def single_floats(value: Any, schema: Schema) -> Any:
    """The value with the shortest digits of 32-bit numbers, of which Python's own numbers have more."""
    if isinstance(schema, list):
        for branch in schema:
            is_record = isinstance(branch, dict) and isinstance(value, dict)
            if is_record or branch == {type(None): "null", int: "long", str: "string", bytes: "bytes"}.get(type(value)):
                return single_floats(value, branch)
    if schema == "float":
        import numpy as np

        return float(str(np.float32(value)))
    if not isinstance(schema, dict):
        return value
    match schema["type"]:
        case "record":
            return {one["name"]: single_floats(value[one["name"]], one["type"]) for one in schema["fields"]}
        case "array":
            return [single_floats(one, schema["items"]) for one in value]
        case "map":
            return {name: single_floats(one, schema["values"]) for name, one in value.items()}
    return value


def reader(schema: Schema, **versions: Schema) -> AvroReader:
    """A reader as a worker gets it; with ``versions`` (`v1`, ...) the schemas of a registry."""
    registered = {int(name[1:]): RegisteredSchema("AVRO", json.dumps(one)) for name, one in versions.items()}
    text = None if schema is None else json.dumps(schema)
    found: AvroReader = pickle.loads(pickle.dumps(AvroReader(text, registered or None, None)))
    return found


def damaged(chance: random.Random, raw: bytes) -> bytes:
    match chance.randrange(4):
        case 0:
            return raw[: chance.randrange(len(raw) + 1)]
        case 1:
            return raw + chance.randbytes(chance.randrange(1, 3))
        case 2 if raw:
            at = chance.randrange(len(raw))
            return raw[:at] + chance.randbytes(1) + raw[at + 1 :]
    at = chance.randrange(len(raw) + 1)
    return raw[:at] + chance.randbytes(1) + raw[at:]


def test_values_written_by_fastavro_are_read_unchanged() -> None:
    for seed in range(150):
        made = Made(seed)
        schema = made.schema()
        read = reader(schema)
        for _ in range(4):
            value = made.value(schema)
            assert read.value(written(schema, value)) == single_floats(value, schema), (schema, value)


def test_fastavro_reads_damaged_bytes_alike() -> None:
    """What it refuses is refused here. It accepts some bytes that no writer makes."""
    count = {True: 0, False: 0}
    for seed in range(150):
        made = Made(seed)
        schema = made.schema()
        read, parsed = reader(schema), fastavro.parse_schema(schema)
        for _ in range(8):
            raw = damaged(made.chance, written(schema, made.value(schema)))
            try:
                found = read.value(raw)
            except Unreadable:
                count[False] += 1
                continue
            buffer = io.BytesIO(raw)
            other = fastavro.schemaless_reader(buffer, parsed, None)
            assert buffer.tell() == len(raw)
            assert repr(found) == repr(single_floats(other, schema)), (schema, raw)
            count[True] += 1
    assert min(count.values()) > 100, count


def test_what_fastavro_accepts_and_no_writer_makes_is_refused() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A"]}
    for schema, raw, said in (
        (enum, b"\1", "symbol -1 of an enum of 1"),
        (["null", "long"], b"\1", "branch -1 of a union of 2"),
        ("boolean", b"\7", "neither 0 nor 1"),
        ("long", b"\x80" * 10 + b"\0", "more than 64 bits"),
        ("long", b"\xff" * 9 + b"\x02", "more than 64 bits"),
        ("int", b"\xff\xff\xff\xff\x7f", "more than 32 bits"),
        ("string", b"\1", "negative length"),
        ("string", b"\2\xff", "not UTF-8"),
        ({"type": "array", "items": "null"}, b"\x80\x80\x80\x80\x80\x80\x80\1\0", "empty items"),
        ("long", b"\0\0", "has 1 bytes after the end"),
        ("string", b"\4a", "ends before its Avro schema does"),
    ):
        with pytest.raises(Unreadable, match=said):
            reader(schema).value(raw)


LOGICAL: Final[dict[str, tuple[Schema, Any, Any]]] = {
    "millis": (
        {"type": "long", "logicalType": "timestamp-millis"}, datetime(2026, 1, 1, tzinfo=UTC), (1767225600000, "ms")
    ),
    "micros": (
        {"type": "long", "logicalType": "timestamp-micros"}, datetime(2026, 1, 1, tzinfo=UTC), (1767225600000000, "us")
    ),
    "local": (
        {"type": "long", "logicalType": "local-timestamp-millis"}, datetime(2026, 1, 1), (1767225600000, "ms")  # noqa: DTZ001 - it has no zone
    ),
    "date": ({"type": "int", "logicalType": "date"}, date(2026, 1, 1), (20454, "d")),
    "optional": (
        ["null", {"type": "long", "logicalType": "timestamp-millis"}],
        datetime(2026, 1, 1, tzinfo=UTC),
        (1767225600000, "ms"),
    ),
    "nanos": ({"type": "long", "logicalType": "timestamp-nanos"}, 5, (5, "ns")),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 3},
        Decimal("-12345678901234567890123456789012345.678"),
        Decimal("-12345678901234567890123456789012345.678"),
    ),
    "fixed decimal": (
        {"type": "fixed", "name": "D", "size": 5, "logicalType": "decimal", "precision": 8, "scale": 2},
        Decimal("12.50"),
        Decimal("12.50"),
    ),
    "uuid": ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=7), str(uuid.UUID(int=7))),
    "fixed uuid": (
        {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, uuid.UUID(int=7).bytes, str(uuid.UUID(int=7))
    ),
    "ill-fitting": ({"type": "string", "logicalType": "timestamp-millis"}, "a", "a"),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "given", "wanted"), LOGICAL.values(), ids=LOGICAL)
def test_logical_types_arrive_typed(schema: Schema, given: Any, wanted: Any) -> None:
    found = reader(schema).value(written(schema, given))
    if isinstance(wanted, tuple):
        assert isinstance(found, TypedTime)
        found = (int(found), found.unit)
    assert found == wanted
    assert str(found) == str(wanted), "a decimal keeps its digits"


def record(*fields: tuple[Any, ...], name: str = "R") -> Schema:
    described = [
        {"name": one[0], "type": one[1], **({"default": one[2]} if len(one) > 2 else {}), **dict(one[3:])}
        for one in fields
    ]
    return {"type": "record", "name": name, "fields": described}


EVOLVED: Final[dict[str, tuple[Schema, Any, Schema, Any]]] = {
    "a field with a default": (
        record(("a", "long")), {"a": 1}, record(("a", "long"), ("b", ["null", "string"], None), ("c", "int", 7)),
        {"a": 1, "b": None, "c": 7},
    ),
    "a removed field": (record(("a", "long"), ("b", "string")), {"a": 1, "b": "x"}, record(("a", "long")), {"a": 1}),
    "another order": (
        record(("a", "long"), ("b", "string")), {"a": 1, "b": "x"}, record(("b", "string"), ("a", "long")),
        {"b": "x", "a": 1},
    ),
    "an alias": (
        record(("a", "long")), {"a": 1}, record(("b", "long", 0, ("aliases", ["a"]))), {"b": 1},
    ),
    "a wider number": (record(("a", "int")), {"a": 1}, record(("a", "double")), {"a": 1.0}),
    "bytes as text": (record(("a", "bytes")), {"a": b"x"}, record(("a", "string")), {"a": "x"}),
    "now optional": (record(("a", "long")), {"a": 1}, record(("a", ["null", "long"])), {"a": 1}),
    "no longer optional": (record(("a", ["null", "long"])), {"a": 1}, record(("a", "long")), {"a": 1}),
    "an enum with a default": (
        {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B",
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}, "A",
    ),
    "nested": (
        record(("r", record(("a", "int"), name="I"))), {"r": {"a": 1}},
        record(("r", record(("a", "long"), ("b", "string", "q"), name="I"))), {"r": {"a": 1, "b": "q"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("writers", "value", "readers", "wanted"), EVOLVED.values(), ids=EVOLVED)
def test_another_version_is_read_as_the_configured_schema(
    writers: Schema, value: Any, readers: Schema, wanted: Any
) -> None:
    raw = written(writers, value)
    found = reader(readers, v7=writers).value(b"\0\0\0\0\7" + raw)
    parsed = fastavro.parse_schema(writers), fastavro.parse_schema(readers)
    assert found == wanted == fastavro.schemaless_reader(io.BytesIO(raw), *parsed)


@pytest.mark.parametrize(
    ("writers", "raw", "readers", "said"),
    [
        (record(("a", "long")), b"\0", record(("a", "long"), ("b", "long")), "no field b"),
        (record(("a", "string")), b"\0", record(("a", "long")), "has string where the configured schema has long"),
        (
            {"type": "enum", "name": "E", "symbols": ["A"]},
            b"\0",
            {"type": "enum", "name": "E", "symbols": []},
            "symbol A",
        ),
        (["null", "long"], b"\0", "long", "has null where the configured schema has long"),
        ("nothing", b"\0", None, "names schema 7, which names the type nothing"),
    ],
)
def test_a_version_that_does_not_fit_is_undecodable(writers: Schema, raw: bytes, readers: Schema, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        reader(readers, v7=writers).value(b"\0\0\0\0\7" + raw)


def test_a_schema_is_looked_up_before_its_records_are_read() -> None:
    read = AvroReader(None, {1: RegisteredSchema("AVRO", '"long"'), 2: None}, "__value_schema_id")
    assert read.value(b"\0\0\0\0\1\4") == 2
    assert read.value(b"\4", b"\0\0\0\0\1") == 2
    with pytest.raises(SchemaUnknown) as unknown:
        read.value(b"\4", b"\1" + uuid.UUID(int=9).bytes)
    assert unknown.value.schemas == {str(uuid.UUID(int=9))}
    with pytest.raises(SchemaUnknown) as several:
        read.read_columns(pa.array([b"\0\0\0\0" + bytes([one]) for one in (1, 2, 5, 4)]), [()], ())
    assert several.value.schemas == {4, 5}, "all of a batch are looked up together"
    for raw, header, said in (
        (b"\0\0\0\0\2\4", None, "names schema 2, which the registry does not have"),
        (b"\1\0\0\0\2\4", None, "does not begin with Confluent's wire prefix"),
        (b"\0\0\0", None, "does not begin with Confluent's wire prefix"),
        (b"\4", b"7", "neither an id nor a GUID"),
    ):
        with pytest.raises(Unreadable, match=said):
            read.value(raw, header)


def test_references_are_resolved() -> None:
    money = {"type": "record", "name": "a.Money", "fields": [{"name": "cents", "type": "long"}]}
    order = {
        "type": "record",
        "name": "a.Order",
        "fields": [{"name": "m", "type": "Money"}, {"name": "n", "type": "a.Money"}],
    }
    schema = RegisteredSchema("AVRO", json.dumps(order), (("a.Money", json.dumps(money)),))
    assert AvroReader(None, {1: schema}, None).value(b"\0\0\0\0\1\2\4") == {"m": {"cents": 1}, "n": {"cents": 2}}


def flat(value: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def paths_of(schema: Schema, place: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], str]]:
    """The paths that a batch has columns for."""
    if isinstance(schema, list):
        return [found for branch in schema for found in paths_of(branch, place)]
    if isinstance(schema, dict) and schema["type"] == "record":
        return [found for one in schema["fields"] for found in paths_of(one["type"], (*place, one["name"]))]
    if isinstance(schema, dict) and schema["type"] == "array":
        return [(place, "list")] if schema["items"] in ("int", "long", "string") else []
    kind = schema if isinstance(schema, str) else schema["type"]
    return [(place, "scalar")] if kind in ("int", "long", "string", "enum", "float", "double", "boolean") else []


def test_batches_are_read_as_single_values() -> None:
    read_rows = compared = 0
    for seed in range(100):
        made = Made(seed)
        schema = made.schema()
        raws = [written(schema, made.value(schema)) for _ in range(30)]
        raws += [damaged(made.chance, made.chance.choice(raws)) for _ in range(12)]
        made.chance.shuffle(raws)
        framed = [b"\0\0\0\0\7" + raw for raw in raws]
        read = reader(None, v7=schema)
        found: list[Any] = []
        for raw in framed:
            try:
                found.append(read.value(raw))
            except Unreadable:
                found.append(Unreadable)
        places = dict(paths_of(schema))
        values = pa.array([None, b"x", *framed, b"\0\0\0\0\1"], pa.binary()).slice(2, len(framed))
        lists = [path for path, kind in places.items() if kind == "list"]
        columns = read.read_columns(values, [path for path in places if path not in lists], lists)
        for path in places if columns is not None else ():
            assert columns is not None
            compared += 1
            for wanted, cell in zip(found, columns[path].to_pylist(), strict=True):
                if cell is not None:
                    assert wanted is not Unreadable, (schema, path)
                    assert flat(wanted, path) == cell, (schema, path)
                    read_rows += 1
                elif wanted is not Unreadable:
                    assert not isinstance(flat(wanted, path), (int, str, list)), (schema, path)
    assert compared > 40
    assert read_rows > 1_000


def test_events_of_two_versions_decode(tmp_path: Path) -> None:
    at = {"type": "long", "logicalType": "timestamp-millis"}
    first = record(("id", "long"), ("page", "string"), ("at", at))
    second = record(("page", "string"), ("id", "long"), ("at", at), ("note", ["null", "string"], None))
    schemas = {1: RegisteredSchema("AVRO", json.dumps(first)), 2: RegisteredSchema("AVRO", json.dumps(second))}
    (tmp_path / "click.avsc").write_text(json.dumps(first))
    fields = {"id": "id", "key": "page", "event_time": "at"}
    time = datetime(2026, 1, 1, tzinfo=UTC)
    for given in ("avro", {"kind": "avro", "schema": {"file": tmp_path / "click.avsc"}, "schema_id": "prefix"}):
        topic = Input.model_validate({"topic": "i", "format": given, "fields": fields})
        assert topic.format.needs_registry
        decoder = RecordDecoder(topic, schemas=schemas)
        for number, schema in ((1, first), (2, second)):
            raw = struct.pack(">bI", 0, number) + written(schema, {"id": 5, "page": "/a", "at": time, "note": None})
            assert decoder.decode(Record(raw)) == Event(5, "/a", 1767225600000000)
        assert decoder.decode(Record(b"\0\0\0\0\2\1")) == Undecodable(
            None, None, "holds a text or bytes of negative length"
        )
    bare = Input.model_validate(
        {"topic": "i", "format": {"kind": "avro", "schema": {"file": tmp_path / "click.avsc"}}, "fields": fields}
    )
    assert bare.model_dump(mode="json")["format"]["schema"] == {"file": "click.avsc"}, "the folder may move"
    raw = written(first, {"id": 5, "page": "/a", "at": time})
    assert RecordDecoder(bare).decode(Record(raw)) == Event(5, "/a", 1767225600000000)


def test_changes_that_debezium_writes_in_avro_decode() -> None:
    row = {**record(("id", "long"), ("shop", "string")), "name": "Value", "namespace": "shop.public.orders"}
    source = {**record(("lsn", ["null", "long"], None), ("table", "string")), "name": "Source"}
    envelope = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "shop.public.orders.Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }
    key = {**record(("id", "long")), "name": "Key"}
    schemas: Schemas = {3: RegisteredSchema("AVRO", json.dumps(envelope)), 4: RegisteredSchema("AVRO", json.dumps(key))}
    time = {"path": "$envelope.ts_ms", "unit": "ms"}
    fields = {"id": "$envelope.source.lsn", "key": ["shop", "$key.id"], "event_time": time}
    topic = Input.model_validate(
        {
            "topic": "i",
            "format": "avro",
            "key_format": "avro",
            "envelope": "debezium",
            "operations": ["create", "delete"],
            "fields": fields,
        }
    )
    decoder = RecordDecoder(topic, schemas=schemas)

    def change(op: str, before: object, after: object) -> Record:
        given = {"before": before, "after": after, "source": {"lsn": 9, "table": "orders"}, "op": op, "ts_ms": 2}
        value = b"\0\0\0\0\3" + written(envelope, given)
        return Record(value, b"\0\0\0\0\4" + written(key, {"id": 7}))

    one = {"id": 7, "shop": "ulm"}
    wanted = Event(9, '["ulm","7"]', 2_000)
    assert decoder.decode(change("c", None, one)) == wanted
    assert decoder.decode(change("d", one, None)) == wanted
    assert not isinstance(decoder.decode(change("u", one, one)), (Event, Undecodable))
    assert isinstance(decoder.decode(change("c", one, None)), Undecodable)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"schema": {"file": "nowhere.avsc"}}, "it cannot be read"),
        ({"schema_id": "none"}, "there is no file"),
        ({"schema": {"file": "odd.avsc"}}, "is not an Avro schema"),
        ({"schema": {"file": "good.avsc"}}, "page is not in the Avro schema"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(given: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "odd.avsc").write_text("{}")
    (tmp_path / "good.avsc").write_text(json.dumps(record(("id", "long"))))
    fields = {"id": "id", "key": "page", "event_time": "$timestamp"}
    topic = {"topic": "i", "format": {"kind": "avro", **given}, "fields": fields}
    with pytest.raises(ValueError, match=said):
        Input.model_validate(topic, context={"folder": tmp_path})

"""Protobuf: messages of every kind of field, written by hand from the encoding's rules, and Confluent's framing."""

from __future__ import annotations

import base64
import pickle
import random
import re
import struct
import uuid
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, json_format, timestamp_pb2

from validator.codecs.one_record import Event, Record, RecordDecoder
from validator.model.field_values import TypedTime
from validator.model.schemas import RegisteredSchema, SchemaUnknown
from validator.settings.encodings.protobuf_values import message_reader
from validator.settings.formats.protobuf import ProtobufReader
from validator.settings.formats.seam import ColumnReader, Unreadable, ValueReader
from validator.settings.topics import Input

pytestmark = pytest.mark.unit

F: Final = descriptor_pb2.FieldDescriptorProto
OPTIONAL, REPEATED = F.LABEL_OPTIONAL, F.LABEL_REPEATED


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    found = b""
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def field(number: int, content: int | bytes | float, size: int = 0) -> bytes:
    """A field as the encoding's rules write it: an integer as a varint, or in ``size`` bytes."""
    if isinstance(content, bytes):
        return varint(number << 3 | 2) + varint(len(content)) + content
    if isinstance(content, float):
        return varint(number << 3 | (5 if size == 4 else 1)) + struct.pack("<f" if size == 4 else "<d", content)
    if size:
        return varint(number << 3 | (5 if size == 4 else 1)) + content.to_bytes(size, "little", signed=True)
    return varint(number << 3) + varint(content)


def shop(*, imports: bool = True) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    if imports:
        file.dependency.extend(
            ["google/protobuf/timestamp.proto", "confluent/type/decimal.proto", "confluent/meta.proto", "money.proto"]
        )
    colour = file.enum_type.add(name="Colour")
    for number, name in enumerate(("NONE", "RED")):
        colour.value.add(name=name, number=number)
    file.message_type.add(name="Other").field.add(name="x", number=1, type=F.TYPE_INT32, label=OPTIONAL)
    order = file.message_type.add(name="Order")
    item = order.nested_type.add(name="Item")
    item.field.add(name="sku", number=1, type=F.TYPE_STRING, label=OPTIONAL)
    order.field.add(name="id", number=1, type=F.TYPE_INT64, label=OPTIONAL)
    order.field.add(name="page", number=2, type=F.TYPE_STRING, label=OPTIONAL)
    order.field.add(name="zigzag", number=4, type=F.TYPE_SINT64, label=OPTIONAL)
    order.field.add(name="fixed", number=5, type=F.TYPE_SFIXED32, label=OPTIONAL)
    order.field.add(name="single", number=6, type=F.TYPE_FLOAT, label=OPTIONAL)
    order.field.add(name="raw", number=7, type=F.TYPE_BYTES, label=OPTIONAL)
    order.field.add(name="colour", number=8, type=F.TYPE_ENUM, type_name=".shop.Colour", label=OPTIONAL)
    order.field.add(name="items", number=9, type=F.TYPE_MESSAGE, type_name=".shop.Order.Item", label=REPEATED)
    order.field.add(name="ids", number=10, type=F.TYPE_INT64, label=REPEATED)
    order.field.add(name="done", number=14, type=F.TYPE_BOOL, label=OPTIONAL)
    order.field.add(name="exact", number=15, type=F.TYPE_DOUBLE, label=OPTIONAL)
    order.field.add(name="perhaps", number=11, type=F.TYPE_INT32, label=OPTIONAL, proto3_optional=True, oneof_index=0)
    order.oneof_decl.add(name="_perhaps")
    if imports:
        for number, name, kind in (
            (3, "at", ".google.protobuf.Timestamp"), (12, "price", ".confluent.type.Decimal"), (13, "paid", ".m.Money")
        ):  # fmt: skip
            order.field.add(name=name, number=number, type=F.TYPE_MESSAGE, type_name=kind, label=OPTIONAL)
    return file


def money() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="money.proto", package="m", syntax="proto3")
    file.message_type.add(name="Money").field.add(name="cents", number=1, type=F.TYPE_UINT64, label=OPTIONAL)
    return file


def registered(file: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


SCHEMA: Final = RegisteredSchema("PROTOBUF", registered(shop()), (("money.proto", registered(money())),))
ORDER: Final = varint(2) + varint(2)
"""Confluent's indexes of the type `Order`: one index, which is 1, both in zigzag encoding."""
UNSET: Final[dict[str, Any]] = {
    "id": 0, "page": "", "zigzag": 0, "fixed": 0, "single": 0.0, "raw": b"", "colour": "NONE", "items": [], "ids": [],
    "perhaps": None, "at": None, "price": None, "paid": None, "done": False, "exact": 0.0,
}  # fmt: skip


def reader(schema: RegisteredSchema | None = SCHEMA, header: str | None = None) -> ValueReader:
    """A reader as a worker gets it."""
    found: ValueReader = pickle.loads(pickle.dumps(ProtobufReader(None, "", "prefix", {7: schema}, header)))
    return found


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b"", {}),
        (field(1, -5) + field(2, "é".encode()), {"id": -5, "page": "é"}),
        (field(3, field(1, 5) + field(2, 7)), {"at": TypedTime(5_000_000_007, "ns")}),
        (field(4, 9) + field(5, -2, 4) + field(6, 0.1, 4), {"zigzag": -5, "fixed": -2, "single": 0.1}),
        (field(7, b"\xff") + field(8, 1), {"raw": b"\xff", "colour": "RED"}),
        (field(8, 5), {"colour": 5}),
        (field(9, field(1, b"a")) + field(9, b""), {"items": [{"sku": "a"}, {"sku": ""}]}),
        (field(10, varint(3) + varint(-1)) + field(10, 4), {"ids": [3, -1, 4]}),
        (field(11, 0), {"perhaps": 0}),
        (field(12, field(1, b"\xff\x38") + field(3, 2)), {"price": Decimal("-2.00")}),
        (field(13, field(1, 2**64 - 1)), {"paid": {"cents": 2**64 - 1}}),
        (field(1, 1) + field(99, 1) + field(1, 2), {"id": 2}),
    ],
)
def test_a_message_of_the_rules_of_the_encoding_is_read(raw: bytes, wanted: dict[str, Any]) -> None:
    found = reader().value(b"\0\0\0\0\7" + ORDER + raw)
    assert found == {**UNSET, **wanted}
    for name, value in wanted.items():
        assert type(found[name]) is type(value)  # type: ignore[index]


def test_the_indexes_choose_the_type() -> None:
    start = b"\0\0\0\0\7"
    assert reader().value(start + b"\0" + field(1, 5)) == {"x": 5}
    assert reader().value(start + varint(2) + varint(0) + field(1, 5)) == {"x": 5}
    assert reader().value(start + varint(4) + varint(2) + varint(0) + field(1, b"a")) == {"sku": "a"}
    assert reader(header="h").value(field(1, 5), b"\0\0\0\0\7\0") == {"x": 5}
    with pytest.raises(SchemaUnknown):
        reader(header="h").value(field(1, 5), b"\1" + bytes(16) + b"\0")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\0\0\0\0\7" + ORDER + b"\x08", "is not a message of the type shop.Order"),
        (b"\0\0\0\0\7" + ORDER + field(2, b"\xff"), "is not a message of the type shop.Order"),
        (b"\0\0\0\0\7" + ORDER + field(1, 5)[:-1], "is not a message of the type shop.Order"),
        (b"\0\0\0\0\7" + varint(2) + varint(18), r"has no message type at \[9\]"),
        (b"\0\0\0\0\7" + varint(1), "has -1 message indexes"),
        (b"\0\0\0\0\7\x80", "ends within its message indexes"),
        (b"\1\0\0\0\7", "does not begin with Confluent's wire prefix"),
    ],
)
def test_other_bytes_have_a_reason(raw: bytes, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        reader().value(raw)


def test_a_schema_that_lacks_an_import_has_a_reason() -> None:
    with pytest.raises(Unreadable, match="names schema 7, which cannot be resolved"):
        reader(SCHEMA._replace(references=())).value(b"\0\0\0\0\7" + ORDER)
    with pytest.raises(Unreadable, match="which the registry does not have"):
        reader(None).value(b"\0\0\0\0\7" + ORDER)


SCALARS: Final = [
    ("id",), ("page",), ("zigzag",), ("fixed",), ("colour",), ("perhaps",), ("at",), ("paid", "cents"), ("single",),
    ("done",), ("exact",),
]  # fmt: skip


def random_order(chance: random.Random) -> bytes:
    """A message whose fields are sometimes absent, repeated, unknown or in another order."""
    fields = [
        field(1, chance.choice([0, 5, -1, 2**63 - 1])),
        field(2, chance.choice(["a", "é", ""]).encode()),
        field(3, field(1, chance.choice([0, 5, -3])) + field(2, chance.randrange(10**9))),
        field(3, field(2, 3)),
        field(4, chance.choice([1, 2**64 - 1])),
        field(5, chance.choice([0, -7]), 4),
        field(6, 1.5, 4),
        field(7, b"\xff\x00"),
        field(8, chance.choice([0, 1, 9])),
        field(9, field(1, b"sku")),
        field(10, b"".join(varint(chance.choice([1, -1, 300])) for _ in range(chance.choice([0, 2, 9])))),
        field(10, chance.choice([4, 2**40])),
        field(11, chance.choice([0, -2, 3])),
        field(12, field(1, b"\1")),
        field(13, field(1, chance.choice([0, 2**64 - 1, 12]))),
        field(13, b""),
        field(99, b"new"),
        field(98, 5),
        field(97, 1.0, 8),
        field(14, chance.choice([0, 1, 7])),
        field(15, chance.choice([0.1, -2.0, 1e300]), 8),
        field(6, 0.1, 4),
        field(1, b"x"),
        field(2, b"\xff"),
    ]
    wanted = [0, 1, 2, *chance.sample(range(len(fields) - 2), chance.randrange(6))]
    if chance.random() < 0.1:
        wanted.append(chance.choice([len(fields) - 1, len(fields) - 2]))
    if chance.random() < 0.3:
        chance.shuffle(wanted)
    return b"".join(fields[one] for one in wanted[chance.choice([0, 0, 1, 3]) :])


@pytest.mark.parametrize("place", ["prefix", "none"])
def test_batches_are_read_as_single_values(place: Any) -> None:
    chance, read = random.Random(4), reader()
    if place == "none":
        file = descriptor_pb2.FileDescriptorSet(file=[_timestamp(), money(), shop()])
        read = ProtobufReader(file.SerializeToString(), "shop.Order", "none", None, None)
    count = 0
    for _ in range(40):
        raws = [random_order(chance) for _ in range(30)]
        for number in range(6):
            raw = chance.choice(raws)
            cut = chance.randrange(len(raw) + 1)
            raws.append(raw[:cut] if number % 2 else raw[:cut] + chance.randbytes(1) + raw[cut:])
        start = b"\0\0\0\0\7" + ORDER if place == "prefix" else b""
        framed = [start + raw for raw in raws] + [b"\0\0\0\0\7\0" + field(1, 3), b"\0\0\0\0\7\2", b"\0"]
        found: list[Any] = []
        for raw in framed:
            try:
                found.append(read.value(raw))
            except Unreadable:
                found.append(None)
        values = pa.array([None, *framed], pa.binary()).slice(1)
        assert isinstance(read, ColumnReader)
        columns = read.read_columns(values, SCALARS, [("ids",)])
        assert columns is not None
        for path in (*SCALARS, ("ids",)):
            column = columns[path]
            cells = column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
            for one, cell in zip(found, cells.to_pylist(), strict=True):
                if cell is not None:
                    value = one
                    for name in path:
                        value = value[name]
                    assert value == cell, (path, one)
                    count += 1
    assert count > 5_000


@pytest.mark.parametrize("of_file", [False, True])
def test_batches_with_ids_in_headers_are_read_as_single_values(of_file: bool) -> None:
    guid = uuid.UUID(int=5)
    read = ProtobufReader(None, "", "headers", {7: SCHEMA, str(guid): SCHEMA, 8: None}, "h")
    if of_file:
        file = descriptor_pb2.FileDescriptorSet(file=[_timestamp(), money(), shop()])
        read = ProtobufReader(file.SerializeToString(), "shop.Order", "headers", None, "h")
    chance, by_id, by_guid = random.Random(6), b"\0\0\0\0\7", b"\1" + guid.bytes
    kinds = [
        (by_id + ORDER, b""), (by_guid + ORDER, b""), (None, by_id + ORDER), (by_guid + b"\0", b""), (by_id, b""),
        (by_id + b"\x80", b""), (b"\0\0\0\0\x08" + ORDER, b""), (b"\2", b""),
    ]  # fmt: skip
    headers, raws = zip(*((header, start + random_order(chance)) for header, start in kinds * 50), strict=True)
    columns = read.read_columns(pa.array(raws, pa.binary()), SCALARS, [], pa.array(headers, pa.binary()))
    assert columns is not None
    ids = columns["id",].to_pylist()
    for header, raw, found in zip(headers, raws, ids, strict=True):
        try:
            wanted: Any = read.value(raw, header)
        except Unreadable:
            wanted = {}
        assert found is None or found == wanted["id"]
    read_at = {kind for kind, found in zip(kinds * 50, ids, strict=True) if found is not None}
    assert read_at == set(kinds[: 4 if of_file else 3]) | (set(kinds[6:7]) if of_file else set())


def _timestamp() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(file)
    return file


WRAPPED: Final[dict[str, tuple[str, list[Any]]]] = {
    "text": ("String", ["", "é"]), "long": ("Int64", [0, -5, 2**63 - 1]), "big": ("UInt64", [2**64 - 1]),
    "short": ("Int32", [-7, 0]), "small": ("UInt32", [2**32 - 1]), "yes": ("Bool", [False, True]),
    "raw": ("Bytes", [b"", b"\xff\x00"]), "single": ("Float", [0.1, -1.5]), "exact": ("Double", [0.1, 1e300]),
}  # fmt: skip
"""Name of a field -> its wrapper, and values."""


def wrappers() -> descriptor_pb2.FileDescriptorProto:
    """A type with a wrapper of each kind, a day and a time; proto3."""
    file = descriptor_pb2.FileDescriptorProto(name="w.proto", package="w", syntax="proto3")
    kinds = {name: f".google.protobuf.{kind}Value" for name, (kind, _) in WRAPPED.items()}
    kinds |= {"day": ".google.type.Date", "at": ".google.protobuf.Timestamp"}
    file.dependency.extend(f"google/{name}.proto" for name in ("protobuf/wrappers", "protobuf/timestamp", "type/date"))
    made = file.message_type.add(name="Wrapped")
    for number, (name, kind) in enumerate(kinds.items(), 1):
        made.field.add(name=name, number=number, type=F.TYPE_MESSAGE, type_name=kind, label=OPTIONAL)
    return file


def test_wrappers_days_and_times_are_what_googles_json_has() -> None:
    read = reader(RegisteredSchema("PROTOBUF", registered(wrappers())))
    made = message_reader(RegisteredSchema("PROTOBUF", registered(wrappers())), (0,))._class
    chance, seen = random.Random(3), 0
    for _ in range(300):
        message: Any = made()
        for name, (_, values) in WRAPPED.items():
            if chance.random() < 0.6:
                # A wrapper of a default is present, and has no bytes.
                getattr(message, name).SetInParent()
                getattr(message, name).value = chance.choice(values)
        day = date.fromordinal(chance.randrange(1, 3_000_000))
        if has_day := chance.random() < 0.6:
            message.day.year, message.day.month, message.day.day = day.year, day.month, day.day
        if chance.random() < 0.6:
            message.at.seconds, message.at.nanos = chance.randrange(-(10**9), 10**9), chance.randrange(10**9)
        found = read.value(b"\0\0\0\0\7\0" + message.SerializeToString())
        assert isinstance(found, dict)
        wanted = json_format.MessageToDict(message)
        assert {name for name, value in found.items() if value is not None} == wanted.keys()
        for name, (kind, _) in WRAPPED.items():
            value = base64.b64encode(found[name]).decode() if isinstance(found[name], bytes) else found[name]
            # JSON has numbers of 64 bits as texts.
            assert (str(value) if kind.endswith("64") and value is not None else value) == wanted.get(name)
            seen += value is not None
        assert found["day"] == (TypedTime((day - date(1970, 1, 1)).days, "d") if has_day else None)
        at = timestamp_pb2.Timestamp()
        if "at" in wanted:
            at.FromJsonString(wanted["at"])
        assert found["at"] == (TypedTime(at.ToNanoseconds(), "ns") if "at" in wanted else None)
    assert seen > 1_000
    with pytest.raises(Unreadable, match=r"holds a google\.type\.Date that is not a day"):
        read.value(b"\0\0\0\0\7\0" + field(10, field(1, 2026) + field(2, 2) + field(3, 30)))


@pytest.mark.parametrize("label", ["required", "optional"])
def test_required_fields_and_closed_enums_of_proto2(label: str) -> None:
    text = f"""
    syntax = 'proto2';
    message M {{
      {label} int64 id = 1;
      enum Kind {{ A = 1; B = 2; }}
      optional Kind kind = 2;
      repeated Kind kinds = 3;
      optional string page = 4 [default = 'x'];
    }}
    """
    read = reader(RegisteredSchema("PROTOBUF", text))
    unset: dict[str, Any] = {"id": 5, "kind": None, "kinds": [], "page": None}
    start, five = b"\0\0\0\0\7\0", field(1, 5)
    cases: list[tuple[bytes, dict[str, Any] | None]] = [
        (five, {}),
        (five + field(2, 2) + field(4, b""), {"kind": "B", "page": ""}),
        # The number of no value is an unknown field.
        (five + field(2, 9) + field(3, 1) + field(3, 9) + field(3, 2), {"kinds": ["A", "B"]}),
        (field(2, 1), {"kind": "A", "id": None} if label == "optional" else None),
    ]
    for raw, wanted in cases:
        if wanted is None:
            with pytest.raises(Unreadable, match="lacks required fields of M"):
                read.value(start + raw)
        else:
            assert read.value(start + raw) == {**unset, **wanted}
    assert isinstance(read, ColumnReader)
    columns = read.read_columns(pa.array([start + raw for raw, _ in cases], pa.binary()), [("id",), ("kind",)], [])
    if label == "required":
        assert columns is None
    else:
        assert columns is not None
        assert columns["id",].to_pylist()[:2] == [5, 5]
        assert columns["kind",].to_pylist()[1:3] == ["B", None]


TEXT: Final = """
syntax = "proto3";  // the first line
package shop;
import "google/protobuf/timestamp.proto";
import public "confluent/type/decimal.proto";
import "confluent/meta.proto";
import "money.proto";
option java_package = "a;b{";
/* message Not { int32 x = 1; } */
enum Colour { option allow_alias = true; NONE = 0; RED = 1 [deprecated = true, (a.b) = {c: ["]"]}]; }
message Other { int32 x = 1; reserved 4, 5; reserved "y"; }
message Order {
  message Item { string sku = 1; }
  option (confluent.message_meta) = { doc: "}" };
  int64 id = 1 [(confluent.field_meta) = { doc: "]" }];
  string page = 2;
  google.protobuf.Timestamp at = 3;
  sint64 zigzag = 4; sfixed32 fixed = 0x5; float single = 6;
  bytes raw = 7;
  Colour colour = 8;
  repeated Item items = 9;
  repeated int64 ids = 10 [packed = false];
  optional int32 perhaps = 11;
  .confluent.type.Decimal price = 12;
  m.Money paid = 13;
  bool done = 14; double exact = 15;
}
service Shop { rpc Buy(Order) returns (stream Other) { option deprecated = true; } }
"""


def test_the_text_of_a_schema_is_read_as_its_descriptor() -> None:
    money_text = "syntax = 'proto3'; package m; message Money { uint64 cents = 1; }"
    of_text = reader(RegisteredSchema("PROTOBUF", TEXT, (("money.proto", money_text),)))
    chance, start, read = random.Random(9), b"\0\0\0\0\7" + ORDER, 0
    for _ in range(300):
        raw = start + random_order(chance)
        found = []
        for one in (of_text, reader()):
            try:
                found.append(one.value(raw))
                read += 1
            except Unreadable as error:
                found.append(str(error))
        assert found[0] == found[1]
    assert read > 400


def test_maps_oneofs_and_defaults_of_a_text() -> None:
    text = """
    syntax = 'proto3';
    message M {
      map<string, int32> counts = 1;
      oneof choice { string name = 2; Inner inner = 3; }
      Inner.Kind kind = 4;
      message Inner { enum Kind { A = 0; B = -1; } bool b = 1; }
    }
    """
    read = reader(RegisteredSchema("PROTOBUF", text))
    start = b"\0\0\0\0\7\0"
    entry = field(1, field(1, b"k") + field(2, 3))
    assert read.value(start + entry + field(3, field(1, 1)) + field(4, -1)) == {
        "counts": {"k": 3}, "name": None, "inner": {"b": True}, "kind": "B"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("syntax = proto3;", "in place of a text in quotes"),
        ("message M { int32 a = x; }", "in place of a number"),
        ("message M { int32 a = 1", "ends too early"),
        ("message M { optional group G = 1 { } }", "has a group"),
        ('edition = "2023";', "of an edition"),
        ("message M { Absent a = 1; }", "cannot be resolved"),
        ("message §", "at character 8"),
        ("AAAA", "is not a descriptor"),
    ],
)
def test_a_text_that_is_no_schema_has_a_reason(text: str, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        reader(RegisteredSchema("PROTOBUF", text)).value(b"\0\0\0\0\7\0")


def test_events_decode_with_a_file_of_descriptors(tmp_path: Path) -> None:
    described = descriptor_pb2.FileDescriptorSet(file=[_timestamp(), money(), shop()])
    (tmp_path / "shop.desc").write_bytes(described.SerializeToString())
    schema = {"file": "shop.desc", "message": "shop.Order"}

    def entry(fields: dict[str, Any], **given: Any) -> Input:
        topic = {"topic": "i", "format": {"kind": "protobuf", "schema": schema, **given}, "fields": fields}
        return Input.model_validate(topic, context={"folder": tmp_path})

    fields = {"id": "id", "key": ["page", "colour"], "event_time": "at"}
    raw = field(1, 5) + field(2, b"/a") + field(3, field(1, 1)) + field(8, 1)
    for given, prefix in (({}, b""), ({"schema_id": "prefix"}, b"\0\0\0\0\5" + ORDER)):
        decoder = pickle.loads(pickle.dumps(RecordDecoder(entry(fields, **given))))
        assert decoder.decode(Record(prefix + raw)) == Event(5, '["/a","RED"]', 1_000_000)
    for path in ("price.unit", "price.scale", "at.seconds", "paid.euros", "items.0.at"):
        with pytest.raises(ValueError, match=f"{re.escape(path)} is not in shop.Order; use one of id, page"):
            entry({**fields, "id": path, "event_time": "$timestamp"})
    for path in ("items.0.sku", "paid.cents"):
        entry({**fields, "id": path})
    schema["message"] = "shop.Nothing"
    with pytest.raises(ValueError, match=r"use one of google\.protobuf\.Timestamp, m\.Money, shop\.Other, shop\.Order"):
        entry(fields)
    schema["file"] = "absent.desc"
    with pytest.raises(ValueError, match="it cannot be read"):
        entry(fields)

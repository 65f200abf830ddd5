"""Keys in formats with schemas, and records that name a schema by its GUID: from the registry to decoded records."""

from __future__ import annotations

import io
import pickle
import struct
import threading
import uuid
from collections.abc import Iterator
from typing import Any, Final

import fastavro
import msgpack
import pytest

from testbed.registry_stub import RegistryStub
from validator.codecs.one_record import Event, Record, RecordDecoder, Result
from validator.config.registry import SchemaRegistry
from validator.model.schemas import SchemaUnknown
from validator.settings.topics import Input, Output
from validator.stream import registry
from validator.stream.registry import Registry

pytestmark = pytest.mark.unit
PAGE: Final = {"type": "record", "name": "Page", "fields": [{"name": "page", "type": "string"}]}
PROTO: Final = 'syntax = "proto3"; message Page { string page = 1; }'
GUID: Final = uuid.UUID(int=0xA1B2)
OF_GUID: Final = b"\1" + GUID.bytes
MS: Final = 1_767_225_600_000


def bare() -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(PAGE), {"page": "/a"})
    return buffer.getvalue()


AVRO: Final = struct.pack(">bI", 0, 7) + bare()
PROTOBUF: Final = struct.pack(">bI", 0, 8) + b"\0\x0a\x02/a"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(registry, "_RETRY_SECONDS", 0.05)
    stub = RegistryStub()
    for number in (7, str(GUID)):
        stub.add(number, PAGE)
    stub.add(8, PROTO, schemaType="PROTOBUF")
    settings = SchemaRegistry.model_validate({"url": stub.url})
    yield Registry(settings, None, print, threading.Event(), wait_seconds=5.0)
    stub.close()


def decoded(topic: Input | Output, record: Record, known: Registry, **given: Any) -> object:
    """The record as a worker decodes it, with the schemas that its first attempt lacks."""
    try:
        return pickle.loads(pickle.dumps(RecordDecoder(topic, **given))).decode(record)
    except SchemaUnknown as unknown:
        known.look_up(unknown.schemas)
    return pickle.loads(pickle.dumps(RecordDecoder(topic, schemas=known.schemas, **given))).decode(record)


@pytest.mark.parametrize(
    ("key_format", "key", "headers"),
    [
        ("avro", AVRO, []),
        ({"kind": "avro", "schema_id": "headers"}, bare(), [("__key_schema_id", OF_GUID)]),
        ({"kind": "avro", "schema_id": "headers"}, AVRO, [("__value_schema_id", OF_GUID)]),
        ("protobuf", PROTOBUF, []),
        ({"kind": "protobuf", "schema_id": "headers"}, PROTOBUF[6:], [("__key_schema_id", PROTOBUF[:6])]),
        ("json_schema", b'\0\0\0\0\x09{"page":"/a"}', []),
        ("msgpack", msgpack.packb({"page": "/a"}), []),
    ],
)
def test_a_field_of_a_key_is_read(key_format: Any, key: bytes, headers: Any, known: Registry) -> None:
    fields = {"id": "id", "key": "$key.page", "event_time": {"path": "at", "unit": "ms"}}
    topic = Input.model_validate({"topic": "i", "key_format": key_format, "fields": fields})
    found = decoded(topic, Record(b'{"id":1,"at":2}', key, headers), known)
    assert found == Event(1, "/a", 2000)


@pytest.mark.parametrize(("inner", "key"), [("avro", AVRO), ("protobuf", PROTOBUF), ("msgpack", b"\x81\xa4page\xa2/a")])
def test_a_windowed_key_has_the_fields_of_its_inner_format(inner: str, key: bytes, known: Registry) -> None:
    fields = {"key": "$key.page", "window_start": "$key.window_start", "ids": "$value"}
    given = {"topic": "o", "key_format": {"kind": "time_windowed", "inner": inner, "size": "15s"}, "fields": fields}
    record = Record(b"[1,2]", key + struct.pack(">q", MS))
    found = decoded(Output.model_validate(given), record, known, window_us=15_000_000)
    assert found == Result("/a", MS * 1000, ([1, 2],))


def test_values_that_name_their_schema_by_a_guid_are_read(known: Registry) -> None:
    fields = {"id": "page", "key": "page", "event_time": "$timestamp"}
    topic = Input.model_validate({"topic": "i", "format": {"kind": "avro", "schema_id": "headers"}, "fields": fields})
    headers = [("__value_schema_id", b"\1" + uuid.UUID(int=1).bytes), ("__value_schema_id", OF_GUID)]
    assert decoded(topic, Record(bare(), None, headers, 9), known) == Event("/a", "/a", 9)
    assert set(known.schemas) == {str(GUID)}, "the last header counts"

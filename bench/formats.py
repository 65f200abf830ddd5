"""Records per second of each format beside JSON of the same records, in one process: ``python -m bench.formats``.

A worker's processor time is measured: its messages become columns, and are decoded and grouped, but not fetched.
``scripts/bench formats`` measures the whole sidecar.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import random
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import fastavro
import numpy as np
from confluent_kafka import Message
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from testbed.checkout import machine
from validator.codecs.columns import DECODED
from validator.config.load import loads
from validator.config.model import Config
from validator.model.schemas import NO_SCHEMAS, RegisteredSchema, Schemas
from validator.stream.decode import event_reader, result_reader
from validator.stream.kafka_reading import Columns
from validator.stream.stage import Stage

RECORDS: Final = 16_384
"""Records of a batch, as the workers have them."""
_AT_ONCE: Final = 1_000
"""Messages that a worker copies together."""
START_MS: Final = 1_767_225_600_000
PREFIX: Final = struct.pack(">bI", 0, 1)
AT: Final = {"type": "long", "logicalType": "timestamp-millis"}
CONFIG: Final = """
pipeline: bench
guarantee: exactly_once
kafka: {bootstrap_servers: "localhost:9092"}
schema_registry: {url: "http://localhost:8081"}
inputs: [{topic: in, format: %s, key_format: text, fields: %s}]
outputs: [{topic: out, format: %s, key_format: %s, fields: %s}]
oracle: {kind: tumbling_window, size: 10s}
state: {path: state}
"""
EVENT: Final = "{id: id, key: page, event_time: {path: at, unit: ms}}"
TYPED_EVENT: Final = "{id: id, key: page, event_time: at}"
RESULT: Final = "{key: page, window_start: {path: start, unit: ms}, ids: ids}"
IN_PARTS: Final = "{id: $value, key: $key, event_time: $timestamp}"
Record = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """Records in one format. ``of``: `event`, `UUID event` or `result`. ``written``: a record's value and key."""

    of: str
    format: str
    written: Callable[[Record], tuple[bytes, bytes | None]]
    fields: str
    key_format: str = "text"
    schemas: Schemas = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The kind of the format."""
        return self.format.removeprefix("{kind: ").partition(",")[0]


def event_cases() -> dict[str, Case]:
    """Format -> the case of events with integer ids."""
    return {case.name: case for case in _cases() if case.of == "event"}


def _json(record: Record) -> tuple[bytes, None]:
    return json.dumps(record, separators=(",", ":")).encode(), None


def _avro(*fields: tuple[str, Any]) -> tuple[Callable[[Record], tuple[bytes, None]], Schemas]:
    schema = {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    parsed = fastavro.parse_schema(schema)

    def written(record: Record) -> tuple[bytes, None]:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, record)
        return PREFIX + buffer.getvalue(), None

    return written, {1: RegisteredSchema("AVRO", json.dumps(schema))}


def _protobuf(*fields: tuple[str, Any]) -> tuple[Callable[[Record], tuple[bytes, None]], Schemas]:
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="r", syntax="proto3")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    message = file.message_type.add(name="R")
    for number, (name, kind) in enumerate(fields, 1):
        described = message.field.add(name=name, number=number, label=3 if name == "ids" else 1)
        if isinstance(kind, str):
            described.type, described.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, kind
        else:
            described.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("r.R"))

    def written(record: Record) -> tuple[bytes, None]:
        given = {name: value for name, value in record.items() if name not in ("at", "kind") and value is not None}
        one: Any = made(**given)
        if "at" in record:
            one.at.FromMilliseconds(record["at"])
        return PREFIX + b"\0" + one.SerializeToString(), None

    return written, {1: RegisteredSchema("PROTOBUF", base64.b64encode(file.SerializeToString()).decode())}


def _cases() -> Iterator[Case]:
    text, kind = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, {"type": "enum", "name": "K", "symbols": ["A", "B"]}
    number, double = descriptor_pb2.FieldDescriptorProto.TYPE_INT64, descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE
    pattern = r"{kind: text, pattern: '(?P<id>\S+) (?P<page>\S+) (?P<at>\d+)'}"
    for of, avro_id, proto_id in (("event", "long", number), ("UUID event", "string", text)):
        rest = (("page", "string"), ("at", AT), ("price", "double"), ("kind", kind), ("note", ["null", "string"]))
        avro, avro_schemas = _avro(("id", avro_id), *rest)
        proto, proto_schemas = _protobuf(
            ("id", proto_id), ("page", text), ("at", ".google.protobuf.Timestamp"), ("price", double), ("note", text)
        )
        yield Case(of, "json", _json, EVENT)
        yield Case(of, "json_schema", lambda one: (PREFIX + _json(one)[0], None), EVENT)
        yield Case(of, "avro", avro, TYPED_EVENT, schemas=avro_schemas)
        yield Case(of, "protobuf", proto, TYPED_EVENT, schemas=proto_schemas)
        yield Case(of, pattern, lambda one: (f"{one['id']} {one['page']} {one['at']}".encode(), None), EVENT)
        columns = "{kind: csv, columns: [id, page, at]}"
        yield Case(of, columns, lambda one: (f"{one['id']},{one['page']},{one['at']}".encode(), None), EVENT)
    yield Case("event", "long", lambda one: (struct.pack(">q", one["id"]), one["page"].encode()), IN_PARTS)
    yield Case("event", "double", lambda one: (struct.pack(">d", one["id"]), one["page"].encode()), IN_PARTS)
    yield Case("UUID event", "uuid", lambda one: (one["id"].encode(), one["page"].encode()), IN_PARTS)
    avro, avro_schemas = _avro(("page", "string"), ("start", "long"), ("ids", {"type": "array", "items": "long"}))
    proto, proto_schemas = _protobuf(("page", text), ("start", number), ("ids", number))
    yield Case("result", "json", _json, RESULT)
    yield Case("result", "avro", avro, RESULT, schemas=avro_schemas)
    yield Case("result", "protobuf", proto, RESULT, schemas=proto_schemas)
    windowed = "{key: $key, window_start: $key.window_start, ids: ids}"
    in_key = "{kind: time_windowed, size: 10s}"
    yield Case("result", "json", lambda one: (_json(one)[0], _windowed(one)), windowed, in_key)


def _windowed(one: Record) -> bytes:
    return str(one["page"]).encode() + struct.pack(">q", one["start"])


def _records(of: str, chance: random.Random) -> list[Record]:
    found = []
    for number in range(RECORDS):
        page = f"/page-{chance.randrange(50)}"
        if of == "result":
            found.append({"page": page, "start": START_MS, "ids": [chance.randrange(10**9) for _ in range(10)]})
            continue
        event_id = chance.randrange(10**9) if of == "event" else str(uuid.UUID(int=chance.getrandbits(128)))
        more = {"price": chance.random(), "kind": "A", "note": None if number % 2 else "a note"}
        found.append({"id": event_id, "page": page, "at": START_MS + number, **more})
    return found


def _config(case: Case) -> Config:
    event = (case.format, case.fields) if case.of != "result" else ("json", EVENT)
    result = (case.format, case.key_format, case.fields) if case.of == "result" else ("json", "text", RESULT)
    return loads(CONFIG % (*event, *result), ".", (), {})


def seconds_per_record(case: Case, records: Sequence[Record], repeats: int) -> float:
    """Processor time in seconds; the best of ``repeats`` passes over a batch."""
    config = _config(case)
    schemas = case.schemas or NO_SCHEMAS
    if case.of == "result":
        reader = result_reader(config.outputs[0], config.oracle, "auto", limits=config.limits, schemas=schemas)
    else:
        reader = event_reader(config.inputs[0], config.oracle, 0, "auto", limits=config.limits, schemas=schemas)
    stage = Stage([reader], 2**62, with_first_event=True)
    messages = [
        Message(topic="in", partition=0, offset=n, value=value, key=key, timestamp=(1, START_MS))
        for n, (value, key) in enumerate(map(case.written, records))
    ]
    best = float("inf")
    for _ in range(repeats):
        columns = Columns(0, reader.decoder)
        began = time.process_time()
        for start in range(0, len(messages), _AT_ONCE):
            some = messages[start : start + _AT_ONCE]
            columns.add(some, np.arange(start, start + len(some), dtype=np.int64))
        [facts] = stage.facts(0, iter([columns.batch()]))
        best = min(best, time.process_time() - began)
        assert set(facts["status"].to_pylist()) == {DECODED}, "every record is decoded"
    return best / len(messages)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.formats", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, help="passes over each batch; the best one counts")
    repeats = parser.parse_args().repeats
    print(f"{machine()}; one core\n")
    print("| records | format | thousand records/s | ratio to JSON |\n|---|---|---:|---:|")
    json_seconds: dict[str, float] = {}
    for case in _cases():
        took = seconds_per_record(case, _records(case.of, random.Random(1)), repeats)
        base = json_seconds.setdefault(case.of, took)
        named = f"`{case.name}`" + (", `time_windowed` key" if case.key_format != "text" else "")
        print(f"| {case.of} | {named} | {1e-3 / took:,.0f} | {base / took:.2f} |")


if __name__ == "__main__":
    main()

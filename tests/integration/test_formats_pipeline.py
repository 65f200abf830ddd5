"""Pipelines of other formats than JSON on a real broker: text and windowed keys; and Avro and Protobuf with a registry
that goes away while a new version of a schema appears."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Iterator
from typing import Any, Final

import fastavro
import pytest

from testbed.registry_stub import RegistryStub
from tests.integration.sidecar_fixtures import Pipeline, counts, pipeline, spark
from validator.cli import samples
from validator.stream import generations
from validator.stream.failures import CannotVerify

__all__ = ["pipeline", "spark"]
pytestmark = [pytest.mark.timeout(600)]

TEXT: Final = (
    (
        "inputs.0={topic: NAME-in, format: {kind: text, pattern: '(?P<id>\\d+) (?P<page>\\S+) (?P<at>\\d+)'}, "
        "fields: {id: id, key: page, event_time: {path: at, unit: s}}}"
    ),
    (
        "outputs.0={topic: NAME-out, key_format: {kind: time_windowed, size: 10s}, "
        "fields: {key: $key, window_start: $key.window_start, window_end: $key.window_end, ids: $value}}"
    ),
    "late.0={topic: NAME-late, format: long, fields: {id: $value, key: $key, event_time: {path: $header.at, unit: s}}}",
)


def test_texts_are_judged_by_results_with_windowed_keys(pipeline: Pipeline) -> None:
    pipeline.create()
    settings = [one.replace("NAME", pipeline.name) for one in TEXT]
    pipeline.clicks("1 /a 1", "2 /a 2", "3 /a 3", "4 /b 4", "9 /a 99", "no click")
    for key, ids in ((b"/a", "[1,2,2]"), (b"/b", "[4]")):
        pipeline._producer.produce(pipeline.output, ids, key + struct.pack(">q", 0), 0)
    pipeline._producer.produce(pipeline.output, "[1]", b"/a1234567", 0)
    pipeline._producer.produce(pipeline.late, struct.pack(">q", 3), b"/a", 0, headers={"at": b"3"})
    pipeline._producer.flush(30)
    run = pipeline.once(*settings)
    assert run.counts() == {"expected": 5, "processed": 3, "late": 1, "duplicate": 1, "missing": 1}
    assert (run.report["inputs"]["undecodable"], run.report["results"]["undecodable"]) == (1, 1)


CHANGES: Final = (
    (
        "inputs.0={topic: NAME-in, envelope: debezium_with_schema, "
        "fields: {id: id, key: page, event_time: {path: at, unit: s}}}"
    ),
    (
        "outputs.0={topic: NAME-out, envelope: debezium, emission: cumulative, "
        "fields: {key: page, window_start: {path: start, unit: s}, ids: ids}}"
    ),
)


def change(operation: str, row: dict[str, Any], **around: Any) -> str:
    """A change by Debezium, and for outputs by Flink, which writes an update as `d` and `c`."""
    name, other = ("before", "after") if operation == "d" else ("after", "before")
    written = {"op": operation, name: row, other: None}
    return json.dumps({**around, "payload": written} if around else written)


def test_changes_are_events_as_declared_and_a_deletion_withdraws_a_result(pipeline: Pipeline) -> None:
    pipeline.create()
    settings = [one.replace("NAME", pipeline.name) for one in CHANGES]
    rows = [{"id": number, "page": "ab"[number // 3], "at": number} for number in range(5)]
    changes = [change("rc"[number % 2], row, schema={}) for number, row in enumerate(rows)]
    ignored = [change(operation, rows[0], schema={}) for operation in "ud"]
    pipeline.clicks(*changes, *ignored, None, change("x", rows[0], schema={}))
    results = [{"page": page, "start": 0, "ids": ids} for page, ids in (("a", [0]), ("a", [0, 1]), ("b", [3, 4]))]
    for operation, number in ("c", 0), ("d", 0), ("c", 1), ("c", 2), ("d", 2):
        pipeline.answers(change(operation, results[number]))
    run = pipeline.once(*settings)
    assert run.counts() == {"expected": 5, "processed": 2, "missing": 3}
    assert run.report["coverage"]["events"]["tombstone"] == 3
    assert (run.report["inputs"]["undecodable"], run.report["results"]["undecodable"]) == (1, 0)
    assert "field envelope (path payload.op) is no operation of" in "; ".join(run.report["reasons"])


AT: Final = {"type": "long", "logicalType": "timestamp-millis"}
CLICK: Final = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": "id", "type": "long"}, {"name": "page", "type": "string"}, {"name": "at", "type": AT}],
}
NEWER: Final = {**CLICK, "fields": [{"name": "user", "type": ["null", "string"], "default": None}, *CLICK["fields"]]}
ANSWER: Final = """
syntax = "proto3";
package shop;
message Answer { string page = 1; int64 start = 2; repeated int64 ids = 3; }
"""
AVRO: Final = (
    "inputs.0={topic: NAME-in, format: avro, fields: {id: id, key: page, event_time: at}}",
    (
        "outputs.0={topic: NAME-out, format: protobuf, "
        "fields: {key: page, window_start: {path: start, unit: ms}, ids: ids}}"
    ),
)


@pytest.fixture
def registry() -> Iterator[RegistryStub]:
    stub = RegistryStub("Basic dXNlcjpzZWNyZXQ=")
    yield stub
    stub.close()


def framed(number: int, schema: Any, value: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, number) + buffer.getvalue()


def click(event_id: int, seconds: int, number: int = 1, page: str = "a") -> bytes:
    value = {"id": event_id, "page": page, "at": seconds * 1000, "user": "u"}
    return framed(number, CLICK if number == 1 else NEWER, value)


def varint(number: int) -> bytes:
    return bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80]) + varint(number >> 7)


def answer(ids: list[int], window: int = 0, number: int = 2) -> bytes:
    """A message of `ANSWER` in Confluent's framing, which names the first type of the file."""
    items = b"".join(map(varint, ids))
    message = b"\x0a\x01a\x10" + varint(window * 10_000) + b"\x1a" + varint(len(items)) + items
    return struct.pack(">bI", 0, number) + b"\0" + message


def test_a_registry_that_is_away_delays_and_accuses_nobody(pipeline: Pipeline, registry: RegistryStub) -> None:
    registry.add(1, CLICK)
    registry.add(2, ANSWER, schemaType="PROTOBUF")
    settings = [one.replace("NAME", pipeline.name) for one in AVRO]
    settings += [f"schema_registry={{url: {registry.url}, basic_auth: {{username: user, password: secret}}}}"]
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 11))
    pipeline.answers(answer([1]))
    with pipeline.live(*settings, "timing.blind_after=3s") as live:
        live.until(lambda r: r["contributions"]["processed"] == 1)
        registry.is_away = True
        pipeline.clicks(click(3, 21, number=3), click(4, 31, number=3))
        pipeline.answers(answer([2], 1))
        live.until_said("answers with status 503; records of schema 3 are not verified until it answers")
        report = live.until(lambda r: "nothing after it is verified" in "; ".join(r["reasons"]))
        assert "because the schema registry at" in "; ".join(report["reasons"])
        assert report["outcome"] == "unknown"
        registry.add(3, NEWER)
        registry.is_away = False
        pipeline.answers(answer([3], 2))
        report = live.until(lambda r: r["contributions"]["processed"] == 3)
        assert counts(report) == {"expected": 4, "processed": 3, "pending": 1}
        assert report["violations"]["retracted"]["missing"] == 0
        live.until_said("the schema registry answers again")
        # The id that the registry does not have: the result is a violation, and the reason names the id.
        pipeline.answers(answer([3], 2, number=9))
        live.until_said("the schema registry does not have schema 9")
        report = live.until(lambda r: r["results"]["undecodable"] == 1)
    assert registry.asked.count("/schemas/ids/1") == 1, "a schema is read once"

    found = [one.text for one in samples.check(pipeline.config(*settings), {pipeline.input: [0], pipeline.output: [0]})]
    assert any("4 of the newest 4 decode" in text for text in found), found
    assert any("names schema 9, which the registry does not have" in text for text in found), found
    found = [one.text for one in samples.check(pipeline.config(), {pipeline.input: [0]})]
    assert any("begins with Confluent's wire prefix of schema 3, with Avro or Protobuf" in text for text in found), (
        found
    )

    registry.is_away = True
    pipeline.answers(answer([4], 3))
    run = pipeline.once(*settings)
    assert run.counts("processed", "missing") == {"processed": 4, "missing": 0}, "the state has the schemas"


def test_a_run_to_the_end_ends_if_the_registry_stays_away(
    pipeline: Pipeline, registry: RegistryStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generations, "_REGISTRY_SECONDS_MAX", 1.0)
    registry.add(1, CLICK)
    registry.add(2, ANSWER, schemaType="PROTOBUF")
    registry.is_away = True
    settings = [one.replace("NAME", pipeline.name) for one in AVRO]
    settings += [f"schema_registry={{url: {registry.url}, basic_auth: {{username: user, password: secret}}}}"]
    pipeline.create()
    pipeline.clicks(click(1, 1))
    pipeline.answers(answer([1]))
    with pytest.raises(CannotVerify, match=r"the schema registry at .* answers with status 503") as ended:
        pipeline.once(*settings)
    assert ended.value.exit_status == 3
    registry.is_away = False
    assert pipeline.once(*settings).counts() == {"expected": 1, "processed": 1}


KEYS: Final = (
    ("inputs.0={topic: NAME-in, key_format: avro, fields: {id: id, key: $key.page, event_time: {path: at, unit: s}}}"),
    (
        "outputs.0={topic: NAME-out, key_format: {kind: time_windowed, inner: avro, size: 10s}, fields: "
        "{key: $key.page, window_start: $key.window_start, window_end: $key.window_end, ids: $value}}"
    ),
)


def test_keys_in_avro_are_judged(pipeline: Pipeline, registry: RegistryStub) -> None:
    page = {"type": "record", "name": "Page", "fields": [{"name": "page", "type": "string"}]}
    registry.add(4, page)
    settings = [one.replace("NAME", pipeline.name) for one in KEYS]
    settings += [f"schema_registry={{url: {registry.url}, basic_auth: {{username: user, password: secret}}}}"]
    pipeline.create()
    keys = {name: framed(4, page, {"page": name}) for name in "ab"}
    for number, name in ((1, "a"), (2, "b"), (3, "a")):
        pipeline._producer.produce(pipeline.input, json.dumps({"id": number, "at": number}), keys[name], 0)
    for name, ids in (("a", "[1]"), ("b", "[2,2]")):
        pipeline._producer.produce(pipeline.output, ids, keys[name] + struct.pack(">q", 0), 0)
    pipeline._producer.flush(30)
    run = pipeline.once(*settings)
    assert run.counts() == {"expected": 3, "processed": 2, "duplicate": 1, "missing": 1}

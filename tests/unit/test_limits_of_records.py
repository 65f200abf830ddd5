"""Values, keys and ids at and above their limits: those above are not examined, and their size is reported, in every
decoder.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from validator.codecs import one_record
from validator.codecs.batches import EventBatches, ResultBatches, columns_of
from validator.codecs.columns import DECODED, UNDECODABLE, UNEXAMINED
from validator.codecs.one_record import TOO_LARGE, OmittedPart, Record, RecordDecoder, Undecodable, Unexamined
from validator.codecs.plain_events import RECORD_SCHEMA
from validator.config.load import loads
from validator.config.model import Input, Late, Limits, Output

pytestmark = pytest.mark.unit

LIMITS = Limits(value_bytes=200, key_bytes=10, id_bytes=8)
CONFIG = loads(
    """
pipeline: p
guarantee: exactly_once
kafka: {bootstrap_servers: "localhost:9092"}
inputs: [{topic: in, fields: {id: id, key: [page, region], event_time: {path: at, unit: ms}}}]
outputs: [{topic: out, fields: {key: [page, region], window_start: {path: at, unit: ms}, ids: ids}}]
oracle: {kind: tumbling_window, size: 60s}
state: {path: /tmp/unused}
""",
    "/etc",
    [],
    {},
)
EVENT: dict[str, Any] = {"id": 1, "page": "a", "region": "b", "at": 0}
RESULT: dict[str, Any] = {"ids": [1, "x"], "page": "a", "region": "b", "at": 0}


def padded(record: dict[str, Any], size: int) -> bytes:
    """The record as JSON, padded to ``size`` bytes."""
    empty = json.dumps({**record, "pad": ""}).encode()
    return json.dumps({**record, "pad": "x" * (size - len(empty))}).encode()


def utf8(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode()


CASES: dict[str, tuple[dict[str, Any], bytes, str | None]] = {
    "a value at its limit": (EVENT, padded(EVENT, 200), None),
    "a value above it": (EVENT, padded(EVENT, 201), "its value has 201 bytes, above limits.value_bytes"),
    "a value that stayed in the JVM": (EVENT, TOO_LARGE + b"900000000",
                                       "its value has 900000000 bytes, above limits.value_bytes"),
    "an id at its limit": (EVENT, utf8({**EVENT, "id": "12345ä6"}), None),
    "an id above it": (EVENT, utf8({**EVENT, "id": "12345ä67"}), "its id has 9 bytes, above limits.id_bytes"),
    "an integer is never too long": (EVENT, utf8({**EVENT, "id": 2**62}), None),
    "a key of several fields at its limit": (EVENT, utf8({**EVENT, "page": "12", "region": "4"}), None),
    "a key of several fields above it": (EVENT, utf8({**EVENT, "page": "123", "region": "4"}),
                                         "its key has 11 bytes, above limits.key_bytes"),
    "a result whose value is too large": (RESULT, padded(RESULT, 201),
                                          "its value has 201 bytes, above limits.value_bytes"),
    "a list with a long id": (RESULT, utf8({**RESULT, "ids": [7, "x", "12345678x"]}),
                              "one of its ids has 9 bytes, above limits.id_bytes"),
    "a list of short ids": (RESULT, utf8({**RESULT, "ids": [7, "x", "12345678"] * 4}), None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_record_above_a_limit_is_not_examined(name: str) -> None:
    shape, value, reason = CASES[name]
    entry = CONFIG.inputs[0] if shape is EVENT else CONFIG.outputs[0]
    decoder = RecordDecoder(entry, limits=LIMITS)
    found = decoder.decode(Record(value))
    assert isinstance(found, Undecodable) == (reason is not None)
    assert isinstance(found, Unexamined) == (reason is not None)
    batch = pa.RecordBatch.from_pylist([{"value": value, "partition": 0, "offset": 3, "time_us": 0}], RECORD_SCHEMA)
    assert columns_of(decoder) == RECORD_SCHEMA.names
    if shape is EVENT:
        (rows,) = EventBatches(decoder, None, None)([batch])
        assert (rows["event_time_us"][0].as_py() is None) == (reason is not None)
    else:
        (rows,) = ResultBatches(decoder, [])([batch])
        assert rows["status"][0].as_py() == (DECODED if reason is None else UNEXAMINED)
    assert rows["key"][0].as_py() == (reason or '["12","4"]' if "several" in name else reason or '["a","b"]')


def test_without_limits_nothing_is_too_large() -> None:
    assert not isinstance(RecordDecoder(CONFIG.inputs[0]).decode(Record(padded(EVENT, 2**20))), Undecodable)


def test_an_undecodable_record_is_not_reported_as_too_large() -> None:
    batch = pa.RecordBatch.from_pylist([{"value": b"{", "partition": 0, "offset": 3, "time_us": 0}], RECORD_SCHEMA)
    (rows,) = ResultBatches(RecordDecoder(CONFIG.outputs[0], limits=LIMITS), [])([batch])
    assert (rows["status"][0].as_py(), rows["key"][0].as_py()) == (UNDECODABLE, None)


PARTS = {"id": "$header.id", "key": ["$key", "$header.region"], "event_time": {"path": "$header.at", "unit": "ms"}}
RECORD = Record(b"{}", b"a", [("id", b"1"), ("region", b"b"), ("at", b"5")])


@pytest.mark.parametrize(
    ("part", "size", "field", "limit"),
    [
        ("id", 9, "id", "id_bytes"),
        ("region", 11, "key", "key_bytes"),
        ("at", 201, "event_time", "value_bytes"),
        ("key", 11, "key", "key_bytes"),
    ],
)
def test_a_key_or_header_above_its_limit_is_not_examined(part: str, size: int, field: str, limit: str) -> None:
    """The same holds if the JVM transfers only the size of the content."""
    decoder = RecordDecoder(Input.model_validate({"topic": "in", "fields": PARTS}), limits=LIMITS)
    assert (decoder.most_of_key, decoder.most_of_header) == (10, {"id": 8, "region": 10, "at": 200})
    assert not isinstance(decoder.decode(RECORD), Undecodable)
    for content in (b"7" * size, OmittedPart(size)):
        record = RECORD._replace(headers=[(name, content if name == part else value) for name, value in RECORD.headers])
        if part == "key":
            record = RECORD._replace(key=content)
        found = decoder.decode(record)
        assert isinstance(found, Unexamined)
        assert (found.field, found.reason) == (field, f"has {size} bytes, above limits.{limit}")


@pytest.mark.parametrize("content", [b"[" + b"1," * 99 + b"1111]", OmittedPart(900_000_000)])
def test_ids_of_a_header_above_the_limit_are_not_parsed(
    content: bytes | OmittedPart, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = {"key": "$key", "window_start": "$timestamp", "ids": "$header.ids"}
    decoder = RecordDecoder(Output.model_validate({"topic": "out", "fields": fields}), limits=LIMITS)
    record = Record(b"{}", b"a", [("ids", content)])
    assert not isinstance(decoder.decode(record._replace(headers=[("ids", b"[" + b"1," * 98 + b"1]")])), Undecodable)
    monkeypatch.setattr(one_record, "parsed", lambda _: pytest.fail("it is parsed"))
    found = decoder.decode(record)
    size = content.size if isinstance(content, OmittedPart) else len(content)
    assert isinstance(found, Unexamined)
    assert (found.field, found.reason) == ("ids", f"has {size} bytes, above limits.value_bytes")


def test_a_rejected_record_with_a_too_long_position_names_no_position() -> None:
    fields = {**PARTS, "position": {name: f"$header.{name}" for name in ("topic", "partition", "offset")}}
    decoder = RecordDecoder(Late.model_validate({"topic": "dead", "fields": fields}), limits=LIMITS)
    named: list[tuple[str, bytes | OmittedPart | None]] = [("topic", b"in"), ("partition", b"0"), ("offset", b"12")]
    assert decoder.named_position(Record(b"{}", b"a", named)) == "in/0/12"
    for place, (name, _) in enumerate(named):
        assert (
            decoder.named_position(Record(b"{}", b"a", [*named[:place], (name, OmittedPart(900)), *named[place + 1 :]]))
            is None
        )

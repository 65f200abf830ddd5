"""Records that name their schema: Confluent's wire prefix, and the headers of its newer serializers.

The prefix is a zero byte and the id in four bytes (Confluent's "Wire format"). A header has either the same five bytes,
or the byte 1 and the GUID of the schema in 16 bytes (`io.confluent.kafka.serializers.schema.id.SchemaId`).
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import PlainSerializer

from validator.model.schemas import RegisteredSchema, Schemas, SchemaUnknown
from validator.settings.errors import broken_rule_at
from validator.settings.fields import Frozen
from validator.settings.formats.seam import Part, Unreadable
from validator.settings.local_paths import LocalPath

SchemaIdPlace = Literal["prefix", "headers", "none"]
HEADERS: Final[dict[Part, str]] = {"value": "__value_schema_id", "key": "__key_schema_id"}
PREFIX_BYTES: Final = 5
"""Bytes of Confluent's wire prefix."""
GUID_BYTES: Final = 17
"""Bytes of a header with a GUID."""
_INDEXES_MAX: Final = 100


def _name(path: Path) -> str:
    """The identity of a state has the name of the file: its folder may move, and its schema may get a new version."""
    return path.name


class SchemaFile(Frozen):
    """A schema in a file."""

    file: Annotated[LocalPath, PlainSerializer(_name, return_type=str, when_used="json")]
    """The file."""


class Framed(NamedTuple):
    """The schema that a record names, and where its content begins in ``raw``."""

    schema: int | str
    raw: bytes
    start: int


def framed(raw: bytes, header: bytes | None) -> Framed:
    """What a record names, in its header if it has one, else in its prefix. Raises Unreadable."""
    if header is None:
        if len(raw) < PREFIX_BYTES or raw[0] != 0:
            raise Unreadable("does not begin with Confluent's wire prefix (a zero byte and the id of a schema)")
        return Framed(int.from_bytes(raw[1:PREFIX_BYTES], "big"), raw, PREFIX_BYTES)
    if header[:1] == b"\1" and len(header) >= GUID_BYTES:
        return Framed(str(uuid.UUID(bytes=header[1:GUID_BYTES])), raw, 0)
    if header[:1] == b"\0" and len(header) >= PREFIX_BYTES:
        return Framed(int.from_bytes(header[1:PREFIX_BYTES], "big"), raw, 0)
    raise Unreadable("has a schema header that is neither an id nor a GUID")


def place_of(schema_id: SchemaIdPlace | None, file: SchemaFile | None) -> SchemaIdPlace:
    """Where a record names its schema. Raises PydanticCustomError if neither a record nor a file has one."""
    if schema_id == "none" and file is None:
        raise broken_rule_at("schema", "records name no schema, and there is no file", "write schema.file")
    return schema_id or ("prefix" if file is None else "none")


def schema_of(schema: int | str, schemas: Schemas, kind: str) -> RegisteredSchema:
    """A schema of a kind by its id or GUID. Raises Unreadable if the registry does not have it, and `SchemaUnknown`."""
    if schema not in schemas:
        raise SchemaUnknown(schema)
    found = schemas[schema]
    if found is None:
        raise Unreadable(f"names schema {schema}, which the registry does not have")
    if found.kind != kind:
        raise Unreadable(f"names schema {schema}, which is of the type {found.kind}")
    return found


def message_indexes(raw: bytes, start: int) -> tuple[tuple[int, ...], int]:
    """The place of a message's type in its file, as indexes from the outer types to the inner ones, and the place after
    them. Confluent's encoding: their number and each one in zigzag; a single zero stands for the first type. Raises
    Unreadable."""
    count, at = _zigzag(raw, start)
    if not 0 <= count <= _INDEXES_MAX:
        raise Unreadable(f"has {count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(raw, at)
        if index < 0:
            raise Unreadable(f"has the message index {index}")
        indexes.append(index)
    return tuple(indexes) or (0,), at


def _zigzag(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(raw) and shift < 35:
        number |= (raw[at] & 0x7F) << shift
        if raw[at] < 0x80:
            return (number >> 1) ^ -(number & 1), at + 1
        at, shift = at + 1, shift + 7
    raise Unreadable("ends within its message indexes")

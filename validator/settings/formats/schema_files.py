"""The formats of values whose schema is in a file (`config init --schema`)."""

from __future__ import annotations

from typing import Final

from validator.settings.encodings.avro_schema import SchemaInvalid, parsed_schema
from validator.settings.formats.guesses import Setting

_IMPORTED: Final = "google.protobuf."


class SchemaUnusable(ValueError):
    """A file has no schema that can be used; the message is a clause about the file."""


def formats_of_schema(path: str, raw: bytes, message: str, *, has_registry: bool) -> list[Setting]:
    """Return the formats that values may have with the schema in a file. ``raw``: its content. ``message``: the type of
    Protobuf; empty: the only one. ``has_registry``: records may name the schema with which they were written. Raises
    `SchemaUnusable`."""
    try:
        parsed_schema(raw.decode())
    except (SchemaInvalid, UnicodeDecodeError):
        of_messages = {"kind": "protobuf", "schema": {"file": path, "message": _type(raw, message)}}
        return [of_messages, {**of_messages, "schema_id": "prefix"}]
    of_values = {"kind": "avro", "schema": {"file": path}}
    # Without a registry, the schema with which a record was written is that of the file.
    return [of_values, {**of_values, "schema_id": "prefix"}] if has_registry else [of_values]


def _type(raw: bytes, message: str) -> str:
    """Return the type of the messages: ``message``, else the only one in the descriptors."""
    from validator.settings.encodings.protobuf_values import DescriptorsInvalid, message_reader, message_types

    try:
        types = [name for name in message_types(raw) if not name.startswith(_IMPORTED)]
        if message:
            message_reader(raw, message)
    except DescriptorsInvalid:
        types = []
    except KeyError:
        raise SchemaUnusable(f"has no such type; use one of {', '.join(types)}") from None
    if not types:
        raise SchemaUnusable(
            "has neither an Avro schema nor descriptors of Protobuf; write the latter with protoc --include_imports "
            "--descriptor_set_out"
        )
    if not message and len(types) > 1:
        raise SchemaUnusable(f"has several types; add :TYPE, {' or '.join(types)}")
    return message or types[0]

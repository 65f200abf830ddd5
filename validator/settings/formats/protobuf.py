"""Protobuf: a value is one message, of a type that a file of descriptors has, or that the record names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

from validator.model.schemas import Schemas
from validator.settings.errors import broken_rule_at
from validator.settings.formats.registered import (
    GUID_BYTES,
    HEADERS,
    PREFIX_BYTES,
    SchemaFile,
    SchemaIdPlace,
    framed,
    message_indexes,
    place_of,
    schema_of,
)
from validator.settings.formats.seam import Format, Part, Path, Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

    from validator.settings.encodings.protobuf_values import MessageReader


class MessageFile(SchemaFile):
    """A file with the descriptors of `.proto` files and all that they import (`protoc --include_imports
    --descriptor_set_out=FILE`), and the type of the messages."""

    message: str
    """Full name of the type, such as `shop.Order`."""


class Protobuf(Format):
    """Protobuf's binary encoding. Fields have the names of the `.proto` file. Times (`google.protobuf.Timestamp`,
    `google.type.Date`) know their unit, enums are their names, wrappers their values. A scalar field without presence
    that is not written has its default."""

    kind: ClassVar[str] = "protobuf"
    names_all_fields: ClassVar[bool] = True
    from_file: MessageFile | None = Field(default=None, alias="schema")
    """File with the schema, and the type of the messages (`{file: shop.desc, message: shop.Order}`)."""
    schema_id: SchemaIdPlace | None = None
    """As for `avro`. With a file the named schema is skipped, else it is read from `schema_registry`."""
    _descriptors: bytes | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _readable_schema(self) -> Self:
        place_of(self.schema_id, self.from_file)
        if self.from_file is None:
            return self
        from validator.settings.encodings.protobuf_values import DescriptorsInvalid, message_reader, message_types

        try:
            self._descriptors = self.from_file.file.read_bytes()
            message_reader(self._descriptors, self.from_file.message)
        except OSError as error:
            raise broken_rule_at("schema.file", f"it cannot be read ({error.strerror})", "name a file") from None
        except DescriptorsInvalid as error:
            fix = "write it with protoc --include_imports --descriptor_set_out"
            raise broken_rule_at("schema.file", str(error), fix) from None
        except KeyError:
            types = ", ".join(message_types(self._descriptors or b"")[:10])
            raise broken_rule_at("schema.message", "the file has no such type", f"use one of {types}") from None
        return self

    @property
    def place(self) -> SchemaIdPlace:
        """Where a record names its schema."""
        return place_of(self.schema_id, self.from_file)

    @property
    def needs_registry(self) -> bool:
        """Whether records name schemas that no file has."""
        return self.from_file is None

    def reader(self, part: Part, schemas: Schemas) -> ProtobufReader:
        """The reader of messages with the descriptors of the file, or of the registry."""
        header = HEADERS[part] if self.place == "headers" else None
        message = "" if self.from_file is None else self.from_file.message
        return ProtobufReader(self._descriptors, message, self.place, schemas if self.needs_registry else None, header)

    def check(self, paths: Iterable[tuple[str, Path]]) -> None:
        """Refuse a path that no message has."""
        if self.from_file is None or self._descriptors is None:
            return
        from validator.settings.encodings.protobuf_values import message_reader

        reader = message_reader(self._descriptors, self.from_file.message)
        for place, path in paths:
            if not reader.has(path):
                known = ", ".join(reader.names) or "$value"
                raise broken_rule_at(
                    place, f"{'.'.join(path)} is not in {self.from_file.message}", f"use one of {known}"
                )


@dataclass(frozen=True)
class ProtobufReader:
    """Reads messages. ``descriptors``, ``message``: of the file. ``schemas``: those of the registry; None: the file
    counts."""

    descriptors: bytes | None
    message: str
    place: SchemaIdPlace
    schemas: Schemas | None
    header: str | None

    def value(self, raw: bytes, header: bytes | None = None) -> object:
        """The message as a mapping. Raises Unreadable and `SchemaUnknown`."""
        from validator.settings.encodings.protobuf_values import DescriptorsInvalid, message_reader

        if self.place == "none":
            return self.of_file.value(raw)
        named = framed(raw, header)
        if header is None:
            indexes, start = message_indexes(raw, named.start)
        else:
            # The indexes follow the id or the GUID, wherever that is.
            indexes, _ = message_indexes(header, GUID_BYTES if header[0] else PREFIX_BYTES)
            start = 0
        if self.schemas is None:
            return self.of_file.value(raw[start:])
        schema = schema_of(named.schema, self.schemas, "PROTOBUF")
        try:
            return message_reader(schema, indexes).value(raw[start:])
        except DescriptorsInvalid as error:
            raise Unreadable(f"names schema {named.schema}, which {error}") from None

    @property
    def of_file(self) -> MessageReader:
        """The reader of the type that the file has."""
        from validator.settings.encodings.protobuf_values import message_reader

        assert self.descriptors is not None, "without a registry there is a file"
        return message_reader(self.descriptors, self.message)

    def items(self, value: object) -> object:
        """Return ``value`` itself: repeated fields are arrays."""
        return value

    def read_columns(
        self, values: pa.Array, paths: Sequence[Path], lists: Sequence[Path], headers: pa.Array | None = None
    ) -> Mapping[Path, pa.Array] | None:
        """As `ColumnReader.read_columns`."""
        from validator.settings.encodings.protobuf_columns import columns_of_file, columns_of_registry

        if self.schemas is None:
            return columns_of_file(self.of_file, values, paths, lists, headers, is_framed=self.place != "none")
        return columns_of_registry(self.schemas, values, paths, lists, headers)

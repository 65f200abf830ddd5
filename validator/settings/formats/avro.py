"""Avro: a value is the binary encoding of one value of a schema, which a file has or the record names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import Field, PrivateAttr, model_validator

from validator.model.schemas import RegisteredSchema, Schemas
from validator.settings.encodings.avro_schema import Node, SchemaInvalid, node_at, parsed_schema
from validator.settings.encodings.avro_values import decoder_of
from validator.settings.errors import broken_rule_at
from validator.settings.formats.registered import HEADERS, SchemaFile, SchemaIdPlace, framed, place_of, schema_of
from validator.settings.formats.seam import Format, Part, Path, Unreadable

if TYPE_CHECKING:
    import pyarrow as pa


class Avro(Format):
    """Avro's binary encoding. Fields arrive with the types of the schema: times know their unit, decimals are exact,
    enums are their symbols, of a union the value counts."""

    kind: ClassVar[str] = "avro"
    names_all_fields: ClassVar[bool] = True
    from_file: SchemaFile | None = Field(default=None, alias="schema")
    """File with the schema (`{file: order.avsc}`). If records name a schema as well, theirs is the writer's, and this
    one the reader's: it has the names and defaults that count."""
    schema_id: SchemaIdPlace | None = None
    """Where a record names its schema: `prefix` (Confluent's wire format), `headers` (of Confluent's newer serializers,
    else the prefix), or `none`. Default: `none` with a schema file, else `prefix`. The first two need
    `schema_registry`."""
    _text: str | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _readable_schema(self) -> Self:
        place_of(self.schema_id, self.from_file)
        if self.from_file is None:
            return self
        try:
            self._text = self.from_file.file.read_text(encoding="utf-8")
            parsed_schema(self._text)
        except OSError as error:
            raise broken_rule_at("schema.file", f"it cannot be read ({error.strerror})", "name a file") from None
        except (SchemaInvalid, UnicodeDecodeError) as error:
            raise broken_rule_at("schema.file", str(error), "name a file with an Avro schema") from None
        return self

    @property
    def place(self) -> SchemaIdPlace:
        """Where a record names its schema."""
        return place_of(self.schema_id, self.from_file)

    @property
    def needs_registry(self) -> bool:
        """Whether records name their schemas."""
        return self.place != "none"

    def reader(self, part: Part, schemas: Schemas) -> AvroReader:
        """The reader of values with the schema of the file, or of the registry."""
        header = HEADERS[part] if self.place == "headers" else None
        return AvroReader(self._text, schemas if self.needs_registry else None, header)

    def check(self, paths: Iterable[tuple[str, Path]]) -> None:
        """Refuse a path that the schema of the file does not have."""
        if self._text is None:
            return
        schema = parsed_schema(self._text)
        for place, path in paths:
            if node_at(schema, path) is None:
                known = ", ".join(_names(schema)) or "$value"
                raise broken_rule_at(place, f"{'.'.join(path)} is not in the Avro schema", f"use one of {known}")


def _names(schema: Node) -> list[str]:
    return [one.name for one in schema.fields]


@dataclass(frozen=True)
class AvroReader:
    """Reads values. ``text``: the schema of the file. ``schemas``: None: records name no schema."""

    text: str | None
    schemas: Schemas | None
    header: str | None

    def value(self, raw: bytes, header: bytes | None = None) -> object:
        """The value, with the types of its schema. Raises Unreadable and `SchemaUnknown`."""
        if self.schemas is None:
            assert self.text is not None, "without a registry there is a file"
            return decoder_of(RegisteredSchema("AVRO", self.text))(raw, 0)[0]
        named = framed(raw, header)
        schema = schema_of(named.schema, self.schemas, "AVRO")
        try:
            decode = decoder_of(schema, self.text)
        except SchemaInvalid as error:
            raise Unreadable(f"names schema {named.schema}, which {error}") from None
        return decode(raw, named.start)[0]

    def items(self, value: object) -> object:
        """Return ``value`` itself: lists are arrays."""
        return value

    def read_columns(
        self, values: pa.Array, paths: Sequence[Path], lists: Sequence[Path], headers: pa.Array | None = None
    ) -> Mapping[Path, pa.Array] | None:
        """As `ColumnReader.read_columns`."""
        from validator.settings.encodings.avro_columns import columns

        return columns(self.text, self.schemas, values, paths, lists, headers)

"""Raw bytes: fields of fixed size at fixed places."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator

from validator.model.schemas import Schemas
from validator.settings.encodings.float32 import shortest
from validator.settings.errors import broken_rule_at
from validator.settings.fields import SEGMENT, Frozen
from validator.settings.formats.seam import Format, Part, Path, Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

RawType = Literal[
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "text", "bytes"
]
_CODES: Final = {
    "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
    "float32": "f", "float64": "d",
}  # fmt: skip


class RawField(Frozen):
    """A field of raw bytes."""

    offset: int = Field(ge=0)
    """Its first byte, counted from 0."""
    type: RawType
    """Its type: a number, `text` in UTF-8, or `bytes`."""
    size: int | None = Field(default=None, ge=1)
    """Number of bytes of `text` and `bytes`. Padding belongs to a text."""
    byte_order: Literal["big", "little"] = "big"
    """Order of the bytes of a number."""

    @model_validator(mode="after")
    def _has_a_size(self) -> Self:
        if (self.size is None) == (self.type not in _CODES):
            problem = f"{self.type} needs it" if self.size is None else f"{self.type} has a size of its own"
            raise broken_rule_at("size", problem, "write the number of bytes" if self.size is None else "leave it out")
        return self

    @property
    def layout(self) -> tuple[int, str]:
        """The offset, and the code of the type for `struct`; of a text it ends with `s`."""
        order = ">" if self.byte_order == "big" else "<"
        return self.offset, f"{self.size}s" if self.type not in _CODES else f"{order}{_CODES[self.type]}"


class Raw(Format):
    """Bytes with fields of fixed size at fixed places. Other bytes are ignored."""

    kind: ClassVar[str] = "raw"
    fields: dict[str, RawField] = Field(min_length=1, examples=[{"id": {"offset": 0, "type": "int64"}}])
    """Name of a field -> its place and type, as in `{id: {offset: 0, type: int64}}`. Types are `int8` to `int64`,
    `uint8` to `uint64`, `float32`, `float64` (of `byte_order` `big`, the default, or `little`), and `text` and `bytes`,
    which need a `size`."""

    @model_validator(mode="after")
    def _names_are_segments(self) -> Self:
        for name in self.fields:
            if not SEGMENT.match(name):
                raise broken_rule_at("fields", f"{name!r} is not a valid name", "leave out dots and $")
        return self

    def reader(self, part: Part, schemas: Schemas) -> RawReader:
        """The reader of these fields."""
        del part, schemas
        texts = frozenset(name for name, field in self.fields.items() if field.type == "text")
        return RawReader(tuple((name, *field.layout) for name, field in self.fields.items()), texts)

    def check(self, paths: Iterable[tuple[str, Path]]) -> None:
        """Refuse a path that is not a field."""
        for place, path in paths:
            if len(path) != 1 or path[0] not in self.fields:
                name = ".".join(path) or "the whole value"
                raise broken_rule_at(place, f"{name} is not a field of the format", f"use {' or '.join(self.fields)}")


@dataclass(frozen=True)
class RawReader:
    """Reads fields. ``layout``: name, offset and code of each. ``texts``: the names of texts."""

    layout: tuple[tuple[str, int, str], ...]
    texts: frozenset[str]
    header: str | None = None

    def value(self, raw: bytes, header: bytes | None = None) -> Mapping[str, object]:
        """Name -> value. Raises Unreadable."""
        del header
        found: dict[str, object] = {}
        for name, offset, code in self.layout:
            try:
                [value] = struct.unpack_from(code, raw, offset)
            except struct.error:
                end = offset + struct.calcsize(code)
                raise Unreadable(f"has {len(raw)} bytes, and the field {name} ends at byte {end}") from None
            found[name] = shortest(value) if code.endswith("f") else value
            if name in self.texts:
                try:
                    found[name] = value.decode()
                except UnicodeDecodeError:
                    raise Unreadable(f"has a field {name} that is not UTF-8 text") from None
        return found

    def items(self, value: object) -> object:
        """Return ``value`` itself: there are no lists."""
        return value

    def read_columns(
        self, values: pa.Array, paths: Sequence[Path], lists: Sequence[Path], headers: pa.Array | None = None
    ) -> Mapping[Path, pa.Array] | None:
        """As `ColumnReader.read_columns`."""
        import pyarrow.compute as pc

        from validator.model.arrays import texts_of
        from validator.settings.encodings.fixed_columns import numbers

        del headers
        if lists:
            return None
        found: dict[Path, pa.Array] = {}
        known = values.is_valid()
        for name, offset, code in self.layout:
            size = struct.calcsize(code)
            known = pc.and_(known, pc.fill_null(pc.greater_equal(pc.binary_length(values), offset + size), False))
            part = pc.binary_slice(values, offset, offset + size)
            if name in self.texts:
                part = texts_of(part)
                known = pc.and_(known, part.is_valid())
            found[name,] = part if code.endswith("s") else numbers(part, code)
        return {path: pc.if_else(known, found[path], None) for path in paths}

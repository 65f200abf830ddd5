"""The primitive serializers of Kafka's Java client: the whole value is one number, UUID or string of bytes."""

from __future__ import annotations

import re
import struct
from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from validator.model.schemas import Schemas
from validator.settings.encodings.float32 import shortest
from validator.settings.errors import broken_rule_at
from validator.settings.formats.seam import Format, Part, Path, Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

_UUID: Final = r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"


class _Primitive(Format, ABC):
    """A value without fields."""

    def reader(self, part: Part, schemas: Schemas) -> PrimitiveReader:
        """The reader of this kind."""
        del part, schemas
        return PrimitiveReader(self.kind)

    def check(self, paths: Iterable[tuple[str, Path]]) -> None:
        """Refuse a path into the value."""
        for place, path in paths:
            if path:
                raise broken_rule_at(place, f"a value of format {self.kind} has no fields", "use $value or $key")


class Long(_Primitive):
    """A 64-bit integer in eight bytes, as Kafka's `LongSerializer` writes it."""

    kind: ClassVar[str] = "long"


class Int(_Primitive):
    """A 32-bit integer in four bytes, as Kafka's `IntegerSerializer` writes it."""

    kind: ClassVar[str] = "int"


class Short(_Primitive):
    """A 16-bit integer in two bytes, as Kafka's `ShortSerializer` writes it."""

    kind: ClassVar[str] = "short"


class Float(_Primitive):
    """A 32-bit floating-point number, as Kafka's `FloatSerializer` writes it. Its shortest digits count."""

    kind: ClassVar[str] = "float"


class Double(_Primitive):
    """A 64-bit floating-point number, as Kafka's `DoubleSerializer` writes it. Its shortest digits count."""

    kind: ClassVar[str] = "double"


class Boolean(_Primitive):
    """One byte, 0 or 1, as Kafka's `BooleanSerializer` writes it."""

    kind: ClassVar[str] = "boolean"


class Uuid(_Primitive):
    """The text of a UUID, as Kafka's `UUIDSerializer` writes it. Capital letters count as small ones."""

    kind: ClassVar[str] = "uuid"


class Bytes(_Primitive):
    """Any bytes, as Kafka's `ByteArraySerializer` writes them. As an id or key they are their Base64 text."""

    kind: ClassVar[str] = "bytes"


def _number(code: str) -> Callable[[bytes], int | float]:
    packed = struct.Struct(code)

    def read(raw: bytes) -> int | float:
        if len(raw) != packed.size:
            raise Unreadable(f"has {len(raw)} bytes, and the format has {packed.size}")
        found: int | float = packed.unpack(raw)[0]
        return found

    return read


_single: Final = _number(">f")


def _float(raw: bytes) -> float:
    return shortest(_single(raw))


def _boolean(raw: bytes) -> bool:
    if raw not in (b"\0", b"\1"):
        raise Unreadable("is not one byte, 0 or 1")
    return raw == b"\1"


def _uuid(raw: bytes) -> str:
    text = raw.decode("ascii", errors="replace")
    if re.fullmatch(_UUID, text) is None:
        raise Unreadable("is not the text of a UUID")
    return text.lower()


_CODES: Final = {Long.kind: ">q", Int.kind: ">i", Short.kind: ">h", Float.kind: ">f", Double.kind: ">d"}
_READ: Final[Mapping[str, Callable[[bytes], object]]] = {
    **{kind: _number(code) for kind, code in _CODES.items()},
    Float.kind: _float,
    Boolean.kind: _boolean,
    Uuid.kind: _uuid,
    Bytes.kind: bytes,
}


@dataclass(frozen=True)
class PrimitiveReader:
    """Reads values of one kind."""

    kind: str
    header: str | None = None

    def value(self, raw: bytes, header: bytes | None = None) -> object:
        """The number, text, boolean or bytes. Raises Unreadable."""
        del header
        return _READ[self.kind](raw)

    def items(self, value: object) -> object:
        """Return ``value`` itself: there are no lists."""
        return value

    def read_columns(
        self, values: pa.Array, paths: Sequence[Path], lists: Sequence[Path], headers: pa.Array | None = None
    ) -> Mapping[Path, pa.Array] | None:
        """As `ColumnReader.read_columns`."""
        import pyarrow.compute as pc

        from validator.model.arrays import texts_of
        from validator.settings.encodings.fixed_columns import booleans, numbers

        del headers
        if lists:
            return None
        if self.kind in _CODES:
            return dict.fromkeys(paths, numbers(values, _CODES[self.kind]))
        if self.kind == Uuid.kind:
            texts = texts_of(values)
            known = pc.match_substring_regex(texts, rf"\A{_UUID}\z")
            return dict.fromkeys(paths, pc.utf8_lower(pc.if_else(known, texts, None)))
        return dict.fromkeys(paths, booleans(values) if self.kind == Boolean.kind else values)

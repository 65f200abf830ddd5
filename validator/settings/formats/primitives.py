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


_READ: Final[Mapping[str, Callable[[bytes], object]]] = {
    Long.kind: _number(">q"),
    Int.kind: _number(">i"),
    Short.kind: _number(">h"),
    Float.kind: _float,
    Double.kind: _number(">d"),
    Boolean.kind: _boolean,
    Uuid.kind: _uuid,
    Bytes.kind: bytes,
}
_SIZES: Final = {Long.kind: 8, Int.kind: 4, Short.kind: 2}


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
        """As `ColumnReader.read_columns`, for integers and UUIDs."""
        import pyarrow.compute as pc

        from validator.model.arrays import texts_of

        del headers
        if lists:
            return None
        if self.kind in _SIZES:
            return dict.fromkeys(paths, _integers(values, _SIZES[self.kind]))
        if self.kind == Uuid.kind:
            texts = texts_of(values)
            known = pc.match_substring_regex(texts, rf"\A{_UUID}\z")
            return dict.fromkeys(paths, pc.utf8_lower(pc.if_else(known, texts, None)))
        return None


def _integers(values: pa.Array, size: int) -> pa.Array:
    """Big-endian integers of ``size`` bytes; null if a value has another size."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    fit = pc.fill_null(pc.equal(pc.binary_length(values), size), False)
    packed = values.filter(fit)
    _, offsets, data = packed.buffers()
    first = np.frombuffer(offsets, np.int32)[packed.offset] if len(packed) else 0
    found = np.frombuffer(data, f">i{size}", len(packed), first) if len(packed) else np.zeros(0, np.int64)
    fits = fit.to_numpy(zero_copy_only=False)
    numbers = np.zeros(len(values), np.int64)
    numbers[fits] = found
    return pa.array(numbers, mask=~fits)

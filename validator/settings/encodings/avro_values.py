"""Avro's binary encoding, one value at a time: the rule that `avro_columns` follows for whole batches.

Source: the Avro specification 1.12, "Binary encoding" and "Schema Resolution". Encodings that no writer makes are
refused: a boolean other than 0 and 1, an index outside of an enum or union, an integer of too many bytes.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NoReturn, cast

from validator.model.field_values import TimeUnit, TypedTime
from validator.model.schemas import RegisteredSchema
from validator.settings.encodings.avro_schema import Node, NodeField, SchemaInvalid, parsed_schema
from validator.settings.encodings.float32 import shortest
from validator.settings.formats.seam import Unreadable

Decode = Callable[[bytes, int], tuple[Any, int]]
"""Reads a value of a type at a place. Returns the value and the place after it. Raises Unreadable."""

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_LONG_BYTES: Final = 10
_INT_MAX: Final = 2**31
_EMPTY_ITEMS_MAX: Final = 1_000_000
"""Largest number of items that take no bytes: otherwise four bytes could stand for a list that fills the memory."""
_PROMOTED: Final = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


@lru_cache(maxsize=256)
def decoder_of(schema: RegisteredSchema, reader: str | None = None) -> Decode:
    """The decoder of a whole value, written with ``schema`` and read as ``reader``. Raises `SchemaInvalid`."""
    writers = parsed_schema(schema.text, schema.references)
    decode = _Compiler().of(writers, writers if reader is None else parsed_schema(reader))

    def whole(raw: bytes, start: int) -> tuple[Any, int]:
        try:
            value, end = decode(raw, start)
        except (IndexError, struct.error):
            raise Unreadable("ends before its Avro schema does") from None
        except RecursionError:
            raise Unreadable("is nested too deeply") from None
        if end != len(raw):
            raise Unreadable(f"has {len(raw) - end} bytes after the end of its Avro schema")
        return value, end

    return whole


def long_at(raw: bytes, at: int) -> tuple[int, int]:
    """The integer at a place, and the place after it."""
    number = shift = 0
    for _ in range(_LONG_BYTES):
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >= 2**64:
                break
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise Unreadable("holds an integer of more than 64 bits")


def _int_at(raw: bytes, at: int) -> tuple[int, int]:
    number, at = long_at(raw, at)
    if not -_INT_MAX <= number < _INT_MAX:
        raise Unreadable("holds an int of more than 32 bits")
    return number, at


def _bytes_at(raw: bytes, at: int) -> tuple[bytes, int]:
    size, at = long_at(raw, at)
    if size < 0:
        raise Unreadable("holds a text or bytes of negative length")
    if at + size > len(raw):
        raise IndexError
    return raw[at : at + size], at + size


def _text_at(raw: bytes, at: int) -> tuple[str, int]:
    found, at = _bytes_at(raw, at)
    try:
        return found.decode(), at
    except UnicodeDecodeError:
        raise Unreadable("holds a text that is not UTF-8") from None


def _boolean_at(raw: bytes, at: int) -> tuple[bool, int]:
    if raw[at] > 1:
        raise Unreadable("holds a boolean that is neither 0 nor 1")
    return raw[at] == 1, at + 1


def _null_at(raw: bytes, at: int) -> tuple[None, int]:
    del raw
    return None, at


def _float_at(raw: bytes, at: int) -> tuple[float, int]:
    return shortest(_FLOAT.unpack_from(raw, at)[0]), at + _FLOAT.size


def _double_at(raw: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(raw, at)[0], at + _DOUBLE.size


_PRIMITIVE: Final[Mapping[str, Decode]] = {
    "null": _null_at,
    "boolean": _boolean_at,
    "int": _int_at,
    "long": long_at,
    "float": _float_at,
    "double": _double_at,
    "bytes": _bytes_at,
    "string": _text_at,
}


class _Compiler:
    """Makes the decoders of the types of a schema. Types may contain themselves."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], Decode] = {}

    def of(self, writers: Node, readers: Node) -> Decode:
        """The decoder of values written as one type and read as another. Raises `SchemaInvalid` if none can be read."""
        place = id(writers), id(readers)
        if place in self._made:
            return self._made[place]
        made: list[Decode] = []
        self._made[place] = lambda raw, at: made[0](raw, at)  # noqa: PLW0108 - made[0] follows
        made.append(self._new(writers, readers))
        self._made[place] = made[0]
        return made[0]

    def _new(self, writers: Node, readers: Node) -> Decode:
        if writers.kind == "union":
            return self._union(writers, readers)
        if readers.kind == "union":
            return self.of(writers, _branch_for(writers, readers))
        if not _fits(writers, readers):
            raise SchemaInvalid(f"has {_named(writers)} where the configured schema has {_named(readers)}")
        match writers.kind:
            case "record":
                return self._record(writers, readers)
            case "enum":
                return _enum(writers, readers)
            case "array" | "map":
                assert writers.items is not None, "an array or map has items"
                assert readers.items is not None, "an array or map has items"
                items = self.of(writers.items, readers.items)
                return _array(items) if writers.kind == "array" else _map(items)
            case "fixed":
                return _logical(_fixed(writers.size), readers)
        return _logical(_promoted(_PRIMITIVE[writers.kind], writers.kind, readers.kind), readers)

    def _union(self, writers: Node, readers: Node) -> Decode:
        branches: list[Decode] = []
        for branch in writers.branches:
            try:
                branches.append(self.of(branch, readers))
            except SchemaInvalid as error:
                if writers is readers:
                    raise
                branches.append(_refusing(str(error)))
        count = len(branches)

        def union(raw: bytes, at: int) -> tuple[Any, int]:
            index, at = long_at(raw, at)
            if not 0 <= index < count:
                raise Unreadable(f"holds branch {index} of a union of {count}")
            return branches[index](raw, at)

        return union

    def _record(self, writers: Node, readers: Node) -> Decode:
        wanted = {name: one for one in readers.fields for name in (one.name, *one.aliases)}
        parts: list[tuple[str | None, Decode]] = []
        left = {one.name: one for one in readers.fields}
        for of_writer in writers.fields:
            of_reader = left.pop(of_writer.name, None) or wanted.get(of_writer.name)
            if of_reader is None:
                parts.append((None, self.of(of_writer.node, of_writer.node)))
            else:
                left.pop(of_reader.name, None)
                parts.append((of_reader.name, self.of(of_writer.node, of_reader.node)))
        defaults = {name: _default(one) for name, one in left.items()}

        def record(raw: bytes, at: int) -> tuple[dict[str, Any], int]:
            found = dict(defaults)
            for name, decode in parts:
                value, at = decode(raw, at)
                if name is not None:
                    found[name] = value
            return found, at

        return record


def _fits(writers: Node, readers: Node) -> bool:
    if writers.kind == "fixed":
        return readers.kind == "fixed" and writers.size == readers.size
    return writers.kind == readers.kind or readers.kind in _PROMOTED.get(writers.kind, ())


def _branch_for(writers: Node, readers: Node) -> Node:
    """The branch of a reader's union for a writer's type: one of the same type and name, else one that fits."""
    same = [one for one in readers.branches if one.kind == writers.kind and _fits(writers, one)]
    named = [one for one in same if not one.name or writers.name in (one.name, *one.aliases)]
    alike = [one for one in same if one.name.rpartition(".")[2] == writers.name.rpartition(".")[2]]
    for found in (*named, *alike, *same, *(one for one in readers.branches if _fits(writers, one))):
        return found
    raise SchemaInvalid(f"has {_named(writers)}, which no branch of a union of the configured schema is")


def _named(node: Node) -> str:
    return f"the {node.kind} {node.name}" if node.name else node.kind


def _refusing(reason: str) -> Decode:
    def refuse(_: bytes, __: int) -> NoReturn:
        raise Unreadable(reason)

    return refuse


def _promoted(decode: Decode, written: str, read: str) -> Decode:
    if written == "string" and read == "bytes":
        return _bytes_at
    if written == "bytes" and read == "string":
        return _text_at
    return decode


def _enum(writers: Node, readers: Node) -> Decode:
    symbols, known = writers.symbols, frozenset(readers.symbols)

    def enum(raw: bytes, at: int) -> tuple[str, int]:
        index, at = long_at(raw, at)
        if not 0 <= index < len(symbols):
            raise Unreadable(f"holds symbol {index} of an enum of {len(symbols)}")
        if symbols[index] in known:
            return symbols[index], at
        if readers.default_symbol is None:
            raise Unreadable(f"holds the symbol {symbols[index]}, which the configured schema does not have")
        return readers.default_symbol, at

    return enum


def _array(item: Decode) -> Decode:
    def array(raw: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        count, at = long_at(raw, at)
        while count:
            if count < 0:
                # The size of the block in bytes follows.
                count = -count
                _, at = long_at(raw, at)
            began = at
            for number in range(count):
                if number >= _EMPTY_ITEMS_MAX and at == began:
                    raise Unreadable(f"holds a list of more than {_EMPTY_ITEMS_MAX:,} empty items")
                value, at = item(raw, at)
                found.append(value)
            count, at = long_at(raw, at)
        return found, at

    return array


def _map(value_at: Decode) -> Decode:
    def entry(raw: bytes, at: int) -> tuple[tuple[str, Any], int]:
        name, at = _text_at(raw, at)
        value, at = value_at(raw, at)
        return (name, value), at

    entries = _array(entry)

    def as_map(raw: bytes, at: int) -> tuple[dict[str, Any], int]:
        found, at = entries(raw, at)
        return dict(found), at

    return as_map


def _fixed(size: int) -> Decode:
    def fixed(raw: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(raw):
            raise IndexError
        return raw[at : at + size], at + size

    return fixed


def _logical(decode: Decode, node: Node) -> Decode:
    """The decoder with the logical type of the reader's schema."""
    unit = node.unit
    if unit is not None:

        def time(raw: bytes, at: int) -> tuple[TypedTime, int]:
            number, at = decode(raw, at)
            return TypedTime(number, cast("TimeUnit", unit)), at

        return time
    if node.logical == "decimal":

        def decimal(raw: bytes, at: int) -> tuple[Decimal, int]:
            found, at = decode(raw, at)
            if not found:
                raise Unreadable("holds a decimal of no bytes")
            # Arithmetic of decimals rounds; their texts do not.
            return Decimal(f"{int.from_bytes(found, 'big', signed=True)}E-{node.scale}"), at

        return decimal
    if node.logical == "uuid" and node.kind == "fixed":

        def of_uuid(raw: bytes, at: int) -> tuple[str, int]:
            found, at = decode(raw, at)
            return str(uuid.UUID(bytes=found)), at

        return of_uuid
    return decode


def _default(of_reader: NodeField) -> Any:
    """The default of a reader's field that the writer does not have. Raises `SchemaInvalid` if there is none."""
    if not of_reader.has_default:
        raise SchemaInvalid(f"has no field {of_reader.name}, for which the configured schema has no default")
    return _from_json(of_reader.node, of_reader.default)


def _from_json(node: Node, given: Any) -> Any:
    """A default, which is written as JSON: bytes as text of their code points, and of a union its first branch."""
    if node.kind == "union":
        return _from_json(node.branches[0], given)
    if node.kind in ("bytes", "fixed"):
        raw = given.encode("latin-1")
        return _logical(lambda whole, _: (whole, 0), node)(raw, 0)[0]
    if node.kind == "record":
        return {
            one.name: _from_json(one.node, given[one.name]) if one.name in given else _default(one)
            for one in node.fields
        }
    if node.items is not None:
        items = node.items
        if node.kind == "array":
            return [_from_json(items, one) for one in given]
        return {name: _from_json(items, one) for name, one in given.items()}
    if node.unit is not None:
        return TypedTime(given, cast("TimeUnit", node.unit))
    return float(given) if node.kind in ("float", "double") else given

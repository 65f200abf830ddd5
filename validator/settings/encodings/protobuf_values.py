"""Protobuf messages to mappings, by Google's library: it defines which bytes are a message."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from validator.model.field_values import TypedTime
from validator.model.schemas import RegisteredSchema
from validator.settings.encodings.float32 import shortest
from validator.settings.encodings.protobuf_text import ProtoInvalid, descriptor_of
from validator.settings.formats.seam import Unreadable

_EPOCH: Final = date(1970, 1, 1).toordinal()
Convert = Callable[[Any], Any]


class DescriptorsInvalid(ValueError):
    """Bytes are not descriptors, or lack a file that they import; the message is a clause."""


class MessageReader:
    """Reads messages of one type."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self._class = message_factory.GetMessageClass(descriptor)
        self._convert = _Converters().of(descriptor)

    def value(self, raw: bytes) -> Any:
        """The message as a mapping. Raises Unreadable."""
        message = self._class()
        try:
            message.ParseFromString(raw)
        except DecodeError:
            raise Unreadable(f"is not a message of the type {self.descriptor.full_name}") from None
        if not message.IsInitialized():
            raise Unreadable(f"lacks required fields of {self.descriptor.full_name}")
        return self._convert(message)

    @property
    def names(self) -> Sequence[str]:
        """The names of the fields."""
        return [field.name for field in self.descriptor.fields]

    def has(self, path: Sequence[str]) -> bool:
        """Whether a message can have a path."""
        return _has(self.descriptor, list(path))


def _has(descriptor: Descriptor, path: list[str]) -> bool:
    if not path:
        return True
    field = descriptor.fields_by_name.get(path[0])
    # A time, a decimal and a wrapper are one value.
    if field is None or descriptor.full_name in _WELL_KNOWN:
        return False
    rest = path[1:]
    if (entry := _map_entry(field)) is not None:
        field, rest = entry.fields_by_name["value"], rest[1:]
    elif field.is_repeated and rest:
        if not rest[0].isdigit():
            return False
        rest = rest[1:]
    return not rest or (field.message_type is not None and _has(field.message_type, rest))


@lru_cache(maxsize=256)
def message_reader(descriptors: bytes | RegisteredSchema, message: str | tuple[int, ...]) -> MessageReader:
    """The reader of a type: of a file of descriptors by its full name, of a registered schema by its indexes.

    Raises `DescriptorsInvalid`, and KeyError if there is no such type.
    """
    pool = descriptor_pool.DescriptorPool()
    if isinstance(descriptors, bytes):
        for file in _set(descriptors).file:
            _add(pool, file)
        return MessageReader(pool.FindMessageTypeByName(str(message)))
    for name, text in descriptors.references:
        _add(pool, _file(text, name))
    file = _file(descriptors.text, "schema.proto")
    _add(pool, file)
    types, name = file.message_type, file.package
    for index in message:
        if not isinstance(index, int) or index >= len(types):
            raise DescriptorsInvalid(f"has no message type at {list(message)}")
        name = f"{name}.{types[index].name}" if name else types[index].name
        types = types[index].nested_type
    return MessageReader(pool.FindMessageTypeByName(name))


def message_types(descriptors: bytes) -> list[str]:
    """The outer types in a file of descriptors."""
    return [f"{file.package}.{one.name}".lstrip(".") for file in _set(descriptors).file for one in file.message_type]


def _set(raw: bytes) -> descriptor_pb2.FileDescriptorSet:
    try:
        return descriptor_pb2.FileDescriptorSet.FromString(raw)
    except DecodeError:
        raise DescriptorsInvalid("it is not a set of descriptors") from None


def _file(text: str, name: str) -> descriptor_pb2.FileDescriptorProto:
    """The descriptor of a schema of a registry: the text of a `.proto` file, or a descriptor in Base64. ``name``: that
    by which others import it."""
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        try:
            return descriptor_of(text, name)
        except ProtoInvalid as error:
            raise DescriptorsInvalid(str(error)) from None
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(raw)
    except DecodeError:
        raise DescriptorsInvalid("is not a descriptor") from None
    file.name = name
    return file


def _add(pool: descriptor_pool.DescriptorPool, file: descriptor_pb2.FileDescriptorProto) -> None:
    """Add a file. What it imports of Google's own types is added first; another absent import may only have options."""
    kept = []
    for name in file.dependency:
        try:
            pool.FindFileByName(name)
        except KeyError:
            known = _known_file(name)
            if known is None:
                continue
            _add(pool, known)
        kept.append(name)
    del file.dependency[:], file.public_dependency[:], file.weak_dependency[:]
    file.dependency.extend(kept)
    try:
        pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
        pool.FindFileByName(file.name)
    except (TypeError, KeyError) as error:
        raise DescriptorsInvalid(f"cannot be resolved ({str(error).splitlines()[0]})") from None


_OF_COMPILERS: Final = frozenset(
    f"google/protobuf/{name}.proto"
    for name in ("any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
)
"""Files that every compiler of Protobuf has."""


def _known_file(name: str) -> descriptor_pb2.FileDescriptorProto | None:
    """A file that every compiler of Protobuf, or Confluent's serializers, has."""
    found = descriptor_pb2.FileDescriptorProto()
    if name in _OF_COMPILERS:
        import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR.CopyToProto(found)
        return found
    given = _KNOWN.get(name)
    if given is None:
        return None
    package, message, fields = given
    found.name, found.package, found.syntax = name, package, "proto3"
    described = found.message_type.add(name=message)
    for number, (field, kind) in enumerate(fields, 1):
        described.field.add(name=field, number=number, type=kind, label=FieldDescriptor.LABEL_OPTIONAL)
    return found


_BYTES, _INT32, _UINT32 = FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32
_KNOWN: Final[dict[str, tuple[str, str, tuple[tuple[str, Any], ...]]]] = {
    "confluent/type/decimal.proto": (
        "confluent.type",
        "Decimal",
        (("value", _BYTES), ("precision", _UINT32), ("scale", _INT32)),
    ),
    "google/type/date.proto": ("google.type", "Date", (("year", _INT32), ("month", _INT32), ("day", _INT32))),
}
"""File -> package, message and fields, in the order of their numbers."""


def _timestamp(message: Any) -> TypedTime:
    return TypedTime(message.seconds * 1_000_000_000 + message.nanos, "ns")


def _decimal(message: Any) -> Decimal:
    return Decimal(f"{int.from_bytes(message.value, 'big', signed=True)}E{-message.scale}")


def _date(message: Any) -> TypedTime:
    try:
        return TypedTime(date(message.year, message.month, message.day).toordinal() - _EPOCH, "d")
    except ValueError:
        raise Unreadable("holds a google.type.Date that is not a day") from None


def _wrapped(message: Any) -> Any:
    return message.value


def _wrapped_float(message: Any) -> float:
    return shortest(message.value)


_WELL_KNOWN: Final[Mapping[str, Convert]] = {
    "google.protobuf.Timestamp": _timestamp,
    "confluent.type.Decimal": _decimal,
    "google.type.Date": _date,
    "google.protobuf.FloatValue": _wrapped_float,
    **{
        f"google.protobuf.{kind}Value": _wrapped
        for kind in ("Double", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
    },
}
"""Full name of a type -> what its messages stand for."""


class _Converters:
    """Makes functions from messages to mappings. A type may contain itself."""

    def __init__(self) -> None:
        self._made: dict[str, Convert] = {}

    def of(self, descriptor: Descriptor) -> Convert:
        """The function for messages of a type."""
        name = descriptor.full_name
        if name in _WELL_KNOWN:
            return _WELL_KNOWN[name]
        if name not in self._made:
            parts: list[tuple[str, Convert]] = []
            self._made[name] = lambda message: {field: get(message) for field, get in parts}
            parts += [(field.name, self._getter(field)) for field in descriptor.fields]
        return self._made[name]

    def _getter(self, field: FieldDescriptor) -> Convert:
        name = field.name
        if (entry := _map_entry(field)) is not None:
            convert = self._of_value(entry.fields_by_name["value"])
            return lambda message: {_key(key): convert(value) for key, value in getattr(message, name).items()}
        convert = self._of_value(field)
        if field.is_repeated:
            return lambda message: [convert(one) for one in getattr(message, name)]
        if field.has_presence:
            return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
        return lambda message: convert(getattr(message, name))

    def _of_value(self, field: FieldDescriptor) -> Convert:
        if field.message_type is not None:
            return self.of(field.message_type)
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number, number)
        return shortest if field.type == FieldDescriptor.TYPE_FLOAT else _same


def _map_entry(field: FieldDescriptor) -> Descriptor | None:
    """The type of the entries, if the field is a map."""
    found = field.message_type
    return found if found is not None and found.GetOptions().map_entry else None


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _same(value: Any) -> Any:
    return value

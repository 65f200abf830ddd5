"""MessagePack: a value is one object of the MessagePack specification, mostly a map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from validator.model.field_values import TypedTime
from validator.model.json_text import object_of
from validator.model.schemas import Schemas
from validator.settings.formats.seam import Format, Part, Unreadable

_NANOSECONDS: Final = 1_000_000_000


class MessagePack(Format):
    """MessagePack: mostly a map. A timestamp knows its unit; a float of 32 bits has the digits of a double; other
    extensions cannot be read."""

    kind: ClassVar[str] = "msgpack"

    def reader(self, part: Part, schemas: Schemas) -> MessagePackReader:
        """The reader of MessagePack."""
        del part, schemas
        return MessagePackReader()


@dataclass(frozen=True)
class MessagePackReader:
    """Reads values."""

    header: str | None = None

    def value(self, raw: bytes, header: bytes | None = None) -> object:
        """The value, with maps as mappings and arrays as lists. Raises Unreadable."""
        import msgpack

        del header
        try:
            found = msgpack.unpackb(
                raw, object_pairs_hook=_map, list_hook=_list, ext_hook=_extension, timestamp=0, strict_map_key=False
            )
        except msgpack.ExtraData:
            raise Unreadable("has bytes after its first value") from None
        except UnicodeDecodeError:
            raise Unreadable("has a text that is not UTF-8") from None
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
            # The library names neither the place nor, of a value that is cut off, a reason.
            raise Unreadable("is not MessagePack, or is cut off") from None
        return _typed(found)

    def items(self, value: object) -> object:
        """Return ``value`` itself: lists are arrays."""
        return value


def _map(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
    return object_of([(name, _typed(value)) for name, value in pairs])


def _list(items: list[Any]) -> list[Any]:
    return [_typed(item) for item in items]


def _extension(code: int, content: bytes) -> dict[str, Any]:
    """What stands for an extension of an unknown type: an object without fields, which is no id, key or time."""
    del code, content
    return {}


def _typed(value: Any) -> object:
    """Return a timestamp as a time with a unit; other values as they are."""
    if type(value).__name__ != "Timestamp":
        return value
    return TypedTime(value.seconds * _NANOSECONDS + value.nanoseconds, "ns")

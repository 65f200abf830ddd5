"""Paths of fields, and the values that JSON does not have: times with a unit of their own, and windowed keys."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

TimeUnit = Literal["d", "s", "ms", "us", "ns"]


class TypedTime(int):
    """A time whose schema or encoding states its unit: a number of days, seconds or fractions of them since 1970. As an
    id or a key it is this number."""

    unit: TimeUnit

    def __new__(cls, number: int, unit: TimeUnit) -> TypedTime:
        """The time that is ``number`` units after 1970."""
        found = super().__new__(cls, number)
        found.unit = unit
        return found


class Windowed(NamedTuple):
    """A key of Kafka Streams with its window. Paths lead into ``key``, except `window_start` and `window_end`.

    ``window_end``: None if neither the bytes nor the configuration name it.
    """

    key: Any
    window_start: TypedTime
    window_end: TypedTime | None


def part_and_names(path: str) -> tuple[str, tuple[str, ...]]:
    """Return the part of the record that a configured path begins in, empty for the value, and the names after it."""
    if path.startswith("$header.") or not path.startswith("$"):
        return (path, ()) if path.startswith("$") else ("", tuple(path.split(".")))
    part, *names = path.split(".")
    return "" if part == "$value" else part, tuple(names)

"""Windowed keys of Kafka Streams: the bytes of a key of another format, and the window beside them.

Layouts: `org.apache.kafka.streams.state.internals.WindowKeySchema.toBinary` and `SessionKeySchema.toBinary` (Kafka
4.1), which `TimeWindowedSerializer` and `SessionWindowedSerializer` call; `Windowed.toString` for the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from pydantic import Field

from validator.model.field_values import TypedTime, Windowed
from validator.model.schemas import Schemas
from validator.settings.durations import PositiveDuration
from validator.settings.errors import broken_rule_at
from validator.settings.fields import WithDurations
from validator.settings.formats.kinds import InnerFormat
from validator.settings.formats.seam import Format, Part, Path, Unreadable, ValueReader
from validator.settings.formats.text import Text

if TYPE_CHECKING:
    import pyarrow as pa

_START, _END = ("window_start",), ("window_end",)
_LONG: Final = 8
LARGEST_MS: Final = 2**63 - 1
_TEXT: Final = re.compile(rb"\[(.*)@(-?\d{1,19})/(-?\d{1,19})\]", re.DOTALL)


class _Windowed(Format):
    """A key and its window."""

    inner: InnerFormat = Field(default=Text(), json_schema_extra={"default": Text.kind})
    """Format of the key without its window. `$key` is that key, and `$key.NAME` a field of it."""

    @property
    def needs_registry(self) -> bool:
        """Whether the inner format needs one."""
        return self.inner.needs_registry

    def check(self, paths: Iterable[tuple[str, Path]]) -> None:
        """Refuse a path that neither the window nor the inner format has."""
        self.inner.check((place, path) for place, path in paths if path not in (_START, _END))


class TimeWindowed(_Windowed, WithDurations):
    """A key of Kafka Streams' `TimeWindowedSerializer`: the key, then the start of the window in eight bytes. Fields
    are those of `inner`, and `$key.window_start`."""

    kind: ClassVar[str] = "time_windowed"
    size_us: PositiveDuration | None = None
    """Size of the windows. The bytes do not have it; with it there is `$key.window_end`."""

    def reader(self, part: Part, schemas: Schemas) -> BinaryReader:
        """The reader of the key, then the start."""
        size_ms = None if self.size_us is None else self.size_us // 1_000
        return BinaryReader(self.inner.reader(part, schemas), has_end=False, size_ms=size_ms)

    def check(self, paths: Iterable[tuple[str, Path]]) -> None:
        """Also refuse the end, if the size is not known."""
        known = list(paths)
        for place, path in known:
            if path == _END and self.size_us is None:
                raise broken_rule_at(place, "the bytes of the key do not have the end", "write the size of the windows")
        super().check(known)


class SessionWindowed(_Windowed):
    """A key of Kafka Streams' `SessionWindowedSerializer`: the key, then the end and the start of the session in eight
    bytes each. Fields are those of `inner`, `$key.window_start` and `$key.window_end`."""

    kind: ClassVar[str] = "session_windowed"

    def reader(self, part: Part, schemas: Schemas) -> BinaryReader:
        """The reader of the key, then end and start."""
        return BinaryReader(self.inner.reader(part, schemas), has_end=True)


class WindowedText(_Windowed):
    """The text `[key@start/end]` of a windowed key, as Java's `Windowed.toString` writes it, with milliseconds since
    1970. Fields are those of `inner`, `$key.window_start` and `$key.window_end`."""

    kind: ClassVar[str] = "windowed_text"

    def reader(self, part: Part, schemas: Schemas) -> WindowedTextReader:
        """The reader of such texts."""
        return WindowedTextReader(self.inner.reader(part, schemas))


def _window(key: object, start_ms: int, end_ms: int | None) -> Windowed:
    end = None if end_ms is None else TypedTime(end_ms, "ms")
    return Windowed(key, TypedTime(start_ms, "ms"), end)


@dataclass(frozen=True)
class BinaryReader:
    """Reads binary windowed keys. ``size_ms``: size of the windows, if the bytes do not have the end."""

    inner: ValueReader
    has_end: bool
    size_ms: int | None = None

    @property
    def header(self) -> str | None:
        """That of the inner format."""
        return self.inner.header

    @property
    def _tail(self) -> int:
        return 2 * _LONG if self.has_end else _LONG

    def value(self, raw: bytes, header: bytes | None = None) -> Windowed:
        """The key and its window. Raises Unreadable."""
        if len(raw) < self._tail:
            raise Unreadable(f"has {len(raw)} bytes, fewer than the window")
        start = int.from_bytes(raw[-_LONG:], "big", signed=True)
        end = None if self.size_ms is None else min(start + self.size_ms, LARGEST_MS)
        if self.has_end:
            end = int.from_bytes(raw[-self._tail : -_LONG], "big", signed=True)
            if end < start:
                raise Unreadable("has a session that ends before it begins")
        return _window(self.inner.value(raw[: -self._tail], header), start, end)

    def items(self, value: object) -> object:
        """As the inner format."""
        return self.inner.items(value)

    def read_columns(
        self, values: pa.Array, paths: Sequence[Path], lists: Sequence[Path], headers: pa.Array | None = None
    ) -> Mapping[Path, pa.Array] | None:
        """As `ColumnReader.read_columns`."""
        from validator.settings.encodings.windowed_columns import columns

        size_ms = None if self.has_end else self.size_ms
        return columns(self.inner, values, paths, lists, headers, has_end=self.has_end, size_ms=size_ms)


@dataclass(frozen=True)
class WindowedTextReader:
    """Reads windowed keys that are texts."""

    inner: ValueReader

    @property
    def header(self) -> str | None:
        """That of the inner format."""
        return self.inner.header

    def value(self, raw: bytes, header: bytes | None = None) -> Windowed:
        """The key and its window. Raises Unreadable."""
        found = _TEXT.fullmatch(raw)
        if found is None:
            raise Unreadable("is not a text of the form [key@start/end]")
        start, end = int(found[2]), int(found[3])
        if end < start:
            raise Unreadable("has a window that ends before it begins")
        return _window(self.inner.value(found[1], header), start, end)

    def items(self, value: object) -> object:
        """As the inner format."""
        return self.inner.items(value)

    def read_columns(
        self, values: pa.Array, paths: Sequence[Path], lists: Sequence[Path], headers: pa.Array | None = None
    ) -> Mapping[Path, pa.Array] | None:
        """As `ColumnReader.read_columns`."""
        from validator.settings.encodings.windowed_columns import columns_of_texts

        return columns_of_texts(self.inner, values, paths, lists, headers)

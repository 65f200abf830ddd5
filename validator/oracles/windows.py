"""Event-time windows on a grid: the arithmetic that tumbling and sliding windows and the windowed join share.

Boundaries are those of Flink's `TimeWindow.getWindowStartWithOffset`, also for times before 1970.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, Self, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from pydantic import field_validator, model_validator

from validator.oracles.seam import Assigned, Ints, Oracle
from validator.settings.built import Combination
from validator.settings.durations import Duration, PositiveDuration, format_duration
from validator.settings.errors import broken_rule, broken_rule_at

UTC_NAMES: Final = frozenset({"UTC", "Etc/UTC", "Etc/GMT", "GMT", "Zulu"})

LOCAL_TIME: Final = Combination(
    ("oracle.time_zone",), "every zone but UTC", "windows aligned to local time are not supported yet"
)


class Windows(Oracle):
    """Windows ``[start, start + size)`` that start at ``offset + k * grid`` (closed left), per key.

    With ``closed: right`` a window is ``(start, end]``, as Storm's: an event at a boundary belongs to the window
    before.
    """

    size: PositiveDuration
    """Length of a window."""
    offset: Duration = 0
    """Offset of the window starts from the epoch (in `time_zone`); below `size`."""
    time_zone: str = "UTC"
    """IANA name of the time zone to which the windows are aligned."""
    closed: Literal["left", "right"] = "left"
    """The end that belongs to the window: `left` is [start, end), `right` is (start, end]."""

    refuses: ClassVar[tuple[Combination, ...]] = (LOCAL_TIME,)

    @classmethod
    def of(cls, size_us: int, offset_us: int = 0, **others: Any) -> Self:
        """Return an oracle that is not read from a file."""
        [kind] = get_args(cls.model_fields["kind"].annotation)
        return cls.model_construct(kind=kind, size=size_us, offset=offset_us, **others)

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise broken_rule(
                f"{name!r} is not a known time zone", "write an IANA name such as Europe/Berlin"
            ) from None
        return name

    @model_validator(mode="after")
    def _sane(self) -> Self:
        if self.offset >= self.size:
            fix = f"write an offset below {format_duration(self.size)}"
            raise broken_rule_at("offset", f"{format_duration(self.offset)} is not below the size", fix)
        if self.time_zone not in UTC_NAMES:
            fix = "write UTC, and set offset if the windows are shifted by a constant"
            raise broken_rule_at("time_zone", LOCAL_TIME.problem, fix)
        return self

    @property
    def rounding(self) -> Literal["down", "up"]:
        """With `closed: right` a boundary belongs to the window before it."""
        return "up" if self.closed == "right" else "down"

    @property
    def grid_us(self) -> int:
        """Distance between the starts of adjacent windows."""
        return self.size

    @property
    def span_us(self) -> int:
        """The length of a window."""
        return self.size

    @property
    def result_span_us(self) -> int | None:
        """A result names one window."""
        return self.size

    def assigned(self, event_times_us: Ints) -> Assigned:
        """Each event belongs to the window that contains its time."""
        return Assigned(None, self._floor(self._inside(event_times_us), self.offset))

    def ends_us(self, starts_us: Ints) -> Ints:
        """Starts near the int64 maximum are clamped, so that no end wraps. With `closed: right` the boundary belongs to
        the window, so the window ends at the next instant."""
        return np.minimum(starts_us, np.iinfo(np.int64).max - self.size - 1) + self.size + self._boundary_us

    def reaches_us(self, event_times_us: Ints, slack_us: int) -> Ints:
        """The boundaries lie on the grid of the starts, shifted by the size. With `closed: right`, too, an engine may
        close a window when it reads an event at the window's boundary (Storm does)."""
        return self._floor(event_times_us - slack_us, self.offset + self.size) + self._boundary_us

    def latest_reaches_us(self, starts_us: Ints, slack_us: int) -> Ints:
        """Starts near the int64 maximum are clamped, so that no sum wraps."""
        latest = np.minimum(starts_us, np.iinfo(np.int64).max - self.size - 1) + (self.size - 1 + self._boundary_us)
        return self.reaches_us(latest, slack_us)

    @property
    def _boundary_us(self) -> int:
        """The time from the boundary of a window to the first instant that is not in the window."""
        return 1 if self.closed == "right" else 0

    def _inside(self, event_times_us: Ints) -> Ints:
        return event_times_us - 1 if self.closed == "right" else event_times_us

    def _floor(self, instants_us: Ints, origin_us: int) -> Ints:
        return instants_us - (instants_us - origin_us) % self.grid_us

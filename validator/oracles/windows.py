"""Event-time windows on a grid: the arithmetic that tumbling and sliding windows, `distinct` and the join share.

Boundaries are those of Flink's `TimeWindow.getWindowStartWithOffset`, also for times before 1970. In a time zone they
are boundaries of its wall clock (SEMANTICS 1.13), as in Flink's `TimeWindowUtil`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Self, get_args

from pydantic import field_validator, model_validator

from validator.oracles.seam import Assigned, Oracle
from validator.settings.built import Combination
from validator.settings.durations import Duration, PositiveDuration, format_duration
from validator.settings.errors import broken_rule, broken_rule_at

if TYPE_CHECKING:
    from validator.model.arrays import Ints
    from validator.model.wall_clock import WallClock

UTC_NAMES: Final = frozenset({"UTC", "Etc/UTC", "Etc/GMT", "GMT", "Zulu"})

CLOSED_RIGHT_IN_ZONE: Final = Combination(
    ("oracle.closed",),
    "`right` with a `time_zone` other than UTC",
    "closed: right is not supported for windows on the wall clock of a time zone",
)


class Windows(Oracle):
    """Windows ``[start, start + size)`` that start at ``offset + k * grid`` (closed left), per key.

    With ``closed: right`` a window is ``(start, end]``, as Storm's: an event at a boundary belongs to the window
    before.
    """

    size: PositiveDuration
    """Length of a window."""
    offset: Duration = 0
    """Offset of the window starts from 1970-01-01 00:00 in `time_zone`; below `size`."""
    time_zone: str = "UTC"
    """IANA name of the time zone to whose wall clock the windows are aligned (SEMANTICS 1.13)."""
    named: Literal["instant", "wall_time"] = "instant"
    """How results name their windows: `instant`, or `wall_time` if a result has the time on the clock of `time_zone`,
    as a text without a zone (`window_start` of Flink SQL)."""
    closed: Literal["left", "right"] = "left"
    """The end that belongs to the window: `left` is [start, end), `right` is (start, end]."""

    refuses: ClassVar[tuple[Combination, ...]] = (CLOSED_RIGHT_IN_ZONE,)

    @classmethod
    def of(cls, size_us: int, offset_us: int = 0, **others: Any) -> Self:
        """Return an oracle that is not read from a file."""
        [kind] = get_args(cls.model_fields["kind"].annotation)
        return cls.model_construct(kind=kind, size=size_us, offset=offset_us, **others)

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str) -> str:
        if name in UTC_NAMES:
            return name
        from validator.model.zones import zone_names

        if name not in zone_names():
            raise broken_rule(f"{name!r} is not a known time zone", "write an IANA name such as Europe/Berlin")
        return name

    @model_validator(mode="after")
    def _sane(self) -> Self:
        if self.offset >= self.size:
            fix = f"write an offset below {format_duration(self.size)}"
            raise broken_rule_at("offset", f"{format_duration(self.offset)} is not below the size", fix)
        if self.time_zone not in UTC_NAMES and self.closed == "right":
            raise broken_rule_at("closed", CLOSED_RIGHT_IN_ZONE.problem, "write left, or the time zone UTC")
        return self

    @property
    def _clock(self) -> WallClock | None:
        """The wall clock; None for UTC, whose wall times are instants."""
        if self.time_zone in UTC_NAMES:
            return None
        from validator.model.wall_clock import wall_clock

        return wall_clock(self.time_zone)

    @property
    def state_depends_on(self) -> Mapping[str, str]:
        """Cells of two versions of a zone do not fit together."""
        return {} if self._clock is None else {"time_zone_data": self._clock.fingerprint}

    @property
    def rounding(self) -> Literal["down", "up"]:
        """With `closed: right` a boundary belongs to the window before it."""
        return "up" if self.closed == "right" else "down"

    @property
    def every_us(self) -> int:
        """Wall time between the starts of adjacent windows."""
        return self.size

    @property
    def grid_us(self) -> int:
        """The largest time of which all distances between boundaries are multiples."""
        if self._clock is None:
            return self.every_us
        return math.gcd(self.every_us, self.size, self.offset, self._clock.grain_us)

    @property
    def span_us(self) -> int:
        """The length of the longest window."""
        return self.size if self._clock is None else self.size + self._clock.longest_repeat_us

    @property
    def result_span_us(self) -> int | None:
        """A result names one window. Windows in a zone have the same length only on its wall clock."""
        return self.size if self._clock is None or self.named == "wall_time" else None

    def assigned(self, event_times_us: Ints) -> Assigned:
        """Each event belongs to the window that contains its time."""
        return Assigned(None, self._instants(self._floor(self._wall_times(event_times_us), self.offset)))

    def starts_of_results(self, named_us: Ints) -> Ints:
        """A wall time names the window that starts when the clock first shows it."""
        return self._instants(named_us) if self.named == "wall_time" else named_us

    def read_by(self, other: Windows, start_us: int) -> int:
        """Return the start that ``other``, in another zone, reads where this oracle reads ``start_us``."""
        import numpy as np

        start = np.array([start_us], dtype=np.int64)
        if self.named == "wall_time" and self._clock is not None:
            start = self._clock.shown_at(start)
        return int(other.starts_of_results(start)[0])

    def ends_us(self, starts_us: Ints) -> Ints:
        """Starts near the int64 maximum are clamped, so that no end wraps. With `closed: right` the boundary belongs to
        the window, so the window ends at the next instant."""
        if (clock := self._clock) is not None:
            # A start that the clock skips is the end of the gap, which is in the same place of the grid.
            return clock.past(self._floor(clock.shown_at(starts_us), self.offset) + self.size)
        import numpy as np

        return np.minimum(starts_us, np.iinfo(np.int64).max - self.size - 1) + self.size + self._boundary_us

    def reaches_us(self, event_times_us: Ints, slack_us: int) -> Ints:
        """The boundaries lie on the grid of the starts, shifted by the size. With `closed: right`, too, an engine may
        close a window when it reads an event at the window's boundary (Storm does)."""
        instants_us = event_times_us - slack_us
        if (clock := self._clock) is not None:
            # A window is past once the clock shows none of its times any more.
            return clock.past(self._floor(clock.lowest_from(instants_us), self.offset + self.size))
        return self._floor(instants_us, self.offset + self.size) + self._boundary_us

    def latest_reaches_us(self, starts_us: Ints, slack_us: int) -> Ints:
        """The last instant of a window is just before its end."""
        return self.reaches_us(self.ends_us(starts_us) - 1, slack_us)

    @property
    def _boundary_us(self) -> int:
        """The time from the boundary of a window to the first instant that is not in the window."""
        return 1 if self.closed == "right" else 0

    def _wall_times(self, event_times_us: Ints) -> Ints:
        """The wall times that decide on the windows of events."""
        if self._clock is not None:
            return self._clock.shown_at(event_times_us)
        return event_times_us - 1 if self.closed == "right" else event_times_us

    def _instants(self, starts_us: Ints) -> Ints:
        """The instants at which windows with these wall times start."""
        return starts_us if self._clock is None else self._clock.first_at(starts_us)

    def _floor(self, wall_us: Ints, origin_us: int) -> Ints:
        return wall_us - (wall_us - origin_us) % self.every_us

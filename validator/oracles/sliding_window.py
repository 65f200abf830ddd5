"""The sliding (hopping) window: each event contributes to every window of its key that contains its time.

Source: SEMANTICS section 2; assignment as in Flink's `SlidingEventTimeWindows.assignWindows`. If the size is not a
multiple of the slide, the number of windows of an event depends on its place on the grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal, Self

from pydantic import model_validator

from validator.oracles.seam import Assigned
from validator.oracles.windows import Windows
from validator.settings.durations import PositiveDuration, format_duration
from validator.settings.errors import broken_rule_at

if TYPE_CHECKING:
    from validator.model.arrays import Ints

WINDOWS_MAX: Final = 1_000
"""Largest number of windows that one event may be in. Each of them is a contribution, which is stored and judged."""


class SlidingWindow(Windows):
    """Windows of one size that start every `slide`, per key. Each event belongs in every window that contains its
    time."""

    kind: Literal["sliding_window"]
    """Windows that overlap."""
    slide: PositiveDuration
    """Distance between the starts of two adjacent windows; at most `size`."""

    judges_values: ClassVar[bool] = True
    judges_values_beside_ids: ClassVar[bool] = True
    accepts_cumulative: ClassVar[bool] = True

    @model_validator(mode="after")
    def _overlaps(self) -> Self:
        if self.slide > self.size:
            problem = f"{format_duration(self.slide)} is above the size: events between windows would be in no window"
            raise broken_rule_at("slide", problem, f"write at most {format_duration(self.size)}")
        if self.offset >= self.slide:
            problem = f"{format_duration(self.offset)} is not below the slide"
            raise broken_rule_at("offset", problem, f"write an offset below {format_duration(self.slide)}")
        if self.size > WINDOWS_MAX * self.slide:
            problem = f"an event would be in {-(-self.size // self.slide):,} windows"
            raise broken_rule_at("slide", problem, f"write a slide that gives at most {WINDOWS_MAX:,}")
        if self._clock is not None and self.slide <= (gap_us := self._clock.longest_gap_us):
            # SEMANTICS 1.13: two windows whose starts are in one gap would start at the same instant.
            problem = (
                f"the clock of {self.time_zone} has skipped {format_duration(gap_us)}: windows could share a start"
            )
            fix = "write a longer slide, or the time zone UTC if no window has to begin at local midnight"
            raise broken_rule_at("slide", problem, fix)
        return self

    @property
    def every_us(self) -> int:
        """Wall time between the starts of adjacent windows."""
        return self.slide

    @property
    def cells_most(self) -> int:
        """Largest number of windows that contain one instant."""
        return -(-self.size // self.slide)

    @property
    def explained_by_one(self) -> int | None:
        """An event is in at most this many windows."""
        return super().explained_by_one if self.reads.explodes else self.cells_most

    def assigned(self, event_times_us: Ints) -> Assigned:
        """The windows that start after ``event time - size``, the latest first."""
        import numpy as np

        wall_us = self._wall_times(event_times_us)
        latest = self._floor(wall_us, self.offset)
        starts = latest[:, None] - np.arange(self.cells_most, dtype=np.int64) * self.slide
        holds = starts > (wall_us - self.size)[:, None]
        return Assigned(np.flatnonzero(holds) // self.cells_most, self._instants(starts[holds]))

"""The tumbling event-time window: each event contributes to exactly one cell.

Source: SEMANTICS section 2; boundaries as in Flink's `TimeWindow.getWindowStartWithOffset`, for negative times too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from pyspark.sql import Column
from pyspark.sql import functions as F

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TumblingWindow:
    """Windows ``[offset + k * size, offset + (k + 1) * size)``, in microseconds (closed left).

    With ``closed_right`` a window is ``(start, end]``, as Storm's: an event at a boundary belongs to the window before.
    """

    size_us: int
    offset_us: int
    closed_right: bool = False

    @property
    def rounding(self) -> Literal["down", "up"]:
        """To which microsecond an event time that is finer goes, so that it stays on its side of every boundary."""
        return "up" if self.closed_right else "down"

    def window_start_us(self, event_time_us: Column) -> Column:
        """Start of the window that the event belongs in."""
        return self._floor(self._inside(event_time_us))

    def reach_us(self, event_time_us: Column, slack_us: int) -> Column:
        """The largest window end at or before ``event_time - slack``: what the event proves to be past."""
        return self._floor(self._inside(event_time_us - F.lit(slack_us)))

    def reach_at(self, instant_us: int, slack_us: int) -> int:
        """`reach_us` of one event time, in numbers."""
        return self.window_start_at(instant_us - slack_us)

    def window_start_at(self, event_time_us: int) -> int:
        """`window_start_us` of one event time, in numbers."""
        inside = event_time_us - (1 if self.closed_right else 0)
        return inside - (inside - self.offset_us) % self.size_us

    def latest_reach_at(self, window_start_us: Ints, slack_us: int) -> Ints:
        """`reach_us` of the latest event that each window can hold, in numbers."""
        # What is near the end of time must not wrap to before its begin.
        latest: Ints = np.minimum(window_start_us, np.iinfo(np.int64).max - self.size_us) + (self.size_us - 1)
        inside = latest - slack_us
        return inside - (inside - self.offset_us) % self.size_us

    def end_us(self, window_start_us: Column) -> Column:
        """End of the window that starts there."""
        return window_start_us + F.lit(self.size_us)

    def _inside(self, event_time_us: Column) -> Column:
        return event_time_us - F.lit(1) if self.closed_right else event_time_us

    def _floor(self, instant_us: Column) -> Column:
        return instant_us - F.pmod(instant_us - F.lit(self.offset_us), F.lit(self.size_us))

"""The tumbling event-time window: each event contributes to exactly one cell.

Source: SEMANTICS section 2; boundaries as in Flink's `TimeWindow.getWindowStartWithOffset`, for negative times too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

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

    def starts_us(self, event_times_us: Ints) -> Ints:
        """Starts of the windows that events belong in."""
        return self._floor(event_times_us)

    def reaches_us(self, event_times_us: Ints, slack_us: int) -> Ints:
        """The largest window ends at or before ``event time - slack``: what events prove to be past."""
        return self._floor(event_times_us - slack_us)

    def reach_at(self, instant_us: int, slack_us: int) -> int:
        """`reaches_us` of one event time."""
        return self.window_start_at(instant_us - slack_us)

    def window_start_at(self, event_time_us: int) -> int:
        """`starts_us` of one event time."""
        inside = event_time_us - (1 if self.closed_right else 0)
        return inside - (inside - self.offset_us) % self.size_us

    def latest_reach_at(self, window_start_us: Ints, slack_us: int) -> Ints:
        """`reaches_us` of the latest event that each window can hold."""
        # What is near the end of time must not wrap to before its begin.
        latest: Ints = np.minimum(window_start_us, np.iinfo(np.int64).max - self.size_us) + (self.size_us - 1)
        inside = latest - slack_us
        return inside - (inside - self.offset_us) % self.size_us

    def _floor(self, instants_us: Ints) -> Ints:
        inside = instants_us - 1 if self.closed_right else instants_us
        return inside - (inside - self.offset_us) % self.size_us

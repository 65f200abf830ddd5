"""Whether the output of an engine is steady, so that the sidecar's recovery detector has a baseline (SEMANTICS 6.7)."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise

from validator.measure.recovery import Detector, fitted, spread, usual_gap


class OutputWatch:
    """Counts the records of a topic about once a second."""

    def __init__(self, records: Callable[[], int | None], clock: Callable[[], float] = time.monotonic) -> None:
        """``records``: how many the topic has; None: not known now."""
        self._records = records
        self._clock = clock
        self._times: list[float] = []
        self._totals: list[int] = []

    def look(self) -> int:
        """Count, unless the last count is less than a second old. Return the records of the topic."""
        now = self._clock()
        if (not self._times or now - self._times[-1] >= 1) and (total := self._records()) is not None:
            self._times.append(now)
            self._totals.append(total)
        return self._totals[-1] if self._totals else 0

    def is_steady(self, seconds: int, detector: Detector) -> bool:
        """Whether the rate of the last ``seconds`` gives a band in which the rate itself lies."""
        counts = self._by_second(seconds)
        if not any(counts):
            return False
        found = fitted(spread(counts, usual_gap(counts)), detector)
        return found is not None and found[1].is_steady

    def _by_second(self, seconds: int) -> Sequence[int]:
        """New records in each of the last seconds; none if the first count is younger."""
        if not self._times or self._times[-1] - self._times[0] < seconds:
            return []
        ends = [self._times[-1] - seconds + i for i in range(seconds + 1)]
        totals = [self._totals[bisect_right(self._times, end) - 1] for end in ends]
        return [after - before for before, after in pairwise(totals)]

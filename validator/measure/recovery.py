"""When the output rate was back (Vogel et al.'s detector, SEMANTICS section 6).

A rate is the mean over the last seconds (5). Control gives its mean and deviation. The output is back from the first
second on from which the rate stays within a band (15 %) of the control mean for long enough (40 s). The paper leaves
open: the deviation (here that of the whole control phase), where the 40 s count from (here recovery is their
beginning), and which values must lie in the band (here the moving rates).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, pstdev


@dataclass(frozen=True)
class Detector:
    """Its parameters, in seconds and as a ratio."""

    moving_seconds: int = 5
    band_ratio: float = 0.15
    stable_seconds: int = 40


@dataclass(frozen=True)
class Band:
    """The control phase's rate (per second) and what counts as back in it."""

    mean: float
    deviation: float
    ratio: float

    def holds(self, rate: float) -> bool:
        """Whether a rate lies in the band."""
        return abs(rate - self.mean) <= self.ratio * self.mean

    @property
    def is_steady(self) -> bool:
        """Whether control itself mostly lies in the band; otherwise nothing can be told from it."""
        return self.mean > 0 and self.deviation <= self.ratio * self.mean


def moving_rates(counts: Sequence[int], moving_seconds: int) -> list[float]:
    """The mean over the last ``moving_seconds`` values, for each value that has so many (itself included)."""
    sums = [0, *accumulate(counts)]
    return [(sums[i] - sums[i - moving_seconds]) / moving_seconds for i in range(moving_seconds, len(sums))]


def band_of(counts: Sequence[int], detector: Detector) -> Band | None:
    """The band of a control phase, from its output per second; None where it is shorter than two rates."""
    rates = moving_rates(counts, detector.moving_seconds)
    if len(rates) < 2:
        return None
    return Band(fmean(rates), pstdev(rates), detector.band_ratio)


def recovered_at(
    rates: Sequence[float], band: Band, *, healed: int | None, stable_seconds: int, latest: int | None = None
) -> int | None:
    """Index of the first rate from which the output is back for good; None where that is not seen in ``rates``.

    ``rates`` begin with the injection. ``healed``: the index of the first rate after the fault (None: it lasts). What
    leaves the band before it had not recovered, and healing may disturb anew: it must stay there for
    ``stable_seconds`` after it too. ``latest``: the last index that counts as a recovery.
    """
    inside = [band.holds(rate) for rate in rates]
    failing = len(inside) if healed is None else min(healed, len(inside))
    mark = 1 + max((i for i in range(failing) if not inside[i]), default=-1)
    for i in range(mark, len(inside)):
        if not inside[i]:
            mark = i + 1
        elif i + 1 - max(mark, healed or 0) >= stable_seconds:
            return mark if latest is None or mark <= latest else None
    return None

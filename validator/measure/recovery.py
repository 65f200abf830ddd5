"""When the output rate has recovered (Vogel et al.'s detector, SEMANTICS section 6).

A rate is the mean over the last seconds (5). The control phase gives mean and deviation. The output has recovered at
the first second from which the rate stays within a band (15 %) around the control mean for long enough (40 s). The
paper leaves open three choices: the deviation (here that of the whole control phase), the start of the 40 s (here it is
the recovery), and the values that must lie in the band (here the moving rates).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import fmean, pstdev


@dataclass(frozen=True)
class Detector:
    """The detector's parameters, in seconds and as a ratio."""

    moving_seconds: int = 5
    band_ratio: float = 0.15
    stable_seconds: int = 40


@dataclass(frozen=True)
class Band:
    """The rate of the control phase (per second), and the band around it."""

    mean: float
    deviation: float
    ratio: float

    def holds(self, rate: float) -> bool:
        """Return whether a rate lies in the band."""
        return abs(rate - self.mean) <= self.ratio * self.mean

    @property
    def is_steady(self) -> bool:
        """Whether the control phase itself mostly lies in the band. Otherwise the band shows nothing."""
        return self.mean > 0 and self.deviation <= self.ratio * self.mean


def moving_rates(counts: Sequence[float], moving_seconds: int) -> list[float]:
    """Return the moving mean over ``moving_seconds`` values, beginning when there are that many values."""
    sums = [0, *accumulate(counts)]
    return [(sums[i] - sums[i - moving_seconds]) / moving_seconds for i in range(moving_seconds, len(sums))]


def usual_gap(counts: Sequence[int]) -> int:
    """Return the longest distance in seconds between two consecutive seconds with output; 1 if there are no two."""
    return max((b - a for a, b in pairwise(i for i, count in enumerate(counts) if count)), default=1)


def spread(counts: Sequence[int], gap: int) -> list[float]:
    """Return the output per second, with that of each second divided among it and the silent seconds before it.

    It is divided among at most ``gap`` seconds; before the first output, as if it came after the usual gap. The result
    ends with the last second that later output does not change.
    """
    # SEMANTICS 6.7: a longer silence than the control phase has stays silent, and a backlog after it stays a burst.
    found, last = [0.0] * len(counts), -gap
    for i, count in enumerate(counts):
        if count:
            over = min(gap, i - last)
            for j in range(max(0, i - over + 1), i + 1):
                found[j] = count / over
            last = i
    return found[: max(last + 1, len(counts) - gap + 1)]


def band_of(counts: Sequence[float], detector: Detector) -> Band | None:
    """Return the band of a control phase from its output per second; None if it has fewer than two rates."""
    rates = moving_rates(counts, detector.moving_seconds)
    if len(rates) < 2:
        return None
    return Band(fmean(rates), pstdev(rates), detector.band_ratio)


def fitted(counts: Sequence[float], detector: Detector) -> tuple[Detector, Band] | None:
    """Return the detector for a control phase with this output per second, and its band; None if the phase has fewer
    than two rates.
    """
    # SEMANTICS 6.7: over several bursts the rate is steady. Two disjoint rates must fit into the control phase. The
    # rate must be stable for its own length, or a backlog that is drained could pass for the usual rate.
    for seconds in range(detector.moving_seconds, len(counts) // 2 + 1):
        rates = moving_rates(counts, seconds)
        band = Band(fmean(rates), 0.0, detector.band_ratio)
        if band.mean > 0 and all(map(band.holds, rates)):
            stable = max(detector.stable_seconds, seconds if seconds > detector.moving_seconds else 0)
            fit = replace(detector, moving_seconds=seconds, stable_seconds=stable)
            return fit, replace(band, deviation=pstdev(rates))
    declared = band_of(counts, detector)
    return None if declared is None else (detector, declared)


def recovered_at(
    rates: Sequence[float], band: Band, *, healed: int | None, stable_seconds: int, latest: int | None = None
) -> int | None:
    """Return the index of the first rate from which the output has recovered; None if ``rates`` do not show a recovery.

    ``rates`` begin at the injection. ``healed``: the index of the first rate after the healing (None: the fault lasts).
    If a rate before the healing lies outside the band, the output recovers only after that rate. Since the healing may
    disturb the output again, the rate must also stay in the band for ``stable_seconds`` after it. ``latest``: the last
    index that counts as a recovery.
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

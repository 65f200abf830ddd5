"""The search for the highest rate that an engine sustains, or for the fewest instances that sustain a rate: bisection
over trials, each judged by declared criteria.

Criteria (Henning and Hasselbring's Theodolite: slope of the lag; PGVal: latency that does not grow): over a trial, the
lag of the engine's consumer group and the median latency must not grow, and everything must be settled after it. An
engine of micro-batches must also end its median batch within their interval (Qian et al.: otherwise it is unhealthy).
Both slopes are shares of the load: a lag that grows by 0.1 events for each event sent, or a latency that grows by 0.1 s
each second, means that a tenth of the load is too much.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import linear_regression, median
from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from faults.section import Seconds, Section
from validator.publish.atomic import replace_file

OFFERED_LEAST: Final = 0.95
"""Share of a trial's rate that the load generator must reach. Otherwise it is the generator that is too slow."""
_POINTS_LEAST: Final = 2
EVENTS: Final = "events/s"
INSTANCES: Final = "instances"
_Limits = tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]]


class Search(Section):
    """The limits between which the search looks, and when a rate is sustained."""

    rates: _Limits | None = None
    """Lowest and highest rate, in events per second."""
    instances: _Limits | None = None
    """Instead of ``rates``: fewest and most instances, at the rate of the plan."""
    within: Annotated[float, Field(gt=0, le=1)] = 0.05
    """The search ends when the rate that failed is at most this share above the one that was sustained."""
    trial: Annotated[Seconds, Field(ge=10)] = 60.0
    """Load of one trial, after the warm-up."""
    slope_most: Annotated[float, Field(gt=0, lt=1)] = 0.02
    """Highest slope of lag and latency of a rate that is sustained, as a share of the load."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if (self.rates is None) is (self.instances is None):
            raise ValueError("needs either rates or instances")
        low, high = self.limits
        if low >= high:
            name = "rates: the first rate" if self.instances is None else "instances: the first number"
            raise ValueError(f"{name} must be below the second")
        return self

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and the highest value that the search tries."""
        found = self.rates or self.instances
        assert found is not None
        return found

    @property
    def trials_most(self) -> int:
        """Most trials of one search: both ends, and the bisections between them."""
        low, high = self.limits
        if self.instances is not None:
            return 2 + math.ceil(math.log2(high - low))
        return 2 + max(0, math.ceil(math.log2(math.log(high / low) / math.log(1 + self.within))))


@dataclass(frozen=True)
class Observed:
    """What was seen of one trial. Series are (second, value), after the warm-up and while the load lasts."""

    offered_per_second: float
    lag_events: Sequence[tuple[float, float]]
    latency_seconds: Sequence[tuple[float, float]]
    settled: bool
    batch_seconds: Sequence[float] = ()
    """How long each micro-batch took; none: the engine has no such batches."""
    interval_seconds: float = 0.0
    """Of micro-batches. 0: a batch begins when the last one ends, so its length says nothing."""


@dataclass(frozen=True)
class Trial:
    """A rate, or a number of instances, that was tried. A slope is None if it was not measured."""

    rate: int
    sustained: bool
    because: str
    lag_slope: float | None = None
    latency_slope: float | None = None


@dataclass(frozen=True)
class Found:
    """The end of a search: the highest rate that was sustained, and the lowest that was not; or the fewest instances
    that sustained the rate, and the most that did not. None: there is none."""

    sustained: int | None
    failed: int | None
    trials: tuple[Trial, ...]
    unit: str = EVENTS


def judged(rate: int, seen: Observed, rules: Search) -> Trial:
    """Whether a rate was sustained, and why not."""
    lag, latency = _slope(seen.lag_events), _slope(seen.latency_seconds)
    lag = None if lag is None else lag / rate
    why: list[str] = []
    if seen.offered_per_second < OFFERED_LEAST * rate:
        why.append(f"the load generator sent only {seen.offered_per_second:.0f} events a second")
    if not seen.settled:
        why.append("not everything was judged in time")
    if lag is None and latency is None:
        why.append("neither lag nor latency was measured")
    why += [
        f"{name} grew by {slope:.3f} of the load"
        for name, slope in (("the lag", lag), ("the latency", latency))
        if slope is not None and slope > rules.slope_most
    ]
    batch = median(seen.batch_seconds) if seen.batch_seconds else 0.0
    if 0 < seen.interval_seconds < batch:
        why.append(f"the median batch took {batch:.2f} s, longer than its interval of {seen.interval_seconds:g} s")
    return Trial(rate, not why, "; ".join(why) or "sustained", _rounded(lag), _rounded(latency))


def _slope(points: Sequence[tuple[float, float]]) -> float | None:
    if len(points) < _POINTS_LEAST:
        return None
    return linear_regression([at for at, _ in points], [value for _, value in points]).slope


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def search(rules: Search, attempt: Callable[[int], Trial]) -> Found:
    """Return the highest sustained rate, or the fewest instances. ``attempt`` tries one of them; it is called at most
    ``rules.trials_most`` times."""
    low, high = rules.limits
    if rules.instances is not None:
        return _fewest(low, high, attempt)
    trials = [attempt(low)]
    if not trials[0].sustained:
        return Found(None, low, tuple(trials))
    trials.append(attempt(high))
    if trials[1].sustained:
        return Found(high, None, tuple(trials))
    while high > low * (1 + rules.within) and high - low > 1:
        middle = min(max(round(math.sqrt(low * high)), low + 1), high - 1)
        trials.append(attempt(middle))
        low, high = (middle, high) if trials[-1].sustained else (low, middle)
    return Found(low, high, tuple(trials))


def _fewest(low: int, high: int, attempt: Callable[[int], Trial]) -> Found:
    trials = [attempt(high)]
    if not trials[0].sustained:
        return Found(None, high, tuple(trials), INSTANCES)
    trials.append(attempt(low))
    if trials[1].sustained:
        return Found(low, None, tuple(trials), INSTANCES)
    while high - low > 1:
        middle = (low + high) // 2
        trials.append(attempt(middle))
        low, high = (low, middle) if trials[-1].sustained else (middle, high)
    return Found(high, low, tuple(trials), INSTANCES)


def path_of(folder: Path, run: str) -> Path:
    """Path of the trials of a search."""
    return folder / "search" / f"{run}.json"


def write(folder: Path, run: str, trials: Sequence[Trial]) -> None:
    """Keep the trials of a search, so that it can be resumed. Raises OSError."""
    path = path_of(folder, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps([asdict(trial) for trial in trials], indent=1) + "\n")


def read(folder: Path, run: str) -> list[Trial]:
    """The trials so far; none if there is no file."""
    try:
        return [Trial(**trial) for trial in json.loads(path_of(folder, run).read_bytes())]
    except (FileNotFoundError, ValueError, TypeError):
        return []


def markdown(found: Sequence[tuple[str, Found | None]]) -> str:
    """The results of all searches, as Markdown. None: the search has not ended. Each rate is also a share of the
    highest one of its engine and workload, such as of the rate without checkpoints."""
    titles = ("run", "sustained (events/s)", "not sustained (events/s)", "of the highest rate", "trials", "why not")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    highest: dict[str, int] = {}
    for run, end in found:
        if end is not None and end.sustained is not None and end.unit == EVENTS:
            highest[_subject(run)] = max(end.sustained, highest.get(_subject(run), 0))
    for run, end in found:
        if end is None:
            lines.append(f"| {run} | – | – | – | – | not done |")
            continue
        failed = next((trial.because for trial in end.trials if trial.rate == end.failed), "–")
        unit = "" if end.unit == EVENTS else f" {end.unit}"
        rates = ["–" if rate is None else f"{rate:,}{unit}" for rate in (end.sustained, end.failed)]
        most = highest.get(_subject(run)) if end.unit == EVENTS else None
        share = f"{end.sustained / most:.2f}" if most and end.sustained is not None else "–"
        lines.append(f"| {run} | {rates[0]} | {rates[1]} | {share} | {len(end.trials)} | {failed} |")
    return "\n".join(lines) + "\n"


def _subject(run: str) -> str:
    """Engine and workload, with which the name of a run begins."""
    return "-".join(run.split("-")[:2])

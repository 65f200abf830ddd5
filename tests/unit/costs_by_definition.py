"""The cost of faults, computed from single results by the definitions of SEMANTICS section 6 and docs/report.md alone.
It shares no code with `validator.measure`, keeps no running sums and is slow.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, pstdev
from typing import NamedTuple

S = 1_000_000
"""One second. All instants and latencies are in microseconds, phases and parameters in whole seconds."""


class Result(NamedTuple):
    """One result: broker time, ids in it, and its latency if its input is known."""

    at_us: int
    contributions: int
    latency_us: int | None


class Fault(NamedTuple):
    """When it was injected and healed (None: not healed)."""

    injected_us: int
    healed_us: int | None


class Measures(NamedTuple):
    """The section `measures` of the configuration."""

    warm_up: int = 0
    control_least: int = 10
    control_most: int = 180
    moving_rate: int = 5
    band_ratio: float = 0.15
    stable_for: int = 40
    give_up_after: int = 300


class Cost(NamedTuple):
    """Seconds and ratios; None for a value that cannot be determined."""

    failure_cost: float | None = None
    downtime: float | None = None
    recovery: float | None = None
    recovered: bool | None = None
    throughput_penalty: float | None = None
    latency_penalty: float | None = None


def costs(results: Sequence[Result], faults: Sequence[Fault], until_us: int, given: Measures) -> list[Cost]:
    """The cost of each of ``faults``, which are ordered by injection. Output, and its absence, is known until
    ``until_us``."""
    found: list[Cost] = []
    back: dict[int, int] = {}
    for i in range(len(faults)):
        control = _control(results, faults[: i + 1], back, given)
        found.append(Cost() if control is None else _cost(results, faults, i, control, until_us, given))
        recovery = found[-1].recovery
        if recovery is not None:
            back[i] = faults[i].injected_us + round(recovery * S)
    return found


def _ceil(instant_us: int) -> int:
    """The instant rounded up to a second: a second belongs to the phase in which it begins."""
    return -(-instant_us // S)


def _control(
    results: Sequence[Result], faults: Sequence[Fault], back: dict[int, int], given: Measures
) -> tuple[int, int] | None:
    """The newest control phase before the last of ``faults``. ``back``: fault -> the instant of its recovery."""
    if not results:
        return None
    first = min(r.at_us for r in results) // S + given.warm_up
    earlier, injected = list(enumerate(faults[:-1])), _ceil(faults[-1].injected_us)
    over = {k: max(f.healed_us, back[k]) for k, f in earlier if f.healed_us is not None and k in back}
    instants = [t for _, f in earlier for t in (f.injected_us, f.healed_us) if t is not None]
    edges = sorted({first, injected, *(e for t in (*instants, *over.values()) if first < (e := _ceil(t)) < injected)})

    def is_control(second: int) -> bool:
        before = [(k, f.healed_us) for k, f in earlier if _ceil(f.injected_us) <= second]
        healed = [(t, k) for k, t in before if t is not None and _ceil(t) <= second]
        if len(healed) < len(before):
            return False
        return not healed or _ceil(over.get(max(healed)[1], 2**62)) <= second

    for a, b in reversed(list(pairwise(edges))):
        if b - a >= given.control_least and is_control(a) and _within(results, a, b):
            return a, b
    return None


def _cost(
    results: Sequence[Result], faults: Sequence[Fault], i: int, control: tuple[int, int], until_us: int, given: Measures
) -> Cost:
    start, healed_us = _ceil(faults[i].injected_us), faults[i].healed_us
    healed = None if healed_us is None else _ceil(healed_us)
    # A fault injected while this one lasts overlaps it. A fault injected later ends its recovery.
    later = [f.injected_us for k, f in enumerate(faults) if k != i and healed_us is not None]
    ends = min([_ceil(until_us), *(_ceil(t) for t in later if healed_us is not None and t >= healed_us)])
    given = _fitted(results, control, given)
    mark, recovered = _recovery(results, control, (start, healed, ends), until_us, given)
    stop = ends
    if healed is not None:
        over = healed + given.give_up_after if mark is None else max(mark, healed)
        stop = min(ends, max(over, start + given.moving_rate))
    failed = stop if healed is None else min(healed, stop)
    usual, failing = _latencies(results, *control), _latencies(results, start, failed)
    worst = _latencies(results, start, stop)
    pause = _longest(_pauses(_within(results, *control)))
    rate, rate_failing = _rate(results, *control), _rate(results, start, failed)
    return Cost(
        max(0, max(worst) - max(usual)) / S if usual and worst else None,
        _downtime(results, control, (start, stop), until_us),
        None if mark is None else max(0, mark * S - faults[i].injected_us) / S,
        recovered,
        rate_failing / rate if rate and rate_failing is not None and (failed - start) * S >= pause else None,
        fmean(failing) / fmean(usual) if failing and usual and any(usual) else None,
    )


class Burst(NamedTuple):
    """The output per second with each burst divided among the silent seconds before it, until ``known``."""

    values: dict[int, float]
    known: int

    def rate(self, a: int, b: int) -> float:
        return sum(self.values.get(second, 0.0) for second in range(a, b)) / (b - a)


def _gap(results: Sequence[Result], a: int, b: int) -> int:
    seconds = sorted({r.at_us // S for r in _within(results, a, b) if r.contributions})
    return max((y - x for x, y in pairwise(seconds)), default=1)


def _divided(results: Sequence[Result], a: int, b: int, gap: int) -> Burst:
    seconds = sorted({r.at_us // S for r in _within(results, a, b) if r.contributions})
    values: dict[int, float] = {}
    for before, second in pairwise([a - gap, *seconds]):
        count = sum(r.contributions for r in _within(results, second, second + 1))
        over = min(gap, second - before)
        values |= {second - k: count / over for k in range(over)}
    return Burst(values, max([a, b - gap + 1, *(second + 1 for second in seconds)]))


def _fitted(results: Sequence[Result], control: tuple[int, int], given: Measures) -> Measures:
    """With the shortest rate that stays in the band during the control phase, of which half of it can hold two."""
    first = max(control[0], control[1] - given.control_most)
    output = _divided(results, first, control[1], _gap(results, first, control[1]))
    for over in range(given.moving_rate, (output.known - first) // 2 + 1):
        base = [output.rate(s - over, s) for s in range(first + over, output.known + 1)]
        mean = fmean(base)
        if mean > 0 and all(abs(rate - mean) <= given.band_ratio * mean for rate in base):
            stable = given.stable_for if over == given.moving_rate else max(over, given.stable_for)
            return given._replace(moving_rate=over, stable_for=stable)
    return given


def _recovery(
    results: Sequence[Result],
    control: tuple[int, int],
    fault: tuple[int, int | None, int],
    until_us: int,
    given: Measures,
) -> tuple[int | None, bool | None]:
    """The first second from which all rates stay in the band until the fault is healed and for `stable_for`
    afterwards; if the rate left the band, the first second with output from there."""
    start, healed, ends = fault
    over = given.moving_rate
    first = max(control[0], control[1] - given.control_most)
    gap = _gap(results, first, control[1])
    calm = _divided(results, first, control[1], gap)
    base = [calm.rate(s - over, s) for s in range(first + over, calm.known + 1)]
    if len(base) < 2 or not any(base) or pstdev(base) > given.band_ratio * fmean(base):
        return None, None
    complete = min(ends, until_us // S)
    output = _divided(results, first, complete, gap)
    known = max(start, output.known)
    inside = [
        abs(output.rate(s - over + 1, s + 1) - fmean(base)) <= given.band_ratio * fmean(base)
        for s in range(start, known)
    ]
    for mark in range(start, known):
        held = known if healed is None else max(mark, healed) + given.stable_for
        is_long = held <= known and held - mark >= given.stable_for
        if is_long and all(inside[mark - start : held - start]):
            if healed is not None and mark > healed + given.give_up_after:
                return None, False
            outputs = [r.at_us // S for r in _within(results, mark, complete) if r.contributions]
            return (min(outputs, default=mark) if mark > start else mark), True
    if healed is None:
        return None, None
    last = max(healed + given.give_up_after + given.stable_for + gap - 1, start + over)
    is_over = until_us // S >= last or (ends < _ceil(until_us) and until_us // S >= ends)
    return None, False if is_over else None


def _downtime(
    results: Sequence[Result], control: tuple[int, int], measured: tuple[int, int], until_us: int
) -> float | None:
    calm = [r.at_us for r in _within(results, *control)]
    usual = _longest(_pauses(_within(results, *control)))
    if 2 * max(usual, min(calm) - control[0] * S, control[1] * S - max(calm)) > (control[1] - control[0]) * S:
        return None
    end = min(measured[1] * S, until_us)
    pauses = [(a, min(b, end)) for a, b in _pauses(results) if b >= measured[0] * S and a < measured[1] * S]
    last = max(r.at_us for r in results)
    if last < measured[1] * S:
        pauses.append((last, end))
    return max(0, _longest(pauses) - usual) / S


def _within(results: Sequence[Result], a: int, b: int) -> list[Result]:
    return [r for r in results if a * S <= r.at_us < b * S]


def _latencies(results: Sequence[Result], a: int, b: int) -> list[int]:
    return [r.latency_us for r in _within(results, a, b) if r.latency_us is not None]


def _rate(results: Sequence[Result], a: int, b: int) -> float | None:
    return sum(r.contributions for r in _within(results, a, b)) / (b - a) if b > a else None


def _pauses(results: Sequence[Result]) -> list[tuple[int, int]]:
    """The pauses between neighbouring results. A pause inside one second is not visible."""
    return [(a, b) for a, b in pairwise(sorted(r.at_us for r in results)) if a // S != b // S]


def _longest(pauses: Sequence[tuple[int, int]]) -> int:
    return max((b - a for a, b in pauses), default=0)

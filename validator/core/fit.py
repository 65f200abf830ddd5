"""Whether the configuration fits the results of a sample of events (SEMANTICS 4.27 to 4.29). Pure rules on a sample.

`mismatch` finds that results systematically name other cells than the configuration expects, and the parameter that is
probably wrong. `growth` finds results that each contain the one before.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from validator.core.differences import SAME_TEXTS
from validator.core.fit_sample import ROWS_OF_A_CELL, Expected, FitSample, Named, results_in
from validator.model.arrays import ABSENT
from validator.oracles.alternatives import alternatives, begins, read_by
from validator.oracles.seam import Oracle
from validator.settings.durations import format_duration

FEW: Final = 3
"""Fewer wrong results than this show nothing systematic (SEMANTICS 4.29)."""
_FACTORS: Final = (1_000, 1_000_000, 1_000_000_000)
"""Between two of the units s, ms, us and ns."""
_LARGEST_US: Final = 2**62


@dataclass(frozen=True)
class Answered:
    """A sampled event that results name: its cells, and those that the results name."""

    id: str
    expected: tuple[Expected, ...]
    named: tuple[Named, ...]
    in_every_cell: bool = True

    @property
    def is_right(self) -> bool:
        """Whether results name exactly the cells to which the event belongs, up to the last one that they name. The
        results of later windows may still be outstanding, and not every oracle has a result in each cell."""
        expected, named = ({(it.start_us, it.key) for it in rows} for rows in (self.expected, self.named))
        return _is_right(expected, named) if self.in_every_cell else named <= expected


@dataclass(frozen=True)
class Pair:
    """An example: an event whose cell and the cell that a result names for it differ. ``id_named``: the id that the
    result has, if it differs from that of the event."""

    id: str
    expected: Expected | None
    named: Named | None
    id_named: str | None = None


@dataclass(frozen=True)
class Mismatch:
    """Results systematically name other cells than the configuration expects.

    ``sign``: what shows it: ``grid`` (named starts at which no window begins), ``results`` (nearly all results have
    misplaced ids), ``value`` (another value of a parameter fits) or ``counts`` (very many results state other values
    than their events give). ``many``, ``among``: the numbers of that sign.
    ``right``, ``of``: events that are named where they belong, and all answered events of the sample. ``parameter``,
    ``configured``, ``value``: another value of one parameter that makes ``fits`` of them right; None if none is known.
    """

    sign: str
    many: int
    among: int
    right: int
    of: int
    parameter: str | None = None
    configured: str | None = None
    value: str | None = None
    fits: int = 0


@dataclass(frozen=True)
class Growth:
    """In ``cells`` of ``of`` cells with several results each result contains the one before it. ``example``: the last
    such result, or, without ids, such a cell; None if none is in memory."""

    cells: int
    of: int
    example: Named | Expected | None


@dataclass(frozen=True)
class Fit:
    """What a sample shows. ``pairs``: an example for each topic of inputs and outputs with one. ``unlike``: an event in
    no result beside a result with an id that no event has, and whose ids differ in a known way."""

    mismatch: Mismatch | None = None
    growth: Growth | None = None
    pairs: Mapping[str, Pair] | None = None
    unlike: Pair | None = None


def answered(sample: FitSample, *, in_every_cell: bool = True) -> list[Answered]:
    """Return the events of the sample that results name, by hash. An id with too many cells is left out.
    ``in_every_cell``: as in `Oracle`."""
    return [
        Answered(
            id_,
            tuple(sorted(one.expected, key=repr)),
            tuple(sorted(one.named, key=lambda it: it[:3])),
            in_every_cell,
        )
        for (_, id_), one in sorted(sample.found.items())
        if one.expected and one.named and max(_cells(one.expected), _cells(one.named)) <= sample.cells_most
    ]


def _cells(rows: Collection[Expected | Named]) -> int:
    return len({(it.start_us, it.key) for it in rows})


def _is_right(expected: set[tuple[int, str | None]], named: set[tuple[int, str | None]]) -> bool:
    if not named <= expected:
        return False
    last: dict[str | None, int] = {}
    for start, key in named:
        last[key] = max(start, last.get(key, ABSENT))
    return all(cell in named for cell in expected if cell[0] <= last.get(cell[1], ABSENT))


def mismatch(
    sample: FitSample, events: Sequence[Answered], oracle: Oracle, results: Mapping[str, int]
) -> Mismatch | None:
    """Return how the configuration systematically fails to fit; None if it does not. ``events``: the `answered` ones.
    ``results``: number of results in scope, by class."""
    wrong = [one for one in events if not one.is_right]
    right, of = len(events) - len(wrong), len(events)
    few = len({(it.topic, it.partition, it.offset) for one in wrong for it in one.named}) < FEW
    sign: tuple[str, int, int] | None = None
    claimed = sorted({(it.topic, it.partition, it.offset, it.start_us) for it in results_in(sample.found)})
    off = int(np.count_nonzero(~begins(oracle, np.array([start for *_, start in claimed], dtype=np.int64))))
    misplaced, judged = results.get("misplaced_results", 0), sum(results.values())
    # SEMANTICS 4.28: three signs, in this order.
    if off >= FEW and 4 * off >= len(claimed):
        sign = "grid", off, len(claimed)
    elif misplaced >= FEW and 10 * misplaced >= 9 * judged:
        sign = "results", misplaced, judged
    elif few:
        return None
    # If most events are right, another value must explain every other one: a defect may concern a few windows.
    most = sign is None and 4 * right > 3 * of
    best, fits = _best(events, oracle, wrong if most else ()) if wrong else (None, 0)
    known = best is not None and (fits == of if most else 100 * fits >= 99 * of)
    if sign is None and not known:
        return None
    sign = sign or ("value", len(wrong), of)
    if best is None or not known:
        return Mismatch(*sign, right, of)
    return Mismatch(*sign, right, of, best.parameter, best.configured, best.value, fits)


class _Hypothesis(NamedTuple):
    """Another value of one parameter. ``of_event``: bounds of an event's time -> bounds with this value. ``of_named``:
    named starts -> those with this value. ``moves_starts``: as in `alternatives.Alternative`."""

    parameter: str
    configured: str | None
    value: str
    oracle: Oracle
    of_event: Callable[[int, int], tuple[int, int]] = lambda first, last: (first, last)
    of_named: Callable[[int], int] = lambda start: start
    moves_starts: bool = True


def _best(events: Sequence[Answered], oracle: Oracle, wrong: Sequence[Answered] = ()) -> tuple[_Hypothesis | None, int]:
    """Return the first of the values that make the most events right, and how many events it makes right. ``wrong``:
    events all of which it must make right, by other starts."""
    best, most = None, 0
    if oracle.merging_gap_us is None and oracle.has_windows and oracle.in_every_cell:
        bounds, of_wrong = ([_bounds(one, oracle) for one in some] for some in (events, wrong))
        for one in _hypotheses(events, oracle):
            if wrong and not (one.moves_starts and _fits(wrong, of_wrong, one) == len(wrong)):
                continue
            fits = _fits(events, bounds, one)
            if fits > most:
                best, most = one, fits
    return best, most


def _hypotheses(events: Sequence[Answered], oracle: Oracle) -> Iterator[_Hypothesis]:
    named = [np.unique([it.start_us for it in one.named]) for one in events]
    others = [
        _Hypothesis(
            it.parameter,
            it.configured,
            it.value,
            it.oracle,
            of_named=partial(read_by, oracle, it.oracle),
            moves_starts=it.moves_starts,
        )
        for it in alternatives(oracle, named)
    ]
    # A shift also explains windows of another size if they begin later, and another offset also explains a shift.
    yield from (other for other in others if other.parameter not in _SHIFTS)
    first, start = min(it.start_us for it in events[0].expected), min(it.start_us for it in events[0].named)
    ratio = first / start if start else 0.0
    for factor in _FACTORS:
        for is_larger in (True, False):
            near = ratio * factor if is_larger else ratio / factor
            if 0.5 < near < 2:
                yield from _units(oracle, factor, is_larger=is_larger)
    shifts = Counter(min(it.start_us for it in one.named) - min(it.start_us for it in one.expected) for one in events)
    shift = max(sorted(shifts), key=lambda it: shifts[it])
    if shift:
        said = f"{'-' if shift < 0 else ''}{format_duration(abs(shift))}"
        yield _Hypothesis(_times(oracle), None, f"times {said} later", oracle, of_named=lambda start: start - shift)
    yield from (other for other in others if other.parameter in _SHIFTS)


_SHIFTS: Final = ("oracle.offset", "oracle.time_zone")


def _times(oracle: Oracle) -> str:
    return f"the unit or zone of inputs[].fields.event_time or outputs[].fields.{oracle.result_time}"


def _units(oracle: Oracle, factor: int, *, is_larger: bool) -> Iterator[_Hypothesis]:
    """Yield the hypotheses that a time is read in a unit that is ``factor`` times larger or smaller."""
    times, said = _times(oracle), f"times that are {factor:,} times {'larger' if is_larger else 'smaller'}"
    if is_larger:
        yield _Hypothesis(times, None, said, oracle, of_event=lambda a, b: (a * factor, b * factor))
        yield _Hypothesis(times, None, said, oracle, of_named=lambda start: start // factor)
    else:
        yield _Hypothesis(times, None, said, oracle, of_event=lambda a, b: (a // factor, b // factor))
        yield _Hypothesis(times, None, said, oracle, of_named=lambda start: start * factor)


def _bounds(event: Answered, oracle: Oracle) -> tuple[int, int]:
    """Return the first and the last instant that all cells of the event have in common."""
    starts = np.array([it.start_us for it in event.expected], dtype=np.int64)
    return int(starts.max()), int(oracle.ends_us(starts).min()) - 1


def _fits(events: Sequence[Answered], bounds: Sequence[tuple[int, int]], one: _Hypothesis) -> int:
    """Return how many events are right with this value. An event's time is known only within its cells, so it is right
    if any of these times makes it right."""
    times: list[int] = []
    wanted: list[set[tuple[int, str | None]]] = []
    rows: list[int] = []
    for event, (earliest, latest) in zip(events, bounds, strict=True):
        keys = {it.key for it in event.expected}
        if earliest > latest or len(keys) > 1 or keys != {it.key for it in event.named}:
            continue
        first, last = one.of_event(earliest, latest)
        named = [one.of_named(it.start_us) for it in event.named]
        if max(map(abs, (first, last, *named))) > _LARGEST_US:
            continue
        # If any time within the bounds is right, one of these is: windows begin at named starts, and the latest time
        # of the first named window is its last instant.
        ends = one.oracle.ends_us(np.array([min(named)], dtype=np.int64))
        at = [min(max(time, first), last) for time in (first, last, max(named), max(named) + 1, int(ends[0]) - 1)]
        times += at
        rows += [len(wanted)] * len(at)
        key = next(iter(keys))
        wanted.append({(start, key) for start in named})
    if not wanted:
        return 0
    of_time, starts = one.oracle.assigned(np.array(times, dtype=np.int64))
    of_time = np.arange(len(times)) if of_time is None else of_time
    cells: dict[int, set[int]] = defaultdict(set)
    for time, start in zip(of_time.tolist(), starts.tolist(), strict=True):
        cells[time].add(start)
    fitting = set()
    for time, row in enumerate(rows):
        key = next(iter(wanted[row]))[1]
        if row not in fitting and _is_right({(start, key) for start in cells[time]}, wanted[row]):
            fitting.add(row)
    return len(fitting)


def growth(sample: FitSample, oracle: Oracle) -> Growth | None:
    """Return in how many sampled cells each result contains the one before it; None if these are few."""
    if oracle.reads.replaces:
        return None
    # Only the first results of a cell are known of an id.
    groups: dict[tuple[str, int, int, str | None], dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    claims: dict[tuple[str, int, int, str | None], dict[int, Named]] = defaultdict(dict)
    for (_, id_), one in sample.found.items():
        for it in one.named:
            key = json.dumps(json.loads(it.key)[:-1]) if oracle.by_id and it.key is not None else it.key
            groups[it.topic, it.partition, it.start_us, key][id_].add(it.offset)
            claims[it.topic, it.partition, it.start_us, key][it.offset] = it
    several = growing = steps = many = 0
    example: Named | None = None
    for group, ids in groups.items():
        of = claims[group]
        whole = min((max(at) for at in ids.values() if len(at) >= ROWS_OF_A_CELL), default=max(of))
        seen = [offset for offset in sorted(of) if offset <= whole]
        sizes = [of[offset].size for offset in seen]
        many += oracle.by_id or max(sizes) > 1
        if len(seen) > 1:
            several += 1
            grows = sizes == sorted(sizes) and (len(seen) >= FEW if oracle.by_id else sizes[0] < sizes[-1])
            if grows and all({it for it in seen if it >= min(at)} <= at for at in ids.values()):
                growing, steps = growing + 1, steps + len(seen) - 1
                example = max(example or of[seen[-1]], of[seen[-1]], key=lambda it: it[:3])
    # SEMANTICS 4.29: a crash can make an engine answer a few cells again, with more events than before.
    if example is None or steps < FEW or 2 * growing < several or 4 * growing < many:
        return None
    return Growth(growing, several, example)


def pairs(sample: FitSample, events: Sequence[Answered]) -> dict[str, Pair]:
    """Return an example for each topic: an event that a result names where it does not belong, or else an event that no
    result names, or a result's id that no event has. ``events``: as in `mismatch`."""
    found: dict[str, Pair] = {}
    wrong = [(one, pair) for one in events if (pair := _pair(one)) is not None]
    for one, pair in wrong:
        for topic in (*(it.topic for it in one.expected), *(it.topic for it in one.named if it == pair.named)):
            found.setdefault(topic, pair)
    for (_, id_), known in sorted(sample.found.items()):
        if bool(known.expected) == bool(known.named):
            continue
        event, claim = min(known.expected, key=repr, default=None), min(known.named, key=repr, default=None)
        for topic in (*(it.topic for it in known.expected), *(it.topic for it in known.named)):
            found.setdefault(topic, Pair(id_, event, claim))
    return found


def _pair(one: Answered) -> Pair | None:
    if one.is_right:
        return None
    cells = {(it.start_us, it.key): it for it in one.expected}
    strange = next((it for it in one.named if (it.start_us, it.key) not in cells), None)
    named = {(it.start_us, it.key) for it in one.named}
    lacking = next((it for cell, it in sorted(cells.items(), key=repr) if cell not in named), one.expected[0])
    return Pair(one.id, lacking, strange)


def unlike_ids(sample: FitSample) -> Pair | None:
    """Return an event in no result, and an id in a result that no event has, which differ in a known way."""
    events = {name[1]: one for name, one in sample.found.items() if one.expected and not one.named}
    others = {name[1]: one for name, one in sample.found.items() if one.named and not one.expected}
    if not events or not others:
        return None
    for _, same in SAME_TEXTS:
        forms = {same(id_): id_ for id_ in sorted(events, reverse=True)}
        for other in sorted(others):
            id_ = forms.get(same(other))
            if id_ is not None:
                event, claim = min(events[id_].expected, key=repr), min(others[other].named, key=repr)
                return Pair(id_, event, claim, other)
    return None


def updating(cells: int, of: int, updates: int, results: int) -> Growth | None:
    """As `growth`, if results state values. ``cells``: those of ``of`` cells with several results whose numbers only
    rise. ``updates``: their results after the first one. ``results``: all judged ones."""
    # SEMANTICS 4.29: repeats state equal numbers, and updates after a crash are soon nearly none of the results.
    if updates < FEW or 2 * cells < of or 100 * updates < results:
        return None
    return Growth(cells, of, None)


def miscounted(
    counts: Mapping[str, int], results: Mapping[str, int], off: int, *, are_updates: bool = False
) -> Mismatch | None:
    """As `mismatch`, if results state values: only numbers show how they fit. ``counts``: contributions by class.
    ``off``: results that name a start at which no window begins. ``are_updates``: another emission explains repeats."""
    judged = sum(results.values())
    wrong = judged - results["correct"] - (results["excess"] if are_updates else 0)
    surplus = sum(counts[name] for name in ("duplicate", "misplaced", "unknown_id")[are_updates:])
    lacking, owed = counts["missing"] + counts["overdue"], counts["expected"]
    # SEMANTICS 4.28: three signs. Windows of another size, or elsewhere, have the same events in all.
    if off >= FEW and 4 * off >= judged:
        return Mismatch("grid", off, judged, judged - wrong, judged)
    is_most = 4 * wrong >= 3 * judged and 10 * (surplus + lacking) >= owed
    if wrong >= FEW and (is_most or (4 * surplus >= owed and 100 * abs(surplus - lacking) <= owed)):
        return Mismatch("counts", wrong, judged, judged - wrong, judged)
    return None


def fit_of(sample: FitSample, oracle: Oracle, results: Mapping[str, int]) -> Fit:
    """Return what the sample shows. ``results``: as in `mismatch`."""
    events = answered(sample, in_every_cell=oracle.in_every_cell)
    return Fit(
        mismatch(sample, events, oracle, results), growth(sample, oracle), pairs(sample, events), unlike_ids(sample)
    )

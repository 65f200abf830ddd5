"""The intervals of time within which the events of two inputs may be joined: those that sampled pairs show."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from validator.cli.proposal.columns import Columns
from validator.cli.proposal.matches import FEW, KeyField, Link, Named
from validator.cli.proposal.times import Time
from validator.oracles.guesses import MINUTE, SECOND, USUAL, Guess, within
from validator.settings.durations import format_duration
from validator.settings.formats.guesses import ENOUGH

_STEPS: Final = (MINUTE, SECOND, SECOND // 10, SECOND // 1_000)
"""A bound is a multiple of one of these if no usual one fits."""
_Key = tuple[str | None, ...]


@dataclass(frozen=True)
class Intervals:
    """A join of pairs. ``refuted``: why it would accuse the pipeline, as a sentence."""

    time: Time
    guess: Guess
    refuted: str | None


def intervals_of(
    inputs: Sequence[Columns], output: Columns, named: Named, keys: Sequence[KeyField], at: Sequence[Time]
) -> Iterator[Intervals]:
    """Yield the joins by distance that results may come from if each names one pair and the time of its left event.
    ``at``: the times of the inputs."""
    pairs = _named_pairs(output, named)
    found = _time_of(output, named, at)
    if found is None or not pairs:
        return
    time, left = found
    right = 1 - left
    distances = [
        b - a
        for one in pairs
        if (a := at[left].instants[one[left].event]) is not None
        and (b := at[right].instants[one[right].event]) is not None
    ]
    if len(distances) >= FEW:
        of_right = named.paths[named.owners.index(right)]
        join = "left" if any(of == () for of in output.lists[of_right]) else "inner"
        topics = inputs[left].topic, inputs[right].topic
        events = [_instants(one, keys, number, at[number]) for number, one in enumerate(inputs)]
        interval = _interval(time, events[left], events[right], distances, topics, join)
        if interval.refuted is not None:
            ends = [
                (end, _ends(inputs[left], keys, left, at[left], end))
                for end in inputs[left].times
                if end.path != at[left].path
            ]
            stated = [(one[left].event, at[right].instants[one[right].event]) for one in pairs]
            interval = _until(interval, ends, events[right], stated, topics, join) or interval
        yield interval


def _interval(
    time: Time,
    lefts: Mapping[_Key, list[int]],
    rights: Mapping[_Key, list[int]],
    distances: Sequence[int],
    topics: tuple[str, str],
    join: str,
) -> Intervals:
    stated = [instant for instant in time.instants if instant is not None]
    # The results of other events may be older than the sample.
    lefts = {key: [it for it in of if min(stated) <= it <= max(stated)] for key, of in lefts.items()}
    least, most = min(distances), max(distances)
    before = _bound(-least, lambda a, b: _pairs(lefts, rights, -b, -a - 1))
    after = _bound(most, lambda a, b: _pairs(lefts, rights, a + 1, b))
    if _are_absent(len(distances), _pairs(lefts, rights, -before, after)):
        # The nearest pairs may have no results: then the interval ends before its left event, or begins after it.
        before = -_nearest(least, lambda a, b: _pairs(lefts, rights, a, b - 1)) if least > 0 else before
        after = -_nearest(-most, lambda a, b: _pairs(lefts, rights, 1 - b, -a)) if most < 0 else after
    shown = " to ".join(_signed(it) for it in dict.fromkeys((least, most)))
    doubt = f"The interval is a guess: of sampled pairs the event of {topics[1]} is {shown} after that of {topics[0]}."
    owed = _pairs(lefts, rights, -before, after)
    refuted = None
    if _are_absent(len(distances), owed):
        refuted = (
            f"{owed - len(distances):,} of {owed:,} pairs within the interval are in no result: the pipeline may join "
            "some events only (write their condition as oracle.where)."
        )
    return Intervals(time, within(before, after, *topics, join=join, doubts=(doubt,)), refuted)


def _until(
    interval: Intervals,
    ends: Sequence[tuple[Time, Mapping[_Key, list[tuple[int, int]]]]],
    rights: Mapping[_Key, list[int]],
    stated: Sequence[tuple[int, int | None]],
    topics: tuple[str, str],
    join: str,
) -> Intervals | None:
    """The join whose pairs end at a field of their left event, if there is such a field. ``ends``: times of left
    events, and the key, time and end of each. ``stated``: the left event and the time of the right one of each named
    pair."""
    instants = [instant for instant in interval.time.instants if instant is not None]
    for end, of_keys in ends:
        if any(it is not None and (own := end.instants[event]) is not None and it > own for event, it in stated):
            continue
        lefts = {
            key: [(it, own) for it, own in of if min(instants) <= it <= max(instants)] for key, of in of_keys.items()
        }
        owed = sum(
            max(0, bisect_right(of, own) - bisect_left(of, it))
            for key, mine in lefts.items()
            if (of := rights.get(key)) is not None
            for it, own in mine
        )
        if owed and not _are_absent(len(stated), owed):
            after = _bound(max(own - it for mine in lefts.values() for it, own in mine), lambda *_: 0)
            doubt = f"That pairs end at {end.path}, and after at most {format_duration(after)}, is a guess."
            guess = within(0, after, *topics, join=join, doubts=(doubt,), until=end.setting)
            return Intervals(interval.time, guess, None)
    return None


def _ends(
    one: Columns, keys: Sequence[KeyField], number: int, at: Time, end: Time
) -> dict[_Key, list[tuple[int, int]]]:
    """Key -> the times of its events, and their ends."""
    found: dict[_Key, list[tuple[int, int]]] = defaultdict(list)
    columns = [one.texts[key.events[number]] for key in keys]
    for instant, own, *values in zip(at.instants, end.instants, *columns, strict=True):
        if instant is not None and own is not None:
            found[tuple(values)].append((instant, own))
    return found


def _named_pairs(output: Columns, named: Named) -> list[dict[int, Link]]:
    """The links of each result with an event of both inputs; none if results name more than a pair."""
    if any(len(of) > 1 for path in named.paths for of in output.lists[path] if of is not None):
        return []
    found: dict[int, dict[int, Link]] = defaultdict(dict)
    for link in named.links:
        found[link.result].setdefault(link.source, link)
    return [of for of in found.values() if len(of) == len(named.paths)]


def _time_of(output: Columns, named: Named, at: Sequence[Time]) -> tuple[Time, int] | None:
    """The time of results that is the likeliest to be that of their events of one input, and this input."""
    best: tuple[float, Time, int] | None = None
    for time, source in product(output.times, range(len(at))):
        pairs = [(at[source].instants[it.event], time.instants[it.result]) for it in named.links if it.source == source]
        # A result may state whole milliseconds or seconds.
        near = sum(a is not None and b is not None and a - a % SECOND <= b <= a for a, b in pairs)
        equal = sum(a is not None and a == b for a, b in pairs) / max(1, len(pairs))
        if pairs and near >= ENOUGH * len(pairs) and time.path not in (*named.paths, "$timestamp"):
            best = (equal, time, source) if best is None or equal > best[0] else best
    return None if best is None else best[1:]


def _instants(one: Columns, keys: Sequence[KeyField], number: int, at: Time) -> dict[_Key, list[int]]:
    """Key -> the times of its events, in order."""
    found: dict[_Key, list[int]] = defaultdict(list)
    columns = [one.texts[key.events[number]] for key in keys]
    for instant, *values in zip(at.instants, *columns, strict=True):
        if instant is not None:
            found[tuple(values)].append(instant)
    return {key: sorted(of) for key, of in found.items()}


def _pairs(lefts: Mapping[_Key, list[int]], rights: Mapping[_Key, list[int]], least: int, most: int) -> int:
    """The number of pairs whose right event is from ``least`` to ``most`` later."""
    return sum(
        bisect_right(of, it + most) - bisect_left(of, it + least)
        for key, mine in lefts.items()
        if (of := rights.get(key)) is not None
        for it in mine
    )


def _bound(longest: int, further: Callable[[int, int], int]) -> int:
    """The bound for pairs that are up to ``longest`` apart: a usual time up to which there is no ``further`` pair."""
    if longest <= 0:
        return 0
    usual = next((size for size in USUAL if size >= longest), None)
    rounded = [-(-longest // step) * step for step in _STEPS]
    tried = (it for it in (usual, *rounded) if it is not None)
    return next((it for it in tried if it == longest or not further(longest, it)), longest)


def _nearest(shortest: int, nearer: Callable[[int, int], int]) -> int:
    """The bound for pairs that are at least ``shortest`` apart: a usual time with no ``nearer`` pair from it on."""
    usual = (size for size in reversed(USUAL) if size <= shortest)
    tried = (*usual, *(shortest // step * step for step in _STEPS))
    return next((it for it in tried if it > 0 and (it == shortest or not nearer(it, shortest))), shortest)


def _are_absent(stated: int, owed: int) -> bool:
    return owed - stated > (1 - ENOUGH) * owed


def _signed(time_us: int) -> str:
    return f"{'-' if time_us < 0 else ''}{format_duration(abs(time_us))}"

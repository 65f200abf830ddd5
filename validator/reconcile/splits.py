"""Sessions that an engine answered in parts (SEMANTICS 2.25): which parts are wrong.

A correct engine puts an event into the session of every earlier event that is at most a gap away. Two such events in
two results prove a defect, unless one of them was read after the session of the other had ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from validator.model.arrays import ABSENT, NEVER, Bools, Ints, counts, run_starts

FIELDS: Final = ("apart", "unproven_splits", "split_us", "kept_us")
"""Columns of a cell, after a comparison. ``apart``: contributions in results that were split off, or that name a wrong
end (`validator.reconcile.compare`). ``unproven_splits``: splits that may be rightful. ``split_us``: the shortest pause
at a split that is not. ``kept_us``: the longest pause between neighbours in one result. Absent: there is none."""


@dataclass(frozen=True)
class Named:
    """Events of sessions that one record brought and a result names, one entry each, sorted by cell, then by event
    time and position.

    ``number``: number of the (cell, id). ``before_us``: the newest event time at a smaller offset of the partition.
    """

    cell: Ints
    number: Ints
    partition: Ints
    offset: Ints
    time_us: Ints
    before_us: Ints

    def of(self, chosen: Ints | Bools) -> Named:
        """Return the chosen events."""
        return Named(*(getattr(self, it.name)[chosen] for it in fields(self)))


@dataclass(frozen=True)
class Mentions:
    """The ids that results name, one entry each: their cell, the number of the (cell, id), and the number of the
    result. Results of all cells are numbered by cell and position."""

    cell: Ints
    number: Ints
    result: Ints


@dataclass(frozen=True)
class Rules:
    """``is_passed``: for events of `Named` and one instant for each, whether a record before the event, which could not
    be read, may have moved the engine's time to the instant. ``moved_elsewhere``: for each partition, whether records
    of others may move the engine's time."""

    gap_us: int
    max_disorder_us: int
    is_passed: Callable[[Named, Ints], Bools]
    moved_elsewhere: Bools


@dataclass(frozen=True)
class Splits:
    """``apart``: which mentions are in results that were split off. ``columns``: the other `FIELDS` of each cell."""

    apart: Bools
    columns: dict[str, Ints]


def splits_of(named: Named, mentions: Mentions, size: int, rules: Rules) -> Splits:
    """Return the wrong parts of ``size`` cells."""
    results = int(mentions.result.max(initial=-1)) + 1
    cell_of = np.zeros(results, dtype=np.int64)
    cell_of[mentions.result] = mentions.cell
    pairs = _Pairs(named, mentions, rules.gap_us)
    # SEMANTICS 2.25: the session of a result ends a gap after the last event that the result names.
    ends = np.full(results, ABSENT, dtype=np.int64)
    np.maximum.at(ends, pairs.result_of_entry, named.time_us[pairs.event_of_entry] + rules.gap_us)
    first, second = named.of(pairs.first), named.of(pairs.second)
    ends_first, ends_second = ends[pairs.first_result], ends[pairs.second_result]
    late = _is_late(second, ends_first, rules) | _is_late(first, ends_second, rules)
    # SEMANTICS 2.26: what cannot be seen may have moved the engine's time.
    unproven = rules.moved_elsewhere[first.partition] | rules.moved_elsewhere[second.partition]
    unproven |= rules.is_passed(second, ends_first) | rules.is_passed(first, ends_second)
    wrong = ~late & ~unproven
    off = _split_off(
        pairs.first_result[wrong], pairs.second_result[wrong], np.bincount(mentions.result, minlength=results)
    )
    pauses = second.time_us - first.time_us
    return Splits(
        apart=off[mentions.result],
        columns={
            "unproven_splits": _or_absent(counts(first.cell, ~late & unproven, size)),
            "split_us": _smallest(first.cell[wrong], pauses[wrong], size),
            "kept_us": _largest(pairs.kept_cell, pairs.kept_us, size),
        },
    )


def _is_late(events: Named, ends_us: Ints, rules: Rules) -> Bools:
    """Return which events came after the engine could end a session at ``ends_us``, as their own partition shows."""
    known = events.before_us != ABSENT
    found: Bools = known & (np.where(known, events.before_us, 0) - rules.max_disorder_us >= ends_us)
    return found


class _Pairs:
    """The neighbours at most a gap apart that no result names together, once for each result of both.

    An *entry* is a named event in a result. ``kept_us``: the pauses of the other neighbours.
    """

    def __init__(self, named: Named, mentions: Mentions, gap_us: int) -> None:
        of_number = np.full(int(max(mentions.number.max(initial=-1), named.number.max(initial=-1))) + 1, -1)
        of_number[named.number] = np.arange(len(named.number))
        event, result = of_number[mentions.number], mentions.result
        event, result = event[event >= 0], result[event >= 0]
        order = np.lexsort((result, event))
        once = run_starts(event[order], result[order])
        self.event_of_entry, self.result_of_entry = event[order][once], result[order][once]
        at = np.searchsorted(self.event_of_entry, np.arange(len(named.number) + 1))
        near = (named.cell[1:] == named.cell[:-1]) & (named.time_us[1:] - named.time_us[:-1] <= gap_us)
        before = np.flatnonzero(near)
        single = np.diff(at) == 1
        plain = single[before] & single[before + 1]
        one, other = before[plain], before[plain] + 1
        first_result, second_result = self.result_of_entry[at[one]], self.result_of_entry[at[other]]
        parted = first_result != second_result
        kept = [one[~parted]]
        columns = [(one[parted], other[parted], first_result[parted], second_result[parted])]
        for event in before[~plain].tolist():
            # Few ids are in several results: only duplicates.
            ours, theirs = (self.result_of_entry[at[i] : at[i + 1]] for i in (event, event + 1))
            if np.intersect1d(ours, theirs).size:
                kept.append(np.array([event]))
                continue
            many = len(ours) * len(theirs)
            both = np.full(many, event), np.full(many, event + 1)
            columns.append((*both, np.repeat(ours, len(theirs)), np.tile(theirs, len(ours))))
        self.first, self.second, self.first_result, self.second_result = (
            np.concatenate([column[i] for column in columns]).astype(np.int64) for i in range(4)
        )
        at_kept = np.concatenate(kept).astype(np.int64)
        self.kept_cell, self.kept_us = named.cell[at_kept], named.time_us[at_kept + 1] - named.time_us[at_kept]


def _split_off(first: Ints, second: Ints, sizes: Ints) -> Bools:
    """Return which results are split off: of the results that belong together, all but the largest. ``first``,
    ``second``: results that belong together. ``sizes``: contributions of each result."""
    whole = np.arange(len(sizes))
    found = np.zeros(len(sizes), dtype=np.bool_)
    for pair in _distinct(first, second):
        lower, upper = sorted(_root(whole, at) for at in pair)
        whole[upper] = lower
    concerned = np.unique(np.concatenate([first, second]))
    roots = np.array([_root(whole, it) for it in concerned.tolist()], dtype=np.int64)
    # SEMANTICS 2.25: the largest stays, and of several the first by position.
    order = np.lexsort((concerned, -sizes[concerned], roots))
    found[concerned[order][~run_starts(roots[order])]] = True
    return found


def _distinct(first: Ints, second: Ints) -> Iterator[tuple[int, int]]:
    """Yield each pair once."""
    order = np.lexsort((second, first))
    once = order[run_starts(first[order], second[order])]
    yield from zip(first[once].tolist(), second[once].tolist(), strict=True)


def _root(whole: Ints, at: int) -> int:
    """Return the smallest result that ``at`` is known to belong with."""
    while whole[at] != at:
        whole[at] = whole[whole[at]]
        at = int(whole[at])
    return at


def _or_absent(values: Ints) -> Ints:
    return np.where(values > 0, values, ABSENT)


def _smallest(cell: Ints, values: Ints, size: int) -> Ints:
    found = np.full(size, NEVER, dtype=np.int64)
    np.minimum.at(found, cell, values)
    return np.where(found == NEVER, ABSENT, found)


def _largest(cell: Ints, values: Ints, size: int) -> Ints:
    found = np.full(size, ABSENT, dtype=np.int64)
    np.maximum.at(found, cell, values)
    return found

"""Which pairs of events the results of a cell state, which pairs are owed, and the classes that follow.

The rule is in docs/oracles/interval_join.md, "The rule" (SEMANTICS 2.12).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validator.model.arrays import Bools, Ints, counts, run_starts, totals
from validator.oracles.ids import Flags, IdCounts, IdVerdicts


@dataclass(frozen=True)
class Interval:
    """A right event joins a left one if it is at most ``before_us`` earlier and at most ``after_us`` later.
    ``left_alone``: a left event without a partner has a result, too."""

    before_us: int
    after_us: int
    left_alone: bool


@dataclass(frozen=True)
class _Due:
    """Per (cell, id): the pairs that are owed, and the events that are owed a result without a partner."""

    pairs: Ints
    alone: Ints


def unsound(id_counts: IdCounts, is_right: Bools, it: Interval) -> tuple[Bools, Bools]:
    """Return which contributions of events of their cell are in results that state no pair, and which ones are in
    results that state a pair more often than there are such events. Ids without an event are among the latter."""
    apart, repeated = (np.zeros(len(id_counts.group), dtype=np.bool_) for _ in range(2))
    carried = np.flatnonzero(id_counts.result >= 0)
    if not len(carried):
        return apart, repeated
    group, result = id_counts.group[carried], id_counts.result[carried]
    of_right, many = is_right[group], int(result.max()) + 1
    lefts, rights = (counts(result, side, many) for side in (~of_right, of_right))
    left, right = (np.full(many, -1, dtype=np.int64) for _ in range(2))
    left[result[~of_right]], right[result[of_right]] = group[~of_right], group[of_right]
    allowed = np.zeros(many, dtype=np.int64)
    both = np.flatnonzero((lefts == 1) & (rights == 1))
    allowed[both] = _copies_of_pairs(id_counts, left[both], right[both], it)
    if it.left_alone:
        alone = (lefts == 1) & (rights == 0)
        allowed[alone] = id_counts.expected[left[alone]]
    order = np.lexsort((np.arange(many), right, left))
    firsts = run_starts(left[order], right[order])
    nth = np.empty(many, dtype=np.int64)
    nth[order] = np.arange(many) - np.flatnonzero(firsts)[np.cumsum(firsts) - 1]
    has_event = id_counts.expected[group] > 0
    apart[carried] = has_event & (allowed == 0)[result]
    repeated[carried] = ~has_event | ((allowed > 0) & (nth >= allowed))[result]
    return apart, repeated


def pair_classes(id_counts: IdCounts, flags: Flags, is_right: Bools, it: Interval) -> IdVerdicts:
    """Return the classes per (cell, id). ``flags.apart``, ``flags.repeated``: what `unsound` returned."""
    size, copies = len(id_counts.cell), id_counts.expected
    assert flags.repeated is not None, "`unsound` comes first"
    set_aside = id_counts.late + id_counts.rejected
    owed_now, owed = _owed(id_counts, flags, is_right, it, set_aside == 0)
    sound = (id_counts.result >= 0) & ~flags.apart & ~flags.repeated
    is_pair = np.bincount(id_counts.result[id_counts.result >= 0], minlength=1)[id_counts.result] > 1
    in_pairs, alone = (counts(id_counts.group, sound & mine, size) for mine in (is_pair, ~is_pair))
    apart, repeated = (counts(id_counts.group, mine, size) for mine in (flags.apart, flags.repeated))

    def lacking(due: _Due) -> Ints:
        # A result with a partner that no input has yet, or that was set aside, may stand for the one without a partner.
        others = np.maximum(0, in_pairs - due.pairs) + apart
        lacks: Ints = np.maximum(0, due.pairs - in_pairs) + np.maximum(0, due.alone - alone - others)
        return lacks

    outstanding = lacking(owed)
    unconsumed = outstanding - np.minimum(outstanding, lacking(owed_now))
    aside = np.minimum(set_aside, copies)
    late = np.minimum(id_counts.late, aside)
    nothing = np.zeros(size, dtype=np.int64)
    return IdVerdicts(
        cell=id_counts.cell,
        is_text=id_counts.is_text,
        id=id_counts.id,
        expected=in_pairs + alone + aside + outstanding,
        processed=in_pairs + alone,
        late=late,
        rejected=aside - late,
        duplicate=np.where(copies > 0, repeated + set_aside - aside, 0),
        foreign=np.where(copies > 0, apart, id_counts.processed + set_aside),
        outstanding=outstanding,
        dropped_late=nothing,
        unconsumed=unconsumed,
        unconsumed_on_time=unconsumed,
        doubtful=nothing,
        elsewhere=nothing,
        unprovable=nothing,
    )


def _owed(id_counts: IdCounts, flags: Flags, is_right: Bools, it: Interval, is_answered: Bools) -> tuple[_Due, _Due]:
    """Return what the engine owes now, and what it owes once it has consumed all events. ``is_answered``: per (cell,
    id), that no late or rejected record has it."""
    events, size = np.flatnonzero(id_counts.from_input), len(id_counts.cell)
    group, times = id_counts.group[events], id_counts.time_us[events]
    unread, unsure = flags.unread[events], flags.unsure[events]
    sure = is_answered[group] & ~unread & ~unsure
    waiting = is_answered[group] & (unread | ~unsure)
    cell, of_right = id_counts.cell[group], is_right[group]

    def partners(chosen: Bools) -> Ints:
        found = np.zeros(len(events), dtype=np.int64)
        for mine, earlier_us, later_us in (
            (~of_right, it.before_us, it.after_us),
            (of_right, it.after_us, it.before_us),
        ):
            others = chosen & ~mine
            low, high = times[mine] - earlier_us, times[mine] + later_us
            found[mine] = _number_within(cell[others], times[others], cell[mine], low, high)
        return found

    now, later = partners(sure), partners(waiting)
    # The answer with a partner below a gap of answers may be in the gap.
    is_alone = ~of_right & (later == 0) & (partners(unsure & ~unread) == 0) & it.left_alone

    def due(chosen: Bools, partners: Ints) -> _Due:
        return _Due(totals(group, np.where(chosen, partners, 0), size), counts(group, chosen & is_alone, size))

    return due(sure, now), due(waiting, later)


def _number_within(of: Ints, times: Ints, cells: Ints, low: Ints, high: Ints) -> Ints:
    """Return, for each of ``cells``, the number of ``times`` from ``low`` to ``high`` in it. ``of``: the cell of each
    time."""
    values, codes = np.unique(np.concatenate([times, low, high]), return_inverse=True)
    ends = np.cumsum([len(times), len(low)])
    of_times, of_low, of_high = (part.astype(np.int64) for part in np.split(codes, ends))
    places = np.sort(of * len(values) + of_times)
    first = np.searchsorted(places, cells * len(values) + of_low, side="left")
    found: Ints = np.searchsorted(places, cells * len(values) + of_high, side="right") - first
    return found


def _copies_of_pairs(id_counts: IdCounts, left: Ints, right: Ints, it: Interval) -> Ints:
    """Return, for pairs of (cell, id), how many pairs of their events are in the interval."""
    events = np.flatnonzero(id_counts.from_input)
    group, times = id_counts.group[events], id_counts.time_us[events]
    # The contributions, and so the events, are in the order of their groups.
    starts = np.searchsorted(group, np.arange(len(id_counts.cell) + 1))
    of_left, of_right = np.diff(starts)[left], np.diff(starts)[right]
    pair = np.repeat(np.arange(len(left)), of_left * of_right)
    nth = np.arange(len(pair)) - (np.cumsum(of_left * of_right) - of_left * of_right)[pair]
    later_us = times[starts[right][pair] + nth % of_right[pair]] - times[starts[left][pair] + nth // of_right[pair]]
    return counts(pair, (-it.before_us <= later_us) & (later_us <= it.after_us), len(left))

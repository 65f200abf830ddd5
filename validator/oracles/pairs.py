"""Which pairs of events the results of a cell state, which pairs are owed, and the classes that follow.

The rule is in docs/oracles/interval_join.md, "The rule" (SEMANTICS 2.12).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from validator.model.arrays import Bools, Ints, counts, run_starts, totals
from validator.oracles.ids import Flags, IdCounts, IdVerdicts
from validator.oracles.two_sides import Join


@dataclass(frozen=True)
class Interval:
    """A right event joins a left one if it is at most ``before_us`` earlier and at most ``after_us`` later, and not
    later than the own end of the left one. ``join``: which events have results."""

    before_us: int
    after_us: int
    join: Join

    def of(self, times: Ints, untils: Ints) -> tuple[Ints, Ints]:
        """Return the first and the last instant of the right events that join left events of these times."""
        return times - self.before_us, np.minimum(times + self.after_us, untils)


@dataclass(frozen=True)
class _Due:
    """Per (cell, id): the pairs that are owed, and the left events that are owed a result that names no partner."""

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
    both = np.flatnonzero((lefts == 1) & (rights == 1) & (it.join != "semi"))
    allowed[both] = _copies_of_pairs(id_counts, left[both], right[both], it)
    if it.join != "inner":
        alone = (lefts == 1) & (rights == 0)
        copies = id_counts.expected
        if it.join == "semi":
            placed = _Placed.of_inputs(id_counts, is_right, it)
            copies = placed.with_partner(np.ones(len(placed.group), dtype=np.bool_))
        allowed[alone] = copies[left[alone]]
    order = np.lexsort((np.arange(many), right, left))
    firsts = run_starts(left[order], right[order])
    nth = np.empty(many, dtype=np.int64)
    nth[order] = np.arange(many) - np.flatnonzero(firsts)[np.cumsum(firsts) - 1]
    has_event = id_counts.expected[group] > 0
    apart[carried] = has_event & (allowed == 0)[result]
    repeated[carried] = ~has_event | ((allowed > 0) & (nth >= allowed))[result]
    return apart, repeated


def pair_classes(id_counts: IdCounts, flags: Flags, is_right: Bools, it: Interval, *, drops_late: bool) -> IdVerdicts:
    """Return the classes per (cell, id). ``flags.apart``, ``flags.repeated``: what `unsound` returned."""
    size, copies = len(id_counts.cell), id_counts.expected
    assert flags.repeated is not None, "`unsound` comes first"
    set_aside = id_counts.late + id_counts.rejected
    events = _Events.of(id_counts, flags, is_right, it, set_aside == 0, drops_late=drops_late)
    sound = (id_counts.result >= 0) & ~flags.apart & ~flags.repeated
    is_pair = np.bincount(id_counts.result[id_counts.result >= 0], minlength=1)[id_counts.result] > 1
    in_pairs, alone = (counts(id_counts.group, sound & mine, size) for mine in (is_pair, ~is_pair))
    apart, repeated = (counts(id_counts.group, mine, size) for mine in (flags.apart, flags.repeated))

    def lacking(due: _Due) -> Ints:
        # A result with a partner that no input has yet, or that was set aside, may stand for the one without a partner.
        others = np.maximum(0, in_pairs - due.pairs) + apart
        lacks: Ints = np.maximum(0, due.pairs - in_pairs) + np.maximum(0, due.alone - alone - others)
        return lacks

    waiting, sure, late, doubtful = events.waiting, events.sure, events.late, events.doubtful
    may_be_late = late | doubtful | events.elsewhere
    on_time = still = outstanding = lacking(events.due(waiting))
    nothing = np.zeros(size, dtype=np.int64)
    excused = [nothing] * 4
    # SEMANTICS 2.12: an engine may drop an event that is late, and then answers none of its pairs.
    used = (sure, sure & ~late, sure & ~late & ~doubtful, sure & ~may_be_late)
    for place, chosen in enumerate(used if may_be_late.any() else used[:1]):
        rest = np.minimum(still, lacking(events.due(chosen)))
        excused[place] = still - rest
        still = rest
    if may_be_late.any():
        on_time = lacking(events.due(waiting & ~may_be_late))
    aside = np.minimum(set_aside, copies)
    set_late = np.minimum(id_counts.late, aside)
    return IdVerdicts(
        cell=id_counts.cell,
        is_text=id_counts.is_text,
        id=id_counts.id,
        expected=in_pairs + alone + aside + outstanding,
        processed=in_pairs + alone,
        late=set_late,
        rejected=aside - set_late,
        duplicate=np.where(copies > 0, repeated + set_aside - aside, 0),
        foreign=np.where(copies > 0, apart, id_counts.processed + set_aside),
        outstanding=outstanding,
        dropped_late=excused[1],
        unconsumed=excused[0],
        unconsumed_on_time=np.clip(on_time - still, 0, excused[0]),
        doubtful=excused[2],
        elsewhere=excused[3],
        unprovable=nothing,
    )


@dataclass(frozen=True)
class _Placed:
    """The events of the compared cells. ``group``: their (cell, id)."""

    it: Interval
    size: int
    group: Ints
    cell: Ints
    times: Ints
    untils: Ints
    of_right: Bools

    @classmethod
    def of_inputs(cls, id_counts: IdCounts, is_right: Bools, it: Interval) -> _Placed:
        """The events that inputs have."""
        at = np.flatnonzero(id_counts.from_input)
        group = id_counts.group[at]
        times, untils = id_counts.time_us[at], id_counts.until_us[at]
        return _Placed(it, len(id_counts.cell), group, id_counts.cell[group], times, untils, is_right[group])

    def with_partner(self, chosen: Bools) -> Ints:
        """Return how many of the ``chosen`` left events have a chosen partner, per (cell, id)."""
        return counts(self.group, chosen & ~self.of_right & (self._partners(chosen) > 0), self.size)

    def _partners(self, chosen: Bools) -> Ints:
        found = np.zeros(len(self.group), dtype=np.int64)
        first, last = self.it.of(self.times, self.untils)
        # An event that ended before the first instant of its interval has no partner.
        lefts, rights = ~self.of_right & (first <= last), self.of_right
        found[lefts] = self._number_to(chosen & rights, self.times, lefts, last)
        found[lefts] -= self._number_to(chosen & rights, self.times, lefts, first, strictly=True)
        # Of the intervals that begin up to an instant, those that ended before do not have it.
        found[rights] = self._number_to(chosen & lefts, first, rights, self.times)
        found[rights] -= self._number_to(chosen & lefts, last, rights, self.times, strictly=True)
        return found

    def _number_to(self, counted: Bools, instants: Ints, asked: Bools, ends: Ints, *, strictly: bool = False) -> Ints:
        """Return, for each ``asked`` event, the number of ``counted`` events of its cell with an instant up to its end;
        ``strictly``: before it."""
        instants, ends = instants[counted], ends[asked]
        values, codes = np.unique(np.concatenate([instants, ends]), return_inverse=True)
        of_instants, of_ends = np.split(codes.astype(np.int64), [len(instants)])
        cells = self.cell[asked] * len(values)
        places = np.sort(self.cell[counted] * len(values) + of_instants)
        before = np.searchsorted(places, cells, side="left")
        found: Ints = np.searchsorted(places, cells + of_ends, side="left" if strictly else "right") - before
        return found


@dataclass(frozen=True)
class _Events(_Placed):
    """Also what the engine may have made of them.

    ``waiting``: those that it must use, also if it has not consumed them yet; ``sure``: those that it has consumed.
    ``late``, ``doubtful``, ``elsewhere``: those that it may have dropped (`Flags`). ``alone``: left events that cannot
    be in a pair, and therefore are answered without a partner.
    """

    waiting: Bools
    sure: Bools
    late: Bools
    doubtful: Bools
    elsewhere: Bools
    alone: Bools

    @classmethod
    def of(
        cls, id_counts: IdCounts, flags: Flags, is_right: Bools, it: Interval, is_answered: Bools, *, drops_late: bool
    ) -> Self:
        """``is_answered``: per (cell, id), that no late or rejected record has it."""
        at = np.flatnonzero(id_counts.from_input)
        group, unread, unsure = id_counts.group[at], flags.unread[at], flags.unsure[at]
        late, doubtful, elsewhere = (mine[at] & drops_late for mine in (flags.late, flags.doubtful, flags.elsewhere))
        answered, nothing = is_answered[group], np.zeros(len(at), dtype=np.bool_)
        found = cls(
            **vars(_Placed.of_inputs(id_counts, is_right, it)),
            waiting=answered & (unread | ~unsure),
            sure=answered & ~unread & ~unsure,
            late=late,
            doubtful=doubtful,
            elsewhere=elsewhere,
            alone=nothing,
        )
        if it.join != "left":
            return found
        # The answer with a partner below a gap of answers may be in the gap.
        partners = found._partners(found.waiting) + found._partners(unsure & ~unread)
        return replace(found, alone=~found.of_right & (partners == 0))

    def due(self, chosen: Bools) -> _Due:
        """Return what the engine owes if it uses the events for which ``chosen`` holds."""
        if self.it.join == "semi":
            # SEMANTICS 2.12: a left event is owed if one of its partners is.
            owed = self.with_partner(chosen)
            return _Due(np.zeros_like(owed), owed)
        pairs = totals(self.group, np.where(chosen, self._partners(chosen), 0), self.size)
        return _Due(pairs, counts(self.group, chosen & self.alone, self.size))


def _copies_of_pairs(id_counts: IdCounts, left: Ints, right: Ints, it: Interval) -> Ints:
    """Return, for pairs of (cell, id), how many pairs of their events are in the interval."""
    events = np.flatnonzero(id_counts.from_input)
    group, times = id_counts.group[events], id_counts.time_us[events]
    # The contributions, and so the events, are in the order of their groups.
    starts = np.searchsorted(group, np.arange(len(id_counts.cell) + 1))
    of_left, of_right = np.diff(starts)[left], np.diff(starts)[right]
    pair = np.repeat(np.arange(len(left)), of_left * of_right)
    nth = np.arange(len(pair)) - (np.cumsum(of_left * of_right) - of_left * of_right)[pair]
    at, of_left_event = times[starts[right][pair] + nth % of_right[pair]], starts[left][pair] + nth // of_right[pair]
    first, last = it.of(times[of_left_event], id_counts.until_us[events][of_left_event])
    return counts(pair, (first <= at) & (at <= last), len(left))

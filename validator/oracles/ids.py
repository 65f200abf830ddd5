"""Counts per id of a cell, and the classes that follow from them if events do not depend on each other."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from validator.model.arrays import Bools, Ints, counts


def _nothing() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class IdCounts:
    """Number of contributions of each side per (cell, id), sorted by both.

    ``is_text``: 1 if ``id`` is the number of a text. ``unowed``: events of the cell that carry the id and owe nothing.
    ``group``: the index of the (cell, id) of each contribution. ``from_input``: whether each contribution is an event
    that contributes. ``times``: how often each entry counts; None: once. ``time_us``: the time of each contribution
    that is an event, ``until_us``: its own end (`Oracle.own_end`), far away if it has none, ``result``: the number of
    the result of each one that is in a result, else -1; these are known of joins by time only (`Oracle.states_pairs`).
    """

    cell: Ints
    is_text: Ints
    id: Ints
    expected: Ints
    processed: Ints
    late: Ints
    rejected: Ints
    unowed: Ints
    group: Ints
    from_input: Bools
    times: Ints | None = None
    time_us: Ints = field(default_factory=_nothing)
    until_us: Ints = field(default_factory=_nothing)
    result: Ints = field(default_factory=_nothing)

    def events(self, chosen: Bools) -> Ints:
        """Return the number of events per (cell, id) for which ``chosen`` holds."""
        return counts(self.group, self.from_input & chosen, len(self.cell), self.times)


@dataclass(frozen=True)
class Flags:
    """One entry per contribution.

    ``late``: its event arrived after its window could close. ``doubtful``: its event may have arrived after that,
    because of a record that could not be read or was too far ahead. ``elsewhere``: the same because of a record of
    another partition. ``unread``: its event is at or past the engine's committed offset. ``unsure``: its answer may
    have expired before it was read. ``apart``: it is in a result that was split off its session (SEMANTICS 2.25), or
    that states no pair. ``repeated``: it is in a result that states a pair too often (`Oracle.states_pairs`).
    """

    late: Bools
    doubtful: Bools
    elsewhere: Bools
    unread: Bools
    unsure: Bools
    apart: Bools
    repeated: Bools | None = None


@dataclass(frozen=True)
class IdVerdicts:
    """Contributions of each class per (cell, id), sorted by both.

    ``foreign``: observations of an id that the cell does not expect. ``unconsumed_on_time``: those of ``unconsumed``
    that would still be outstanding, and not dropped as late, if the engine had read every event. They may have been
    missing before the engine's group was reset. ``doubtful``: outstanding contributions of `Flags.doubtful` events; if
    such an event was late, the engine rightly dropped it. ``elsewhere``: those of `Flags.elsewhere` events.
    ``unprovable``: those of `Flags.unsure` events.
    """

    cell: Ints
    is_text: Ints
    id: Ints
    expected: Ints
    processed: Ints
    late: Ints
    rejected: Ints
    duplicate: Ints
    foreign: Ints
    outstanding: Ints
    dropped_late: Ints
    unconsumed: Ints
    unconsumed_on_time: Ints
    doubtful: Ints
    elsewhere: Ints
    unprovable: Ints


def window_classes(id_counts: IdCounts, flags: Flags, *, collapse: bool) -> IdVerdicts:
    """Return the classes per (cell, id) (SEMANTICS 2.2 to 2.6).

    With e expected, p in results, l late and r rejected: processed = min(e, p); late = min(e - processed, l);
    rejected = min(e - processed - late, r); duplicate = max(0, p + l + r - e) if e > 0. If e = 0, all observations are
    foreign. An engine may set an event aside before it sees that the event owes nothing (SEMANTICS 2.5, 2.6). Such a
    late or rejected record is neither duplicate nor foreign.

    An outstanding contribution has the first of these classes that applies: unconsumed, dropped late, doubtful,
    elsewhere, unprovable. If none applies, the state of its cell decides. An engine drops an event as late only after
    it has read the event.
    """
    # SEMANTICS 2.4: where repeats collapse, a cell owes an id once.
    expected = np.minimum(id_counts.expected, 1) if collapse else id_counts.expected
    # SEMANTICS 2.25: an event of the session that a result names which was split off is misplaced there.
    apart = np.where(expected > 0, counts(id_counts.group, flags.apart, len(id_counts.cell)), 0)
    in_results = id_counts.processed - apart
    # SEMANTICS 2.2: results first, then late, then rejected records.
    processed = np.minimum(expected, in_results)
    late = np.minimum(expected - processed, id_counts.late)
    rejected = np.minimum(expected - processed - late, id_counts.rejected)
    outstanding = expected - processed - late - rejected
    aside = id_counts.late + id_counts.rejected
    total = in_results + aside
    # SEMANTICS 2.5, 2.6: the engine may have set a copy aside before it saw that the copy is a repeat, or owes nothing.
    excused = np.minimum(aside, id_counts.unowed + id_counts.expected - expected)
    # SEMANTICS 2.3: unconsumed first, since an engine drops an event only after it has read it.
    unconsumed = np.minimum(outstanding, id_counts.events(flags.unread))
    dropped = np.minimum(outstanding - unconsumed, id_counts.events(~flags.unread & flags.late))
    left = outstanding - unconsumed - dropped
    on_time = ~flags.unread & ~flags.late
    # SEMANTICS 3.26, 3.24: then those that may have been late, and those whose answers may be unread.
    doubtful = np.minimum(left, id_counts.events(on_time & flags.doubtful))
    left = left - doubtful
    on_time = on_time & ~flags.doubtful
    elsewhere = np.minimum(left, id_counts.events(on_time & flags.elsewhere))
    unprovable = id_counts.events(on_time & ~flags.elsewhere & flags.unsure)
    return IdVerdicts(
        cell=id_counts.cell,
        is_text=id_counts.is_text,
        id=id_counts.id,
        expected=expected,
        processed=processed,
        late=late,
        rejected=rejected,
        duplicate=np.where(expected > 0, np.maximum(0, total - excused - expected), 0),
        foreign=np.where(expected == 0, np.where(id_counts.unowed > 0, id_counts.processed, total), apart),
        outstanding=outstanding,
        dropped_late=dropped,
        unconsumed=unconsumed,
        unconsumed_on_time=np.clip(
            outstanding - id_counts.events(flags.late),
            0,
            np.minimum(unconsumed, id_counts.events(flags.unread & ~flags.late)),
        ),
        doubtful=doubtful,
        elsewhere=elsewhere,
        unprovable=np.minimum(left - elsewhere, unprovable),
    )

"""The ids of a windowed join's cells: `validator.reconcile.compare` for the oracle whose events owe each other.

Only here does a join differ from a window: its cells are all compared, and this is how.
"""

from __future__ import annotations

import numpy as np

from validator.oracles.windowed_join import WindowedJoin, shared_out
from validator.reconcile.arrays import Bools, Ints, counts
from validator.reconcile.ids import ById, Flags, Seen


def classes(seen: Seen, flags: Flags, join: WindowedJoin, is_right: Bools, *, drops_late: bool) -> ById:
    """Classes per (cell, id), by the rule of `shared_out`. ``is_right``: of each (cell, id)."""
    group, size, given = seen.group, len(seen.cell), seen.given
    dropped, doubtful = flags.late & drops_late, flags.doubtful & drops_late
    on_time = ~flags.late & ~flags.doubtful

    def times(condition: Bools) -> Ints:
        return counts(group, given & condition, size)

    set_aside = seen.late + seen.rejected
    shares = shared_out(
        join,
        cell=seen.cell,
        is_right=is_right,
        copies=seen.expected,
        sure=times(on_time & ~flags.unread & ~flags.unsure),
        waiting=times(on_time & (flags.unread | ~flags.unsure)),
        results=seen.processed,
        set_aside=set_aside,
    )
    used, aside, surplus = shares.used, shares.aside, shares.surplus
    expected = np.maximum(shares.owed.astype(np.int64), used + aside)
    late = np.minimum(seen.late, aside)
    outstanding = expected - used - aside
    dropped_late = np.minimum(outstanding, times(dropped))
    # Owed for waiting reasons only: the engine has not read its partner.
    unread = np.maximum(times(~dropped & flags.unread), (~shares.owed_now).astype(np.int64))
    unconsumed = np.minimum(outstanding - dropped_late, unread)
    left = outstanding - dropped_late - unconsumed
    read = ~dropped & ~flags.unread
    may_be_dropped = np.minimum(left, times(read & doubtful))
    unprovable = times(read & ~doubtful & flags.unsure)
    return ById(
        cell=seen.cell,
        is_text=seen.is_text,
        id=seen.id,
        expected=expected,
        processed=used,
        late=late,
        rejected=aside - late,
        duplicate=np.where(expected > 0, surplus, 0),
        foreign=np.where(expected == 0, surplus, 0),
        outstanding=outstanding,
        dropped_late=dropped_late,
        unconsumed=unconsumed,
        doubtful=may_be_dropped,
        unprovable=np.minimum(left - may_be_dropped, unprovable),
    )

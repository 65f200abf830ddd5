"""Counts per id of a cell, and the classes that follow from them if events do not depend on each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validator.model.arrays import Bools, Ints, counts


@dataclass(frozen=True)
class Seen:
    """Number of contributions of each side per (cell, id), sorted by both.

    ``is_text``: 1 if ``id`` is the number of a text. ``unowed``: events of the cell that carry the id and owe nothing.
    ``group``: the index of the (cell, id) of each contribution. ``given``: whether each contribution is an event that
    contributes.
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
    given: Bools


@dataclass(frozen=True)
class Flags:
    """One entry per contribution.

    ``late``: its event arrived after its window could close. ``doubtful``: it may have, because of a record that could
    not be read or was too far ahead. ``unread``: its event is at or past the engine's committed offset. ``unsure``: its
    answer may have expired before it was read.
    """

    late: Bools
    doubtful: Bools
    unread: Bools
    unsure: Bools


@dataclass(frozen=True)
class ById:
    """Classes per (cell, id), sorted by both.

    ``foreign``: observations of an id that the cell does not expect. ``doubtful``: outstanding, and rightly dropped as
    late if a `Flags.doubtful` event was late.
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
    doubtful: Ints
    unprovable: Ints


def window_classes(seen: Seen, flags: Flags, *, collapse: bool) -> ById:
    """Return the classes per (cell, id) (SEMANTICS section 2).

    With e expected, p in results, l late and r rejected: processed = min(e, p); late = min(e - processed, l);
    rejected = min(e - processed - late, r); duplicate = max(0, p + l + r - e) if e > 0. If e = 0, all observations are
    foreign. An engine may set an event aside before it sees that the event owes nothing (decisions 0106, 0110). Such a
    late or rejected record is neither duplicate nor foreign.

    An outstanding contribution is dropped late, unconsumed, doubtful or unprovable, for the first reason that holds.
    """
    group, size, given = seen.group, len(seen.cell), seen.given
    e = np.minimum(seen.expected, 1) if collapse else seen.expected
    processed = np.minimum(e, seen.processed)
    late = np.minimum(e - processed, seen.late)
    rejected = np.minimum(e - processed - late, seen.rejected)
    outstanding = e - processed - late - rejected
    aside = seen.late + seen.rejected
    total = seen.processed + aside
    # A repeat that collapses is excused, too: an engine may set it aside before it sees that it is a repeat.
    excused = np.minimum(aside, seen.unowed + seen.expected - e)
    on_time = given & ~flags.late
    dropped = np.minimum(outstanding, counts(group, given & flags.late, size))
    unconsumed = np.minimum(outstanding - dropped, counts(group, on_time & flags.unread, size))
    left = outstanding - dropped - unconsumed
    read = on_time & ~flags.unread
    doubtful = np.minimum(left, counts(group, read & flags.doubtful, size))
    unprovable = counts(group, read & ~flags.doubtful & flags.unsure, size)
    return ById(
        cell=seen.cell,
        is_text=seen.is_text,
        id=seen.id,
        expected=e,
        processed=processed,
        late=late,
        rejected=rejected,
        duplicate=np.where(e > 0, np.maximum(0, total - excused - e), 0),
        foreign=np.where(e == 0, np.where(seen.unowed > 0, seen.processed, total), 0),
        outstanding=outstanding,
        dropped_late=dropped,
        unconsumed=unconsumed,
        doubtful=doubtful,
        unprovable=np.minimum(left - doubtful, unprovable),
    )

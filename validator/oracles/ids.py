"""What was seen of each id of a cell, and the classes that follow for events that owe each other nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validator.model.arrays import Bools, Ints, counts


@dataclass(frozen=True)
class Seen:
    """Per (cell, id), sorted by both: on how many contributions of each side it is. ``is_text``: 1 where ``id`` is the
    number of a text. ``unowed``: how many events of the cell have it and owe nothing. ``group``: per contribution,
    which (cell, id) it is of; ``given``: whether it is an event that contributes."""

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
    """Per contribution: its event came after its window could close; or may have, by what could not be read; is at or
    past the engine's committed offset; had an answer that may have been gone before it could be read."""

    late: Bools
    doubtful: Bools
    unread: Bools
    unsure: Bools


@dataclass(frozen=True)
class ById:
    """Per (cell, id), sorted by both: its classes. ``foreign``: observations of an id that the cell does not expect.
    ``doubtful``: outstanding, and rightly dropped for lateness if what could not be read was new enough."""

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
    """Classes per (cell, id) (SEMANTICS section 2): with e expected, p in results, l late, r rejected,
    processed = min(e, p); late = min(e - processed, l); rejected likewise of what is left; duplicate =
    max(0, p + l + r - e) where e > 0; else all observations are of an id that the cell does not expect. An engine may
    set an event aside before it sees that the event owes nothing (decisions 0106, 0110): such a record is neither.

    What is outstanding is dropped late, unconsumed, doubtful or unprovable, each for the first reason that holds.
    """
    group, size, given = seen.group, len(seen.cell), seen.given
    e = np.minimum(seen.expected, 1) if collapse else seen.expected
    processed = np.minimum(e, seen.processed)
    late = np.minimum(e - processed, seen.late)
    rejected = np.minimum(e - processed - late, seen.rejected)
    outstanding = e - processed - late - rejected
    aside = seen.late + seen.rejected
    total = seen.processed + aside
    # Nor is a repeat that collapses, which an engine may set aside before it sees that it is one.
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

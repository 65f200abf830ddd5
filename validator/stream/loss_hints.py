"""What lost events have in common: they are the first of a partition, or all come after one event far ahead.

The advice of a report names it. It changes no verdict, and is absent if facts of the losses have left memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from validator.codecs.columns import DECODED
from validator.model.arrays import ABSENT, Ints, field, ints, is_one_of, listed
from validator.model.violation import Violation
from validator.model.wording import plural
from validator.publish.times import rfc3339
from validator.reconcile.facts import Side


class _Events(NamedTuple):
    """Input events, one entry per event and cell: partition, offset and start of the cell. ``lost``: it is one of the
    lost events."""

    partition: Ints
    offset: Ints
    start_us: Ints
    lost: Ints


def loss_hint(facts: Iterable[pa.Table], lost: Sequence[Violation], count: int) -> str | None:
    """Return what the lost events have in common, as a sentence; None if that is nothing, or not known.

    ``facts``: those in memory. ``lost``: confirmed violations of class `missing`. ``count``: the number of lost events;
    nothing is said unless all of them are known.
    """
    wanted = {(one.window_start_us, one.key): set(one.ids) for one in lost if one.window_start_us is not None}
    if not wanted or sum(map(len, wanted.values())) != count:
        return None
    names: dict[tuple[str, int], int] = {}
    parts = [_events(table, wanted, names) for table in facts]
    events = _Events(*(np.concatenate(column) for column in zip(*parts, strict=True))) if parts else None
    if events is None or int(events.lost.sum()) != count:
        return None
    of_number = {number: f"{topic}-{partition}" for (topic, partition), number in names.items()}
    return _all_first(events, of_number) or _all_after_one(events, of_number)


def _events(table: pa.Table, wanted: Mapping[tuple[int, str], set[str]], names: dict[tuple[str, int], int]) -> _Events:
    table = table.filter(pa.array(is_one_of(table["side"], Side.INPUT.value) & (ints(table["status"]) == DECODED)))
    places = zip(table["topic"].to_pylist(), table["partition"].to_pylist(), strict=True)
    partition = np.array([names.setdefault(place, len(names)) for place in places], dtype=np.int64)
    start_us = ints(table["window_start_us"], ABSENT)
    cells = list(zip(table["window_start_us"].to_pylist(), table["key"].to_pylist(), strict=True))
    columns: list[list[Ints]] = [[], [], [], []]
    for name in ("ids", "text_ids"):
        rows, events = listed(table[name])
        lost = np.zeros(len(rows), dtype=np.int64)
        # Only the rows of cells with losses are looked at one by one.
        of_loss = np.flatnonzero(np.array([cell in wanted for cell in cells], dtype=np.bool_)[rows])
        ids = field(events, "id").take(pa.array(of_loss)).to_pylist()
        lost[of_loss] = [str(one) in wanted[cells[row]] for row, one in zip(rows[of_loss].tolist(), ids, strict=True)]
        for column, values in zip(
            columns, (partition[rows], ints(field(events, "offset")), start_us[rows], lost), strict=True
        ):
            column.append(values)
    return _Events(*(np.concatenate(column) for column in columns))


def _all_first(events: _Events, names: Mapping[int, str]) -> str | None:
    """The sentence if no event before a lost one, in its partition, was answered."""
    said = []
    for number in np.unique(events.partition[events.lost > 0]).tolist():
        mine = events.partition == number
        last = int(events.offset[mine & (events.lost > 0)].max())
        if not events.lost[mine & (events.offset <= last)].all():
            return None
        is_all = last == int(events.offset[mine].max())
        said.append(f"{names[number]}{'' if is_all else f' up to offset {last}'}")
    return (
        f"The lost events are all the events of {' and of '.join(said)}: did the engine begin to read after them, or "
        "not read there at all (auto.offset.reset, a reset of its group)?"
    )


def _all_after_one(events: _Events, names: Mapping[int, str]) -> str | None:
    """The sentence if all lost events come after one event of their partition whose cell begins after theirs."""
    lost = events.lost > 0
    [*numbers] = np.unique(events.partition[lost]).tolist()
    if len(numbers) != 1:
        return None
    first, latest = int(events.offset[lost].min()), int(events.start_us[lost].max())
    ahead = (events.partition == numbers[0]) & (events.offset < first) & (events.start_us > latest)
    if not ahead.any():
        return None
    at = np.flatnonzero(ahead)[int(events.offset[ahead].argmin())]
    count, time = plural(int(lost.sum()), "lost event comes", "lost events come"), rfc3339(int(events.start_us[at]))
    return (
        f"The {count} after {names[numbers[0]]} offset {events.offset[at]}, an event of {time} or later, which is "
        "ahead of them: if it moved the engine's time, the engine dropped them as late. Look for a wrong clock of a "
        "producer, or compare timing.max_disorder and timing.late_policy with the engine."
    )

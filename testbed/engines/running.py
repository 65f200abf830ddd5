"""The reference engine's aggregates without a window: results per key over all of its events. Pure, no I/O.

`RunningCore` keeps only the ids that are new since its last results. Results have only those ids, and add up. With
`CumulativeCore`, each output is the whole table: one result per key with all ids so far, as in Spark's output mode
``complete``. The newest result of a key replaces the earlier ones. With
`ChangedCore`, only keys with new ids have a new result, or only after every so many. No event is late for any of them.

Recovery. The state of `CumulativeCore` is every event, so ``rebuild_from`` is the offset of the partition's first
event. All events below ``next_offset`` are restored, and they are the whole table.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from testbed.engines.core import (
    EventId,
    Key,
    LateEvent,
    Partition,
    PartitionId,
    PartitionProgress,
    Record,
    Result,
    UnwindowedCore,
)


@dataclass
class _Rows:
    ids: list[EventId] = field(default_factory=list)
    times_ms: array[int] = field(default_factory=lambda: array("q"))


class RunningCore(UnwindowedCore):
    """Per key, the ids that are new at each call of `take`. A result has no window: its start and end are 0."""

    def __init__(self, max_disorder_ms: int = 0, allowed_lateness_ms: int = 0) -> None:
        super().__init__(max_disorder_ms, allowed_lateness_ms)
        self._rows: dict[PartitionId, dict[Key, _Rows]] = {}
        self._has_changed = False

    def take(self) -> list[Result | LateEvent]:
        """Return the results since the last call, by key; none while the state is incomplete."""
        if self._recovering or not self._has_changed:
            return super().take()
        self._has_changed = False
        merged: dict[Key, _Rows] = {}
        for partition in self._rows:
            for key, some in self._due(partition):
                whole = merged.setdefault(key, _Rows())
                whole.ids.extend(some.ids)
                whole.times_ms.extend(some.times_ms)
        self._emitted()
        return super().take() + [
            Result(0, 0, key, tuple(whole.ids), tuple(whole.times_ms)) for key, whole in sorted(merged.items())
        ]

    def progress(self) -> dict[PartitionId, PartitionProgress]:
        """As in `Core`. New ids must have been taken."""
        assert self._recovering or not self._has_changed, "committing before results are taken would lose them"
        return super().progress()

    def reset(self) -> None:
        """As in `Core`."""
        super().reset()
        self._has_changed = False

    def _due(self, partition: PartitionId) -> Iterable[tuple[Key, _Rows]]:
        """The keys of a partition that have results now."""
        return self._rows[partition].items()

    def _emitted(self) -> None:
        """Called after results are produced: drops the ids, which are not produced again."""
        for rows in self._rows.values():
            rows.clear()

    def _insert(self, state: Partition, offset: int, key: Key, time_ms: int, event_id: EventId) -> bool:
        del offset
        rows = self._rows[state.id].setdefault(key, _Rows())
        rows.ids.append(event_id)
        rows.times_ms.append(time_ms)
        self._has_changed = True
        return True

    def _restore(self, state: Partition, record: Record) -> None:
        """Nothing to do: events read before the commit have their results."""

    def _first_offset(self, state: Partition) -> int:
        return state.next_offset

    def _assigned(self, state: Partition, progress: PartitionProgress) -> None:
        del progress
        self._rows[state.id] = {}

    def _forget(self, state: Partition) -> None:
        del self._rows[state.id]


class CumulativeCore(RunningCore):
    """Per key, all ids so far. If one key has a new id, all keys have a new result."""

    def __init__(self, max_disorder_ms: int = 0, allowed_lateness_ms: int = 0) -> None:
        super().__init__(max_disorder_ms, allowed_lateness_ms)
        self._first_offsets: dict[PartitionId, int] = {}

    def _emitted(self) -> None:
        """Keeps the ids: the next results contain them again."""

    def _insert(self, state: Partition, offset: int, key: Key, time_ms: int, event_id: EventId) -> bool:
        self._first_offsets.setdefault(state.id, offset)
        return super()._insert(state, offset, key, time_ms, event_id)

    def _restore(self, state: Partition, record: Record) -> None:
        has_changed = self._has_changed
        self._insert(state, *record)
        self._has_changed = has_changed

    def _first_offset(self, state: Partition) -> int:
        return self._first_offsets.get(state.id, state.next_offset)

    def _forget(self, state: Partition) -> None:
        super()._forget(state)
        self._first_offsets.pop(state.id, None)


class ChangedCore(CumulativeCore):
    """Per key that has ``every`` new ids, all ids up to the last of these."""

    def __init__(self, max_disorder_ms: int = 0, allowed_lateness_ms: int = 0, *, every: int = 1) -> None:
        super().__init__(max_disorder_ms, allowed_lateness_ms)
        self._every = every
        self._changed: dict[Key, dict[PartitionId, int]] = {}

    def reset(self) -> None:
        """As in `Core`."""
        super().reset()
        self._changed.clear()

    def _due(self, partition: PartitionId) -> Iterable[tuple[Key, _Rows]]:
        for key, numbers in self._changed.items():
            if partition in numbers:
                rows, number = self._rows[partition][key], numbers[partition]
                yield key, _Rows(rows.ids[:number], rows.times_ms[:number])

    def _emitted(self) -> None:
        self._changed.clear()

    def _insert(self, state: Partition, offset: int, key: Key, time_ms: int, event_id: EventId) -> bool:
        super()._insert(state, offset, key, time_ms, event_id)
        numbers = {partition: len(rows[key].ids) for partition, rows in self._rows.items() if key in rows}
        if sum(numbers.values()) % self._every == 0:
            self._changed[key] = numbers
        return True

    def _restore(self, state: Partition, record: Record) -> None:
        before = self._changed
        self._changed = {}
        super()._restore(state, record)
        self._changed = before

    def _forget(self, state: Partition) -> None:
        super()._forget(state)
        for numbers in self._changed.values():
            numbers.pop(state.id, None)

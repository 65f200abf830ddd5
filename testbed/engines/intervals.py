"""Two inputs joined per key by the distance of their event times, on the reference engine's core. Pure, no I/O.

The second event of a pair to be read produces the result, with the ids of both and the left event's time. No event is
late, so all events are state: ``rebuild_from`` is the offset of a partition's first event. Pairs of events that were
read before the commit have their results.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort_right
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from testbed.engines.core import EventId, Key, Partition, PartitionId, PartitionProgress, Record, Result, UnwindowedCore
from testbed.engines.join import is_right


class _Event(NamedTuple):
    id: EventId
    time_ms: int


_TIME = attrgetter("time_ms")


class IntervalCore(UnwindowedCore):
    """Joins each left event with the right events from ``before_ms`` earlier to ``after_ms`` later, and up to its own
    end: ``own_end`` returns that of an id, None if it has none."""

    def __init__(
        self,
        before_ms: int,
        after_ms: int,
        *,
        right_prefix: str,
        own_end: Callable[[EventId], int | None] | None = None,
    ) -> None:
        super().__init__()
        self._own_end = own_end
        self._before_ms, self._after_ms = before_ms, after_ms
        self._right_prefix = right_prefix
        self._events: dict[PartitionId, dict[Key, list[_Event]]] = {}
        """In the order of their times, as keys may have many."""
        self._first_offsets: dict[PartitionId, int] = {}

    def _insert(self, state: Partition, offset: int, key: Key, time_ms: int, event_id: EventId) -> bool:
        mine, of_right = _Event(event_id, time_ms), is_right(event_id, self._right_prefix)
        before_ms, after_ms = self._before_ms, self._after_ms
        if of_right:
            before_ms, after_ms = after_ms, before_ms
        for events in self._events.values():
            others = events.get(key, [])
            first = bisect_left(others, time_ms - before_ms, key=_TIME)
            for other in others[first : bisect_right(others, time_ms + after_ms, first, key=_TIME)]:
                if is_right(other.id, self._right_prefix) != of_right:
                    self._join(key, *((other, mine) if of_right else (mine, other)))
        self._restore(state, (offset, key, time_ms, event_id))
        return True

    def _join(self, key: Key, left: _Event, right: _Event) -> None:
        end_ms = None if self._own_end is None else self._own_end(left.id)
        if end_ms is not None and right.time_ms > end_ms:
            return
        ids, times_ms = (left.id, right.id), (left.time_ms, right.time_ms)
        self._answers.append(Result(left.time_ms, left.time_ms, key, ids, times_ms))

    def _restore(self, state: Partition, record: Record) -> None:
        offset, key, time_ms, event_id = record
        self._first_offsets.setdefault(state.id, offset)
        insort_right(self._events[state.id].setdefault(key, []), _Event(event_id, time_ms), key=_TIME)

    def _first_offset(self, state: Partition) -> int:
        return self._first_offsets.get(state.id, state.next_offset)

    def _assigned(self, state: Partition, progress: PartitionProgress) -> None:
        del progress
        self._events[state.id] = {}

    def _forget(self, state: Partition) -> None:
        del self._events[state.id]
        self._first_offsets.pop(state.id, None)

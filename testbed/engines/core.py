"""The reference engine's core: event-time windows over partitions, and recovery from progress. Pure, no I/O.

The operator is PGVal's SST: group by key, tumbling event-time window, answer once with the ids, late events aside.

Time. A partition's watermark is its newest event time less ``max_disorder_ms``; the operator's is the minimum over
its partitions, those that are idle left out, and never falls. A window answers when the watermark reaches its end
plus ``allowed_lateness_ms``; an event that comes for an answered window is late. (Flink's
``forMonotonousTimestamps`` fires a window [start, end) when a timestamp at or past ``end`` was seen: the same.)

Recovery. A ``Progress`` per partition is all that is ever stored: ``next_offset``, ``closed_through_ms`` (the
watermark) and ``rebuild_from``, the smallest offset of an event that sits in an open window. To recover, the
partition is read again from ``rebuild_from``. An event below ``next_offset`` is put back into its window if that
window was open at ``closed_through_ms``, and is dropped otherwise. That restores the state exactly:

- An event below ``next_offset`` whose window was open at the commit was in that window's state: since the watermark
  never falls, the window was open when the event was first read too, so the event was not late. It is at or past
  ``rebuild_from`` by that offset's definition. So everything that was in the state comes back, once.
- An event below ``next_offset`` whose window was closed at the commit had been answered or sent aside before the
  commit, and those outputs belong to the same commit. So nothing is answered twice.

No window closes before every partition has been read to its ``next_offset`` again, whatever order the partitions
come in. Thus, with outputs and progress committed atomically, each event is answered or sent aside exactly once, at
any kill point. With outputs before progress, an output can only come again; with progress before outputs, it can
only get lost.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

PartitionId = tuple[str, int]
"""Topic and partition."""
EventId = int | str
Record = tuple[int, tuple[str, ...], int, EventId]
"""Offset, key, event time in ms since the epoch, id. A plain tuple: there is one per event."""

BEGINNING_MS: Final = -(1 << 62)
"""A watermark before all time: nothing is closed."""


@dataclass(frozen=True)
class Progress:
    """How far a partition has been processed; offsets are Kafka's, times event time in ms since the epoch."""

    next_offset: int
    rebuild_from: int
    closed_through_ms: int


@dataclass(frozen=True)
class Result:
    """The answer of one cell: the ids of its events in the order read, with their event times in ms."""

    window_start_ms: int
    window_end_ms: int
    key: tuple[str, ...]
    ids: tuple[EventId, ...]
    times_ms: tuple[int, ...]


@dataclass(frozen=True)
class LateEvent:
    """An event that came after its window had answered."""

    key: tuple[str, ...]
    id: EventId
    time_ms: int


@dataclass
class _Cell:
    first_offset: int
    ids: list[EventId] = field(default_factory=list)
    times_ms: array[int] = field(default_factory=lambda: array("q"))


@dataclass
class _Partition:
    next_offset: int
    closed_through_ms: int
    recovering: Progress | None
    newest_ms: int = BEGINNING_MS
    idle: bool = False
    cells: dict[tuple[int, tuple[str, ...]], _Cell] = field(default_factory=dict)


class WindowCore:
    """Open windows of the partitions of one instance. All durations are milliseconds of event time."""

    def __init__(self, size_ms: int, max_disorder_ms: int = 0, allowed_lateness_ms: int = 0) -> None:
        assert size_ms > 0
        self._size_ms = size_ms
        self._max_disorder_ms = max_disorder_ms
        self._allowed_lateness_ms = allowed_lateness_ms
        self._partitions: dict[PartitionId, _Partition] = {}
        self._answers: list[Result | LateEvent] = []
        self._alarm_ms = BEGINNING_MS

    def assign(self, partition: PartitionId, progress: Progress) -> None:
        """Take on a partition. Records must then come from ``progress.rebuild_from`` on."""
        behind = progress.rebuild_from < progress.next_offset
        start = progress.rebuild_from if behind else progress.next_offset
        self._partitions[partition] = _Partition(start, progress.closed_through_ms, progress if behind else None)
        self._alarm_ms = BEGINNING_MS

    def revoke(self, partition: PartitionId) -> None:
        """Forget a partition, with the windows that its events are in."""
        del self._partitions[partition]
        self._alarm_ms = BEGINNING_MS

    def reset(self) -> None:
        """Forget everything, answers included: what a kill does."""
        self._partitions.clear()
        self._answers.clear()
        self._alarm_ms = BEGINNING_MS

    def process(self, partition: PartitionId, records: Iterable[Record]) -> None:
        """Read records of one partition, in offset order."""
        state = self._partitions[partition]
        state.idle = False
        size, grace, disorder = self._size_ms, self._allowed_lateness_ms, self._max_disorder_ms
        cells, closed, newest = state.cells, state.closed_through_ms, state.newest_ms
        for offset, key, time_ms, event_id in records:
            if state.recovering is not None and offset >= state.recovering.next_offset:
                self.read_through(partition, offset)
                closed = state.closed_through_ms
            end = (time_ms // size + 1) * size
            if end + grace > closed:
                cell = cells.get((end, key))
                if cell is None:
                    cell = cells[end, key] = _Cell(offset)
                cell.ids.append(event_id)
                cell.times_ms.append(time_ms)
            elif state.recovering is None:
                self._answers.append(LateEvent(key, event_id, time_ms))
            state.next_offset = offset + 1
            if time_ms > newest:
                state.newest_ms = newest = time_ms
                if time_ms - disorder >= self._alarm_ms:
                    self.advance()
                    closed = state.closed_through_ms

    def read_through(self, partition: PartitionId, next_offset: int) -> None:
        """Everything below ``next_offset`` has been read, also where offsets without a record end the partition."""
        state = self._partitions[partition]
        state.next_offset = max(state.next_offset, next_offset)
        if state.recovering is not None and state.next_offset >= state.recovering.next_offset:
            state.recovering = None
            self.advance()

    def set_idle(self, partition: PartitionId) -> None:
        """Leave the partition out of the watermark until its next record."""
        self._partitions[partition].idle = True
        self.advance()

    def advance(self) -> None:
        """Move the watermark as far as the partitions allow, and answer the windows that it closes."""
        active = [p for p in self._partitions.values() if not p.idle]
        if not active or any(p.recovering is not None for p in self._partitions.values()):
            return
        watermark = min(p.newest_ms for p in active) - self._max_disorder_ms
        if watermark < self._alarm_ms:
            return
        for p in self._partitions.values():
            p.closed_through_ms = max(p.closed_through_ms, watermark)
        grace, size = self._allowed_lateness_ms, self._size_ms
        # What is closed, and so what is late, changes only where the watermark reaches an end plus the grace.
        self._alarm_ms = ((watermark - grace) // size + 1) * size + grace
        self._answer_closed()

    def close_all(self) -> None:
        """Close every window that is open, as at the end of all input."""
        ends = [end for p in self._partitions.values() for end, _ in p.cells]
        if ends:
            for p in self._partitions.values():
                p.closed_through_ms = max(p.closed_through_ms, max(ends) + self._allowed_lateness_ms)
            self._answer_closed()

    def take(self) -> list[Result | LateEvent]:
        """The answers since the last call. Results of one window stand together, by key."""
        answers, self._answers = self._answers, []
        return answers

    def progress(self) -> dict[PartitionId, Progress]:
        """What to commit with the answers, all of which must have been taken.

        A partition that is still recovering has what it had.
        """
        assert not self._answers, "progress without its answers would lose them"
        return {
            partition: state.recovering
            or Progress(
                state.next_offset,
                min((cell.first_offset for cell in state.cells.values()), default=state.next_offset),
                state.closed_through_ms,
            )
            for partition, state in self._partitions.items()
        }

    @property
    def recovering(self) -> bool:
        """Whether some partition has not been read up to where it had been."""
        return any(p.recovering is not None for p in self._partitions.values())

    def next_offset(self, partition: PartitionId) -> int:
        """The offset after the last one read."""
        return self._partitions[partition].next_offset

    def _answer_closed(self) -> None:
        merged: dict[tuple[int, tuple[str, ...]], tuple[list[EventId], array[int]]] = {}
        for state in self._partitions.values():
            limit = state.closed_through_ms - self._allowed_lateness_ms
            for cell_key in [c for c in state.cells if c[0] <= limit]:
                cell = state.cells.pop(cell_key)
                ids, times_ms = merged.setdefault(cell_key, ([], array("q")))
                ids.extend(cell.ids)
                times_ms.extend(cell.times_ms)
        for (end, key), (ids, times_ms) in sorted(merged.items(), key=lambda item: item[0]):
            result = self._result(Result(end - self._size_ms, end, key, tuple(ids), tuple(times_ms)))
            if result is not None:
                self._answers.append(result)

    def _result(self, whole: Result) -> Result | None:
        """What to answer for a window with these events; None: nothing."""
        return whole

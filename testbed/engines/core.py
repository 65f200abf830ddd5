"""The reference engine's core: an operator over partitions, event time, and recovery from progress. Pure, no I/O.

`WindowCore` has tumbling and sliding windows; `distinct`, `join`, `passthrough`, `running` and `sessions` have the
other operators. All group by key, produce one result with the ids (`running` excepted), and set late events aside. Time
and recovery are those of `Core`.

Time. A partition's watermark is its newest event time minus ``max_disorder_ms``. The operator's watermark is the
minimum over its partitions without the idle ones, and never decreases. A window produces its result when the watermark
reaches its end plus ``allowed_lateness_ms``. An event is late if all of its windows have produced their results.
(Flink's ``forMonotonousTimestamps`` fires a window [start, end) when a timestamp at or past ``end`` was seen, which is
the same.) An event that is too late for some of its windows counts in the others only, as in Flink.

Recovery. Only a ``PartitionProgress`` per partition is ever stored: ``next_offset``, ``closed_through_ms`` (the
watermark) and ``rebuild_from``, the smallest offset of an event in an open window. To recover, the partition is read
again from ``rebuild_from``. An event below ``next_offset`` is added to those of its windows that were open at
``closed_through_ms``, and to no others. This restores the state exactly:

- An event below ``next_offset`` with a window that was open at the commit was in that window's state: since the
  watermark never decreases, the window was also open when the event was first read, so the event was not late for it.
  The event's offset is at or past ``rebuild_from`` by definition. So the whole state is restored, each event once.
- If a window of an event below ``next_offset`` was closed at the commit, its result with the event had been produced
  before the commit, or the event had come late for it. In both cases the output belongs to that commit. So no event
  is processed twice. This holds for each window separately: an event in several windows may be in the result of one
  while another is still open.

A session's window is not known from one event. `sessions` describes what else its progress holds, and why that is
enough. A `passthrough` has no open state, so its ``rebuild_from`` equals its ``next_offset``.

First, every partition is read up to its ``next_offset`` again, in any order. Events at or past a commit are held
until this is complete. Therefore, if outputs and progress are committed atomically,
each event is in a result or set aside exactly once (in each of its windows), at any kill point. With outputs before
progress, an output can only be repeated; with progress before outputs, it can only be lost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

Operator = Literal["tumbling", "sliding", "session", "passthrough", "distinct", "running_aggregate", "interval"]
PartitionId = tuple[str, int]
"""Topic and partition."""
EventId = int | str
Key = tuple[str, ...]
Record = tuple[int, Key, int, EventId]
"""Offset, key, event time in ms since the epoch, id. A plain tuple, since there is one per event."""

BEGINNING_MS: Final = -(1 << 62)
"""A watermark before all times: nothing is closed."""
NEVER_MS: Final = 1 << 62
"""A watermark after all times."""


@dataclass(frozen=True)
class PartitionProgress:
    """How far a partition has been processed. Offsets are Kafka's; times are event time in ms since the epoch."""

    next_offset: int
    rebuild_from: int
    closed_through_ms: int
    stragglers: tuple[tuple[int, int], ...] = ()
    """Sessions only: offset of each straggler (see `sessions`) of an open session, and the watermark at its reading."""


@dataclass(frozen=True)
class Result:
    """The result of one cell: the ids of its events in read order, with their event times in ms.

    A passthrough's cell is one event; its start and end are the event's time.
    """

    window_start_ms: int
    window_end_ms: int
    key: tuple[str, ...]
    ids: tuple[EventId, ...]
    times_ms: tuple[int, ...]


@dataclass(frozen=True)
class LateEvent:
    """An event that was read after its windows had produced their results."""

    key: tuple[str, ...]
    id: EventId
    time_ms: int


@dataclass
class Partition:
    """The core's state of a partition, which operators read."""

    id: PartitionId
    next_offset: int
    closed_through_ms: int
    recovering: PartitionProgress | None
    """The partition is read again up to this committed progress; None once all partitions have reached theirs."""
    newest_ms: int = BEGINNING_MS
    idle: bool = False
    held: list[Record] = field(default_factory=list)
    """Records at or past the commit, read while some partition is still recovering."""
    held_through: int = 0


class Core(ABC):
    """Partitions of one instance, their watermark and their recovery. All durations are milliseconds of event time."""

    def __init__(self, max_disorder_ms: int = 0, allowed_lateness_ms: int = 0) -> None:
        self._max_disorder_ms = max_disorder_ms
        self._allowed_lateness_ms = allowed_lateness_ms
        self._partitions: dict[PartitionId, Partition] = {}
        self._answers: list[Result | LateEvent] = []
        self._alarm_ms = BEGINNING_MS
        self._recovering = False

    def assign(self, partition: PartitionId, progress: PartitionProgress) -> None:
        """Add a partition. Its records must then start at ``progress.rebuild_from``."""
        behind = progress.rebuild_from < progress.next_offset
        start = progress.rebuild_from if behind else progress.next_offset
        state = Partition(partition, start, progress.closed_through_ms, progress if behind else None)
        self._partitions[partition] = state
        self._assigned(state, progress)
        self._recovering = self._recovering or behind
        self._alarm_ms = BEGINNING_MS

    def revoke(self, partition: PartitionId) -> None:
        """Remove a partition, with the windows of its events."""
        self._forget(self._partitions.pop(partition))
        self._alarm_ms = BEGINNING_MS
        self._end_recovery()

    def reset(self) -> None:
        """Drop all state, including untaken results, as a kill does."""
        for partition in list(self._partitions):
            self._forget(self._partitions.pop(partition))
        self._answers.clear()
        self._alarm_ms = BEGINNING_MS
        self._recovering = False

    def process(self, partition: PartitionId, records: Iterable[Record]) -> None:
        """Process records of one partition, in offset order."""
        state = self._partitions[partition]
        state.idle = False
        put, disorder, newest = self._insert, self._max_disorder_ms, state.newest_ms
        for record in records:
            offset, key, time_ms, event_id = record
            if self._recovering:
                if state.recovering is not None and offset < state.recovering.next_offset:
                    self._restore(state, record)
                    state.newest_ms = newest = max(newest, time_ms)
                    state.next_offset = offset + 1
                    continue
                self.read_through(partition, offset)
                if self._recovering:
                    state.held.append(record)
                    continue
            if not put(state, offset, key, time_ms, event_id):
                self._answers.append(LateEvent(key, event_id, time_ms))
            state.next_offset = offset + 1
            if time_ms > newest:
                state.newest_ms = newest = time_ms
                if time_ms - disorder >= self._alarm_ms:
                    self.advance()

    def read_through(self, partition: PartitionId, next_offset: int) -> None:
        """Record that everything below ``next_offset`` has been read, even if the last offsets have no records."""
        state = self._partitions[partition]
        if state.held:
            state.held_through = max(state.held_through, next_offset)
        else:
            state.next_offset = max(state.next_offset, next_offset)
        self._end_recovery()

    def set_idle(self, partition: PartitionId) -> None:
        """Leave the partition out of the watermark until its next record."""
        self._partitions[partition].idle = True
        self.advance()

    def wake(self) -> None:
        """Let all partitions hold the watermark again."""
        for state in self._partitions.values():
            state.idle = False

    def advance(self) -> None:
        """Move the watermark as far as the partitions allow, and produce the results that this closes."""
        active = [p for p in self._partitions.values() if not p.idle]
        if not active or self._recovering:
            return
        watermark = min(p.newest_ms for p in active) - self._max_disorder_ms
        if watermark < self._alarm_ms:
            return
        for p in self._partitions.values():
            p.closed_through_ms = max(p.closed_through_ms, watermark)
        self._alarm_ms = self._next_timer(watermark)
        self._emit_closed()

    def close_all(self) -> None:
        """Close all open state, as at the end of all input."""
        end = self._last_end()
        if end is not None:
            for p in self._partitions.values():
                p.closed_through_ms = max(p.closed_through_ms, end + self._allowed_lateness_ms)
            self._emit_closed()

    def take(self) -> list[Result | LateEvent]:
        """Return the results since the last call. Results of one window are adjacent, in the order of their keys."""
        answers, self._answers = self._answers, []
        return answers

    def progress(self) -> dict[PartitionId, PartitionProgress]:
        """Return what to commit with the results, all of which must have been taken.

        A partition that is still recovering keeps its committed progress.
        """
        assert not self._answers, "committing progress before its results are taken would lose them"
        return {partition: state.recovering or self._progress(state) for partition, state in self._partitions.items()}

    @property
    def recovering(self) -> bool:
        """Whether some partition has not yet been read again up to its commit."""
        return self._recovering

    def next_offset(self, partition: PartitionId) -> int:
        """Return the offset after the last one processed."""
        return self._partitions[partition].next_offset

    def _end_recovery(self) -> None:
        """Once every partition has been read up to its commit again, process the held records."""
        if not self._recovering or any(
            p.recovering is not None and p.next_offset < p.recovering.next_offset for p in self._partitions.values()
        ):
            return
        self._recovering = False
        self._recovered()
        for p in self._partitions.values():
            p.recovering = None
        self.advance()
        for p in list(self._partitions.values()):
            held, p.held = p.held, []
            if held:
                self.process(p.id, held)
                self.read_through(p.id, p.held_through)

    def _progress(self, state: Partition) -> PartitionProgress:
        return PartitionProgress(state.next_offset, self._first_offset(state), state.closed_through_ms)

    @abstractmethod
    def _insert(self, state: Partition, offset: int, key: Key, time_ms: int, event_id: EventId) -> bool:
        """Add an event to the state, or produce its result. Return False if it is late."""

    @abstractmethod
    def _restore(self, state: Partition, record: Record) -> None:
        """Restore an event that was read before the commit, to the extent that it was in the state at the commit."""

    @abstractmethod
    def _emit_closed(self) -> None:
        """Produce the results that the partitions' watermarks have closed."""

    @abstractmethod
    def _next_timer(self, watermark: int) -> int:
        """Return the smallest value above ``watermark`` at which something closes or becomes late."""

    @abstractmethod
    def _last_end(self) -> int | None:
        """Return the largest end of open state; None if nothing is open."""

    @abstractmethod
    def _first_offset(self, state: Partition) -> int:
        """Return the smallest offset of an event of the partition in open state; its next offset if there is none."""

    @abstractmethod
    def _forget(self, state: Partition) -> None:
        """Drop the events of the partition."""

    @abstractmethod
    def _assigned(self, state: Partition, progress: PartitionProgress) -> None:
        """Prepare for the partition's events."""

    @abstractmethod
    def _recovered(self) -> None:
        """Called when the state of all partitions has been restored."""


class UnwindowedCore(Core):
    """A core in which event time closes nothing: results follow from the events that were read."""

    def _emit_closed(self) -> None:
        """Nothing to do: nothing is open."""

    def _next_timer(self, watermark: int) -> int:
        # Progress must not depend on when partitions are read.
        return watermark + 1

    def _last_end(self) -> int | None:
        return None

    def _recovered(self) -> None:
        """Nothing to do: events are already in the state."""


@dataclass
class _Cell:
    first_offset: int
    ids: list[EventId] = field(default_factory=list)
    times_ms: array[int] = field(default_factory=lambda: array("q"))


_CellKey = tuple[int, Key]
"""End of the window, and key."""


class WindowCore(Core):
    """Windows of ``size_ms`` that start every ``slide_ms`` from the epoch; without ``slide_ms`` they tumble."""

    def __init__(
        self, size_ms: int, max_disorder_ms: int = 0, allowed_lateness_ms: int = 0, *, slide_ms: int | None = None
    ) -> None:
        super().__init__(max_disorder_ms, allowed_lateness_ms)
        self._size_ms = size_ms
        self._slide_ms = size_ms if slide_ms is None else slide_ms
        assert 0 < self._slide_ms <= size_ms
        self._cells: dict[PartitionId, dict[_CellKey, _Cell]] = {}

    def _insert(self, state: Partition, offset: int, key: Key, time_ms: int, event_id: EventId) -> bool:
        cells, closed = self._cells[state.id], state.closed_through_ms - self._allowed_lateness_ms
        end = time_ms - time_ms % self._slide_ms + self._size_ms
        if end <= closed:
            return False
        # The event is also in each earlier window that holds its time and is open.
        if closed < time_ms:
            closed = time_ms
        while end > closed:
            cell = cells.get((end, key))
            if cell is None:
                cell = cells[end, key] = _Cell(offset)
            cell.ids.append(event_id)
            cell.times_ms.append(time_ms)
            end -= self._slide_ms
        return True

    def _restore(self, state: Partition, record: Record) -> None:
        self._insert(state, *record)

    def _emit_closed(self) -> None:
        merged: dict[_CellKey, tuple[list[EventId], array[int]]] = {}
        for state in self._partitions.values():
            cells, limit = self._cells[state.id], state.closed_through_ms - self._allowed_lateness_ms
            for cell_key in [c for c in cells if c[0] <= limit]:
                cell = cells.pop(cell_key)
                ids, times_ms = merged.setdefault(cell_key, ([], array("q")))
                ids.extend(cell.ids)
                times_ms.extend(cell.times_ms)
        for (end, key), (ids, times_ms) in sorted(merged.items(), key=lambda item: item[0]):
            result = self._result(Result(end - self._size_ms, end, key, tuple(ids), tuple(times_ms)))
            if result is not None:
                self._answers.append(result)

    def _result(self, whole: Result) -> Result | None:
        """Return the result of a window with these events; None: no result."""
        return whole

    def _next_timer(self, watermark: int) -> int:
        since = watermark - self._allowed_lateness_ms - self._size_ms
        return (since // self._slide_ms + 1) * self._slide_ms + self._size_ms + self._allowed_lateness_ms

    def _last_end(self) -> int | None:
        return max((end for cells in self._cells.values() for end, _ in cells), default=None)

    def _first_offset(self, state: Partition) -> int:
        return min((cell.first_offset for cell in self._cells[state.id].values()), default=state.next_offset)

    def _assigned(self, state: Partition, progress: PartitionProgress) -> None:
        del progress
        self._cells[state.id] = {}

    def _recovered(self) -> None:
        """Nothing to do: events are already in their windows."""

    def _forget(self, state: Partition) -> None:
        del self._cells[state.id]

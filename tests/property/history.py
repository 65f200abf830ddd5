"""The data that a validator reads, as plain values: the vocabulary of the property tests.

A history is a list of micro-batches. Each one states which records were read, at which instant of the validator's clock
the ends of all partitions were looked up, and what that lookup returned. Nothing here depends on Kafka, Spark or the
rules. Times are microseconds since the epoch, ids and keys are canonical text (docs/ARCHITECTURE.md, "Units and
encodings").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

Role: TypeAlias = Literal["input", "output", "late", "rejected", "table"]
Ending: TypeAlias = Literal["none", "once", "leave_open", "open"]
"""How a run ends; "open": it decides nothing but what the engine has not consumed."""
TopicPartition: TypeAlias = tuple[str, int]
Cell: TypeAlias = tuple[int, str]
"""(window_start_us, key)"""

SIDE_CHANNELS: Final[tuple[Role, ...]] = ("late", "rejected")
ANSWERS: Final[tuple[Role, ...]] = ("output", "late", "rejected")
"""The roles on which an engine's answer to an event can appear."""


@dataclass(frozen=True, slots=True)
class InputEvent:
    """A decoded record of an input topic."""

    topic: str
    partition: int
    offset: int
    broker_time_us: int
    id: str
    key: str
    event_time_us: int


@dataclass(frozen=True, slots=True)
class ResultRecord:
    """A decoded record of an output topic; an id that is listed twice counts twice."""

    topic: str
    partition: int
    offset: int
    broker_time_us: int
    key: str
    window_start_us: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A null value on an output topic. ``key``: the key whose result it withdraws, if known."""

    topic: str
    partition: int
    offset: int
    broker_time_us: int
    key: str | None


@dataclass(frozen=True, slots=True)
class LateRecord:
    """A decoded record of a late or rejected topic; its cell follows from its own key and event time."""

    topic: str
    partition: int
    offset: int
    broker_time_us: int
    id: str
    key: str
    event_time_us: int
    role: Role = "late"


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A visible record that the validator could not decode."""

    role: Role
    topic: str
    partition: int
    offset: int
    broker_time_us: int


@dataclass(frozen=True, slots=True)
class TableRow:
    """A row of a table that the pipeline looks up."""

    topic: str
    partition: int
    offset: int
    broker_time_us: int
    key: str
    event_time_us: int
    value: int | str | None
    role: Role = "table"


Record: TypeAlias = InputEvent | ResultRecord | Tombstone | LateRecord | TableRow | Undecodable


def role_of(record: Record) -> Role:
    """The side on which a record was read."""
    match record:
        case InputEvent():
            return "input"
        case ResultRecord() | Tombstone():
            return "output"
        case _:
            return record.role


@dataclass(frozen=True, slots=True)
class PartitionState:
    """One partition after a batch: the offsets that the batch read, and the result of its lookup at the instant T."""

    role: Role
    topic: str
    partition: int
    log_start: int
    """First offset still in the log, looked up at T. If above `start_offset`, part of the batch's range had expired."""
    start_offset: int
    """Where the batch began to read: the previous batch's `next_offset`, or the start of the state for the first batch.
    It shows whether a partition was "first read at an offset above its log start"."""
    next_offset: int
    """The batch's planned end, exclusive. Offsets of the range without a record are markers or aborted records."""
    high_watermark: int
    last_stable: int
    compacted: bool = False
    """Whether its topic is compacted: then an offset of the range without a record may have had one."""

    @property
    def place(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class Step:
    """One micro-batch. A batch without records is a tick. Every step lists every partition known so far."""

    lookup_us: int
    """The instant T, after the batch's ends were planned: every record of the batch was appended at or before T."""
    records: tuple[Record, ...]
    partitions: tuple[PartitionState, ...]
    committed: Mapping[TopicPartition, int] | None = None
    """Offsets committed by the engine's consumer group as of T; None where no group is configured."""
    ending: Ending = "none"
    """How a run ends after this batch and before the next one, which belongs to the next run."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The declared timing of a pipeline and its tumbling window."""

    max_disorder_us: int = 0
    allowed_lateness_us: int = 0
    idle_after_us: int = 10_000_000
    max_ahead_us: int = 3_600_000_000
    overdue_after_us: int = 30_000_000
    missing_after_us: int = 120_000_000
    late_policy: Literal["report", "drop"] = "report"
    window_us: int = 60_000_000
    window_offset_us: int = 0
    duplicates: Literal["count", "collapse"] = "count"
    lateness_scope: Literal["partition", "idle", "topic", "task", "global"] | None = "partition"
    """None: it is not declared."""

    def may_move(self, place: TopicPartition, other: TopicPartition) -> bool:
        """Whether records of another partition may make an event of a partition late to the engine."""
        same = {"partition": False, "topic": place[0] == other[0], "task": place[1] == other[1]}
        return place != other and same.get(self.lateness_scope or "", True)

    def window_start(self, event_time_us: int) -> int:
        """Start of the tumbling window [start, start + size) that holds an event time."""
        return (event_time_us - self.window_offset_us) // self.window_us * self.window_us + self.window_offset_us

    def cells(self, key: str, event_time_us: int) -> tuple[Cell, ...]:
        """The cells of an event, or of a late record."""
        return ((self.window_start(event_time_us), key),)

    def owes(self, event: InputEvent) -> bool:
        """Whether anything is owed for an event."""
        del event
        return True

    def cells_of(self, event: InputEvent) -> tuple[Cell, ...]:
        """The cells to which an event contributes."""
        return self.cells(event.key, event.event_time_us) if self.owes(event) else ()

    def cell_of_result(self, result: ResultRecord) -> Cell:
        """The cell that a result names."""
        return result.window_start_us, result.key

    def end(self, cell: Cell) -> int:
        """The first instant after a cell's window."""
        return cell[0] + self.window_us


@dataclass(frozen=True, slots=True)
class History:
    """A run of the validator from its first batch on. Restarts leave no trace in it, since each batch commits once."""

    timing: Timing
    steps: tuple[Step, ...]
    final: Ending = "none"
    """What happens after the last step: nothing, `validate --once`, or `--once --leave-open`."""
    note: str = field(default="", compare=False)
    """How the history was made, for the reader of a failing test."""


def flaws(history: History) -> list[str]:
    """The reasons why a history could not have been read from a Kafka cluster; empty for a valid history."""
    found: list[str] = []
    seen: dict[TopicPartition, PartitionState] = {}
    clock = None
    for number, step in enumerate(history.steps):
        if clock is not None and step.lookup_us < clock:
            found.append(f"step {number}: T falls")
        clock = step.lookup_us
        states = {state.place: state for state in step.partitions}
        if len(states) != len(step.partitions):
            found.append(f"step {number}: a partition is listed twice")
        found += [f"step {number}: {place} is no longer listed" for place in seen if place not in states]
        for place, state in states.items():
            before = seen.get(place)
            if before and state.start_offset != before.next_offset:
                found.append(f"step {number}: {place} begins at {state.start_offset}, not at {before.next_offset}")
            if before and (state.high_watermark < before.high_watermark or state.last_stable < before.last_stable):
                found.append(f"step {number}: an end of {place} falls")
            if not state.start_offset <= state.next_offset <= state.last_stable <= state.high_watermark:
                found.append(f"step {number}: {place} reads past its stable end")
        read: set[tuple[str, int, int]] = set()
        for record in step.records:
            home = states.get((record.topic, record.partition))
            if home is None or home.role != role_of(record):
                found.append(f"step {number}: {record} has no partition")
            elif not home.start_offset <= record.offset < home.next_offset:
                found.append(f"step {number}: {record} is outside the batch")
            if (record.topic, record.partition, record.offset) in read:
                found.append(f"step {number}: {record} is read twice")
            read.add((record.topic, record.partition, record.offset))
        seen |= states
    return found


def nameless(history: History) -> History:
    """The same history, in which all events of a key have one id."""

    def anonymous(record: Record) -> Record:
        match record:
            case InputEvent() | LateRecord():
                return replace(record, id=record.key)
            case ResultRecord():
                return replace(record, ids=(record.key,) * len(record.ids))
            case _:
                return record

    steps = tuple(replace(step, records=tuple(map(anonymous, step.records))) for step in history.steps)
    return replace(history, steps=steps)

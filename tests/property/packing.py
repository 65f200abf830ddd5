"""Put many histories into one set of tables, each in its own namespace.

History number 17 gets the namespace `h17/`. Its keys and ids get this prefix (an integer id becomes text, in results
too). Topics, partitions and offsets are unchanged, so they are unique within a namespace only. Step k of the pack is
step k of every history that is long enough. A history's clock, timing and ending are rows of their own, joined by the
namespace.


    pack = pack_histories(histories)
    for step in pack.steps: ...            # the core's side: rows in, one judgement per namespace out
    packed_counts(number, judgement)       # the reference's side, in the pack's names
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from tests.property.history import (
    Cell,
    Ending,
    History,
    InputEvent,
    LateRecord,
    ResultRecord,
    Role,
    Timing,
    Undecodable,
)
from tests.property.reference import Judgement, Violation


class InputRow(NamedTuple):
    """One event. The cell is left to the core, whose oracle computes it."""

    namespace: str
    topic: str
    partition: int
    offset: int
    broker_time_us: int
    id: str
    key: str
    event_time_us: int


class ResultRow(NamedTuple):
    """One result."""

    namespace: str
    topic: str
    partition: int
    offset: int
    broker_time_us: int
    key: str
    window_start_us: int
    ids: list[str]


class LateRow(NamedTuple):
    """One record of a late or rejected topic."""

    namespace: str
    role: Role
    topic: str
    partition: int
    offset: int
    broker_time_us: int
    id: str
    key: str
    event_time_us: int


class UndecodableRow(NamedTuple):
    """One record that could not be decoded."""

    namespace: str
    role: Role
    topic: str
    partition: int
    offset: int
    broker_time_us: int


class StateRow(NamedTuple):
    """One partition after the step: `PartitionState`, with the engine's committed offset where one is known."""

    namespace: str
    role: Role
    topic: str
    partition: int
    log_start: int
    start_offset: int
    next_offset: int
    high_watermark: int
    last_stable: int
    committed: int | None
    """For an input, if a group is configured (`ClockRow.grouped`): None means that the group committed nothing."""


class ClockRow(NamedTuple):
    """A namespace's instant T."""

    namespace: str
    lookup_us: int
    grouped: bool
    """Whether the engine's consumer group is configured."""


class TimingRow(NamedTuple):
    """A namespace's declared timing, and how its run ends."""

    namespace: str
    timing: Timing
    final: Ending
    steps: int


@dataclass(frozen=True, slots=True)
class PackedStep:
    """Step number `index` of all histories that have one."""

    index: int
    inputs: list[InputRow]
    results: list[ResultRow]
    lates: list[LateRow]
    undecodables: list[UndecodableRow]
    clocks: list[ClockRow]
    states: list[StateRow]


@dataclass(frozen=True, slots=True)
class Pack:
    """All histories. `timings` has one row per history, in the order of the histories."""

    timings: list[TimingRow]
    steps: list[PackedStep]


class Count(NamedTuple):
    """The number of contributions of one class that a (cell, id) has."""

    namespace: str
    window_start_us: int
    key: str
    id: str
    name: str
    times: int


def namespace_of(number: int) -> str:
    """The prefix of a history's keys and ids."""
    return f"h{number}/"


def pack_histories(histories: Sequence[History]) -> Pack:
    """Lay histories side by side."""
    names = [namespace_of(number) for number in range(len(histories))]
    timings = [
        TimingRow(name, history.timing, history.final, len(history.steps))
        for name, history in zip(names, histories, strict=True)
    ]
    longest = max((len(history.steps) for history in histories), default=0)
    packed = [PackedStep(index, [], [], [], [], [], []) for index in range(longest)]
    for name, history in zip(names, histories, strict=True):
        for target, step in zip(packed, history.steps, strict=False):
            target.clocks.append(ClockRow(name, step.lookup_us, step.committed is not None))
            for at in step.partitions:
                offset = (step.committed or {}).get(at.place) if at.role == "input" else None
                ends = (at.log_start, at.start_offset, at.next_offset, at.high_watermark, at.last_stable)
                target.states.append(StateRow(name, at.role, at.topic, at.partition, *ends, offset))
            for record in step.records:
                where = (record.topic, record.partition, record.offset, record.broker_time_us)
                match record:
                    case InputEvent():
                        row = InputRow(name, *where, name + record.id, name + record.key, record.event_time_us)
                        target.inputs.append(row)
                    case ResultRecord():
                        ids = [name + id_ for id_ in record.ids]
                        target.results.append(ResultRow(name, *where, name + record.key, record.window_start_us, ids))
                    case LateRecord():
                        late = (name + record.id, name + record.key, record.event_time_us)
                        target.lates.append(LateRow(name, record.role, *where, *late))
                    case Undecodable():
                        target.undecodables.append(UndecodableRow(name, record.role, *where))
    return Pack(timings, packed)


def packed_counts(number: int, judgement: Judgement) -> set[Count]:
    """The contributions of one history's judgement in the names of the pack, for comparison as sets."""
    name = namespace_of(number)
    return {
        Count(name, start, name + key, name + id_, class_, count)
        for (start, key), ids in judgement.contributions.items()
        for id_, found in ids.items()
        for class_, count in found.items()
    }


def packed_violations(number: int, violations: frozenset[Violation]) -> frozenset[Violation]:
    """Violations in the names of the pack; positions of undecodable results get the prefix on their key only."""
    name = namespace_of(number)
    return frozenset(
        replace(found, key=name + found.key, id=found.id if found.kind == "undecodable" else name + found.id)
        for found in violations
    )


def packed_totals(judgements: Sequence[Judgement]) -> Counter[str]:
    """The class totals of all histories together."""
    totals: Counter[str] = Counter()
    for judgement in judgements:
        totals.update(judgement.totals)
    return totals


def packed_cells(number: int, judgement: Judgement) -> dict[Cell, bool]:
    """Cell -> closed, in the names of the pack."""
    name = namespace_of(number)
    return {(start, name + key): closed for (start, key), closed in judgement.closed.items()}

"""A small engine that keeps its guarantee, and ways to break it.

It reads committed input the instant it becomes visible and closes a cell when its own watermark passes the window's
end. It answers every event exactly once: in a result, on the late topic, on the rejected topic, or by dropping an event
that the partitions in the scope of lateness show to be late. It runs on the wall clock and knows nothing of the
validator's batches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal, TypeAlias

from tests.property.history import Cell, InputEvent, Role, Timing, TopicPartition
from tests.property.logs import Log

Fault: TypeAlias = Literal["drop", "duplicate", "misplace", "invent", "delay", "twice"]
FAULTS: tuple[Fault, ...] = ("drop", "duplicate", "misplace", "invent", "delay", "twice")


@dataclass(frozen=True, slots=True)
class Answer:
    """An output that the engine may write from an instant on: a result of a cell, or one event on a side channel."""

    trigger_us: int
    role: Role
    cell: Cell
    ids: tuple[str, ...]
    event: InputEvent | None = None
    extra_delay_us: int = 0


@dataclass(frozen=True, slots=True)
class Habits:
    """What a correct engine is free to do."""

    side_channels: frozenset[Role]
    decodes_all: bool
    """Whether it can decode records that the validator cannot."""
    is_moved_by_all: bool
    """Whether an event further ahead than `max_ahead` can make others late, if the validator can decode it."""
    drops_late: bool
    waits_for_late: bool
    """Whether it answers a cell only after `allowed_lateness`, as Kafka Streams does with `suppress`."""
    rejects: float
    fires_early: float
    splits: float
    flushes_us: frozenset[int]
    """When it emits all pending cells, before the pipeline comes to rest."""


class Engine:
    """One run over sealed input logs."""

    def __init__(self, rng: Random, timing: Timing, habits: Habits, inputs: Sequence[Log]) -> None:
        self.rng = rng
        self.timing = timing
        self.habits = habits
        self.inputs = inputs
        self.answers: list[Answer] = []
        self.pending: dict[Cell, list[str]] = defaultdict(list)
        self.closed: set[Cell] = set()
        self.watermark: int | None = None
        self.newest: dict[TopicPartition, int] = {}
        self.latest: dict[TopicPartition, int] = {}
        self.arrived_us: dict[TopicPartition, int] = {log.place: 0 for log in inputs}
        self.seen: set[str] = set()

    def run(self, until_us: int) -> list[Answer]:
        """Process every instant up to ``until_us`` and return all answers."""
        arrivals: dict[int, list[tuple[Log, int]]] = defaultdict(list)
        for log in self.inputs:
            for offset in range(len(log.drafts)):
                arrivals[log.visible_us(offset)].append((log, offset))
        for now in range(until_us + 1):
            self.rng.shuffle(arrived := arrivals[now])
            for log, offset in sorted(arrived, key=lambda at: at[1]):
                self._arrive(now, log, offset)
            self._advance(now)
            if now in self.habits.flushes_us:
                for cell in list(self.pending):
                    self._emit(now, cell)
        return self.answers

    def _arrive(self, now: int, log: Log, offset: int) -> None:
        draft, record = log.drafts[offset], log.records[offset]
        if record is None:
            return
        self.arrived_us[log.place] = now
        if isinstance(record, InputEvent):
            event = record
        elif draft.truth and self.habits.decodes_all:
            event = draft.truth
        else:
            return
        self._take(
            now, event, [isinstance(record, InputEvent) and self._is_late(event, cell) for cell in self._cells(event)]
        )
        newest = event.event_time_us
        self.newest[log.place] = max(newest, self.newest.get(log.place, -(1 << 60)))
        # The validator applies `max_ahead` at its lookup, which is never before this instant: at least these events
        # move its watermark.
        is_moved = self.habits.is_moved_by_all and isinstance(record, InputEvent)
        if is_moved or newest <= now + self.timing.max_ahead_us:
            self.latest[log.place] = max(newest, self.latest.get(log.place, -(1 << 60)))

    def _cells(self, event: InputEvent) -> tuple[Cell, ...]:
        return self.timing.cells_of(event)

    def _is_late(self, event: InputEvent, cell: Cell) -> bool:
        place = (event.topic, event.partition)
        moved = [at for other, at in self.latest.items() if other == place or self.timing.may_move(place, other)]
        newest = max(moved, default=None)
        legal_close = self.timing.end(cell) + self.timing.allowed_lateness_us
        return newest is not None and newest - self.timing.max_disorder_us >= legal_close

    def _take(self, now: int, event: InputEvent, late: Sequence[bool]) -> None:
        """``late``: per cell of the event, whether the event is late for it. The event can go to the late topic only if
        it is late for all of them."""
        if self.timing.duplicates == "collapse" and event.id in self.seen:
            # Some engines check for lateness before repeats. The choice uses no random draw, so that other worlds stay
            # unchanged.
            if late and all(late) and "late" in self.habits.side_channels and event.partition == 0:
                self.answers.append(Answer(now, "late", self._cells(event)[0], (event.id,), event))
            return
        self.seen.add(event.id)
        cells = self._cells(event)
        if not cells:
            return
        all_late = all(is_late or cell in self.closed for is_late, cell in zip(late, cells, strict=True))
        if "rejected" in self.habits.side_channels and self.rng.random() < self.habits.rejects:
            self.answers.append(Answer(now, "rejected", cells[0], (event.id,), event))
        elif all(late) and self._drops_late():
            return
        elif all_late and "late" in self.habits.side_channels and self.rng.random() < 0.7:
            self.answers.append(Answer(now, "late", cells[0], (event.id,), event))
        else:
            for is_late, cell in zip(late, cells, strict=True):
                if len(cells) > 1 and is_late and self._drops_late():
                    continue
                self.pending[cell].append(event.id)
                if cell in self.closed or self.rng.random() < self.habits.fires_early:
                    self._emit(now, cell)

    def _drops_late(self) -> bool:
        """Whether it drops a late event. If other partitions can make an event late, it drops all: between two events
        of one result none was late."""
        return self.habits.drops_late and (self.timing.lateness_scope != "partition" or self.rng.random() < 0.6)

    def _advance(self, now: int) -> None:
        active = [log.place for log in self.inputs if now - self.arrived_us[log.place] < self.timing.idle_after_us]
        if not active or any(place not in self.newest for place in active):
            return
        low = min(self.newest[place] for place in active) - self.timing.max_disorder_us
        if self.habits.waits_for_late:
            low -= self.timing.allowed_lateness_us
        self.watermark = low if self.watermark is None else max(low, self.watermark)
        for cell in list(self.pending):
            if self.timing.end(cell) <= self.watermark:
                self.closed.add(cell)
                self._emit(now, cell)

    def _emit(self, now: int, cell: Cell) -> None:
        ids = self.pending.pop(cell)
        self.rng.shuffle(ids)
        cut = self.rng.randint(1, len(ids)) if self.rng.random() < self.habits.splits else len(ids)
        for part in (ids[:cut], ids[cut:]):
            if part:
                self.answers.append(Answer(now, "output", cell, tuple(part)))


def break_answers(rng: Random, timing: Timing, answers: Sequence[Answer], faults: Sequence[Fault]) -> list[Answer]:
    """Break about a quarter of the answers, each in one of the given ways."""
    broken: list[Answer] = []
    for answer in answers:
        if not faults or rng.random() < 0.75:
            broken.append(answer)
            continue
        match rng.choice(faults):
            case "drop":
                kept = tuple(id_ for id_ in answer.ids if rng.random() < 0.5)
                if answer.role == "output" and kept:
                    broken.append(replace(answer, ids=kept))
            case "duplicate":
                broken.append(replace(answer, ids=(*answer.ids, rng.choice(answer.ids))))
            case "misplace":
                shift = rng.choice((-1, 1, 2)) * timing.window_us
                key = rng.choice((answer.cell[1], "elsewhere"))
                broken.append(replace(answer, cell=(answer.cell[0] + shift, key)))
            case "invent":
                broken.append(replace(answer, ids=(*answer.ids, f"invented-{rng.randint(0, 2)}")))
            case "delay":
                broken.append(replace(answer, extra_delay_us=rng.randint(1, 3) * timing.missing_after_us))
            case "twice":
                broken += [answer, replace(answer, extra_delay_us=rng.randint(0, timing.missing_after_us))]
    return broken

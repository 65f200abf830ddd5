"""What a prefix of steps proves about time (SEMANTICS section 3), recomputed from the whole prefix on every call.

Part of the brute-force reference: numbers in parentheses are paragraphs of SEMANTICS.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from tests.property.history import (
    ANSWERS,
    Cell,
    InputEvent,
    LateRecord,
    PartitionState,
    ResultRecord,
    Role,
    Step,
    Timing,
    TopicPartition,
    Undecodable,
)

NEVER: Final = 1 << 80
"""Later than any instant."""


P = ParamSpec("P")
R = TypeVar("R")


def remembered(method: Callable[Concatenate[Clock, P], R]) -> Callable[Concatenate[Clock, P], R]:
    """Cache a method's results per prefix. It is the reference's only shortcut, and no rule depends on it."""

    @wraps(method)
    def ask(self: Clock, /, *args: P.args, **kwargs: P.kwargs) -> R:
        question = (method.__name__, args, tuple(kwargs.items()))
        if question not in self.answered:
            self.answered[question] = method(self, *args, **kwargs)
        return self.answered[question]  # type: ignore[no-any-return]

    return ask


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of the engine's answers that may have expired, or been compacted away, before it was read."""

    before_us: int | None
    """The partition's read-through time before the gap; None at the start of the state."""
    step: Step
    """The step that found the gap."""


class Clock:
    """Frontiers, watermark, closing and horizon after the last of the given steps."""

    scope_margin_us = 0
    """A hidden event that is at most this much earlier than a cell's start may belong to the cell. In microseconds."""

    def __init__(self, timing: Timing, steps: tuple[Step, ...]) -> None:
        self.timing = timing
        self.steps = steps
        self.answered: dict[object, Any] = {}
        self.touched: dict[Cell, list[int]] = defaultdict(list)
        """Cell -> lookup instants of the batches that read its events and observations; filled by the reference."""
        self.now: Final = steps[-1]
        self._watermarks: Final = self._all_watermarks()

    # Partitions

    def places(self, *roles: Role) -> list[TopicPartition]:
        """The partitions with one of the given roles. Every step lists all partitions known so far."""
        return [state.place for state in self.now.partitions if state.role in roles]

    def states(self, place: TopicPartition, upto: int | None = None) -> Iterator[tuple[Step, PartitionState]]:
        """The states of a partition, with their steps, in all steps before number `upto`."""
        for step in self.steps[:upto]:
            for state in step.partitions:
                if state.place == place:
                    yield step, state

    @remembered
    def read_through(self, place: TopicPartition, upto: int | None = None) -> int | None:
        """The "largest instant T such that the next offset is at or past the high watermark" of the lookup at T."""
        seen = list(self.states(place, upto))
        return max((step.lookup_us for step, at in seen if seen[-1][1].next_offset >= at.high_watermark), default=None)

    def proven(self, instant_us: int, places: list[TopicPartition]) -> bool:
        """Whether the read-through time of *every* given partition is at or past an instant."""
        reached = [self.read_through(place) for place in places]
        return all(at is not None and at >= instant_us for at in reached)

    def held(self, *roles: Role) -> list[TopicPartition]:
        """The partitions on which an open transaction keeps records from being read, at the newest lookup."""
        return [at.place for at in self.now.partitions if at.role in roles and at.last_stable < at.high_watermark]

    def events(self, upto: int | None = None) -> Iterator[tuple[Step, InputEvent]]:
        """Every input event read, with the step that read it."""
        for step in self.steps[:upto]:
            for record in step.records:
                if isinstance(record, InputEvent):
                    yield step, record

    def moves_watermark(self, step: Step, event: InputEvent) -> bool:
        """Whether an event is not "further ahead than `max_ahead` of the time at which it was read"."""
        return event.event_time_us <= step.lookup_us + self.timing.max_ahead_us

    @remembered
    def newest(self, place: TopicPartition, upto: int | None = None, below: int = NEVER) -> int | None:
        """The newest event time in a partition below an offset, of events that move the watermark."""
        return max(
            (
                event.event_time_us
                for step, event in self.events(upto)
                if (event.topic, event.partition) == place
                and event.offset < below
                and self.moves_watermark(step, event)
            ),
            default=None,
        )

    # Input watermark

    def watermark(self) -> int | None:
        """The input watermark after the last step."""
        return self._watermarks[-1]

    @remembered
    def is_idle(self, place: TopicPartition, upto: int, at_us: int | None = None) -> bool:
        """Whether a partition has none unread and was "without data for `idle_after` of read-through time" (3.7). With
        ``at_us``: whether it was so at this instant."""
        seen = list(self.states(place, upto))
        through = self.read_through(place, upto) if at_us is None else at_us
        if through is None or seen[-1][1].next_offset < seen[-1][1].high_watermark:
            return False
        lost = self.expired(place)
        brought = [
            step.lookup_us
            for number, step in enumerate(self.steps[:upto])
            if self.brings(step, place) or number in lost or self.vanished(step, place)
        ]
        since = max(brought, default=seen[0][0].lookup_us)
        return through >= since + self.timing.idle_after_us

    @remembered
    def is_surely_active(self, place: TopicPartition, upto: int) -> bool:
        """Whether a record of a partition was certainly appended within the last `idle_after` (3.8)."""
        appended_after = self.appended_after(place, upto)
        return appended_after is not None and (
            appended_after >= self.steps[upto - 1].lookup_us - self.timing.idle_after_us
        )

    @remembered
    def appended_after(self, place: TopicPartition, upto: int) -> int | None:
        """An instant before which the newest record of a partition was certainly not appended."""
        brought = [number for number in range(upto) if self.brings(self.steps[number], place)]
        if not brought:
            return None
        # By this instant the records before the range had all been read or had expired; the range's record was appended
        # later.
        begun = self.range_of(self.steps[brought[-1]], place).start
        before = self.states(place, brought[-1])
        return max((step.lookup_us for step, at in before if begun >= at.high_watermark), default=None)

    def brings(self, step: Step, place: TopicPartition) -> bool:
        """Whether a step read a visible record of a partition, decodable or not."""
        return any((record.topic, record.partition) == place for record in step.records)

    def _all_watermarks(self) -> list[int | None]:
        """The watermark after every step. It never falls, and stays while a counted partition has no event yet."""
        marks: list[int | None] = []
        for upto in range(1, len(self.steps) + 1):
            known = [at.place for at in self.steps[upto - 1].partitions if at.role == "input"]
            counting = [known]
            if any(self.is_surely_active(place, upto) for place in known):
                counting = [[place for place in known if not self.is_idle(place, upto)]]
            for active in known:
                at_us = self.appended_after(active, upto)
                if at_us is not None:
                    idle = [place for place in known if place != active and self.is_idle(place, upto, at_us)]
                    counting.append([place for place in known if place not in idle])
            found = marks[-1:]
            for places in counting:
                newest = [self.newest(place, upto) for place in places]
                if newest and None not in newest:
                    low = min(time for time in newest if time is not None)
                    found.append(low - self.timing.max_disorder_us - self.timing.allowed_lateness_us)
            marks.append(max((mark for mark in found if mark is not None), default=None))
        return marks

    @remembered
    def closing(self, cell: Cell) -> int | None:
        """ "The lookup instant T of the batch after which the input watermark had passed the cell's end" (3.11), or at
        which a run ended, unless something of the cell was read later (3.32)."""
        marks = zip(self.steps, self._watermarks, strict=True)
        found = [step.lookup_us for step, mark in marks if mark is not None and mark >= self.end(cell)][:1]
        found += [
            step.lookup_us
            for step in self.steps
            if step.ending == "once" and step.lookup_us >= max(self.touched[cell], default=NEVER)
        ]
        return min(found, default=None)

    @remembered
    def is_resting(self, cell: Cell) -> bool:
        """Whether nothing of a cell was read since the newest end of a run (3.32)."""
        ends = [step.lookup_us for step in self.steps if step.ending != "none"]
        return bool(ends) and max(self.touched[cell], default=NEVER) <= ends[-1]

    @remembered
    def is_left_due(self, cell: Cell) -> bool:
        """Whether the newest end of a run decided what is outstanding in a cell (3.32)."""
        ends = [step.lookup_us for step in self.steps if step.ending != "none"]
        closing = self.closing(cell)
        return self.is_resting(cell) and closing is not None and closing <= ends[-1]

    @remembered
    def due_base(self, cell: Cell) -> int | None:
        """ "The later of its closing time and the lookup instant of the last batch that read an event of that cell"."""
        closing = self.closing(cell)
        if closing is None:
            return None
        read = [step.lookup_us for step, event in self.events() if cell in self.cells_of(event)]
        return max([closing, *read])

    def cells_of(self, event: InputEvent | LateRecord) -> tuple[Cell, ...]:
        """The cells to which the oracle assigns an event. A late or rejected record has cells even if its event is owed
        nothing."""
        if isinstance(event, InputEvent) and not self.timing.owes(event):
            return ()
        return self.timing.cells(event.key, event.event_time_us)

    def cell_of(self, result: ResultRecord) -> Cell:
        """The cell that a result belongs to."""
        return self.timing.cell_of_result(result)

    def end(self, cell: Cell) -> int:
        """The first instant after a cell's window."""
        return self.timing.end(cell)

    @remembered
    def is_late(self, event: InputEvent, cell: Cell) -> bool:
        """Whether an event of a cell came "after its window could legally close", as its own partition shows."""
        newest = self.newest((event.topic, event.partition), below=event.offset)
        if newest is None:
            return False
        legal_close = self.end(cell) + self.timing.allowed_lateness_us
        return newest - self.timing.max_disorder_us >= legal_close

    @remembered
    def may_be_late(self, event: InputEvent, cell: Cell) -> bool:
        """Whether an event of a cell would be late if the hidden records before it in its partition were as new as
        possible, or if events that were too far ahead had moved the engine's time (3.26)."""
        place = (event.topic, event.partition)
        furthest = [self.hidden_before(place, event.offset), self.ahead_before(place, event.offset)]
        legal_close = self.end(cell) + self.timing.allowed_lateness_us
        furthest += self.furthest_elsewhere(place)
        return any(at is not None and at - self.timing.max_disorder_us >= legal_close for at in furthest)

    def furthest_elsewhere(self, place: TopicPartition) -> list[int | None]:
        """The instants to which records of other partitions may have moved the time of an engine that may read them
        first (2.26)."""
        scope = self.timing.lateness_scope
        if scope == "partition" or (scope is None and self.timing.late_policy == "report"):
            return []
        others = [other for other in self.places("input") if self.timing.may_move(place, other)]
        moves = (self.newest, self.hidden_before, self.ahead_before)
        return [move(other, NEVER) if move != self.newest else move(other) for other in others for move in moves]

    # Records that cannot be read any more

    @remembered
    def hidden_before(self, place: TopicPartition, offset: int) -> int | None:
        """The newest event time that an undecodable or expired record before an offset of an input partition may have:
        `max_ahead` after the lookup that found it (3.26)."""
        met = [
            step.lookup_us
            for step in self.steps
            if any(
                isinstance(record, Undecodable) and (record.topic, record.partition) == place and record.offset < offset
                for record in step.records
            )
            or any(state.place == place and state.start_offset < state.log_start <= offset for state in step.partitions)
            or (self.vanished(step, place) and self.range_of(step, place).start < offset)
        ]
        return max(met) + self.timing.max_ahead_us if met else None

    @remembered
    def ahead_before(self, place: TopicPartition, offset: int) -> int | None:
        """The latest instant in the windows of events that precede an offset and are too far ahead for the watermark.
        An engine without that limit has advanced no further (3.26)."""
        return max(
            (
                self.end(cell) - 1
                for step, event in self.events()
                # Events that are owed nothing count as well: they have a time and can advance an engine.
                for cell in self.timing.cells(event.key, event.event_time_us)
                if (event.topic, event.partition) == place
                and event.offset < offset
                and not self.moves_watermark(step, event)
            ),
            default=None,
        )

    @remembered
    def hides_start(self, place: TopicPartition) -> bool:
        """Whether a partition was "first read at an offset above its log start, or [its] start was truncated"."""
        _, first = next(self.states(place))
        return first.start_offset > first.log_start or first.log_start > 0

    @remembered
    def in_scope(self, cell: Cell) -> bool:
        """Whether a cell starts after the horizon (3.19, 3.20): each hidden start's first event time plus
        `max_disorder`."""
        for place in self.places("input"):
            if not self.hides_start(place):
                continue
            events = [(step, event) for step, event in self.events() if (event.topic, event.partition) == place]
            if not events:
                return False
            step, first = min(events, key=lambda found: found[1].offset)
            first_us = min(first.event_time_us, step.lookup_us + self.timing.max_ahead_us)
            if cell[0] - self.scope_margin_us <= first_us + self.timing.max_disorder_us:
                return False
        return True

    @remembered
    def expired(self, place: TopicPartition) -> list[int]:
        """The numbers of the steps in which a partition's range began below its log start (1.10)."""
        return [
            number
            for number, step in enumerate(self.steps)
            for state in step.partitions
            if state.place == place and state.log_start > state.start_offset
        ]

    @remembered
    def expired_offsets(self, place: TopicPartition) -> int:
        """How many offsets of a partition expired before they were read."""
        states = [state for step in self.steps for state in step.partitions if state.place == place]
        return sum(max(0, state.log_start - state.start_offset) for state in states)

    @staticmethod
    def range_of(step: Step, place: TopicPartition) -> range:
        """The offsets of a partition that a step read, without the expired ones."""
        [state] = [state for state in step.partitions if state.place == place]
        return range(max(state.start_offset, state.log_start), state.next_offset)

    def vanished(self, step: Step, place: TopicPartition) -> int:
        """How many of a partition's records in a step's range may have been removed by compaction (4.6)."""
        if not any(state.place == place and state.compacted for state in step.partitions):
            return 0
        read = sum((record.topic, record.partition) == place for record in step.records)
        return len(self.range_of(step, place)) - read

    @remembered
    def answer_gaps(self) -> list[Gap]:
        """The gaps in which answers of the engine may be hidden."""
        gaps: list[Gap] = []
        for place in self.places(*ANSWERS):
            if self.hides_start(place):
                gaps.append(Gap(None, next(self.states(place))[0]))
            gone = [number for number, step in enumerate(self.steps) if self.vanished(step, place)]
            gaps += [Gap(self.read_through(place, n), self.steps[n]) for n in (*self.expired(place), *gone)]
        return gaps

    @remembered
    def is_provable(self, event: InputEvent, base_us: int | None) -> bool:
        """Whether an event's answer, had it been written, would have been read: no gap can hide it (3.24)."""
        deadline = NEVER if base_us is None else base_us + self.timing.missing_after_us
        if any(state.compacted for step in self.steps for state in step.partitions):
            return self._is_provable_beside_compaction(event, deadline)
        for gap in self.answer_gaps():
            if gap.before_us is not None and gap.before_us >= deadline:
                continue
            ends = [at.high_watermark for at in gap.step.partitions if at.place == (event.topic, event.partition)]
            if not ends or event.offset < ends[0]:
                return False
        return True

    def _is_provable_beside_compaction(self, event: InputEvent, deadline_us: int) -> bool:
        """As `is_provable`, with all gaps taken together (3.24)."""
        gaps, place = self.answer_gaps(), (event.topic, event.partition)
        if all(gap.before_us is not None and gap.before_us >= deadline_us for gap in gaps):
            return True
        ends = [at.high_watermark for gap in gaps for at in gap.step.partitions if at.place == place]
        return event.offset >= max(ends)

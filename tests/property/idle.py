"""Lateness to an engine with idle partitions by brute force, and random worlds of such an engine.

As in Flink with `withIdleness`, its time is the minimum over the partitions that are not idle, and a partition is idle
if the engine has read no event of it for `idle_after`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.property.clock import NEVER, Clock, remembered
from tests.property.engine import Engine, Habits
from tests.property.history import Cell, InputEvent, Step, Timing, TopicPartition
from tests.property.logs import Log
from tests.property.spark_histories import Case, Referee, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed, World


class IdleClock(Clock):
    """What the pauses of a partition show (2.31)."""

    def is_pause(self, place: TopicPartition, number: int) -> bool:
        """Whether the partition may have paused before the records of a step, for half of `idle_after`."""
        events = [step for step, event in self.events(number) if self._counts(step, event, place)]
        if not events:
            return True
        begun = self.read_through(place, self.steps.index(events[-1]))
        return begun is None or self.steps[number].lookup_us - begun >= self.pause_us

    def _counts(self, step: Step, event: InputEvent, place: TopicPartition) -> bool:
        return (event.topic, event.partition) == place and self.moves_watermark(step, event)

    @property
    def pause_us(self) -> int:
        """Half of `idle_after`."""
        return self.timing.idle_after_us // 2

    @remembered
    def known_through(self, instant_us: int) -> int:
        """The number of the step after which every input was read through an instant; the last one if none was."""
        for number in range(len(self.steps)):
            inputs = [state.place for state in self.steps[number].partitions if state.role == "input"]
            reached = [self.read_through(place, number + 1) for place in inputs]
            if all(at is not None and at >= instant_us for at in reached):
                return number
        return len(self.steps) - 1

    @remembered
    def passed_in_pause(self, place: TopicPartition, number: int) -> tuple[int, list[int | None]]:
        """For a pause before a step: the first offset after it, and the times of the others that were read first."""
        [state] = [at for at in self.steps[number].partitions if at.place == place]
        until = self.known_through(self.steps[number].lookup_us + self.pause_us)
        so_far = Clock(self.timing, self.steps[: max(until, number) + 1])
        others = [other for other in so_far.places("input") if other != place]
        times = [so_far.newest(other) for other in others]
        times += [move(other, NEVER) for other in others for move in (so_far.hidden_before, so_far.ahead_before)]
        return state.start_offset, times

    @remembered
    def may_be_late(self, event: InputEvent, cell: Cell) -> bool:
        """As without idle partitions, or because of another partition during a pause."""
        place = (event.topic, event.partition)
        legal_close = self.end(cell) + self.timing.allowed_lateness_us
        for number, step in enumerate(self.steps):
            if all(state.place != place for state in step.partitions) or not self.is_pause(place, number):
                continue
            offset, times = self.passed_in_pause(place, number)
            if offset <= event.offset and any(
                at is not None and at - self.timing.max_disorder_us >= legal_close for at in times
            ):
                return True
        return super().may_be_late(event, cell)

    def furthest_elsewhere(self, place: TopicPartition) -> list[int | None]:
        """None outside of pauses."""
        del place
        return []

    def proven(self, instant_us: int, places: list[TopicPartition]) -> bool:
        """As elsewhere, and for answers only if the inputs are read as far."""
        inputs = self.places("input") if places else []
        return super().proven(instant_us, [*places, *inputs])


class IdleReferee(Referee):
    """The reference for an engine with idle partitions."""

    clock_type = IdleClock

    def standing(self, cell: Cell) -> str:
        """Blocked only if the inputs are read as far as an overdue contribution needs."""
        found, base = super().standing(cell), self.clock.due_base(cell)
        if found != "blocked" or base is None or self.ending in ("once", "leave_open") or self.clock.is_left_due(cell):
            return found
        is_read = self.clock.proven(base + self.timing.overdue_after_us, self.clock.places("input"))
        return found if is_read else "pending"


class IdleEngine(Engine):
    """An engine that takes partitions out of its minimum while it reads no event of them."""

    passed: int | None = None

    def _arrive(self, now: int, log: Log, offset: int) -> None:
        self._pass(now)
        arrived = self.arrived_us[log.place]
        super()._arrive(now, log, offset)
        is_read = isinstance(log.records[offset], InputEvent) or (log.drafts[offset].truth and self.habits.decodes_all)
        if not is_read:
            # To this engine a record that it skips is no activity.
            self.arrived_us[log.place] = arrived
        self._pass(now)

    def _pass(self, now: int) -> None:
        active = [log.place for log in self.inputs if now - self.arrived_us[log.place] < self.timing.idle_after_us]
        times = [self.latest.get(place) for place in active]
        if times and None not in times:
            least = min(time for time in times if time is not None)
            self.passed = least if self.passed is None else max(least, self.passed)

    def _is_late(self, event: InputEvent, cell: Cell) -> bool:
        legal_close = self.timing.end(cell) + self.timing.allowed_lateness_us
        return self.passed is not None and self.passed - self.timing.max_disorder_us >= legal_close

    def _advance(self, now: int) -> None:
        self._pass(now)
        super()._advance(now)


class IdleWorld(World):
    """One random world of several partitions and an engine with idle ones."""

    def _timing(self) -> Timing:
        known = super()._timing()
        idle_us = self.rng.choice((4, 8, 16, 40))
        return replace(
            known,
            late_policy="drop",
            lateness_scope="idle",
            idle_after_us=idle_us,
            missing_after_us=max(known.missing_after_us, idle_us // 2),
        )

    def _input_logs(self) -> list[Log]:
        return [Log("input", "clicks", number) for number in range(self.rng.choice((1, 2, 2, 3)))]

    def _engine(self, habits: Habits) -> Engine:
        return IdleEngine(self.rng, self.timing, habits, self.inputs)


@dataclass(frozen=True)
class IdleCase(Case):
    """One history of an engine with idle partitions."""

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return IdleReferee


def idle_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> IdleCase:
    """The case that ``seed`` generates."""
    rng = Random(seed)
    history = IdleWorld(rng, allowed, faults=not causal).history()
    if not causal:
        history = odder(history, rng)
    return IdleCase(seed, causal, stretched(coarser(history, rng, steps_most)))

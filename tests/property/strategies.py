"""Random histories. All randomness comes from one `random.Random`, which hypothesis can replace: see `drawn`.

Times are small integers, so that equal instants, the edge cases of the rules, are frequent. A world has three
parts: producers append events, an engine appends results, and a validator reads both in arbitrary batches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

from hypothesis import strategies as st

from tests.property.engine import FAULTS, Answer, Engine, Fault, Habits, break_answers
from tests.property.history import (
    Ending,
    History,
    InputEvent,
    LateRecord,
    PartitionState,
    Record,
    ResultRecord,
    Role,
    Step,
    Timing,
    TopicPartition,
    Undecodable,
)
from tests.property.logs import NEVER, Draft, Log


@dataclass(frozen=True, slots=True)
class Allowed:
    """The unusual events of a world. All of them can happen to a correct engine."""

    undecodable_inputs: bool = True
    undecodable_side_channels: bool = True
    hidden_inputs: bool = True
    hidden_answers: bool = True
    expiry: bool = True
    transactions: bool = True
    committed_offsets: bool = True
    endings: bool = True
    lags: bool = True
    """Whether the validator falls behind. Otherwise it reads every visible record at every instant."""
    pauses: bool = False
    """Whether the pipeline comes to rest now and then, and runs of the validator end there."""


EVERYTHING = Allowed()
PLAIN = Allowed(*(False,) * 7)
PROMPT = replace(PLAIN, lags=False)
PAUSING = replace(EVERYTHING, pauses=True)
PAUSE_US = 200
"""Length of a pause: longer than everything that can follow the event before it."""
FLUSH_US = 80
"""How long after the begin of a pause the engine emits all pending cells, if it does."""


SCOPES: Final = ("partition", None, "topic", "partition", "task", "global")
"""The declared scopes of lateness."""


def draw_timing(rng: Random) -> Timing:
    """Declared timing with values small enough that each one has an effect."""
    overdue = rng.choice((0, 3, 8))
    known = Timing(
        max_disorder_us=rng.choice((0, 2, 5, 12)),
        allowed_lateness_us=rng.choice((0, 0, 4, 10)),
        idle_after_us=rng.choice((4, 15, 40)),
        max_ahead_us=rng.choice((8, 30, 1000)),
        overdue_after_us=overdue,
        missing_after_us=overdue + rng.choice((1, 5, 15)),
        late_policy=rng.choice(("report", "drop")),
        window_us=rng.choice((5, 10, 20)),
        window_offset_us=rng.choice((0, 0, 3)),
        duplicates=rng.choice(("count", "count", "collapse")),
    )
    # Derived instead of drawn, so that the other random choices of a seed stay the same.
    return replace(known, lateness_scope=SCOPES[(known.idle_after_us + known.missing_after_us) % len(SCOPES)])


class World:
    """One random world; `history` is a validator's reading of it."""

    def __init__(self, rng: Random, allowed: Allowed, faults: bool) -> None:
        self.rng = rng
        self.allowed = allowed
        self.timing = self._timing()
        self.ending: Ending = rng.choice(("none", "once", "leave_open")) if allowed.endings else "none"
        self.expires = allowed.expiry and rng.random() < 0.15
        self.produce_until_us = rng.choice((20, 50, 90))
        self.pauses = self._pauses() if allowed.pauses else {}
        # Whether event time stands still during a pause, so that the windows are still open after it.
        self.stands_still = bool(self.pauses) and rng.random() < 0.6
        self.inputs = self._input_logs()
        roles: list[Role] = ["output"] * rng.randint(1, 2)
        roles += [role for role in ("late", "rejected") if rng.random() < 0.4]
        self.answers = [Log(role, f"to-{role}", number) for number, role in enumerate(roles)]
        self.in_flight: list[tuple[int, int]] = []
        self._produce()
        self.produce_until_us = self._after_pauses(self.produce_until_us)
        self._answer(faults)

    def _timing(self) -> Timing:
        return draw_timing(self.rng)

    def _pauses(self) -> dict[int, Ending]:
        """Begin of each pause -> how a run ends at its end."""
        kinds: tuple[Ending, ...] = ("once", "leave_open")
        begins = sorted(self.rng.sample(range(5, self.produce_until_us), self.rng.randint(1, 2)))
        return {begin + PAUSE_US * number: self.rng.choice(kinds) for number, begin in enumerate(begins)}

    def _after_pauses(self, now: int) -> int:
        """An instant of the production, moved by the pauses before it."""
        for begin in self.pauses:
            now += PAUSE_US if now > begin else 0
        return now

    def _input_logs(self) -> list[Log]:
        return [Log("input", "clicks", number) for number in range(self.rng.randint(1, 3))]

    def _engine(self, habits: Habits) -> Engine:
        return Engine(self.rng, self.timing, habits, self.inputs)

    def _transaction(self, append_us: int) -> int:
        """The time at which the transaction of a record that is appended at ``append_us`` ends."""
        if not self.allowed.transactions or self.rng.random() < 0.7:
            return append_us
        return NEVER if self.rng.random() < 0.05 else append_us + self.rng.randint(1, 30)

    # Part one: producers

    def _produce(self) -> None:
        rng, shift = self.rng, self.rng.choice((0, 0, 6, -500))
        keys = self._keys()
        silences = {log.place: (rng.randint(0, 60), rng.choice((0, 25, 60))) for log in self.inputs}
        for number in range(rng.randint(2, 22)):
            log, now = rng.choice(self.inputs), rng.randint(0, self.produce_until_us)
            since, length = silences[log.place]
            if since <= now < since + length:
                continue
            time, now = now, self._after_pauses(now)
            if not self.stands_still:
                time = now
            disorder = rng.randint(0, self.timing.max_disorder_us)
            match rng.random():
                case luck if luck < 0.12:
                    disorder += rng.randint(1, 3 * self.timing.window_us)
                case luck if luck < 0.17:
                    disorder = -rng.randint(0, 40)
            event = InputEvent(*log.place, -1, now, str(number), rng.choice(keys), time + shift - disorder)
            self._produce_one(log, event)
            if rng.random() < 0.1:
                again = rng.choice(self.inputs) if rng.random() < 0.5 else log
                # With `count` a repeated event may have another time. With `collapse` it has the same time, since the
                # engine drops a repeat without regard to its time.
                moved = self._moved() if self.timing.duplicates == "count" else 0
                later = now + rng.randint(0, 30)
                self._produce_one(
                    again, replace(event, broker_time_us=later, event_time_us=event.event_time_us - moved)
                )
        if self.pauses:
            # A later event on every partition, by which windows close.
            now, ahead = self._after_pauses(self.produce_until_us), min(self.timing.max_ahead_us, 40)
            for number, log in enumerate(self.inputs):
                self._append(log, InputEvent(*log.place, -1, now, str(30 + number), keys[0], now + shift + ahead))
        for log in self.inputs:
            log.seal()

    def _keys(self) -> list[str]:
        """The keys of events."""
        return ["a", "b", "c"][: self.rng.randint(1, 3)]

    def _moved(self) -> int:
        """By how much the time of a repeated event is earlier."""
        return self.rng.choice((0, 0, 0, self.timing.window_us))

    def _produce_one(self, log: Log, event: InputEvent) -> None:
        if self.allowed.undecodable_inputs and self.rng.random() < 0.04:
            now = event.broker_time_us
            log.write(Draft(now, now, partial(Undecodable, "input", *log.place, broker_time_us=now), event))
        else:
            self._append(log, event)

    def _append(self, log: Log, event: InputEvent) -> None:
        now = event.broker_time_us
        settled = self._transaction(now) if self.rng.random() < 0.3 else now
        aborted = now < settled < NEVER and self.rng.random() < 0.2

        def make(offset: int) -> Record:
            return replace(event, topic=log.topic, partition=log.partition, offset=offset)

        log.write(Draft(now, settled, None if aborted else make, event))

    # Part two: the engine

    def _answer(self, faults: bool) -> None:
        rng = self.rng
        rest_us = self.produce_until_us + 80
        habits = Habits(
            side_channels=frozenset(log.role for log in self.answers),
            decodes_all=rng.random() < 0.5,
            # Derived instead of drawn, so that the other random choices of a seed stay the same.
            is_moved_by_all=self.produce_until_us % PAUSE_US != 50,
            drops_late=self.timing.late_policy == "drop",
            waits_for_late=self.timing.max_disorder_us % 2 == 0,
            rejects=rng.choice((0.0, 0.1)),
            fires_early=rng.choice((0.0, 0.0, 0.3)),
            splits=rng.choice((0.0, 0.3)),
            flushes_us=frozenset(
                [rest_us] * (self.ending == "once")
                + [begin + FLUSH_US for begin, ending in self.pauses.items() if ending == "once"]
            ),
        )
        answers = self._engine(habits).run(rest_us)
        if faults:
            answers = self._broken(answers, rng.sample(FAULTS, rng.randint(0, 3)))
        for answer in answers:
            self._write(answer)
        if (self.allowed.undecodable_side_channels and rng.random() < 0.1) or (faults and rng.random() < 0.1):
            log, now = rng.choice(self.answers), rng.randint(0, rest_us)
            if log.role != "output" or faults:
                log.write(Draft(now, now, partial(Undecodable, log.role, *log.place, broker_time_us=now)))
        for log in self.answers:
            log.seal()
        drafts = [draft for log in (*self.inputs, *self.answers) for draft in log.drafts]
        ends = [draft.settled_us if draft.settled_us < NEVER else draft.append_us for draft in drafts]
        self.rest_us = max([rest_us, *ends]) + 1

    def _broken(self, answers: Sequence[Answer], faults: Sequence[Fault]) -> list[Answer]:
        return break_answers(self.rng, self.timing, answers, faults)

    def _log_of(self, answer: Answer) -> Log:
        return self.rng.choice([log for log in self.answers if log.role == answer.role])

    def _appended_us(self, answer: Answer) -> int:
        limit = self.timing.missing_after_us
        delay = self.rng.choice((0, 1, limit, limit, self.rng.randint(0, limit)))
        return answer.trigger_us + delay + answer.extra_delay_us

    def _record(self, log: Log, offset: int, now: int, answer: Answer, is_garbled: bool) -> Record:
        return _record(log, offset, now, answer, is_garbled)

    def _write(self, answer: Answer) -> None:
        """Append an answer within `missing_after` of its trigger. Its transaction may stay open longer."""
        rng, at = self.rng, self._appended_us(answer)
        delay = at - answer.trigger_us - answer.extra_delay_us
        log = self._log_of(answer)
        if self.allowed.transactions and delay > 1 and rng.random() < 0.15:
            first = rng.randint(answer.trigger_us, at - 1)
            log.write(Draft(first, rng.randint(first + 1, at), None))
        is_garbled = self.allowed.undecodable_side_channels and answer.role != "output" and rng.random() < 0.05
        self.in_flight.append((answer.trigger_us, at))
        log.write(Draft(at, self._transaction(at), lambda offset: self._record(log, offset, at, answer, is_garbled)))

    # Part three: the validator

    def history(self) -> History:
        """Read the world in batches."""
        rng = self.rng
        logs = [*self.inputs, *self.answers]
        now = rng.choice((0, 0, rng.randint(0, self.produce_until_us)))
        starts = {log.place: self._start(log, now) for log in logs}
        begins = {place: start for place, (start, _) in starts.items()}
        log_starts = {place: log_start for place, (_, log_start) in starts.items()}
        lags = self.allowed.lags
        paces = {log.place: rng.choice((1.0, 1.0, 0.7, 0.3, 0.05)) if lags else 1.0 for log in logs}
        grouped = self.allowed.committed_offsets and rng.random() < 0.4
        committed: dict[TopicPartition, int] = {}
        steps: list[Step] = []
        ends_of_pauses = [begin + PAUSE_US for begin in self.pauses if begin + PAUSE_US > now]
        while now < self.rest_us and len(steps) < (25 if lags else 70) * (1 + len(self.pauses)):
            if is_pause_over := bool(ends_of_pauses) and now >= ends_of_pauses[0]:
                now = ends_of_pauses.pop(0)
            plan_us = rng.randint(steps[-1].lookup_us, now) if steps and lags else now
            ends = {log.place: self._end(log, begins[log.place], plan_us, paces[log.place]) for log in logs}
            if self.expires and steps and rng.random() < 0.3:
                log = rng.choice(logs)
                log_starts[log.place] = max(log_starts[log.place], rng.randint(begins[log.place], ends[log.place]))
            if grouped and rng.random() < 0.5:
                committed |= {
                    log.place: rng.randint(committed.get(log.place, 0), log.last_stable(now)) for log in self.inputs
                }
            if is_pause_over:
                ends = {log.place: log.last_stable(now) for log in logs}
                if rng.random() < 0.8:
                    committed |= {log.place: ends[log.place] for log in self.inputs}
            steps.append(self._step(now, begins, ends, log_starts, dict(committed) if grouped else None))
            if is_pause_over:
                steps[-1] = replace(steps[-1], ending=self._ending_at(now))
            begins = ends
            now += rng.choice((0, 1, 2, 5, 10, 10, 30)) if lags else 1
        if self.ending != "none" or rng.random() < 0.5:
            ends = {log.place: log.last_stable(self.rest_us) for log in logs}
            steps.append(self._step(self.rest_us, begins, ends, log_starts, dict(committed) if grouped else None))
        return History(self.timing, tuple(steps), self.ending)

    def _ending_at(self, now: int) -> Ending:
        """How a run ends at the end of a pause. It does not end while an answer is not written yet."""
        return "none" if any(begun <= now < at for begun, at in self.in_flight) else self.pauses[now - PAUSE_US]

    def _start(self, log: Log, now: int) -> tuple[int, int]:
        """The offset at which the state begins to read a partition, and the first offset of the log at that time."""
        hidden = self.allowed.hidden_inputs if log.role == "input" else self.allowed.hidden_answers
        if not hidden or self.rng.random() < 0.6:
            return 0, 0
        start = self.rng.randint(0, log.last_stable(now))
        if log.role == "input" and not _is_orderly_start(log, start, self.timing):
            return 0, 0
        return start, self.rng.choice((0, start))

    def _end(self, log: Log, begin: int, plan_us: int, pace: float) -> int:
        stable = max(begin, log.last_stable(plan_us))
        if self.rng.random() < pace:
            return stable
        return begin if self.rng.random() < 0.5 else self.rng.randint(begin, stable)

    def _step(
        self,
        now: int,
        begins: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
        log_starts: dict[TopicPartition, int],
        committed: dict[TopicPartition, int] | None,
    ) -> Step:
        records: list[Record] = []
        states: list[PartitionState] = []
        for log in (*self.inputs, *self.answers):
            begin, end, log_start = begins[log.place], ends[log.place], log_starts[log.place]
            records += [record for record in log.records[max(begin, log_start) : end] if record is not None]
            states.append(
                PartitionState(
                    log.role, *log.place, log_start, begin, end, log.high_watermark(now), log.last_stable(now)
                )
            )
        self.rng.shuffle(records)
        return Step(now, tuple(records), tuple(states), committed)


def _is_orderly_start(log: Log, start: int, timing: Timing) -> bool:
    """Whether the first visible event is within `max_disorder` of the hidden ones, as the horizon assumes."""
    hidden = [draft.truth.event_time_us for draft in log.drafts[:start] if draft.make and draft.truth]
    shown = [record.event_time_us for record in log.records[start:] if isinstance(record, InputEvent)]
    return not shown or all(time <= shown[0] + timing.max_disorder_us for time in hidden)


def _record(log: Log, offset: int, now: int, answer: Answer, is_garbled: bool) -> Record:
    if is_garbled:
        return Undecodable(log.role, *log.place, offset, now)
    if answer.event is None:
        return ResultRecord(*log.place, offset, now, answer.cell[1], answer.cell[0], answer.ids)
    event = answer.event
    return LateRecord(*log.place, offset, now, answer.ids[0], answer.cell[1], event.event_time_us, answer.role)


def causal_correct_history(rng: Random, allowed: Allowed = EVERYTHING) -> History:
    """A history of an engine that keeps its guarantee and answers within `missing_after`. The validator must not
    confirm a violation."""
    return World(rng, allowed, faults=False).history()


def faulty_history(rng: Random, allowed: Allowed = EVERYTHING) -> History:
    """A history of an engine that may drop, repeat, misplace, invent and delay ids, and may send a result twice."""
    return World(rng, allowed, faults=True).history()


def compacted(history: History, rng: Random) -> History:
    """The same world with some compacted topics, in which some records were removed before the validator read them.

    Events further ahead than `max_ahead` stay: the rules assume that an unreadable record is not one of these.
    """
    topics = {state.topic for step in history.steps for state in step.partitions}
    chosen = {topic for topic in sorted(topics) if rng.random() < 0.5}
    share = rng.choice((0.0, 0.1, 0.5))

    def stays(record: Record) -> bool:
        if record.topic not in chosen or rng.random() >= share:
            return True
        ahead_us = record.event_time_us - record.broker_time_us if isinstance(record, InputEvent) else 0
        return ahead_us > history.timing.max_ahead_us

    steps = tuple(
        replace(
            step,
            records=tuple(filter(stays, step.records)),
            partitions=tuple(replace(state, compacted=state.topic in chosen) for state in step.partitions),
        )
        for step in history.steps
    )
    return replace(history, steps=steps)


def drawn(make: Callable[[Random], History]) -> st.SearchStrategy[History]:
    """A hypothesis strategy around a generator. Hypothesis can then shrink a failing history."""
    return st.builds(make, st.randoms(use_true_random=False))

"""The session window by brute force, and random worlds of it: all events of a key are sorted and split at long
pauses.

Slots begin at the epoch, and each is one gap long. A result or late record belongs to the session that has
an event in the slot of its start, otherwise to a cell of its own. A session is named by the slot of its first event.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from random import Random

from tests.property.clock import Clock
from tests.property.counted import counting
from tests.property.engine import Answer, Engine, Habits
from tests.property.history import (
    Cell,
    Ending,
    History,
    InputEvent,
    LateRecord,
    ResultRecord,
    Step,
    Timing,
    TopicPartition,
    nameless,
)
from tests.property.logs import Log
from tests.property.spark_histories import Case, Referee, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed, World
from validator.oracles.seam import Reads
from validator.oracles.session_window import SessionWindow


class SessionClock(Clock):
    """Time with the assignment of events to sessions."""

    def __init__(self, timing: Timing, steps: tuple[Step, ...]) -> None:
        super().__init__(timing, steps)
        # The longest pause within a session.
        self.gap_us = timing.window_us
        self.scope_margin_us = self.gap_us
        times: dict[str, list[int]] = defaultdict(list)
        for _, event in self.events():
            times[event.key].append(event.event_time_us)
        self.session_of_slot: dict[tuple[int, str], Cell] = {}
        self.lasts: dict[Cell, int] = {}
        for key, of_key in times.items():
            session: list[int] = []
            for time in sorted(of_key):
                if session and time - session[-1] > self.gap_us:
                    session = []
                session.append(time)
                cell = (self.slot(session[0]), key)
                self.session_of_slot[self.slot(time), key] = cell
                self.lasts[cell] = time

    def slot(self, time_us: int) -> int:
        """Start of the slot that holds an instant."""
        return time_us // self.gap_us * self.gap_us

    def at(self, key: str, time_us: int) -> Cell:
        """The session with an event in the slot of an instant, or a cell of its own."""
        slot = (self.slot(time_us), key)
        return self.session_of_slot.get(slot, slot)

    def cells_of(self, event: InputEvent | LateRecord) -> tuple[Cell, ...]:
        """The one session of the event."""
        return (self.at(event.key, event.event_time_us),)

    def cell_of(self, result: ResultRecord) -> Cell:
        """The session at the start of the result's window."""
        return self.at(result.key, result.window_start_us)

    def end(self, cell: Cell) -> int:
        """One gap after the last event of the session."""
        return self.lasts.get(cell, cell[0]) + self.gap_us

    def ahead_before(self, place: TopicPartition, offset: int) -> int | None:
        """The last instant in the slots of events that are too far ahead."""
        return max(
            (
                self.slot(event.event_time_us) + self.gap_us - 1
                for step, event in self.events()
                if (event.topic, event.partition) == place
                and event.offset < offset
                and not self.moves_watermark(step, event)
            ),
            default=None,
        )

    def may_have_passed(self, event: InputEvent, instant_us: int) -> str:
        """Whether the engine's time was past an instant before it read an event (2.25): surely, perhaps or never."""
        place = (event.topic, event.partition)
        newest = self.newest(place, below=event.offset)
        if newest is not None and newest - self.timing.max_disorder_us >= instant_us:
            return "surely"
        for hidden in (self.hidden_before(place, event.offset), self.ahead_before(place, event.offset)):
            if hidden is not None and hidden - self.timing.max_disorder_us >= instant_us:
                return "perhaps"
        others = [other for other in self.places("input") if self.timing.may_move(place, other)]
        written = any(state.high_watermark > 0 for other in others for _, state in self.states(other))
        return "perhaps" if written else "never"


class SessionReferee(Referee):
    """The reference: an unreadable record may join two sessions, or start one earlier. A session has one result, and
    parts of it are misplaced (2.25)."""

    clock_type = SessionClock
    clock: SessionClock

    def __init__(self, history: History, upto_step: int, ending: Ending) -> None:
        super().__init__(history, upto_step, ending)
        self.known_parts: dict[Cell, list[ResultRecord]] = {}

    def parts(self, cell: Cell) -> list[ResultRecord]:
        """The results of a session that were split off."""
        if cell not in self.known_parts:
            self.known_parts[cell] = self._parts(cell)
        return self.known_parts[cell]

    def _parts(self, cell: Cell) -> list[ResultRecord]:
        if not self.clock.in_scope(cell) or not self.is_resolved(cell):
            return []
        results = sorted(self.results[cell], key=lambda at: (at.topic, at.partition, at.offset))
        once = {
            id_: copies[0]
            for id_ in self.ids(cell)
            if len(copies := self.copies.get((cell, id_), [])) == 1 and any(id_ in result.ids for result in results)
        }

        def when(event: InputEvent) -> tuple[int, str, int, int]:
            return event.event_time_us, event.topic, event.partition, event.offset

        def end(result: ResultRecord) -> int:
            return max(once[id_].event_time_us for id_ in result.ids if id_ in once) + self.clock.gap_us

        together = {at: {at} for at in range(len(results))}
        for one, other in pairwise(sorted(once.values(), key=when)):
            having = [{at for at, result in enumerate(results) if event.id in result.ids} for event in (one, other)]
            if other.event_time_us - one.event_time_us > self.clock.gap_us or having[0] & having[1]:
                continue
            for ours, theirs in product(*having):
                passed = self.clock.may_have_passed(other, end(results[ours]))
                if {passed, self.clock.may_have_passed(one, end(results[theirs]))} == {"never"}:
                    joined = together[ours] | together[theirs]
                    together.update(dict.fromkeys(joined, joined))
        found = set()
        for whole in together.values():
            largest = max(whole, key=lambda at: (len(results[at].ids), -at))
            found |= whole - {largest}
        return [results[at] for at in sorted(found)]

    def seen(self, cell: Cell, id_: str) -> Counter[str]:
        """The observations without those in parts of the session."""
        return super().seen(cell, id_) - Counter(output=self.in_parts(cell, id_))

    def in_parts(self, cell: Cell, id_: str) -> int:
        """How often parts of a session name an id that the session expects."""
        if not self.expected(cell, id_):
            return 0
        return sum(result.ids.count(id_) for result in self.parts(cell))

    def classes(self, cell: Cell, id_: str) -> Counter[str]:
        """What a part names is misplaced there, and outstanding in its session."""
        return super().classes(cell, id_) + Counter(misplaced=self.in_parts(cell, id_))

    def result_classes(self, cell: Cell) -> Iterator[str]:
        """Parts are misplaced."""
        parts = self.parts(cell)
        yield from ("misplaced" for _ in parts)
        all_results = self.results[cell]
        self.results[cell] = [result for result in all_results if result not in parts]
        yield from super().result_classes(cell)
        self.results[cell] = all_results

    def is_held(self, kind: str, found: Sequence[tuple[Cell, Counter[str]]]) -> bool:
        """An unreadable input record may join two sessions: then one of the two cells has an excess and the other one a
        loss."""
        if kind == "missing":
            hidden = self.hidden_answers() + self.hidden_inputs()
            return hidden > 0 and self.to_explain(found, {kind}) <= hidden
        return super().is_held("unknown_id" if kind == "misplaced" else kind, found)

    def to_explain(self, found: Sequence[tuple[Cell, Counter[str]]], kinds: AbstractSet[str]) -> int:
        """The number of cells, since one hidden record explains all violations of a cell."""
        return len({cell for cell, classes in found if any(classes[kind] for kind in kinds)})


@dataclass
class _Session:
    key: str
    first_us: int
    last_us: int
    pending: list[str]
    is_closed: bool = False


class SessionEngine(Engine):
    """Answers a session once its watermark has passed the session's end, and answers later events at once.

    It may forget closed sessions. If it does not, a late event joins the answered session, and the next result
    has that session's start. ``looks_elsewhere``: it ended a session because of other partitions, before it read an
    event of that session.
    """

    looks_elsewhere = False

    def __init__(self, rng: Random, timing: Timing, habits: Habits, inputs: Sequence[Log]) -> None:
        super().__init__(rng, timing, habits, inputs)
        self.sessions: list[_Session] = []
        self.forgets = rng.random() < 0.5

    def _take(self, now: int, event: InputEvent, late: Sequence[bool]) -> None:
        del late
        if self.timing.duplicates == "collapse" and event.id in self.seen:
            return
        self.seen.add(event.id)
        gap, time = self.timing.window_us, event.event_time_us
        merged = _Session(event.key, time, time, [event.id])
        rest = []
        for other in self.sessions:
            touches = other.first_us - gap <= merged.last_us and merged.first_us <= other.last_us + gap
            if other.key == event.key and touches and other.is_closed:
                newest = self.newest.get((event.topic, event.partition))
                self.looks_elsewhere |= newest is None or newest - self.timing.max_disorder_us < other.last_us + gap
            if other.key == event.key and touches and not (other.is_closed and self.forgets):
                merged = _Session(
                    event.key,
                    min(merged.first_us, other.first_us),
                    max(merged.last_us, other.last_us),
                    merged.pending + other.pending,
                    merged.is_closed or other.is_closed,
                )
            else:
                rest.append(other)
        newest = self.latest.get((event.topic, event.partition))
        legal_close = merged.last_us + gap + self.timing.allowed_lateness_us
        is_late = newest is not None and newest - self.timing.max_disorder_us >= legal_close
        if "rejected" in self.habits.side_channels and self.rng.random() < self.habits.rejects:
            self.answers.append(Answer(now, "rejected", (0, event.key), (event.id,), event))
            return
        if (is_late or merged.is_closed) and "late" in self.habits.side_channels and self.rng.random() < 0.7:
            self.answers.append(Answer(now, "late", (0, event.key), (event.id,), event))
            return
        merged.is_closed = self._is_past(merged)
        self.sessions = [*rest, merged]
        if merged.is_closed or self.rng.random() < self.habits.fires_early:
            self._answer(now, merged)

    def _is_past(self, session: _Session) -> bool:
        return self.watermark is not None and session.last_us + self.timing.window_us <= self.watermark

    def _answer(self, now: int, session: _Session) -> None:
        cell = (session.first_us, session.key)
        if session.pending:
            self.pending[cell] = session.pending
            session.pending = []
            self._emit(now, cell)

    def _advance(self, now: int) -> None:
        super()._advance(now)
        for session in self.sessions:
            if not session.is_closed and self._is_past(session):
                session.is_closed = True
                self._answer(now, session)
        if now in self.habits.flushes_us:
            for session in self.sessions:
                self._answer(now, session)


class SessionWorld(World):
    """One random world of sessions. ``adds_up``: an engine may answer a session in any parts."""

    def __init__(self, rng: Random, allowed: Allowed, faults: bool, adds_up: bool) -> None:
        self.may_split = faults or adds_up
        self.behind_us: dict[str, int] = {}
        super().__init__(rng, allowed, faults)

    def history(self) -> History:
        """Read the world. Its scope of lateness includes the partitions that moved the engine's time."""
        if self.engine.looks_elsewhere and not self.may_split:
            self.timing = replace(self.timing, lateness_scope=self.rng.choice((None, "topic", "global")))
        return super().history()

    def _timing(self) -> Timing:
        # Lateness is reported: this oracle does not tolerate dropped late events.
        known = super()._timing()
        gap_us, disorder_us = self.rng.choice((2, 4, 5, 10)), self.rng.choice((0, 0, 2, 5))
        return replace(known, window_us=gap_us, window_offset_us=0, max_disorder_us=disorder_us, late_policy="report")

    def _input_logs(self) -> list[Log]:
        # One partition in most worlds: with several, others may excuse a session in parts.
        return [Log("input", "clicks", number) for number in range(self.rng.choice((1, 1, 2, 3)))]

    def _produce_one(self, log: Log, event: InputEvent) -> None:
        # Many events come after the session beside them has ended, so that it has several results. Repeats have the
        # time of their event.
        behind = self.rng.randint(0, 2 * self.timing.window_us) if self.rng.random() < 0.3 else 0
        behind = self.behind_us.setdefault(event.id, behind)
        super()._produce_one(log, replace(event, event_time_us=event.event_time_us - behind))

    def _engine(self, habits: Habits) -> Engine:
        if not self.may_split:
            habits = replace(habits, splits=0.0, fires_early=0.0)
        self.engine = SessionEngine(self.rng, self.timing, habits, self.inputs)
        return self.engine


def session_history(rng: Random, *, causal: bool, adds_up: bool, allowed: Allowed = EVERYTHING) -> History:
    """A history of an engine that keeps its guarantee (``causal``), or of one that may be broken in any way."""
    return SessionWorld(rng, allowed, faults=not causal, adds_up=adds_up).history()


class SummedReferee(SessionReferee):
    """The reference with emission `incremental`: a session may have any number of results."""

    def parts(self, cell: Cell) -> list[ResultRecord]:
        """None."""
        del cell
        return []


@dataclass(frozen=True)
class SessionCase(Case):
    """One history of sessions."""

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return SummedReferee if self.adds_up else SessionReferee

    @property
    def adds_up(self) -> bool:
        """Whether the results of a session add up (emission `incremental`)."""
        return self.seed % 4 == 3

    @cached_property
    def oracle(self) -> SessionWindow:
        """The oracle with which the core judges it."""
        oracle = SessionWindow.of(self.history.timing.window_us)
        return oracle.reading(Reads(adds_up=True)) if self.adds_up else oracle


class CountingReferee(SummedReferee):
    """The reference for results that do not say which events they used: no event of another session is recognised."""

    def __init__(self, history: History, upto_step: int, ending: Ending) -> None:
        super().__init__(history, upto_step, ending)
        self.all_ids = set()


@dataclass(frozen=True)
class CountedSessionCase(SessionCase):
    """A session history whose results state how many events they used."""

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return CountingReferee

    @property
    def adds_up(self) -> bool:
        """The results of a session add up: they do not say which events they used."""
        return True

    @cached_property
    def oracle(self) -> SessionWindow:
        """The oracle that counts."""
        found = counting(super().oracle)
        assert isinstance(found, SessionWindow)
        return found.reading(Reads(evidence="values", names_ids=False, adds_up=True))

    def anonymous(self) -> CountedSessionCase:
        """The same history without the ids of its events."""
        return replace(self, history=nameless(self.history))


def counted_session_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> SessionCase:
    """The case that ``seed`` generates, without the ids of events."""
    return counted_session_history(seed, causal=causal, steps_most=steps_most, allowed=allowed).anonymous()


def counted_session_history(
    seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING
) -> CountedSessionCase:
    """The case of a seed, with the ids of its events."""
    rng = Random(seed)
    while True:
        history = session_history(rng, causal=causal, adds_up=True, allowed=allowed)
        if history.timing.duplicates == "count":
            break
    return CountedSessionCase(seed, causal, stretched(coarser(history, rng, steps_most)))


def session_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> SessionCase:
    """The case that ``seed`` generates."""
    rng = Random(seed)
    history = session_history(rng, causal=causal, adds_up=seed % 4 == 3, allowed=allowed)
    if not causal:
        history = odder(history, rng)
    return SessionCase(seed, causal, stretched(coarser(history, rng, steps_most)))

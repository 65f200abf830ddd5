"""The session window by brute force, and random worlds of it: all events of a key are sorted and split at long
pauses.

Slots begin at the epoch, and each is one gap long. A result or late record belongs to the session that has
an event in the slot of its start, otherwise to a cell of its own. A session is named by the slot of its first event.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from random import Random

from tests.property.clock import Clock
from tests.property.engine import Answer, Engine, Habits
from tests.property.history import (
    Cell,
    History,
    InputEvent,
    LateRecord,
    ResultRecord,
    Step,
    Timing,
)
from tests.property.logs import Log
from tests.property.spark_histories import Case, Referee, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed, World
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


class SessionReferee(Referee):
    """The reference: an unreadable record may join two sessions, or start one earlier."""

    clock_type = SessionClock

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
    has that session's start.
    """

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
    """One random world of sessions."""

    def _timing(self) -> Timing:
        # Lateness is reported: this oracle does not tolerate dropped late events.
        known = super()._timing()
        return replace(known, window_us=self.rng.choice((2, 4, 5, 10)), window_offset_us=0, late_policy="report")

    def _engine(self, habits: Habits) -> Engine:
        return SessionEngine(self.rng, self.timing, habits, self.inputs)


def session_history(rng: Random, *, causal: bool, allowed: Allowed = EVERYTHING) -> History:
    """A history of an engine that keeps its guarantee (``causal``), or of one that may be broken in any way."""
    return SessionWorld(rng, allowed, faults=not causal).history()


@dataclass(frozen=True)
class SessionCase(Case):
    """One history of sessions."""

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return SessionReferee

    @property
    def oracle(self) -> SessionWindow:
        """The oracle with which the core judges it."""
        return SessionWindow.of(self.history.timing.window_us)


def session_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> SessionCase:
    """The case that ``seed`` generates."""
    rng = Random(seed)
    history = session_history(rng, causal=causal, allowed=allowed)
    if not causal:
        history = odder(history, rng)
    return SessionCase(seed, causal, stretched(coarser(history, rng, steps_most)))

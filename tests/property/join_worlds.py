"""Random worlds of a windowed join: two inputs whose ids collide, an engine that joins them, and ways to break it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tests.property.engine import Engine, Habits
from tests.property.history import Cell, History, InputEvent, Timing
from tests.property.join_reference import LEFT, RIGHT, Join
from tests.property.logs import Log
from tests.property.strategies import EVERYTHING, Allowed, World


class JoinEngine(Engine):
    """Answers each accepted id once, as soon as its cell is due and the id has a partner, however late the partner
    is."""

    def __init__(self, rng: Random, timing: Timing, habits: Habits, inputs: Sequence[Log], join: Join) -> None:
        super().__init__(rng, timing, habits, inputs)
        self.join = join
        self.accepted: dict[Cell, set[str]] = defaultdict(set)

    def _emit(self, now: int, cell: Cell) -> None:
        fresh = dict.fromkeys(id_ for id_ in self.pending.pop(cell) if id_ not in self.accepted[cell])
        self.pending[cell] = list(fresh)
        both = {id_.startswith(RIGHT) for id_ in (*fresh, *self.accepted[cell])}
        matched = [id_ for id_ in fresh if self._is_answered(id_, has_partner=len(both) == 2)]
        if matched:
            self.accepted[cell] |= set(matched)
            waiting = [id_ for id_ in fresh if id_ not in matched]
            self.pending[cell] = matched
            super()._emit(now, cell)
            self.pending[cell] = waiting

    def _is_answered(self, id_: str, *, has_partner: bool) -> bool:
        is_left = not id_.startswith(RIGHT)
        return (has_partner or (self.join == "left" and is_left)) and (self.join != "semi" or is_left)


class JoinWorld(World):
    """One random world of a join. The event with number n has the id n // 2 on the right input, so that ids of both
    inputs collide."""

    def __init__(self, rng: Random, allowed: Allowed, faults: bool, join: Join) -> None:
        self.join = join
        super().__init__(rng, allowed, faults)

    def _input_logs(self) -> list[Log]:
        # A join counts an id once per cell, however often producers sent it.
        self.timing = replace(self.timing, duplicates="count", lateness_scope="partition")
        lefts, rights = self.rng.choice(((1, 1), (2, 1), (1, 2)))
        return [Log("input", LEFT, number) for number in range(lefts)] + [
            Log("input", RIGHT, lefts + number) for number in range(rights)
        ]

    def _engine(self, habits: Habits) -> Engine:
        for log in self.inputs:
            # Give their final ids to the events that only the engine can decode.
            log.drafts[:] = [
                replace(draft, truth=self._named(log, draft.truth)) if draft.truth else draft for draft in log.drafts
            ]
        return JoinEngine(self.rng, self.timing, habits, self.inputs, self.join)

    def _named(self, log: Log, event: InputEvent) -> InputEvent:
        id_ = event.id if log.topic == LEFT or "/" in event.id else f"{RIGHT}/{int(event.id) // 2}"
        return replace(event, topic=log.topic, partition=log.partition, id=id_)

    def _append(self, log: Log, event: InputEvent) -> None:
        super()._append(log, self._named(log, event))


def correct_join_history(rng: Random, join: Join, allowed: Allowed = EVERYTHING) -> History:
    """A history of an engine that joins correctly and answers in time: no violation may be confirmed."""
    return JoinWorld(rng, allowed, faults=False, join=join).history()


def faulty_join_history(rng: Random, join: Join, allowed: Allowed = EVERYTHING) -> History:
    """A history of an engine whose answers may be broken in any way."""
    return JoinWorld(rng, allowed, faults=True, join=join).history()

"""The mutant's errors, decided from a seed, and the classes under which each must be reported. Pure, no I/O.

Every decision is a hash of (seed, cell) or (seed, cell, id), not a sequential draw. Therefore the mutant makes the same
errors in the same cell after a kill and a restart, or with another assignment of partitions. Classes are those of
SEMANTICS section 2, per (cell, id), with e = 1 for an event's own cell:

| mutation         | what is done                                            | classes per id                        |
|------------------|---------------------------------------------------------|---------------------------------------|
| drop             | an id left out of its result                            | missing                               |
| drop_cell        | a result never produced                                 | missing                               |
| duplicate        | an id twice in its result                               | duplicate                             |
| duplicate_result | a result produced twice                                 | duplicate                             |
| alter            | an id replaced by one that no input has                 | missing, and unknown_id               |
| misplace         | an id moved to another cell (below)                     | missing, and misplaced in the other   |
| misplace_copy    | an id put into another cell (below) as well             | misplaced in the other                |
| invent           | an id added that no input has                           | unknown_id                            |
| swap             | an id replaced by one of the same result                | missing, and duplicate of the other   |
| late_route       | an id sent to the late topic in place of the result     | late (handled)                        |
| delay            | a result produced ``seconds`` later                     | none; with ``beyond`` suspected first |
| abort            | a result produced in a transaction that is aborted      | missing under read_committed          |
| abort_retry      | the same, then produced again                           | none                                  |
| withdraw         | a cumulative result produced, then withdrawn            | missing                               |

A result has at most one mutation, and its ids are mutated only if the result is not, so the classes add up. An id is
misplaced into the next result of its window, by key, that has no mutation of its own; if there is none, the id is not
mutated. An id is swapped with the newest unchanged one before it, which is repeated once; without one it stays. In
sliding windows, an id has a cell in each window that holds it, and each is mutated separately. Session windows differ
between keys: there an id is misplaced into the next session that produces its result at the same time. A kill can
change that session. A passthrough's result is one event: if its id is dropped, nothing is produced; if it is misplaced,
it is produced with another event time, ``moved_ms`` later. Duplicates from a producer give separate, equal results: all
have the same mutation, and the truth has it once. A running aggregate has no windows: there an id is misplaced into the
result of the next key that is produced at the same time. Its cumulative results repeat the mutations of their ids, and
the truth covers only the last table. Delayed results are kept in memory: an engine that is killed during a delay loses
them.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from testbed.engines.core import EventId, LateEvent, Operator, Result


class Mutation(StrEnum):
    """The kinds of violations that the mutant produces."""

    DROP = "drop"
    DROP_CELL = "drop_cell"
    DUPLICATE = "duplicate"
    DUPLICATE_RESULT = "duplicate_result"
    ALTER = "alter"
    MISPLACE = "misplace"
    MISPLACE_COPY = "misplace_copy"
    INVENT = "invent"
    LATE_ROUTE = "late_route"
    DELAY = "delay"
    DELAY_BEYOND = "delay_beyond"
    ABORT = "abort"
    ABORT_RETRY = "abort_retry"
    WITHDRAW = "withdraw"
    SWAP = "swap"


OF_A_RESULT: Final = (
    Mutation.DROP_CELL,
    Mutation.DUPLICATE_RESULT,
    Mutation.DELAY,
    Mutation.DELAY_BEYOND,
    Mutation.ABORT,
    Mutation.ABORT_RETRY,
    Mutation.WITHDRAW,
)
OF_AN_ID: Final = (
    Mutation.DROP,
    Mutation.DUPLICATE,
    Mutation.ALTER,
    Mutation.MISPLACE,
    Mutation.MISPLACE_COPY,
    Mutation.INVENT,
    Mutation.LATE_ROUTE,
    Mutation.SWAP,
)

_CLASS_OF_ITS_IDS: Final = {
    Mutation.DROP_CELL: "missing",
    Mutation.DUPLICATE_RESULT: "duplicate",
    Mutation.ABORT: "missing",
    Mutation.WITHDRAW: "missing",
    Mutation.DELAY: None,
    Mutation.DELAY_BEYOND: None,
    Mutation.ABORT_RETRY: None,
}
_INVENTED_FROM: Final = 1 << 62
"""Invented integer ids are in the upper half of the 64-bit range, which generators do not reach."""


@dataclass(frozen=True)
class AppliedMutation:
    """One line of the ground truth: a mutation of an id, and its class in that cell (None: no violation)."""

    mutation: Mutation
    window_start_ms: int
    key: tuple[str, ...]
    id: EventId
    violation_class: str | None
    transient_class: str | None = None
    """A class that is correct for a time, and is retracted later."""
    count: int = 1
    """Number of contributions: above 1 only if the producer sent the event more than once."""


@dataclass(frozen=True)
class EmittedResult:
    """A result to produce."""

    result: Result
    delay_seconds: float = 0.0
    is_aborted: bool = False
    """Produce it in a separate transaction, which is then aborted."""
    is_withdrawn: bool = False
    """Produce a null value instead of the result."""


@dataclass(frozen=True)
class MutatedResults:
    """The results to produce instead of the correct ones, and the ground truth about them."""

    emissions: tuple[EmittedResult | LateEvent, ...]
    applied: tuple[AppliedMutation, ...]


@dataclass(frozen=True)
class Rates:
    """Mutation -> share from 0 to 1 of the affected results (``OF_A_RESULT``) or ids (``OF_AN_ID``)."""

    shares: Mapping[Mutation, float]
    delay_seconds: float = 2.0
    delay_beyond_seconds: float = 0.0


def mutate(
    answers: Sequence[Result | LateEvent],
    rates: Rates,
    seed: int,
    *,
    operator: Operator = "tumbling",
    moved_ms: int = 0,
) -> MutatedResults:
    """Mutate correct results. The results of one window must be in one call, as ``Core.take`` returns them.

    ``moved_ms``: the event time by which a passthrough's results are misplaced.
    """
    if operator in ("session", "running_aggregate"):
        return _mutate_together(answers, rates, seed)
    if operator == "passthrough":
        return _mutate_events(answers, rates, seed, moved_ms)
    emissions: list[EmittedResult | LateEvent] = []
    applied: list[AppliedMutation] = []
    window: list[Result] = []
    for answer in answers:
        if window and (isinstance(answer, LateEvent) or window[0].window_start_ms != answer.window_start_ms):
            _mutate_window(window, rates, seed, emissions, applied)
            window = []
        if isinstance(answer, LateEvent):
            emissions.append(answer)
        else:
            window.append(answer)
    _mutate_window(window, rates, seed, emissions, applied)
    return MutatedResults(tuple(emissions), tuple(applied))


def _mutate_together(answers: Sequence[Result | LateEvent], rates: Rates, seed: int) -> MutatedResults:
    """Mutate results as if they belonged to one window; all are produced at the same time."""
    emissions: list[EmittedResult | LateEvent] = [answer for answer in answers if isinstance(answer, LateEvent)]
    applied: list[AppliedMutation] = []
    _mutate_window([answer for answer in answers if isinstance(answer, Result)], rates, seed, emissions, applied)
    return MutatedResults(tuple(emissions), tuple(applied))


def _mutate_events(answers: Sequence[Result | LateEvent], rates: Rates, seed: int, moved_ms: int) -> MutatedResults:
    """Mutate each result by itself. An id is misplaced into the same result at another time, not into another
    result."""
    emissions: list[EmittedResult | LateEvent] = []
    applied: list[AppliedMutation] = []
    for answer in answers:
        if isinstance(answer, LateEvent):
            emissions.append(answer)
        else:
            start, end = answer.window_start_ms + moved_ms, answer.window_end_ms + moved_ms
            elsewhere = _Edit(replace(answer, window_start_ms=start, window_end_ms=end))
            _mutate_window([answer], rates, seed, emissions, applied, elsewhere)
            times_ms = tuple(time_ms + moved_ms for time_ms in elsewhere.times_ms)
            emissions.append(EmittedResult(replace(elsewhere.result, ids=tuple(elsewhere.ids), times_ms=times_ms)))
    # A result that has lost its id is not produced.
    return MutatedResults(tuple(e for e in emissions if isinstance(e, LateEvent) or e.result.ids), tuple(applied))


def _mutate_window(
    window: list[Result],
    rates: Rates,
    seed: int,
    emissions: list[EmittedResult | LateEvent],
    applied: list[AppliedMutation],
    elsewhere: _Edit | None = None,
) -> None:
    """``elsewhere``: the result into which ids are misplaced, instead of the next one."""
    fates = [_chosen(OF_A_RESULT, rates, _draw(seed, "cell", r.window_start_ms, r.key)) for r in window]
    untouched = [i for i, fate in enumerate(fates) if fate is None]
    edits = {i: _Edit(window[i]) for i in untouched}
    for i, (result, fate) in enumerate(zip(window, fates, strict=True)):
        if fate is None:
            others = [j for j in untouched if j > i] + [j for j in untouched if j < i]
            other = elsewhere or (edits[others[0]] if others else None)
            _mutate_ids(edits[i], other, rates, seed, emissions, applied)
        else:
            emissions.extend(_fulfil(result, fate, rates))
            transient = "missing" if fate is Mutation.DELAY_BEYOND else None
            found_as = _CLASS_OF_ITS_IDS[fate]
            applied.extend(
                AppliedMutation(fate, result.window_start_ms, result.key, event_id, found_as, transient, count)
                for event_id, count in Counter(result.ids).items()
            )
    emissions.extend(
        EmittedResult(replace(e.result, ids=tuple(e.ids), times_ms=tuple(e.times_ms))) for e in edits.values()
    )


class _Edit:
    """A result whose ids are being changed."""

    def __init__(self, result: Result) -> None:
        self.result = result
        self.ids: list[EventId] = []
        self.times_ms: list[int] = []

    def put(self, event_id: EventId, time_ms: int) -> None:
        self.ids.append(event_id)
        self.times_ms.append(time_ms)


def _fulfil(result: Result, fate: Mutation, rates: Rates) -> list[EmittedResult]:
    if fate is Mutation.DROP_CELL:
        return []
    if fate is Mutation.DUPLICATE_RESULT:
        return [EmittedResult(result), EmittedResult(result)]
    if fate is Mutation.DELAY:
        return [EmittedResult(result, delay_seconds=rates.delay_seconds)]
    if fate is Mutation.DELAY_BEYOND:
        return [EmittedResult(result, delay_seconds=rates.delay_beyond_seconds)]
    if fate is Mutation.ABORT:
        return [EmittedResult(result, is_aborted=True)]
    if fate is Mutation.WITHDRAW:
        return [EmittedResult(result), EmittedResult(result, is_withdrawn=True)]
    assert fate is Mutation.ABORT_RETRY
    return [EmittedResult(result, is_aborted=True), EmittedResult(result)]


def _mutate_ids(
    own: _Edit,
    other: _Edit | None,
    rates: Rates,
    seed: int,
    emissions: list[EmittedResult | LateEvent],
    applied: list[AppliedMutation],
) -> None:
    result = own.result
    if not any(rates.shares.get(m, 0.0) for m in OF_AN_ID):
        for event_id, time_ms in zip(result.ids, result.times_ms, strict=True):
            own.put(event_id, time_ms)
        return
    met: set[EventId] = set()
    unchanged: tuple[EventId, int] | None = None
    for event_id, time_ms in zip(result.ids, result.times_ms, strict=True):
        # A duplicate from the producer has the same id. Mutating both would make the count ambiguous.
        choice, is_first = None, event_id not in met
        if is_first:
            met.add(event_id)
            choice = _chosen(OF_AN_ID, rates, _draw(seed, "id", result.window_start_ms, result.key, event_id))
        if choice in (Mutation.MISPLACE, Mutation.MISPLACE_COPY) and other is None:
            choice = None
        if choice is Mutation.SWAP and unchanged is None:
            choice = None
        _mutate_id(choice, own, other, unchanged, event_id, time_ms, seed, emissions, applied)
        if choice is Mutation.SWAP:
            unchanged = None
        elif choice is None and is_first:
            unchanged = (event_id, time_ms)


def _mutate_id(
    choice: Mutation | None,
    own: _Edit,
    other: _Edit | None,
    unchanged: tuple[EventId, int] | None,
    event_id: EventId,
    time_ms: int,
    seed: int,
    emissions: list[EmittedResult | LateEvent],
    applied: list[AppliedMutation],
) -> None:
    cell = own.result

    def note(found_as: str, noted: EventId = event_id, where: Result = cell) -> None:
        assert choice is not None
        applied.append(AppliedMutation(choice, where.window_start_ms, where.key, noted, found_as))

    if choice not in (Mutation.DROP, Mutation.ALTER, Mutation.MISPLACE, Mutation.LATE_ROUTE, Mutation.SWAP):
        own.put(event_id, time_ms)
    if choice is Mutation.DROP:
        note("missing")
    elif choice is Mutation.DUPLICATE:
        own.put(event_id, time_ms)
        note("duplicate")
    elif choice is Mutation.LATE_ROUTE:
        emissions.append(LateEvent(cell.key, event_id, time_ms))
        note("late")
    elif choice in (Mutation.ALTER, Mutation.INVENT):
        invented = _invented(seed, cell, event_id)
        own.put(invented, time_ms)
        if choice is Mutation.ALTER:
            note("missing")
        note("unknown_id", invented)
    elif choice in (Mutation.MISPLACE, Mutation.MISPLACE_COPY):
        assert other is not None
        other.put(event_id, time_ms)
        if choice is Mutation.MISPLACE:
            note("missing")
        note("misplaced", event_id, other.result)
    elif choice is Mutation.SWAP:
        assert unchanged is not None
        own.put(*unchanged)
        note("missing")
        note("duplicate", unchanged[0])


def _invented(seed: int, cell: Result, event_id: EventId) -> EventId:
    digest = _digest(seed, "invented", cell.window_start_ms, cell.key, event_id)
    if isinstance(event_id, int):
        return _INVENTED_FROM + int.from_bytes(digest[:7], "little")
    # An invented id of a join's right input keeps the prefix.
    side, slash, _ = event_id.rpartition("/")
    return f"{side}{slash}invented-{digest.hex()}"


def _chosen(among: Sequence[Mutation], rates: Rates, draw: float) -> Mutation | None:
    """Return the mutation whose share of [0, 1) contains the draw; None if no share does."""
    reached = 0.0
    for mutation in among:
        reached += rates.shares.get(mutation, 0.0)
        if draw < reached:
            return mutation
    return None


def _draw(seed: int, *of: object) -> float:
    return int.from_bytes(_digest(seed, *of)[:7], "little") / (1 << 56)


def _digest(seed: int, *of: object) -> bytes:
    return hashlib.blake2b(repr((seed, *of)).encode(), digest_size=8).digest()

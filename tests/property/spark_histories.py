"""Random histories for the core, with the sidecar's progress and the reference's opinion after each step.

The core's clock never stands still, so histories are stretched. One instant of the generators becomes `SCALE`
microseconds, and lookups at the same instant follow each other within it. Nothing is appended between two such lookups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import cached_property
from random import Random
from typing import Any, Final

from tests.property import clock as clocks
from tests.property.history import (
    ANSWERS,
    SIDE_CHANNELS,
    Cell,
    Ending,
    History,
    InputEvent,
    LateRecord,
    Record,
    ResultRecord,
    Step,
    TableRow,
)
from tests.property.reference import Reference
from tests.property.strategies import EVERYTHING, Allowed, causal_correct_history, compacted, faulty_history
from validator.codecs.one_record import NO_ID
from validator.core.suspicion import Suspicion
from validator.core.totals import CellTotals
from validator.model.frontier import Clock, RunEnd
from validator.model.progress import IngestProgress
from validator.oracles.seam import Oracle
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.facts import Side
from validator.reconcile.judge import EXCESS, INCORRECT, SAMPLED_OF, VIOLATIONS, Rules

SCALE: Final = 64
"""Microseconds of a stretched history per instant of a generator; more than twice the number of its steps."""
BASE_US: Final = 20 * SCALE
"""The first instant. It is a multiple of every window that the generators draw, so that cells stay the same."""
_RESTS: Final[Mapping[Ending, RunEnd]] = {
    "none": RunEnd.NONE,
    "once": RunEnd.ALL,
    "leave_open": RunEnd.CLOSED,
    "open": RunEnd.OPEN,
}
SIDE_OF_TOPIC: Final = {
    "clicks": Side.INPUT,
    "to-output": Side.OUTPUT,
    "to-late": Side.LATE,
    "to-rejected": Side.REJECTED,
    "updates": Side.INPUT,
    "to-more": Side.OUTPUT,
    "rows": Side.TABLE,
}
SOURCES: Final = [(side, topic) for topic, side in SIDE_OF_TOPIC.items()]
"""Side and topic by source index, as the sidecar orders them."""


@dataclass(frozen=True)
class Case:
    """One history for a core and a reference; `seed` reproduces it."""

    seed: int
    causal: bool
    history: History

    def __getstate__(self) -> dict[str, Any]:
        """Without what is cached: another thread may cache something while a queue pickles the case."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def oracle(self) -> Oracle:
        """The oracle with which the core judges it."""
        timing = self.history.timing
        return TumblingWindow.of(timing.window_us, timing.window_offset_us)

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return Referee

    @cached_property
    def rules(self) -> Rules:
        """The core's rules for judging it."""
        timing = self.history.timing
        return Rules(
            oracle=self.oracle,
            overdue_after_us=timing.overdue_after_us,
            missing_after_us=timing.missing_after_us,
            max_disorder_us=timing.max_disorder_us,
            allowed_lateness_us=timing.allowed_lateness_us,
            collapse=self.oracle.drops_repeats or timing.duplicates == "collapse",
            drops_late=timing.late_policy == "drop",
            lateness_scope=timing.lateness_scope,
            reports_unconsumed=self.grouped,
            # Some histories compare all cells that agree, the others almost none.
            sampled_of=1 if self.seed % 8 == 1 else SAMPLED_OF,
        )

    @property
    def copies_explain(self) -> bool:
        """As `Config.copies_explain`."""
        sides = {state.role for step in self.history.steps for state in step.partitions}
        return not self.rules.collapse or not sides.isdisjoint(SIDE_CHANNELS)

    @property
    def grouped(self) -> bool:
        """Whether the engine's consumer group is configured."""
        return self.history.steps[-1].committed is not None

    def values_of(self, record: Record) -> list[Decimal | None]:
        """The fields of an event that results aggregate, or the values that a result states."""
        del record
        return []

    def id_of(self, record: Record) -> int:
        """The id of an event, if results state values."""
        del record
        return NO_ID

    def is_removed(self, record: Record) -> bool:
        """Whether an event is one that a change of a table removes."""
        del record
        return False

    def run_end(self, number: int) -> RunEnd:
        """The core's assumption about the end of the run: the last step of a history with `--once` finds the pipeline
        at rest."""
        return _RESTS[self.history.final] if number == len(self.history.steps) - 1 else RunEnd.NONE


def case(seed: int, *, causal: bool, steps_most: int, compacts: bool = False, allowed: Allowed = EVERYTHING) -> Case:
    """The case that ``seed`` generates: a random world, read in at most ``steps_most`` steps (and one more if it ends
    with `--once`)."""
    rng = Random(seed)
    history = causal_correct_history(rng, allowed) if causal else faulty_history(rng, allowed)
    if compacts:
        history = compacted(history, rng)
    if not causal:
        history = odder(history, rng)
        if seed % 8 == 0:
            history = with_a_clock_ahead(history)
    return Case(seed, causal, stretched(coarser(history, rng, steps_most)))


def odder(history: History, rng: Random) -> History:
    """Remove all ids from some results. They still are observations of their cell."""

    def odd(record: Record) -> Record:
        return replace(record, ids=()) if isinstance(record, ResultRecord) and rng.random() < 0.03 else record

    steps = tuple(replace(step, records=tuple(map(odd, step.records))) for step in history.steps)
    return replace(history, steps=steps)


def with_a_clock_ahead(history: History) -> History:
    """The first visible event of each partition whose start is hidden is further ahead than `max_ahead`."""
    clock = clocks.Clock(history.timing, history.steps)
    hidden = [place for place in clock.places("input") if clock.hides_start(place)]
    events = [event for _, event in clock.events()]
    first = {
        (*place, min((event.offset for event in events if (event.topic, event.partition) == place), default=None))
        for place in hidden
    }

    def moved(record: Record) -> Record:
        if not isinstance(record, InputEvent) or (record.topic, record.partition, record.offset) not in first:
            return record
        return replace(record, event_time_us=record.event_time_us + 5 * history.timing.max_ahead_us)

    steps = tuple(replace(step, records=tuple(map(moved, step.records))) for step in history.steps)
    return replace(history, steps=steps)


def coarser(history: History, rng: Random, steps_most: int) -> History:
    """The same reading in fewer batches: neighbours are merged and have the second one's lookup."""
    steps = list(history.steps)
    while len(steps) > steps_most:
        # An expired range is found at the start of a batch, so such a batch is not merged with the one before it.
        # A run ends after its last batch.
        whole = [at for at in range(len(steps) - 1) if not expires(steps[at + 1]) and steps[at].ending == "none"]
        if not whole:
            break
        at = rng.choice(whole)
        steps[at : at + 2] = [_joined(steps[at], steps[at + 1])]
    return replace(history, steps=tuple(steps))


def expires(step: Step) -> bool:
    """Whether part of a step's range had expired before it was read."""
    return any(state.log_start > state.start_offset for state in step.partitions)


def _joined(first: Step, second: Step) -> Step:
    before = {state.place: state for state in first.partitions}
    states = tuple(
        replace(state, start_offset=before[state.place].start_offset, log_start=before[state.place].log_start)
        for state in second.partitions
    )
    return replace(second, records=first.records + second.records, partitions=states)


def stretched(history: History, scale: int = SCALE, base_us: int = BASE_US) -> History:
    """The same history with distinct lookup instants. Before an ending it adds a tick: the batch that ends the run."""
    timing = history.timing
    scaled = type(timing)(
        **{
            name: value * scale if isinstance(value, int) else value
            for name in [field.name for field in fields(timing)]
            for value in [getattr(timing, name)]
        }
    )
    steps: list[Step] = []
    for step in history.steps:
        at = base_us + scale * step.lookup_us
        if steps:
            # If records have expired, a generation opens one instant earlier.
            at = max(at, steps[-1].lookup_us + 1 + expires(step))
        moved = tuple(_moved(record, scale, base_us) for record in step.records)
        steps.append(replace(step, lookup_us=at, records=moved))
    if history.final != "none":
        steps.append(_tick(steps[-1], 1))
    return History(scaled, tuple(steps), history.final)


def in_runs(history: History, scale: int) -> History:
    """A stretched history with times ``scale`` times as long. Where a run ends, the batch that ends it is a step."""
    steps: list[Step] = []
    for step in stretched(replace(history, final="none"), scale, 0).steps:
        steps.append(replace(step, ending="none"))
        if step.ending != "none":
            # A run whose engine has a consumer group ends with two batches.
            steps.append(replace(_tick(step, 1 + (step.committed is not None)), ending=step.ending))
    return replace(history, timing=stretched(history, scale, 0).timing, steps=tuple(steps))


def _tick(last: Step, after_us: int) -> Step:
    """A batch without records."""
    states = tuple(replace(state, start_offset=state.next_offset) for state in last.partitions)
    return Step(last.lookup_us + after_us, (), states, last.committed)


def _moved(record: Record, scale: int, base_us: int) -> Record:
    moved = replace(record, broker_time_us=base_us + scale * record.broker_time_us)
    match moved:
        case InputEvent() | LateRecord() | TableRow():
            return replace(moved, event_time_us=base_us + scale * moved.event_time_us)
        case ResultRecord():
            return replace(moved, window_start_us=base_us + scale * moved.window_start_us)
        case _:
            return moved


# The sidecar's state of time


@dataclass(frozen=True)
class Instant:
    """What the sidecar knows after one step: progress, time, and the possible explanations of violations."""

    progress: IngestProgress
    clock: Clock
    suspicion: Suspicion

    def suspected(self, rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
        """The suspected classes, from the totals over the judged cells."""
        on_record = {name: sum(row[f"recorded_next_{name}"] for row in rows) for name in VIOLATIONS}
        in_excess = sum(any(row[f"recorded_next_{name}"] for name in EXCESS) for row in rows)
        missing = sum(row["recorded_next_missing"] > 0 for row in rows)
        incorrect = sum(
            max(row["incorrect_ids"], 1) for row in rows if any(row[f"recorded_next_{name}"] for name in INCORRECT)
        )
        return self.suspicion.suspected(
            self.progress,
            CellTotals({}, {}, on_record, cells_in_excess=in_excess, cells_missing=missing, incorrect_ids=incorrect),
        )


# The reference's opinion


@dataclass(frozen=True)
class Opinion:
    """The reference's judgement after one step, cell by cell."""

    watermark_us: int | None
    cells: dict[Cell, tuple[Counter[str], Counter[str]]]
    """Cell -> contributions by class (`expected` included), and results by class."""
    copies: dict[Cell, int]
    """Cell -> events, repeated ones each counted."""
    unconsumed_overdue: dict[Cell, int]
    """Cell -> contributions that would be missing if the engine had consumed their events."""
    held: frozenset[str]
    confirmed: frozenset[str]
    """Classes of contributions with at least one confirmed violation."""


class Referee(Reference):
    """The reference with two rules of SEMANTICS that it leaves out.

    3.14: if *every* answer partition is held by an open transaction, the lookup instant replaces the read-through
    time. Otherwise a cell would be blocked the moment it closes, before it is due on any clock.

    3.28: with an open transaction among the inputs, excess *stays* unresolved at an ending. The exception is excess
    that was resolved earlier, when every input was read through.
    """

    def is_resolved(self, cell: Cell) -> bool:
        """As in the reference; also true if the read-through of every input resolved the cell before the ending."""
        inputs = self.clock.places("input")
        proven = bool(inputs) and self.clock.proven(self.last_observed_us.get(cell, 0), inputs)
        return proven or super().is_resolved(cell)

    def standing(self, cell: Cell) -> str:
        """As in the reference, except for cells that are not due yet while all answer partitions are held."""
        found = super().standing(cell)
        base, places = self.clock.due_base(cell), self.clock.places(*ANSWERS)
        if found != "blocked" or base is None or self.ending == "once" or self.clock.is_left_due(cell):
            return found
        if self.ending == "leave_open" or set(self.clock.held(*ANSWERS)) != set(places):
            return found
        return "blocked" if self.clock.now.lookup_us >= base + self.timing.overdue_after_us else "pending"


def concluded(case: Case, history: History, number: int) -> tuple[History, Ending]:
    """A history in which a step has an ending only if it decides cells, and the ending with which it is judged."""
    step = history.steps[number]
    if step.ending == "none":
        return history, history.final if number == len(history.steps) - 1 else "none"
    steps = list(history.steps)
    steps[number] = replace(step, ending="none")
    undecided = replace(history, steps=tuple(steps))
    if any(state.next_offset < state.high_watermark for state in step.partitions):
        return undecided, "open"
    if step.committed is not None and case.referee(undecided, number, "open").judge().totals["unconsumed"]:
        return undecided, "open"
    return history, step.ending


def opinions(case: Case) -> list[Opinion]:
    """The reference's judgement after each step; the last step applies the history's ending."""
    history = case.history
    found: list[Opinion] = []
    for number in range(len(history.steps)):
        history, ending = concluded(case, history, number)
        reference = case.referee(history, number, ending)
        judgement = reference.judge()
        cells: dict[Cell, tuple[Counter[str], Counter[str]]] = {}
        copies = {
            cell: sum(len(reference.copies.get((cell, id_), ())) for id_ in ids)
            for cell, ids in judgement.contributions.items()
        }
        for cell, ids in judgement.contributions.items():
            counts: Counter[str] = sum(ids.values(), Counter())
            if reference.clock.in_scope(cell):
                counts["expected"] = sum(reference.expected(cell, id_) for id_ in ids)
            cells[cell] = (+counts, Counter(reference.result_classes(cell)))
        confirmed = frozenset(found.kind for found in judgement.confirmed) - {"undecodable"}
        owed = {cell: reference.unconsumed_overdue(cell, classes) for cell, (classes, _) in cells.items()}
        found.append(Opinion(judgement.input_watermark_us, cells, copies, owed, judgement.held, confirmed))
    return found


def all_opinions(cases: Sequence[Case]) -> list[list[Opinion]]:
    """`opinions` of many cases, to run in another process."""
    return [opinions(case) for case in cases]

"""Evidence `values` of windows that are updated (emission `cumulative`), or that overlap, by brute force.

The worlds are those of tumbling and sliding windows, with many updates. Each result repeats the events of those before
it in its window; some results of windows that have further ones are null values, which withdraw. The reference judges
the newest result of each window by the amounts of the events of that window (`tests.property.valued`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import count
from random import Random
from typing import Final
from zlib import crc32

from tests.property.collapsed import OF_DIFFERENT, CollapsedReferee, in_numbers, name_of
from tests.property.counted import ANOTHER
from tests.property.engine import Answer, Engine, Habits
from tests.property.history import (
    SIDE_CHANNELS,
    Cell,
    Ending,
    History,
    InputEvent,
    Record,
    ResultRecord,
    nameless,
)
from tests.property.history_facts import _id as numbered
from tests.property.logs import Log
from tests.property.replacing import RESTORES, ReplacingReferee, in_topics, running
from tests.property.sliding import SlidingReferee, SlidingTiming, SlidingWorld, sliding_case
from tests.property.spark_histories import Case, Referee, case, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed, World
from tests.property.valued import (
    WINDOWED,
    Place,
    UncountedReferee,
    ValuedCase,
    ValuedReferee,
    each_claiming,
    valued,
)
from validator.oracles.seam import Oracle
from validator.oracles.sliding_window import SlidingWindow

WITHDRAWALS: Final = 0.3
"""Share of the results that are null values, of those after which another one follows in time."""


class UpdatingWorld(World):
    """One random world whose windows are often updated, in most of them by results on one partition."""

    is_keyed = True

    def _engine(self, habits: Habits) -> Engine:
        self.is_keyed = self.rng.random() < 0.9
        return super()._engine(replace(habits, fires_early=self.rng.choice((0.3, 0.7)), splits=0.5))

    def _log_of(self, answer: Answer) -> Log:
        logs = [log for log in self.answers if log.role == answer.role]
        return logs[crc32(repr(answer.cell).encode()) % len(logs)] if self.is_keyed else super()._log_of(answer)


class UpdatingSlidingWorld(UpdatingWorld, SlidingWorld):
    """The same, with overlapping windows."""


def updating_case(seed: int, *, causal: bool, steps_most: int, slides: bool, allowed: Allowed) -> Case:
    """The case that ``seed`` generates, as `spark_histories.case`, before its results replace each other."""
    rng, world = Random(seed), UpdatingSlidingWorld if slides else UpdatingWorld
    history = world(rng, allowed, not causal).history()
    if not causal:
        history = odder(history, rng)
    return Case(seed, causal, stretched(coarser(history, rng, steps_most)))


class OneNameReferee(Referee):
    """The reference for events without ids: all of a key have one name, and none is known to be another window's."""

    def __init__(self, history: History, upto_step: int, ending: Ending) -> None:
        super().__init__(history, upto_step, ending)
        self.all_ids = set()


class UpdatedCollapsedReferee(CollapsedReferee, ReplacingReferee):
    """The reference of different events, with the newest result of each window."""

    def __init__(self, history: History, upto_step: int, ending: Ending) -> None:
        super().__init__(history, upto_step, ending)
        for cell, results in self.results.items():
            # A history that is stretched moves its cells.
            name = name_of(cell)
            self.results[cell] = [replace(result, ids=(name,) * len(result.ids)) for result in results]
            self.observed[cell, name]["output"] = sum(len(result.ids) for result in results)


@dataclass(frozen=True)
class UpdatedCase(ValuedCase):
    """A history whose results state aggregates. ``updates``: the newest result of a window counts. ``several``: they
    are in several topics. ``collapses``: the pipeline drops repeats."""

    updates: bool = True
    several: bool = False
    collapses: bool = False

    @cached_property
    def oracle(self) -> Oracle:
        """The oracle with the aggregates."""
        known, timing = super().oracle, self.history.timing
        if isinstance(timing, SlidingTiming):
            given = {"values": dict(self.aggregates)}
            slides = SlidingWindow.of(timing.window_us, timing.window_offset_us, slide=timing.slide_us)
            known = slides.model_copy(update=given).reading(known.reads)
        reads = known.reads._replace(replaces=self.updates, several_outputs=self.several)
        if self.collapses:
            reads = reads._replace(collapses=True, has_ids=True)
        return known.reading(reads)

    @property
    def referee(self) -> type[Referee]:
        """A reference that knows the amounts."""
        bases: list[type[Referee]] = [OneNameReferee]
        bases += [ValuedReferee if self.oracle.stated.count_name else UncountedReferee]
        bases += [SlidingReferee] if isinstance(self.history.timing, SlidingTiming) else []
        bases += [ReplacingReferee] if self.updates else []
        if self.collapses:
            bases = [UpdatedCollapsedReferee]
        given = {"amounts": dict(self.values), "aggregates": dict(self.aggregates)}
        return type("OfUpdates", tuple(bases), given)

    @property
    def copies_explain(self) -> bool:
        """With `collapse`, a hidden event may have a new id."""
        return self.collapses or super().copies_explain

    def id_of(self, record: Record) -> int | str:  # type: ignore[override]
        """The id of an event, if repeats are dropped."""
        if not self.collapses:
            return super().id_of(record)
        return numbered(0, record.id) if isinstance(record, InputEvent) else 0


def updated_case(
    seed: int,
    *,
    causal: bool,
    steps_most: int,
    aggregates: Mapping[str, str] = WINDOWED,
    slides: bool = False,
    updates: bool = True,
    allowed: Allowed = EVERYTHING,
) -> UpdatedCase:
    """The case that ``seed`` generates. ``slides``: windows overlap. ``updates``: the newest result of a window counts;
    in one case of four, the results are in two topics."""
    make: Callable[..., Case] = partial(updating_case, slides=slides)
    if not updates:
        make = sliding_case if slides else case
    for other in count(seed, ANOTHER):
        named = make(other, causal=causal, steps_most=steps_most, allowed=allowed)
        if named.history.timing.duplicates == "count":
            break
    return _updated(named, aggregates, updates=updates)


def updated_collapsed_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> UpdatedCase:
    """The case that ``seed`` generates, of a pipeline that drops repeats."""
    for other in count(seed, ANOTHER):
        named = updating_case(other, causal=causal, steps_most=steps_most, slides=False, allowed=allowed)
        roles = {state.role for step in named.history.steps for state in step.partitions}
        if named.history.timing.duplicates == "collapse" and roles.isdisjoint(SIDE_CHANNELS):
            break
    return _updated(named, OF_DIFFERENT, updates=True, collapses=True)


def _updated(named: Case, aggregates: Mapping[str, str], *, updates: bool, collapses: bool = False) -> UpdatedCase:
    rng, nulls, several = Random(named.seed), frozenset[Place](), updates and named.seed % 4 == 3
    if updates:
        history = running(named.history, rng, restores=0 if named.causal else RESTORES)
        history, nulls = withdrawing(history, rng, causal=named.causal)
        named = replace(named, history=in_topics(history) if several else history)
    if "count" not in aggregates.values():
        # Then a null value is not known to differ from a result whose values are null: it stands for all events, too.
        named = replace(named, history=each_claiming(named.history))
    anonymous = in_numbers(named.history) if collapses else nameless(named.history)
    made = valued(named, replace(named, history=anonymous), aggregates)
    values = tuple((place, (None,) * len(given) if _plain(place) in nulls else given) for place, given in made.values)
    found = UpdatedCase(named.seed, named.causal, made.history, made.aggregates, values)
    return replace(found, updates=updates, several=several, collapses=collapses)


def _plain(place: Place) -> Place:
    """The place before `in_topics`."""
    topic, partition, offset = place
    return ("to-output" if topic == "to-more" else topic), partition, offset


def withdrawing(history: History, rng: Random, *, causal: bool) -> tuple[History, frozenset[Place]]:
    """The same history, in which null values are in the place of some results, and where they are. A correct engine
    writes the next result of the window within `missing_after`; another one may write none."""
    of_cell: dict[tuple[Cell, str, int], list[ResultRecord]] = {}
    for step in history.steps:
        for record in sorted(step.records, key=lambda it: it.offset):
            if isinstance(record, ResultRecord):
                cell = (record.window_start_us, record.key)
                of_cell.setdefault((cell, record.topic, record.partition), []).append(record)
    nulls = set[Place]()
    for results in of_cell.values():
        for i, one in enumerate(results):
            after = results[i + 1].broker_time_us if i + 1 < len(results) else None
            is_in_time = after is not None and after <= one.broker_time_us + history.timing.missing_after_us
            if (is_in_time and rng.random() < WITHDRAWALS) or (not causal and rng.random() < 0.15):
                nulls.add((one.topic, one.partition, one.offset))

    def withdrawn(record: Record) -> Record:
        is_null = (record.topic, record.partition, record.offset) in nulls
        return replace(record, ids=()) if is_null and isinstance(record, ResultRecord) else record

    steps = tuple(replace(step, records=tuple(map(withdrawn, step.records))) for step in history.steps)
    return replace(history, steps=steps), frozenset(nulls)

"""Mutation tests of the sidecar: each possible error of an engine is made on purpose, and the sidecar's violations are
compared with the mutant's own record of its errors.

Each oracle has one load of the generator on one input topic. Each row has a mutant with its own output topics, and a
`validate --once` on them. Precision and recall must be 1, for the number of violations in each class and for every
cell and id. For tumbling windows, each mutation has a mutant of its own. Other oracles have one mutant without errors,
and one with an error of each class, each on separate ids.

Without ids, errors of a cell add up: of its record, the mutant's errors in each cell give the number and the sum that
its results state. With values beside ids, a result states the values of the events that it should have used: where the
ids that it lists have others, it is inconsistent.

`STREAMPROOF_WRITE=1 python -m pytest tests/e2e/test_mutations.py` rewrites docs/mutations.md.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from generator import config as generator_config
from generator import journal
from generator.run import generate
from generator.wire import timestamp_text
from testbed.engines import truth
from testbed.engines.base import MutantEngine
from testbed.engines.mutations import OF_A_RESULT, AppliedMutation, Mutation
from testbed.engines.settings import EngineSettings
from tests.integration.sidecar_fixtures import Pipeline, Run
from tests.tiers import full
from validator.reconcile.evidence.seam import IDS_KEPT
from validator.state.tables import StateTables, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from testbed.broker import EmbeddedBroker

pytestmark = pytest.mark.timeout(600)

PAGE: Final = Path(__file__).parents[2] / "docs" / "mutations.md"
CLASSES: Final = ("missing", "duplicate", "misplaced", "unknown_id")
CLASSES_OF_VALUES: Final = ("missing", "duplicate", "wrong_value")
CLASSES_BESIDE_IDS: Final = (*CLASSES, "inconsistent")
SHARES: Final = {True: 0.15, False: 0.05}
"""Share of results, and of ids, that a mutation affects."""
Names = tuple[str, ...]
"""Values that results state: some of `STATED`."""
NO_VALUES: Final[Names] = ()
"""Results list ids."""
Deeds = tuple[Mutation, ...]
"""The mutations of one mutant, each on different ids or results."""
HONEST: Final[Deeds] = ()
AT_A_TIME: Final = 3
"""Number of concurrent sidecars. More would only wait for processors."""

GUARANTEES: Final = ("at most once", "at least once", "exactly once")
PASS, FAIL, UNKNOWN = "pass", "fail", "unknown"
VERDICTS: Final[Mapping[Mutation, tuple[str, str, str]]] = {
    # SEMANTICS section 4: at most once, at least once, exactly once.
    Mutation.DROP: (PASS, FAIL, FAIL),
    Mutation.DROP_CELL: (PASS, FAIL, FAIL),
    Mutation.ABORT: (PASS, FAIL, FAIL),
    Mutation.DUPLICATE: (FAIL, PASS, FAIL),
    Mutation.DUPLICATE_RESULT: (FAIL, PASS, FAIL),
    Mutation.ALTER: (FAIL, FAIL, FAIL),
    Mutation.MISPLACE: (FAIL, FAIL, FAIL),
    Mutation.MISPLACE_COPY: (FAIL, FAIL, FAIL),
    Mutation.INVENT: (FAIL, FAIL, FAIL),
    Mutation.LATE_ROUTE: (PASS, PASS, PASS),
    Mutation.DELAY: (PASS, PASS, PASS),
    Mutation.DELAY_BEYOND: (PASS, PASS, PASS),
    Mutation.ABORT_RETRY: (PASS, PASS, PASS),
    Mutation.WITHDRAW: (PASS, FAIL, FAIL),
    Mutation.SWAP: (FAIL, FAIL, FAIL),
}
BROKEN_BY: Final[Mapping[str, tuple[str, str, str]]] = {
    # SEMANTICS 4.1, for results that state the number of their events.
    "missing": (PASS, FAIL, FAIL),
    "duplicate": (FAIL, PASS, FAIL),
    "unknown_id": (FAIL, FAIL, FAIL),
    "wrong_value": (FAIL, FAIL, FAIL),
    "inconsistent": (FAIL, FAIL, FAIL),
}
WITHOUT_COUNT: Final = (UNKNOWN, UNKNOWN, FAIL)
"""Of `wrong_value`, if results do not state that number: it may be a loss or a repeat."""
Cell = tuple[int | None, str]
"""Start in milliseconds (None without windows), key."""
Place = tuple[str, Cell]
"""Violation class, cell."""
ONE_OF_EACH_CLASS: Final[Deeds] = (Mutation.DROP, Mutation.DUPLICATE, Mutation.MISPLACE, Mutation.INVENT)


@dataclass(frozen=True)
class Trial:
    """An oracle with its load and its mutants: a section of the page."""

    title: str
    text: str
    """The page's description of the pipeline and its load, in one line or several."""
    oracle: str
    """In `--set` syntax."""
    load: Mapping[str, object]
    engine: Mapping[str, Any]
    rows: tuple[Deeds, ...] = (HONEST, ONE_OF_EACH_CLASS)
    sidecar: tuple[str, ...] = ("outputs.0.fields.window_end=windowEnd",)
    partitions: int = 2
    cells_of_an_event: int = 1
    is_accepted: Callable[[str], bool] = lambda page: True
    """Return whether events of a page need a result."""
    cell_of: Callable[[AppliedMutation, Sequence[int]], Cell] = lambda deed, times_ms: (
        deed.window_start_ms,
        deed.key[0],
    )
    """Return the affected cell, from the event times of its key."""
    owes_repeats: bool = True
    """Whether an event that the producer sent twice needs two contributions."""
    values: tuple[Names, ...] = (NO_VALUES,)
    """The aggregates that results state in place of ids: a column of the page for each group of them."""
    share_of_ids: float = SHARES[False]
    repeats: bool = False
    """Whether results have no window, and repeat fields of their events."""
    of_keys: bool = False
    """Whether a cell is a key, of which the newest result counts."""
    beside_ids: bool = False
    """Whether results list ids beside their values."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that its rows count."""
        if self.beside_ids:
            return CLASSES_BESIDE_IDS
        return CLASSES if NO_VALUES in self.values else CLASSES_OF_VALUES

    def oracle_with(self, values: Names) -> str:
        """Return the oracle of results that state these aggregates."""
        stated = ", ".join(f"{name}: {STATED[name].text}" for name in values)
        return f"{self.oracle[:-1]}, values: {{{stated}}}}}" if values else self.oracle


GAP_MS: Final = 1_500


def session_of(deed: AppliedMutation, times_ms: Sequence[int]) -> Cell:
    """Return the cell of the session that contains the start in the result."""
    return start_of_session(deed.window_start_ms, times_ms), deed.key[0]


def start_of_session(named_ms: int, times_ms: Sequence[int]) -> int:
    """Return the sidecar's name for a session: its first event's time, rounded down to whole gaps."""
    ordered = sorted(times_ms)
    first = ordered[0]
    for before, after in pairwise(ordered):
        if after > named_ms:
            break
        first = after if after - before > GAP_MS else first
    return first // GAP_MS * GAP_MS


def bucket_of(deed: AppliedMutation, times_ms: Sequence[int]) -> Cell:
    """Return the bucket that contains the time of a result without a window."""
    del times_ms
    return deed.window_start_ms // 10_000 * 10_000, deed.key[0]


def whole_key(deed: AppliedMutation, times_ms: Sequence[int]) -> Cell:
    """Return the cell of an oracle whose results stand for all events of a key."""
    del times_ms
    return None, deed.key[0]


def id_of_key(deed: AppliedMutation, times_ms: Sequence[int]) -> Cell:
    """Return the cell of an oracle without windows: an id of a key."""
    del times_ms
    return None, json.dumps([deed.key[0], str(deed.id)], separators=(",", ":"))


def id_of_kafka_key(deed: AppliedMutation, times_ms: Sequence[int]) -> Cell:
    """Return the cell as `id_of_key` does. The key comes from the record's key, so its value is JSON text."""
    return id_of_key(replace(deed, key=(json.dumps(deed.key[0]),)), times_ms)


EVENT: Final = "{key: page, id: id, event_time: timestamp}"
LET_THROUGH: Final = ("/help", "/shop", "/about")
WITHOUT_WINDOWS: Final[Mapping[str, Any]] = {
    "events_per_window": 50,
    "disorder": {"share": 0.1, "within": "1s"},
    "limit": {"events": 600},
}
Ids = Collection[int]


@dataclass(frozen=True)
class Aggregate:
    """A value of results without ids. ``of``: the value for the ids of a result, None if it has none. ``text``: as in
    `oracle.values`."""

    text: str
    of: Callable[[Ids], Fraction | int | list[int] | None]


STATED: Final = {
    "clicks": Aggregate("count", len),
    "total": Aggregate("sum(id)", sum),
    "least": Aggregate("min(id)", lambda ids: min(ids, default=None)),
    "most": Aggregate("max(id)", lambda ids: max(ids, default=None)),
    "id": Aggregate("same(id)", sorted),
    "mean": Aggregate("avg(id)", lambda ids: Fraction(sum(ids), len(ids)) if ids else None),
}
"""Field of a result without ids -> what it states."""
WINDOW_MS: Final = 10_000


def differs(given: Fraction | int | list[int] | None, owed: Fraction | int | list[int] | None) -> bool:
    """Return whether a stated value is wrong: a fraction, if it is off by more than its last decimal digit."""
    if not isinstance(given, Fraction) or not isinstance(owed, Fraction):
        return given != owed
    shown = Decimal(repr(float(given))).normalize().as_tuple().exponent
    assert isinstance(shown, int)
    return abs(given - owed) > Fraction(10) ** min(shown, 0)


TRIALS: Final = {
    "tumbling": Trial(
        title="Tumbling windows",
        text="Windows of 10 s. Some events are late, and some are sent twice.",
        oracle="{kind: tumbling_window, size: 10s}",
        load={
            "events_per_window": 50,
            "lateness": {"share": 0.01, "beyond": "10s"},
            "duplicates": {"share": 0.02},
            "limit": {"events": 3000},
        },
        engine={"window_ms": 10_000},
        rows=tuple((mutation,) for mutation in Mutation if mutation not in (Mutation.WITHDRAW, Mutation.SWAP)),
    ),
    "values": Trial(
        title="Tumbling windows without ids",
        text="Results state the values of a column. Found are missing / duplicate / wrong value. Without a count, an\n"
        "error is a wrong value if it changes one: exactly once fails, the others are unknown. An average is right\n"
        "to the digits that it shows.",
        oracle="{kind: tumbling_window, size: 10s}",
        load={"events_per_window": 10, "duplicates": {"share": 0.02}, "limit": {"events": 2000}},
        engine={"window_ms": WINDOW_MS},
        rows=(HONEST, *((one,) for one in (Mutation.ALTER, *ONE_OF_EACH_CLASS[:2], Mutation.SWAP)), ONE_OF_EACH_CLASS),
        sidecar=("inputs.0.fields={key: page, event_time: timestamp}", "late=[]"),
        values=(("clicks",), ("clicks", "total"), ("total",), ("least", "most"), ("mean",)),
        # Each changed id makes the values of its window wrong. While most windows are wrong, or a quarter has too many
        # events and as many too few, the configuration is in doubt (SEMANTICS 2.29, 4.28).
        share_of_ids=0.007,
    ),
    "values-beside-ids": Trial(
        title="Tumbling windows with values beside ids",
        text="Results list ids, some of them wrong, and state the values of the right ones. Found are missing /\n"
        "duplicate / misplaced / unknown id / inconsistent.",
        oracle="{kind: tumbling_window, size: 10s}",
        load={"events_per_window": 10, "duplicates": {"share": 0.02}, "limit": {"events": 2000}},
        engine={"window_ms": WINDOW_MS},
        rows=(HONEST, (Mutation.DROP,), (Mutation.SWAP,), ONE_OF_EACH_CLASS),
        sidecar=("late=[]",),
        values=(("clicks", "total"), ("least", "most")),
        share_of_ids=0.007,
        beside_ids=True,
    ),
    "sliding": Trial(
        title="Sliding windows",
        text="Windows of 10 s every 5 s, disorder, late events, second copies. An event that is late for one of its\n"
        "windows only is dropped from that window (`late_policy: drop`). A defect affects one of an id's two cells.",
        oracle="{kind: sliding_window, size: 10s, slide: 5s}",
        load={
            "events_per_window": 50,
            "disorder": {"share": 0.1, "within": "1s"},
            "lateness": {"share": 0.03, "beyond": "7s"},
            "duplicates": {"share": 0.02},
            "limit": {"events": 800},
        },
        engine={"operator": "sliding", "window_ms": 10_000, "slide_ms": 5_000, "max_disorder_ms": 1_000},
        sidecar=("outputs.0.fields.window_end=windowEnd", "timing.max_disorder=1s", "timing.late_policy=drop"),
        # The sidecar measures lateness per partition of the input. With one partition, the same events are late
        # for the engine, which drops them.
        partitions=1,
        cells_of_an_event=2,
    ),
    "session": Trial(
        title="Sessions",
        text="A gap of 1.5 s, and clicks that are 1 s apart: a delayed click merges two sessions. If the first has\n"
        "been answered by then, the merged one has several results. Also late events and second copies.",
        oracle="{kind: session_window, gap: 1500ms}",
        load={
            "events_per_window": 10,
            "sessions": {"events": 6, "gap": "1500ms"},
            "disorder": {"share": 0.15, "within": "3s"},
            "lateness": {"share": 0.05, "beyond": "2s"},
            "duplicates": {"share": 0.02},
            "limit": {"events": 800},
        },
        engine={"operator": "session", "gap_ms": GAP_MS, "max_disorder_ms": 3_000},
        sidecar=("outputs.0.fields.window_end=windowEnd", "timing.max_disorder=3s"),
        # With two partitions, the engine's read order would decide which sessions have several results.
        partitions=1,
        cell_of=session_of,
    ),
    "passthrough": Trial(
        title="Passthrough",
        text="One result per event, with disorder. A misplaced result has another event time.",
        oracle="{kind: passthrough, bucket: 10s}",
        load={"events_per_window": 50, "disorder": {"share": 0.1, "within": "1s"}, "limit": {"events": 600}},
        engine={"operator": "passthrough", "window_ms": 10_000},
        sidecar=("outputs.0.evidence=id", f"outputs.0.fields={EVENT}", "timing.max_disorder=1s"),
        cell_of=bucket_of,
    ),
    "passthrough-values": Trial(
        title="Passthrough without ids",
        text="Results repeat the field `id`, which names no event here. Found are missing / duplicate / wrong value.",
        oracle="{kind: passthrough, bucket: 10s}",
        load={"events_per_window": 10, "duplicates": {"share": 0.02}, "limit": {"events": 2000}},
        engine={"operator": "passthrough", "window_ms": WINDOW_MS},
        rows=(HONEST, *((one,) for one in (Mutation.ALTER, *ONE_OF_EACH_CLASS[:2])), ONE_OF_EACH_CLASS),
        sidecar=("inputs.0.fields={key: page, event_time: timestamp}", "late=[]"),
        cell_of=bucket_of,
        values=(("id",),),
        share_of_ids=0.007,
        repeats=True,
    ),
    "filter": Trial(
        title="Filter",
        text="As passthrough; the filter passes three of five pages.",
        oracle=f"{{kind: filter, bucket: 10s, where: {{path: page, one_of: [{', '.join(LET_THROUGH)}]}}}}",
        load={"events_per_window": 50, "disorder": {"share": 0.1, "within": "1s"}, "limit": {"events": 600}},
        engine={
            "operator": "passthrough",
            "window_ms": 10_000,
            "where": {"field": "page", "one_of": LET_THROUGH},
        },
        sidecar=("outputs.0.evidence=id", f"outputs.0.fields={EVENT}", "timing.max_disorder=1s"),
        cell_of=bucket_of,
        is_accepted=lambda page: page in LET_THROUGH,
    ),
    "distinct": Trial(
        title="Distinct",
        text="Windows of 10 s in which each id passes once. A quarter of the events is sent twice.",
        oracle="{kind: distinct, size: 10s}",
        load={"events_per_window": 50, "duplicates": {"share": 0.25}, "limit": {"events": 600}},
        engine={"operator": "distinct", "window_ms": 10_000},
        owes_repeats=False,
    ),
    "running": Trial(
        title="Running aggregate, incremental",
        text="Results per key with the new ids (`emission: incremental`), disorder, second copies.",
        oracle="{kind: running_aggregate}",
        load=WITHOUT_WINDOWS | {"duplicates": {"share": 0.02}},
        engine={"operator": "running_aggregate", "emission": "incremental", "max_disorder_ms": 1_000},
        sidecar=(
            "outputs.0.emission=incremental",
            "outputs.0.fields={key: page, ids: clickIds}",
            "timing.max_disorder=1s",
        ),
        cell_of=id_of_key,
    ),
    "running-cumulative": Trial(
        title="Running aggregate, cumulative",
        text="Results per key with all ids so far (`emission: cumulative`). A null value withdraws each result before\n"
        "the next one. Disorder, second copies.",
        oracle="{kind: running_aggregate}",
        load=WITHOUT_WINDOWS | {"keys": {"pages": 20}, "events_per_window": 20, "duplicates": {"share": 0.02}},
        engine={"operator": "running_aggregate", "emission": "cumulative", "max_disorder_ms": 1_000},
        sidecar=(
            "inputs.0.fields.key=$key",
            "outputs.0.emission=cumulative",
            "outputs.0.fields={key: $key, ids: clickIds}",
            "timing.max_disorder=1s",
        ),
        rows=(HONEST, (*ONE_OF_EACH_CLASS, Mutation.WITHDRAW)),
        cell_of=id_of_kafka_key,
    ),
    "running-values": Trial(
        title="Running aggregate without ids",
        text="The newest result of a key has the values of its events. Found are missing / duplicate / wrong value.",
        oracle="{kind: running_aggregate}",
        load={
            "keys": {"pages": 100},
            "events_per_window": 100,
            "duplicates": {"share": 0.02},
            "limit": {"events": 1000},
        },
        engine={"operator": "running_aggregate", "emission": "cumulative"},
        rows=(HONEST, (Mutation.ALTER,), (Mutation.SWAP,), ONE_OF_EACH_CLASS),
        sidecar=("inputs.0.fields={key: page, event_time: timestamp}", "late=[]"),
        cell_of=whole_key,
        values=(("clicks", "total"), ("total",), ("least", "most"), ("mean",)),
        share_of_ids=0.007,
        of_keys=True,
    ),
    "running-id": Trial(
        title="Running aggregate, one result per event",
        text="One result per event, with its id (`evidence: id`) and without a time.",
        oracle="{kind: running_aggregate}",
        load=WITHOUT_WINDOWS,
        engine={"operator": "passthrough"},
        sidecar=("outputs.0.evidence=id", "outputs.0.fields={key: page, id: id}", "timing.max_disorder=1s"),
        # Without `MISPLACE`: the passthrough engine moves a result to another time, but these cells have no time.
        rows=(HONEST, (Mutation.DROP, Mutation.DUPLICATE, Mutation.INVENT)),
        cell_of=id_of_key,
    ),
}
Row = tuple[Deeds, Names]
"""The mutations of the mutant, and the values that its results state."""
CASES: Final = [
    (name, (deeds, values)) for name, trial in TRIALS.items() for deeds in trial.rows for values in trial.values
]
FIRST_TIER: Final = "tumbling"
"""The trial that the first tier runs; it has a mutant for each mutation."""


def name_of(deeds: Deeds, values: Names = NO_VALUES) -> str:
    """Return the name of a mutant, or of a judgement on it."""
    return "-".join((*(deeds or ("honest",)), *values))


def combined(verdicts: Iterable[tuple[str, str, str]]) -> tuple[str, ...]:
    """Return the verdicts on all: the worst one on each guarantee."""
    found = (next((worst for worst in (FAIL, UNKNOWN) if worst in one), PASS) for one in zip(*verdicts, strict=True))
    return tuple(found) or (PASS, PASS, PASS)


@dataclass(frozen=True)
class Load:
    """An input topic that all mutants of a trial read; ``sends`` is its number of records, duplicates included."""

    topic: str
    sends: int
    times_ms: Mapping[str, Sequence[int]]
    """Event times by key."""
    events: int
    """Without duplicates."""
    ids: Mapping[Cell, Ids]
    """The ids of each tumbling window of `WINDOW_MS`."""

    @property
    def ids_by_text(self) -> Mapping[tuple[str, str], Ids]:
        """The ids of each window, by its start as results write it, and the key."""
        return {
            (timestamp_text(start).decode(), page): ids for (start, page), ids in self.ids.items() if start is not None
        }

    @property
    def ids_of_keys(self) -> Mapping[Cell, Ids]:
        """The ids of each key."""
        found = defaultdict[Cell, list[int]](list)
        for (_, page), ids in self.ids.items():
            found[None, page] += ids
        return found

    def owed(self, trial: Trial) -> int:
        """Return the number of contributions that the engine owes."""
        if not trial.owes_repeats:
            return self.events
        answered = sum(len(times) for page, times in self.times_ms.items() if trial.is_accepted(page))
        return answered * trial.cells_of_an_event


@dataclass(frozen=True)
class Judged:
    """A mutant, its applied mutations, and the sidecar's violations."""

    trial: Trial
    mutations: Deeds
    values: Names
    load: Load
    deeds: tuple[AppliedMutation, ...]
    set_aside: int
    """Number of records on the late topic."""
    run: Run
    found: dict[Place, tuple[int, tuple[str, ...]]]
    """Place -> number of contributions, and the ids kept as evidence."""

    @property
    def due(self) -> dict[Place, Counter[str]]:
        """Return the violations that the mutant's record requires: place -> ids and how often."""
        if self.trial.beside_ids:
            return self._due_by_id() | self._due_beside_ids()
        return self._due_in_values() if self.values else self._due_by_id()

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The expected verdicts."""
        if self.trial.beside_ids:
            found = (BROKEN_BY[name] for name, _ in self._due_beside_ids())
            return combined((*found, *(VERDICTS[mutation] for mutation in self.mutations)))
        if self.values:
            broken_by = (
                BROKEN_BY
                if self.trial.repeats or "clicks" in self.values
                else {**BROKEN_BY, "wrong_value": WITHOUT_COUNT}
            )
            return combined(broken_by[name] for name, _ in self.due)
        return combined(VERDICTS[mutation] for mutation in self.mutations)

    @property
    def _owed(self) -> Mapping[Cell, Ids]:
        return self.load.ids_of_keys if self.trial.of_keys else self.load.ids

    def _used(self) -> dict[Cell, list[int]]:
        """The ids that the result of each cell used."""
        used = {cell: Counter(ids) for cell, ids in self._owed.items()}
        for deed in self.deeds:
            copies = -deed.count if deed.violation_class == "missing" else deed.count
            used.setdefault(self.trial.cell_of(deed, ()), Counter())[int(deed.id)] += copies
        return {cell: list(by_id.elements()) for cell, by_id in used.items()}

    def _due_beside_ids(self) -> dict[Place, Counter[str]]:
        """The results whose ids are those of events of their window, and have other values than all of these."""
        return {
            ("inconsistent", cell): Counter({"": 1})
            for cell, listed in self._used().items()
            if listed
            and set(listed) <= set(self._owed.get(cell, ()))
            and any(differs(STATED[name].of(self._owed[cell]), STATED[name].of(listed)) for name in self.values)
        }

    def _due_in_values(self) -> dict[Place, Counter[str]]:
        """Without ids: what differs between the events of a cell and those that its result used."""
        places: dict[Place, Counter[str]] = {}
        for cell, given in self._used().items():
            owed = self._owed.get(cell, ())
            more = len(given) - len(owed)
            if more and (self.trial.repeats or "clicks" in self.values):
                name = "missing" if more < 0 else "duplicate" if owed else "unknown_id"
                places[name, cell] = Counter({"": abs(more)})
            elif any(differs(STATED[name].of(given), STATED[name].of(owed)) for name in self.values):
                # SEMANTICS 2.29: all results of the cell.
                places["wrong_value", cell] = Counter({"": len(given) if self.trial.repeats else 1})
        return places

    def _due_by_id(self) -> dict[Place, Counter[str]]:
        places: dict[Place, Counter[str]] = defaultdict(Counter)
        for deed in self.deeds:
            if deed.violation_class in CLASSES:
                [key] = deed.key
                cell = self.trial.cell_of(deed, self.load.times_ms[key])
                places[deed.violation_class, cell][str(deed.id)] += deed.count
        return dict(places)

    def due_by_class(self) -> dict[str, int]:
        """Return violation class -> number of contributions that the sidecar must report."""
        found: Counter[str] = Counter()
        for (name, _), ids in self.due.items():
            found[name] += ids.total()
        return {name: found[name] for name in self.trial.classes}


@dataclass
class Laboratory:
    """Runs all mutants of a trial, then their sidecars, when the first case of the trial is requested."""

    broker: EmbeddedBroker
    spark: SparkSession
    folder: Path
    _judged: dict[str, Future[dict[Row, Judged]]] = field(default_factory=dict)

    def judged(self, name: str) -> dict[Row, Judged]:
        """Return all cases of a trial. If the trial's run failed, every call raises that error."""
        if name not in self._judged:
            future = self._judged[name] = Future()
            try:
                future.set_result(self._run(name, TRIALS[name]))
            except Exception as error:  # noqa: BLE001 - raised for each case of the trial
                future.set_exception(error)
        return self._judged[name].result()

    def _run(self, name: str, trial: Trial) -> dict[Row, Judged]:
        load = self._load(name, trial)
        rows = [(deeds, values) for deeds in trial.rows for values in trial.values]
        pipelines = {deeds: self._pipeline(name, deeds) for deeds in trial.rows}
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            list(pool.map(lambda deeds: _break(trial, deeds, pipelines[deeds], load.topic), pipelines))
            if NO_VALUES not in trial.values and not trial.repeats:
                right = load.ids_by_text if trial.beside_ids else None
                list(pool.map(lambda pipeline: _state_values(self.broker, pipeline, right), pipelines.values()))
            runs = list(pool.map(lambda row: _judge(trial, row, pipelines[row[0]], load), rows))
        return {
            (deeds, values): Judged(
                trial,
                deeds,
                values,
                load,
                tuple(truth.read(pipelines[deeds].folder / "truth")),
                len(_visible_values(self.broker, pipelines[deeds].late)),
                run,
                found_in(StateTables(pipelines[deeds].state(name_of(deeds, values)))),
            )
            for (deeds, values), run in zip(rows, runs, strict=True)
        }

    def _load(self, name: str, trial: Trial) -> Load:
        topic = f"mutations-{name}-in"
        self.broker.create_topics({topic: trial.partitions})
        summary = generate(
            generator_config.parse(
                {
                    "kafka": {"bootstrap_servers": self.broker.bootstrap_servers},
                    "topic": topic,
                    "keys": {"pages": 5},
                    "window": "10s",
                    "delivery": {"linger": "5ms"},
                    "seed": 7,
                    "journal": str(self.folder / name / "journal"),
                    **trial.load,
                }
            )
        )
        times_ms, ids = defaultdict[str, list[int]](list), defaultdict[Cell, list[int]](list)
        for send in journal.read(self.folder / name / "journal"):
            times_ms[send.key[0]].append(send.time_ms)
            ids[send.time_ms // WINDOW_MS * WINDOW_MS, send.key[0]].append(int(send.id))
        assert summary.acknowledged == summary.sends == sum(map(len, times_ms.values())) >= summary.events > 0
        return Load(topic, summary.sends, times_ms, summary.events, ids)

    def _pipeline(self, name: str, deeds: Deeds) -> Pipeline:
        folder = self.folder / name / name_of(deeds)
        folder.mkdir(parents=True)
        servers = self.broker.bootstrap_servers
        pipeline = Pipeline(f"mutations-{name}-{name_of(deeds)}", servers, folder, self.broker, self.spark)
        self.broker.create_topics({pipeline.output: 2, pipeline.late: 1, _stated(pipeline): 1})
        return pipeline


@pytest.fixture(scope="module")
def laboratory(broker: EmbeddedBroker, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    """The laboratory of the module's trials."""
    return Laboratory(broker, spark, tmp_path_factory.mktemp("mutants"))


@pytest.fixture
def case(laboratory: Laboratory, request: pytest.FixtureRequest) -> Judged:
    """One row of the page."""
    name, row = request.param
    return laboratory.judged(name)[row]


every_case = pytest.mark.parametrize(
    "case",
    [case if case[0] == FIRST_TIER else full(case) for case in CASES],
    indirect=True,
    ids=[f"{name}-{name_of(*row)}" for name, row in CASES],
)


def _break(trial: Trial, deeds: Deeds, pipeline: Pipeline, topic: str) -> None:
    settings = EngineSettings(
        bootstrap_servers=pipeline.servers,
        inputs=(topic,),
        output=pipeline.output,
        late=pipeline.late,
        group=pipeline.name,
        commit_interval_seconds=0.2,
        mutations={mutation: SHARES[True] if mutation in OF_A_RESULT else trial.share_of_ids for mutation in deeds},
        mutation_seed=11,
        delay_seconds=0.1,
        delay_beyond_seconds=600.0,  # until the mutant ends and produces what it holds back
        truth=pipeline.folder / "truth",
        **trial.engine,
    )
    flags = ("--stop-at-end", "--close-at-end")
    with MutantEngine(settings, pipeline.folder / "engine", arguments=flags) as engine:
        engine.start()
        assert engine.wait() == (0,)


def _judge(trial: Trial, row: Row, pipeline: Pipeline, load: Load) -> Run:
    settings, (_, values) = list(trial.sidecar), row
    if values:
        stated = ", ".join(f"{name}: {name}" for name in values)
        topic = pipeline.output if trial.repeats else _stated(pipeline)
        settings.append(output_of(trial, topic, stated))
    oracle = f"oracle={trial.oracle_with(values)}"
    return pipeline.once(f"inputs.0.topic={load.topic}", oracle, *settings, state=name_of(*row))


def output_of(trial: Trial, topic: str, stated: str) -> str:
    """Return the setting of an output whose results state values."""
    named = "event_time: timestamp, " if trial.repeats else "" if trial.of_keys else "window_start: windowStart, "
    named += "ids: clickIds, " if trial.beside_ids else ""
    kind = "evidence: ids" if trial.beside_ids else "evidence: values"
    kind += ", emission: cumulative" if trial.of_keys else ""
    return f"outputs.0={{topic: {topic}, {kind}, fields: {{key: page, {named}values: {{{stated}}}}}}}"


def _stated(pipeline: Pipeline) -> str:
    """Return the topic of results without ids."""
    return f"{pipeline.name}-stated"


def with_values(result: Mapping[str, Any], right: Mapping[tuple[str, str], Ids] | None) -> dict[str, Any]:
    """Return a result as an engine without ids would write it: with aggregates of its ids. ``right``: the ids of each
    window; the result then lists its own ids, and states the aggregates of the right ones."""
    ids = result["clickIds"]
    if right is None:
        others = {name: value for name, value in result.items() if name != "clickIds"}
    else:
        others, ids = dict(result), right.get((result["windowStart"], result["page"]), ())
    return others | {name: one.of(ids) for name, one in STATED.items()}


def _state_values(broker: EmbeddedBroker, pipeline: Pipeline, right: Mapping[tuple[str, str], Ids] | None) -> None:
    """Write each visible result again, with values. A null value is left out: the next result of its key follows."""
    for partition in (0, 1):
        for value in filter(None, _visible_values(broker, pipeline.output, partition)):
            pipeline.put(_stated(pipeline), json.dumps(with_values(json.loads(value), right), default=float))


def found_in(tables: StateTables) -> dict[Place, tuple[int, tuple[str, ...]]]:
    """Return the violations on record: place -> number of contributions, and the ids kept as evidence."""
    newest: dict[str, tuple[int, Place, int, tuple[str, ...]]] = {}
    rows = [row for part in tables.scan(Table.VIOLATIONS) for row in part.to_pylist()]
    for row in sorted(rows, key=itemgetter("batch")):
        assert row["state"] in ("confirmed", "retracted")
        start_us = row["window_start_us"]
        place = (row["class"], (None if start_us is None else start_us // 1000, row["key"]))
        newest[row["violation"]] = (row["batch"], place, row["count"], tuple(row["ids"]))
    return {place: (count, ids) for _, place, count, ids in newest.values() if count}


def _visible_values(broker: EmbeddedBroker, topic: str, partition: int = 0) -> list[bytes]:
    """Return the values on a partition that a read_committed consumer sees."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "count", "enable.partition.eof": True}
    )
    with ExitStack() as stack:
        stack.callback(consumer.close)
        consumer.assign([TopicPartition(topic, partition, 0)])
        values: list[bytes] = []
        while (message := consumer.poll(30)) is not None:
            error = message.error()
            if error is None:
                values.append(message.value() or b"")
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            return values
    raise AssertionError(f"the end of {topic} was not reached within 30 s")


@every_case
def test_a_mutation_gives_exactly_its_verdict(case: Judged) -> None:
    assert {deed.mutation for deed in case.deeds} == set(case.mutations), "the mutant did something else"
    assert case.run.verdicts == case.verdicts
    assert case.run.status == (0 if case.verdicts[2] == PASS else 1)

    found = case.run.report["contributions"]
    confirmed = case.run.report["violations"]["confirmed"]
    counted = found | {name: confirmed.get(name) or 0 for name in ("wrong_value", "inconsistent")}
    assert {name: counted[name] for name in case.trial.classes} == case.due_by_class()
    assert found["expected"] == case.load.owed(case.trial)
    handled = found["processed"] + found["late"] + found["dropped_late"]
    assert handled + found["missing"] == found["expected"]
    # Every engine with a late topic sets aside the generator's late events.
    assert found["late"] == case.set_aside * case.trial.cells_of_an_event
    routed = sum(deed.count for deed in case.deeds if deed.violation_class == "late")
    assert case.set_aside > routed or "lateness" not in case.trial.load
    assert bool(found["dropped_late"]) == (case.trial is TRIALS["sliding"]), "late for some of their windows"
    assert found["pending"] + found["overdue"] + found["blocked"] + found["unresolved"] + found["out_of_scope"] == 0
    assert case.run.report["coverage"]["complete"]


@every_case
def test_a_mutation_is_found_in_its_cells_and_ids_and_nowhere_else(case: Judged) -> None:
    assert {place: count for place, (count, _) in case.found.items()} == {
        place: ids.total() for place, ids in case.due.items()
    }
    for place, (_, ids) in case.found.items():
        due = set(case.due[place]) - {""}
        assert len(set(ids)) == len(ids) == min(len(due), IDS_KEPT)
        assert set(ids) <= due


@pytest.mark.full
def test_the_load_has_sessions_that_a_correct_engine_emits_in_parts(laboratory: Laboratory) -> None:
    case = laboratory.judged("session")[HONEST, NO_VALUES]
    by_page = case.load.times_ms.items()
    sessions = {(page, start_of_session(at, times_ms)) for page, times_ms in by_page for at in times_ms}
    assert case.run.report["results"]["correct"] > len(sessions) + 10


@pytest.mark.parametrize("name", [name if name == FIRST_TIER else full(name) for name in TRIALS])
def test_the_page_of_mutations_is_current(
    name: str, laboratory: Laboratory, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page has the counts of one run. Everything else must equal this run's section."""
    assert (HONEST in TRIALS[name].rows) == (name != FIRST_TIER), "the page says so"
    section = render(TRIALS[name], laboratory.judged(name))
    with capsys.disabled():
        print("\n" + section)
    if os.environ.get("STREAMPROOF_WRITE"):
        sections = {**_sections(), TRIALS[name].title: section}
        PAGE.write_text(HEAD + "".join(sections.get(trial.title, "") for trial in TRIALS.values()))
    page = PAGE.read_text()
    assert page.startswith(HEAD)
    assert list(_sections()) == [trial.title for trial in TRIALS.values() if trial.title in _sections()]
    written = _sections().get(TRIALS[name].title, "")
    assert _without_numbers(written) == _without_numbers(section), "run it again with STREAMPROOF_WRITE=1"


def _sections() -> dict[str, str]:
    """Return title -> section of the page."""
    parts = re.split(r"^(?=## )", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {part[len("## ") :].partition("\n")[0]: part.rstrip("\n") + "\n\n" for part in parts}


def _without_numbers(text: str) -> str:
    return re.sub(r"\d+", "N", text.rstrip())


HEAD: Final = """\
# What the sidecar finds when an engine misbehaves

Each row is a run of the mutant engine on a real broker. The engine damages a share of its results or ids
([what each mutation does](engines.md#mutations)), and records each defect before it causes it. `validate --once` then
judges the run, and finds exactly the recorded defects, in every cell and for every id. They are counted in
contributions: missing / duplicate / misplaced / unknown id. Where "done and found" has no verdicts beside it, all three
are `fail`. In all sections but the first, an engine without mutations passes without a violation.

The test writes this page: `STREAMPROOF_WRITE=1 python -m pytest tests/e2e/test_mutations.py`.

"""


def shows_verdicts(trial: Trial, cases: Mapping[Row, Judged]) -> bool:
    """Whether a section has the verdicts: not if all fail, or if each column has its own."""
    judged = [case.run.verdicts for (deeds, _), case in cases.items() if deeds]
    return NO_VALUES in trial.values and judged != [(FAIL, FAIL, FAIL)] * len(judged)


def render(trial: Trial, cases: Mapping[Row, Judged]) -> str:
    """Return a section of docs/mutations.md."""
    sends = next(iter(cases.values())).load.sends
    by_value = NO_VALUES not in trial.values
    columns = [", ".join(STATED[name].text for name in values) for values in trial.values]
    of_ids = ["done and found", *(GUARANTEES if shows_verdicts(trial, cases) else ())]
    head = ["mutation", *(columns if by_value else of_ids)]
    lines = [
        f"## {trial.title}",
        "",
        f"`oracle: {trial.oracle}`",
        "",
        *trial.text.splitlines(),
        f"Load: {sends} events.",
        "",
        f"| {' | '.join(head)} |",
        "|---" * len(head) + "|",
    ]
    for deeds in filter(None, trial.rows):
        found = [cases[deeds, values] for values in trial.values]
        counts = ["/".join(str(count) for count in case.due_by_class().values()) for case in found]
        label = ", ".join(f"`{mutation}`" for mutation in deeds)
        verdicts = found[0].run.verdicts if shows_verdicts(trial, cases) else ()
        lines.append("| " + " | ".join((label, *counts, *verdicts)) + " |")
    return "\n".join(lines) + "\n\n"

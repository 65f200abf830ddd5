"""Run the sidecar's core over many random histories.

The stage of a batch computes the facts of all histories in one go. The sidecar's own `BatchRunner` then reads each
history step by step; fake brokers answer its lookups with the state that the step recorded. The tables are in memory,
or in a state folder from which another process can continue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from tests.property import history_facts
from tests.property.history import Step
from tests.property.spark_histories import SIDE_OF_TOPIC, Case, Instant, expires
from tests.unit.memory_tables import MemoryTables
from tests.unit.range_counts import counted
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.core.cell_states import Waits, totals_of
from validator.core.judging import Judging
from validator.core.suspicion import Suspicion
from validator.core.totals import CellTotals
from validator.model.arrays import ABSENT
from validator.model.frontier import Lookup, PartitionId, RunEnd
from validator.model.progress import IngestProgress, TimeRules
from validator.reconcile.judge import CONTRIBUTIONS, RESULTS, STATES, VIOLATIONS, close
from validator.reconcile.judge import Judged as CoreJudged
from validator.reconcile.lateness import with_newest_before
from validator.reconcile.violations import changed_violations
from validator.state.known_facts import BYTES_KEPT, KnownFacts
from validator.state.positions import Positions
from validator.state.tables import StateTables
from validator.stream.batch import BatchRunner
from validator.stream.brokers import Brokers, Topic
from validator.stream.commit_rows import epoch_of
from validator.stream.coverage_sums import failed_sums
from validator.stream.end_of_run import EndOfRun
from validator.stream.kafka_reading import Range
from validator.stream.recovery import Recovered, recover, restore_record
from validator.stream.retention import Retired
from validator.stream.run_record import RunRecord
from validator.stream.saved_cells import Saver, saved_cells
from validator.stream.sources import Source
from validator.stream.start_offsets import initial_progress
from validator.stream.workers import FactsRead

Row = dict[str, Any]
RETENTION_US: Final = 3_600_000_000
_EXAMPLE: Final = loads(EXAMPLES["minimal"], Path("/etc"), ["metrics.port=0"], {})
_OF_CELL: Final = ("expected_count", "processed_count", "late_count", "rejected_count", "results")
_TIMES: Final = ("observed_us", "closed_us", "rest_us")


@dataclass(frozen=True)
class _HiddenRecords(Suspicion):
    """Suspects ``besides``, and the classes that hidden records may explain. Doubt about the configuration is left
    out: the reference does not model it, and its worlds are too small for a correct configuration to prove itself."""

    besides: frozenset[str] = frozenset()

    def suspected(self, progress: IngestProgress, sums: CellTotals) -> frozenset[str]:
        return self.by_hidden_records(progress, sums) | self.besides

    def withdrawn(self, progress: IngestProgress, sums: CellTotals) -> frozenset[str]:
        return frozenset()


class _Brokers:
    """The brokers' answers at one step of a history. Topics are never deleted and created again."""

    def __init__(self, step: Step) -> None:
        self.step = step

    def topics(self, names: Iterable[str], optional: object = ()) -> dict[str, Topic]:
        places = sorted((state.topic, state.partition) for state in self.step.partitions)
        return {name: Topic(name, "topic", tuple(n for topic, n in places if topic == name)) for name in names}

    def lookup(self, topics: Iterable[str]) -> dict[PartitionId, Lookup]:
        named, committed = set(topics), self.step.committed or {}
        return {
            PartitionId(*state.place): Lookup(
                "topic", state.log_start, state.high_watermark, state.last_stable, committed.get(state.place)
            )
            for state in self.step.partitions
            if state.topic in named
        }

    def policies(self, topics: Iterable[str]) -> dict[str, str]:
        policy = {state.topic: "compact" if state.compacted else "delete" for state in self.step.partitions}
        return {topic: policy[topic] for topic in topics}

    def at_time(self, *_: object) -> dict[PartitionId, int]:
        """The offset at which the state begins to read each partition."""
        return {PartitionId(*state.place): state.start_offset for state in self.step.partitions}


@dataclass
class _Runner(BatchRunner):
    """The sidecar's runner with precomputed facts in place of the Spark job."""

    case: Case = field(kw_only=True)
    facts: Sequence[pa.Table] = field(kw_only=True)
    step: int = 0
    besides: frozenset[str] = frozenset()
    rows: list[Row] = field(default_factory=list)
    """The cells that the last batch judged, before retention; only with a short retention."""

    @property
    def suspicion(self) -> Suspicion:
        known = super().suspicion
        return _HiddenRecords(**{**vars(known), "besides": self.besides})

    def _facts(self, ranges: Sequence[Range], progress: IngestProgress) -> FactsRead:
        facts = self.facts[self.step]
        for name, value in (("batch", progress.batch), ("epoch", epoch_of(progress.lookup_us, self._retention))):
            at = facts.schema.get_field_index(name)
            facts = facts.set_column(at, facts.schema.field(at), pa.array(np.full(facts.num_rows, value)))
        if self.case.oracle.tables:
            # Only the sidecar's frontiers know what it had read of a table.
            facts = with_newest_before(facts, progress.known_before)
        return FactsRead(facts, counted(ranges, facts))

    def _retire(self) -> None:
        if self._retention < RETENTION_US:
            self.rows = rows_of(self.judging)
        super()._retire()

    def _reach_us(self, progress: IngestProgress) -> int:
        # Uses the step's lookup, even if a generation opens just before it: the reference has no instant between steps.
        return history_facts.reach_at(self.case, self.step)


class Run:
    """One case, read by the sidecar into ``tables``."""

    room_bytes = BYTES_KEPT

    def __init__(
        self,
        case: Case,
        facts: Sequence[pa.Table],
        tables: StateTables,
        *,
        evict_at: int | None = None,
        saver: Saver | None = None,
        retention_us: int = RETENTION_US,
    ) -> None:
        """``evict_at``: as in `Judging`; by default no cell leaves memory, so that every cell can be compared.
        ``saver``: writes the memory image for the next process."""
        self.case = case
        self._evict_at, self._saver = evict_at, saver
        self.tables = tables
        self.instants: list[Instant] = []
        self.folded_from: list[int] = []
        self.record = self._new_record()
        self.judging = self._judging(0)
        self._facts = facts
        self._config = _configured(case, retention_us)
        self._brokers = _Brokers(case.history.steps[0])
        self._runner = self._begun(IngestProgress(time_rules_of(case)), 0)

    def take(self, number: int, suspected: frozenset[str] = frozenset()) -> None:
        """Read a step. ``suspected``: further classes of violations to suspect."""
        step, run_end = self.case.history.steps[number], self.case.run_end(number)
        self._brokers.step = step
        if number == 0 or expires(step):
            self._open(step.lookup_us - 1)
        runner = self._runner
        runner.step, runner.besides = number, suspected
        runner.now_us = lambda: step.lookup_us
        ends = {PartitionId(*state.place): state.next_offset for state in step.partitions}
        end = None if run_end is RunEnd.NONE else EndOfRun(run_end, {}, checked=False)
        if step.ending == "none":
            runner.advance(ends, end)
        else:
            runner.now_us = lambda: 0
            begun = self._brokers.lookup({place.topic for place in ends})
            runner.conclude(begun, leave_open=step.ending == "leave_open", at_rest=False)
        progress = runner.progress
        assert list(failed_sums(progress, self.judging.sums)) == [], "every record is found again"
        self.instants.append(Instant(progress, progress.clock(run_end=run_end), runner.suspicion))

    def restart(self) -> None:
        """Continue in another process from the tables. It keeps the looked-up ends that the sidecar has not reached,
        so that nothing is confirmed later than by the reference."""
        rules, time_rules = self.case.rules, time_rules_of(self.case)
        saved = saved_cells(self._saver.state, rules, time_rules) if self._saver is not None else None
        assert not isinstance(saved, str), saved
        found = recover(self.tables, time_rules, rules.oracle, saved)
        self.folded_from.append(found.folded_from)
        self.record = self._new_record()
        restore_record(self.tables, self.record)
        self.judging = self._judging(found.progress.batch + 1, found)
        self._runner = self._begun(self._runner.progress, self._runner.generation + 1, found)

    def save(self) -> None:
        """Save the memory image, as the sidecar does periodically."""
        self._runner.save()

    def judged_again(self) -> list[Row]:
        """The cells that another process restores from the tables after the last step."""
        found = recover(self.tables, time_rules_of(self.case), self.case.rules.oracle)
        again, instant = self._judging(found.progress.batch + 1, found), self.instants[-1]
        again.step(None, instant.progress, instant.suspicion, run_end=instant.clock.run_end)
        return rows_of(again)

    def _open(self, lookup_us: int) -> None:
        """Open a generation, as at the start and after Spark's query failed on expired records."""
        before, brokers, generation = self._runner.progress, cast("Brokers", self._brokers), self._runner.generation
        topics = self._brokers.topics([source.topic for source in self._runner.sources])
        progress, lookups = initial_progress(before, self._config, brokers, self._runner.sources, topics, lookup_us)
        progress = progress.with_policies(brokers.policies(topics), lookups)
        self._runner = self._begun(progress, generation + 1, self._runner)
        self._runner.open(before, lookups, lookup_us)

    @property
    def rows(self) -> list[Row]:
        """The cells that the last batch judged, before retention; only with a short retention."""
        return self._runner.rows

    def _begun(self, progress: IngestProgress, generation: int, found: Recovered | _Runner | None = None) -> _Runner:
        topics = sorted({state.topic for state in self.case.history.steps[0].partitions})
        return _Runner(
            config=self._config,
            sources=[cast("Source", SimpleNamespace(side=SIDE_OF_TOPIC[topic], topic=topic)) for topic in topics],
            brokers=cast("Brokers", self._brokers),
            progress=progress,
            judging=self.judging,
            record=self.record,
            tables=self.tables,
            generation=generation,
            checkpoint=Path("/nonexistent"),
            starts={},
            read_faults=lambda: None,
            publish=lambda: None,
            now_us=lambda: progress.lookup_us,
            saver=self._saver,
            retired=Retired() if found is None else found.retired,
            positions=Positions() if found is None else found.positions,
            case=self.case,
            facts=self._facts,
        )

    def _new_record(self) -> RunRecord:
        rules = self.case.rules
        return RunRecord(
            explained_by_one=rules.oracle.explained_by_one,
            cells_each=rules.oracle.cells_most,
            hidden_inputs_lose=rules.oracle.hidden_inputs_lose,
            copies_explain=self.case.copies_explain,
        )

    def _judging(self, first_batch: int, found: Recovered | None = None) -> Judging:
        known = KnownFacts(self.tables, first_batch=first_batch, room_bytes=self.room_bytes)
        if found is None:
            return Judging(known, self.case.rules, evict_at=self._evict_at)
        return found.judging(known, self.case.rules, self._evict_at)


def _configured(case: Case, retention_us: int) -> Config:
    """The parts of a case's configuration that a batch reads. ``tick_us`` is 0: time advances with every batch."""
    its = case.history.timing
    timing = {
        "max_disorder_us": its.max_disorder_us,
        "allowed_lateness_us": its.allowed_lateness_us,
        "idle_after_us": its.idle_after_us,
        "max_ahead_us": its.max_ahead_us,
        "tick_us": 0,
    }
    whole = {
        "timing": _EXAMPLE.timing.model_copy(update=timing),
        "state": _EXAMPLE.state.model_copy(update={"retention_us": retention_us}),
        "start": SimpleNamespace(kind="time", time_us=0),
    }
    return _EXAMPLE.model_copy(update=whole)


def time_rules_of(case: Case) -> TimeRules:
    """The time rules for the frontiers of a case."""
    timing = case.history.timing
    pause_us = timing.idle_after_us // 2 if case.rules.follows_pauses else None
    return TimeRules(
        timing.max_disorder_us, timing.idle_after_us, timing.allowed_lateness_us, pause_us, case.oracle.follows_inputs
    )


class Judged:
    """Cases, their facts by step and, once judged, the sidecar's state of time after each step."""

    def __init__(self, cases: Sequence[Case], folder: Path) -> None:
        self.cases = cases
        self.folder = folder
        self.facts = history_facts.facts(cases)
        self.instants: dict[int, list[Instant]] = {}

    def live(self, number: int) -> Iterator[list[Row]]:
        """The cells of a case after each step, judged batch after batch."""
        run = Run(self.cases[number], self.facts[number], MemoryTables())
        self.instants[number] = run.instants
        for step in range(len(self.cases[number].history.steps)):
            run.take(step)
            yield rows_of(run.judging)

    def restarted(self, number: int, upto: int) -> tuple[list[Row], list[Row]]:
        """The cells of a case after step ``upto``: in the process that wrote the tables, and in another one that
        restored them."""
        run = Run(self.cases[number], self.facts[number], StateTables(self.folder / f"state-{number}"))
        for step in range(upto + 1):
            run.take(step)
        return rows_of(run.judging), run.judged_again()

    def recorded(
        self,
        number: int,
        tables: StateTables,
        *,
        suspected: Mapping[int, frozenset[str]] = MappingProxyType({}),
        killed_after: Collection[int] = (),
    ) -> Iterator[Run]:
        """The run of a case after each step.

        ``suspected``: step -> further classes of violations to suspect. After each step in ``killed_after``, another
        process continues from the tables.
        """
        run = Run(self.cases[number], self.facts[number], tables)
        for step in range(len(self.cases[number].history.steps)):
            run.take(step, suspected.get(step, frozenset()))
            yield run
            if step in killed_after:
                run.restart()


def as_if_all_were_judged(judging: Judging, judged: CoreJudged) -> None:
    """Check a batch that judged only some cells. ``judged``: the present judgement of all cells. The cells that the
    batch skipped must have no change to report, and the totals must equal a recount."""
    cells, clock = judging.cells, judging._clock
    assert clock is not None
    kept, recount = judging.cell_states.sums(), totals_of(cells, judged, judged.on_record)
    assert replace(kept, unconsumed_due_us=None, blocked_due_us=None) == replace(
        recount, unconsumed_due_us=None, blocked_due_us=None
    ), "totals"
    in_memory = kept.with_retired(judging.retired.plus(judging.evicted.sums))
    assert (judging.sums.counts, judging.sums.cells_seen) == (in_memory.counts, in_memory.cells_seen)
    assert (judging.sums.unconsumed_due_us, judging.sums.blocked_due_us) == (
        recount.unconsumed_due_us,
        recount.blocked_due_us,
    ), "since when contributions are due"
    said = np.zeros(len(cells), dtype=np.bool_)
    for part in judging.changed:
        said[part.rows] = True
    assert said.tolist() == judged.changed.tolist(), "verdicts that changed"
    asked = {"suspected": judging.suspected, "withdrawn": judging.withdrawn, "lookup_us": judging.lookup_us}
    whole = changed_violations(cells, np.arange(len(cells)), judged, judging.rules, judging.evidence, **asked)  # type: ignore[arg-type]
    assert judging.judged is not None
    assert whole == changed_violations(cells, judging.rows, judging.judged, judging.rules, judging.evidence, **asked)  # type: ignore[arg-type]
    closed, ends_known = cells["closed_us"].copy(), cells["rest_us"].copy()
    close(cells, clock)
    assert closed.tolist() == cells["closed_us"].tolist(), "cells that the watermark passed"
    assert ends_known.tolist() == cells["rest_us"].tolist()
    # If a cell has ids left to compare, every batch judges it. After a comparison, some ids may be left until the
    # verdict is stored.
    left = judging.cell_states.waits[: len(cells)] != Waits.NEXT_BATCH
    assert not (left & (judged.wants_expansion | judged.wants_evidence | judged.sampled)).any(), "ids to compare"


def rows_of(judging: Judging) -> list[Row]:
    """The judged cells, one row each."""
    cells = judging.cells
    judged = judging.judged_of(np.arange(len(cells)))
    as_if_all_were_judged(judging, judged)
    columns = {
        **{name: cells[name].tolist() for name in _OF_CELL},
        **{name: [None if value == ABSENT else value for value in cells[name].tolist()] for name in _TIMES},
        **{f"recorded_{name}": cells[f"recorded_{name}"].tolist() for name in VIOLATIONS},
        **{f"recorded_next_{name}": judged.on_record[name].tolist() for name in VIOLATIONS},
        **{name: judged.counts[name].tolist() for name in (*CONTRIBUTIONS, *RESULTS)},
        **{
            name: getattr(judged, name).tolist()
            for name in (
                "agrees",
                "compared",
                "resolved",
                "held",
                "unconsumed_overdue",
                "incorrect_ids",
                "in_scope",
                "settled",
                "version",
            )
        },
        "state": [STATES[number] for number in judged.state.tolist()],
        "window_start_us": cells["window_start_us"].tolist(),
        "key": cells.keys().to_pylist(),
    }
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    # A cell that was merged into another one holds nothing.
    return (
        rows if cells.non_cells is None else [row for row, part in zip(rows, cells.non_cells, strict=True) if not part]
    )

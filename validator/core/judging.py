"""The state of a run's cells, and its change with each batch.

A step folds the facts of a batch, judges the cells whose verdicts the facts or the clock can change, compares
disagreeing cells id by id, and returns the changes to record. This module reads no clock, file or topic.
The state in memory can be dropped and rebuilt from the facts table (`validator.stream.recovery`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple, Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.core.cell_states import CellStates, changes_all_verdicts, falls, totals_of, with_earliest_due
from validator.core.evicted import EVICTED_AT_ONCE, EvictedCells
from validator.core.fit import Fit, Growth, fit_of, miscounted, updating
from validator.core.fit_sample import Expected, FitSample
from validator.core.split_sessions import with_pauses
from validator.core.suspicion import Suspicion, unproven_outputs, withdrawn_outputs
from validator.core.totals import CellTotals
from validator.core.unread import Unexamined, Unread, with_unexamined
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, ints, nullable
from validator.model.frontier import Clock, PartitionId, RunEnd
from validator.model.progress import IngestProgress
from validator.model.violation import Violation
from validator.oracles.alternatives import begins
from validator.oracles.seam import Oracle
from validator.reconcile import key_verdicts
from validator.reconcile.cell_index import CellIndex
from validator.reconcile.cells import STALE, Cells, Columns, SomeCells, contributing, unowed
from validator.reconcile.compare import Compared, PartitionOffsets, RequestedIds, compare, expanded
from validator.reconcile.contributions import TopicPartition
from validator.reconcile.facts import Side
from validator.reconcile.judge import (
    CONTRIBUTIONS,
    RESULTS,
    STATES,
    VIOLATIONS,
    Judged,
    Rules,
    close,
    closed_with_its_events,
    is_at_rest,
    is_resolved,
    is_resting,
    joined,
    judge,
)
from validator.reconcile.quantities import RETIRED_BEFORE
from validator.reconcile.unknown_ids import UnknownIds
from validator.reconcile.violations import changed_violations, confirmed_of, note_recorded_violations

SAMPLED_AT_ONCE: Final = 100_000
"""Largest number of contributions of agreeing cells whose ids one batch compares. A larger cell is left out."""
JUDGED_AT_ONCE: Final = 131_072
"""Number of cells whose verdicts are in memory together, about 500 bytes each."""
COMPARED_AT_ONCE: Final = 4_000_000
"""Number of contributions whose ids are in memory together, about 300 bytes each."""


_CELL_COLUMNS: Final = ("kind", "status", "batch", "window_start_us", "key")
_SETTLED_SHARE: Final = 8
"""Settled cells leave memory once they are at least one in this many cells: each removal copies the other cells."""


class Facts(Protocol):
    """The facts of a state, up to those that were added last."""

    def add(self, facts: pa.Table) -> None:
        """Add the facts of a batch, whose append to the facts table has begun."""

    def facts_of_windows(self, oldest_batch: int, first_us: int, last_us: int) -> Iterator[pa.Table]:
        """Yield tables with all facts since ``oldest_batch`` of windows that start within ``first_us`` to ``last_us``,
        both included."""

    def facts_to_fold(self, oldest_batch: int, first_us: int, last_us: int) -> Iterator[pa.Table]:
        """Yield the same facts in the form that `Cells.fold` accepts."""

    @property
    def in_memory_from(self) -> int:
        """The first batch from which on all facts are in memory."""

    def inputs_with(self, requested: RequestedIds) -> RequestedIds:
        """Return those of the given ids that an input has."""

    def judged_before(self, keys: pa.Array, instants_us: Ints) -> Bools:
        """Return which cells of one id, by key, have a verdict of a batch before the instant of the cell."""

    def forget(self, before_batch: int) -> None:
        """Remove the facts of older batches from memory."""


@dataclass(frozen=True)
class Effects:
    """All that a commit records of one batch.

    ``totals``: over all cells, including those that retention dropped. ``violations``: those that changed, of cells and
    of undecodable results. ``verdicts``: the cells whose verdict changed, with the columns of the verdicts table except
    batch and instant; None if no verdict changed. ``unexamined``: all records that were not examined.
    """

    totals: CellTotals
    violations: list[Violation]
    verdicts: pa.Table | None
    unexamined: Mapping[PartitionId, Unexamined] = field(default_factory=dict)


def partition_offsets_of(
    progress: IngestProgress, *, reports_unconsumed: bool
) -> dict[TopicPartition, PartitionOffsets]:
    """Return the offsets of the input partitions that a comparison of ids needs."""
    return {
        (partition.topic, partition.partition): PartitionOffsets(
            committed_offset=frontier.consumed_below if reports_unconsumed else None,
            unprovable_below=frontier.unprovable_below,
            has_records=frontier.high_watermark > 0,
        )
        for partition, frontier in progress.frontiers.items()
        if frontier.side == Side.INPUT.value
    }


def _went_back(
    before: Mapping[TopicPartition, PartitionOffsets], now: Mapping[TopicPartition, PartitionOffsets]
) -> bool:
    """Return whether the engine has consumed less of a partition than before: its group was reset, or its offsets
    expired."""
    return any(
        partition in now and (now[partition].committed_offset or 0) < (offsets.committed_offset or 0)
        for partition, offsets in before.items()
    )


def _committed(offsets: Mapping[TopicPartition, PartitionOffsets]) -> dict[TopicPartition, int]:
    return {place: it.committed_offset for place, it in offsets.items() if it.committed_offset is not None}


def _first_written(
    before: Mapping[TopicPartition, PartitionOffsets], now: Mapping[TopicPartition, PartitionOffsets]
) -> bool:
    """Return whether a partition has its first records now."""
    return any(it.has_records and not (at in before and before[at].has_records) for at, it in now.items())


def _no_class(sums: CellTotals) -> frozenset[str]:
    """Return the empty set: by default, no class is suspected or withdrawn."""
    del sums
    return frozenset()


def new_cells(oracle: Oracle) -> Cells:
    """Return an empty table of cells."""
    return Cells(VIOLATIONS, oracle)


@dataclass(frozen=True)
class _FactsBefore:
    """The facts of a state, without those of ``batch`` and later batches. These may be in the facts table already."""

    facts: Facts
    batch: int

    def facts_of_windows(self, oldest_batch: int, first_us: int, last_us: int) -> Iterator[pa.Table]:
        for part in self.facts.facts_of_windows(oldest_batch, first_us, last_us):
            yield part.filter(pc.less(part["batch"], self.batch))

    def facts_to_fold(self, oldest_batch: int, first_us: int, last_us: int) -> Iterator[pa.Table]:
        for part in self.facts.facts_to_fold(oldest_batch, first_us, last_us):
            yield part.filter(pc.less(part["batch"], self.batch))

    def inputs_with(self, requested: RequestedIds) -> RequestedIds:
        return self.facts.inputs_with(requested)

    def judged_before(self, keys: pa.Array, instants_us: Ints) -> Bools:
        return self.facts.judged_before(keys, instants_us)

    @property
    def in_memory_from(self) -> int:
        return self.facts.in_memory_from

    def add(self, facts: pa.Table) -> None:
        raise AssertionError(
            f"the facts before batch {self.batch} are read-only: {facts.num_rows} rows cannot be added"
        )

    def forget(self, before_batch: int) -> None:
        raise AssertionError(
            f"the facts before batch {self.batch} are read-only: batches before {before_batch} cannot be removed"
        )


@dataclass(frozen=True)
class RetirementEffect:
    """The effect of a retirement.

    ``evicted``: totals of the retired cells that had left memory. ``horizon_us``: later records of cells that start
    before it are out of scope; None if nothing is retired. ``lateness_from_us``: remaining cells need lateness only for
    window ends after this.
    """

    evicted: CellTotals
    horizon_us: int | None
    lateness_from_us: int


class ChangedVerdicts(NamedTuple):
    """Verdicts that a batch changes, as they are recorded: their cells, their digests, and a table with a row for each.

    If a window with a million cells closes, all of them change at once. These columns take a quarter of the memory of
    `Judged`.
    """

    rows: Ints
    digests: Ints
    table: pa.Table


@dataclass
class Judging:
    """The cells of one state.

    - ``rows``, ``judged``: the cells whose violations the last batch may have changed, and their verdicts. ``judged``
      is None if all changes are recorded.
    - ``changed``: the changed verdicts, which the derived tables do not have yet.
    - ``cell_states``: the share of each cell in the totals, and what its verdict waits for.
    - ``evidence``: (row of the cell, violation class) -> smallest ids, for the cells that the last batch compared.
    - ``suspected``: violation classes that the last batch does not confirm. ``withdrawn``: those whose confirmed
      violations it retracts. ``lookup_us``: its instant.
    - ``sums``: totals after the last batch; retention may have retired some of the cells since.
    - ``evict_at``: number of settled cells that leave memory together; None: they stay.
    - ``watermark_steps``: (watermark, instant at which it was reached), rising.
    - ``run_ends``: (instant, assumption) of the ends of runs that found the pipeline at rest.
    - ``horizon_us``: cells that begin before it are out of scope.
    - ``sample``: a sample of the events and of the results that name them.
    - ``unread``: the records whose content is not known.
    """

    known: Facts
    rules: Rules
    cells: Cells = field(default=None)  # type: ignore[assignment]
    judged: Judged | None = None
    rows: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    changed: list[ChangedVerdicts] = field(default_factory=list)
    cell_states: CellStates = field(default_factory=CellStates)
    evidence: dict[tuple[int, str], tuple[str, ...]] = field(default_factory=dict)
    sums: CellTotals = field(default_factory=CellTotals.empty)
    retired: CellTotals = field(default_factory=CellTotals.empty)
    suspected: frozenset[str] = frozenset()
    withdrawn: frozenset[str] = frozenset()
    lookup_us: int = 0
    watermark_steps: list[tuple[int, int]] = field(default_factory=list)
    run_ends: list[tuple[int, RunEnd]] = field(default_factory=list)
    horizon_us: int | None = None
    _clock: Clock | None = None
    _partition_offsets: Mapping[TopicPartition, PartitionOffsets] = field(default_factory=dict)
    _unknown: UnknownIds = field(default_factory=UnknownIds)
    evict_at: int | None = EVICTED_AT_ONCE
    evicted: EvictedCells = field(default_factory=EvictedCells)
    sample: FitSample = field(default=None)  # type: ignore[assignment]
    unread: Unread = field(default_factory=Unread)
    _fit: tuple[object, Fit | None] = (None, None)

    def __post_init__(self) -> None:
        if cast("Cells | None", self.cells) is None:
            self.cells = new_cells(self.rules.oracle)
        if cast("FitSample | None", self.sample) is None:
            self.sample = FitSample.of(self.rules.oracle)

    def step(
        self,
        facts: pa.Table | None,
        progress: IngestProgress,
        suspicion: Suspicion,
        *,
        unread: pa.Table | None = None,
        run_end: RunEnd = RunEnd.NONE,
    ) -> Effects:
        """Judge one batch, and return its effects. The next step counts them as recorded.

        ``facts``: those of the batch, whose append to the facts table has begun. ``progress``: the progress of reading
        after the batch. ``unread``: the `unread_rows` of the batch, also of records that an operator settled.
        ``run_end``: what the batch assumes about the pipeline.
        """
        offsets = partition_offsets_of(progress, reports_unconsumed=self.rules.reports_unconsumed)
        sums = self.absorb(
            facts,
            progress.clock(run_end=run_end),
            offsets,
            suspects=partial(suspicion.suspected, progress),
            withdraws=partial(suspicion.withdrawn, progress),
        )
        of_results = self.unread.changed_violations(
            progress,
            unread,
            suspected=unproven_outputs(progress, sums),
            withdrawn=withdrawn_outputs(progress, sums, self.withdrawn),
        )
        if unread is not None:
            self.unread.unexamined = with_unexamined(self.unread.unexamined, unread)
        return self._effects(of_results)

    def absorb(
        self,
        facts: pa.Table | None,
        clock: Clock,
        offsets: Mapping[TopicPartition, PartitionOffsets],
        *,
        suspects: Callable[[CellTotals], frozenset[str]] = _no_class,
        withdraws: Callable[[CellTotals], frozenset[str]] = _no_class,
    ) -> CellTotals:
        """Fold ``facts`` of one batch into the cells, judge the cells by ``clock``, and return the totals.

        ``facts``: their append to the facts table has begun. ``offsets``: of input partitions. ``suspects``: totals ->
        violation classes that unreadable records or a wrong configuration may explain. ``withdraws``: totals ->
        violation classes of which nothing is confirmed any more.
        """
        cells = self.cells
        self._note_recorded()
        self._settle()
        self.horizon_us = clock.horizon_us
        self._note_times(clock)
        self.evidence, self.lookup_us = {}, clock.lookup_us
        touched = [np.empty(0, dtype=np.int64)]
        if facts is not None:
            topics = len(cells.inputs), len(cells.outputs)
            if not self.evicted.is_empty:
                self.reload_evicted(facts, clock, offsets, before_batch=int(ints(facts["batch"]).max(initial=0)))
            self.known.add(facts)
            self.sample.absorb(facts)
            # SEMANTICS 2.7: cells with an unknown id that an input has now are compared again.
            reached = self._reached_elsewhere()
            touched = [cells.absorb(facts), self._unknown.read(facts)]
            cells.put("x_version", touched[1], STALE)
            if cells.newest is not None and not cells.depends_on_others:
                cells.newest.settle()
            touched.append(self._mark_stale(facts))
            touched.append(self._passed_elsewhere(reached))
            if topics != (len(cells.inputs), len(cells.outputs)):
                self._clock = None
        if self.rules.oracle.answers_once and _first_written(self._partition_offsets, offsets):
            # SEMANTICS 2.26: from now on this partition may have moved the engine's time.
            cells.put("x_version", np.flatnonzero(cells["x_version"] != ABSENT), STALE)
            self._clock = None
        if _went_back(self._partition_offsets, offsets):
            # SEMANTICS 2.8: fewer events count as consumed. Cells with outstanding contributions are compared again, as
            # after a restart.
            again = cells["x_outstanding"] > 0
            if self.rules.oracle.asks_lateness:
                # SEMANTICS 2.12: what a cell of a join owes depends on which events were consumed, too.
                again |= cells["x_version"] != ABSENT
            cells.put("x_version", np.flatnonzero(again), ABSENT)
            if cells.waiting is not None:
                cells.waiting.begin_again(cells, clock.lookup_us, consumed=_committed(self._partition_offsets))
            self._clock = None
        self._partition_offsets = offsets
        if cells.waiting is not None:
            touched.append(self._advance(clock, offsets))
        if self._clock is None or changes_all_verdicts(self._clock, clock):
            self.cell_states.forget()
        self._clock = clock
        self.cell_states.grow(len(cells))
        due = self.cell_states.due(cells, clock, self.rules)
        due[np.concatenate(touched)] = True
        if cells.depends_on_others:
            # SEMANTICS 2.16: a result can change the counts of other cells of its key.
            due[:] = True
        sums = self._judge(np.flatnonzero(due), clock, offsets).with_retired(self.retired.plus(self.evicted.sums))
        unordered = 0 if cells.kept_rows is None else cells.kept_rows.scattered
        scattered = unordered + (0 if cells.table_rows is None else cells.table_rows.scattered)
        sums = replace(sums, fit=self._fit_now(sums), rows_scattered=scattered, rows_unordered=unordered)
        # SEMANTICS 2.20, 4.24: both depend on the totals after this batch alone.
        suspected, withdrawn = suspects(sums), withdraws(sums)
        if (suspected, withdrawn) != (self.suspected, self.withdrawn):
            self._review(~due)
        self.suspected, self.withdrawn, self.sums = suspected, withdrawn, sums
        return sums

    def _advance(self, clock: Clock, offsets: Mapping[TopicPartition, PartitionOffsets]) -> Ints:
        """Note which events of keys are due, and return the cells of which further ones are."""
        waiting = self.cells.waiting
        assert waiting is not None, "only keys have events that wait"
        proofs = ("outputs_us", "unheld_outputs_us")
        if self._clock is not None and any(falls(self._clock, clock, name) for name in proofs):
            waiting.begin_again(self.cells, clock.lookup_us)
        return waiting.advance(self.cells, clock, self.rules, self.watermark_steps, _committed(offsets))

    def _fit_now(self, sums: CellTotals) -> Fit | None:
        """Return what the sample shows, if there are violations that a wrong configuration may explain."""
        oracle = self.rules.oracle
        # SEMANTICS 4.29: without ids, also while repeats on record are not compared again.
        has_repeats = not oracle.reads.names_ids and sums.on_record["duplicate"] > 0
        if not has_repeats and not any(sums.violations(name) for name in VIOLATIONS):
            return None
        if not oracle.reads.names_ids:
            # SEMANTICS 4.28: one lost event makes all other results of its bucket incomplete.
            if not oracle.has_windows or oracle.answers_events:
                return None
            growth = self._updating(sums)
            off = self._off_grid()
            return Fit(miscounted(sums.counts, sums.results, off, are_updates=growth is not None), growth)
        seen = self.sample.version, tuple(sums.results.items())
        if self._fit[0] != seen:
            self._fit = seen, fit_of(self.sample, oracle, sums.results)
        return self._fit[1]

    def _updating(self, sums: CellTotals) -> Growth | None:
        """Return how many cells without ids have results that are updates, with an example; None if these are few."""
        found = updating(sums.cells_updated, sums.cells_several, sums.updates, sum(sums.results.values()))
        if found is None or (row := self.cell_states.first("cells_updated")) is None:
            return found
        cell = Expected("", int(self.cells["window_start_us"][row]), self.cells.keys(np.array([row]))[0].as_py())
        return replace(found, example=cell)

    def _off_grid(self) -> int:
        """Return the number of results in memory that name a start at which no cell begins."""
        rows = np.flatnonzero((self.cells["results"] > 0) & (self.cells["expected_count"] == 0))
        off = ~begins(self.rules.oracle, self.cells["window_start_us"][rows])
        return int(self.cells["results"][rows][off].sum())

    def _judge(self, rows: Ints, clock: Clock, offsets: Mapping[TopicPartition, PartitionOffsets]) -> CellTotals:
        """Judge some cells, and compare those whose ids are needed. Returns the totals over all cells in memory."""
        noted: list[tuple[Ints, Judged]] = []
        self.changed = []
        wanting, versions = [], []
        since, room = CellTotals.empty(), SAMPLED_AT_ONCE

        def note(rows: Ints, judged: Judged) -> None:
            nonlocal since
            some = self.cells.some(rows)
            self.cell_states.put(some, rows, judged, clock, self.rules, self._may_leave(some, judged))
            since = with_earliest_due(since, some, judged)
            if judged.changed.any():
                self.changed.append(self._verdicts(rows[judged.changed], judged.of(judged.changed)))
            says = np.zeros(len(rows), dtype=np.bool_)
            for name in VIOLATIONS:
                says |= (judged.on_record[name] > 0) | (some[f"recorded_{name}"] > 0) | (some[f"confirmed_{name}"] > 0)
            noted.append((rows[says], judged.of(says)))

        for part in self._parts(rows):
            close(self.cells.some(part), clock)
            self._close_by_watermark(self.cells.some(part), clock)
            if self.rules.oracle.by_key:
                some = self.cells.some(part)
                clauses = key_verdicts.compare(some, clock, self.rules, is_at_rest(some))
                self.evidence |= {(int(part[at]), "wrong_value"): (clause,) for at, clause in clauses.items()}
            judged = judge(self.cells.some(part), clock, self.rules)
            asks = judged.wants_expansion | judged.wants_evidence
            sampled, room = self._sampled(part, judged, room)
            asks |= sampled
            wanting.append(part[asks])
            versions.append(judged.version[asks])
            note(part[~asks], judged.of(~asks)) if asks.any() else note(part, judged)
        wants = np.concatenate(wanting)
        if len(wants):
            self._compare(wants, np.concatenate(versions), offsets)
            for part in self._parts(wants):
                note(part, self._judged_in_scope(part, clock))
        self._note(noted)
        found = self.cell_states.sums().with_due_since(since.unconsumed_due_us, since.blocked_due_us)
        found = replace(found, changed=sum(len(part.rows) for part in self.changed))
        everywhere = np.ones(len(self.cells), dtype=np.bool_)
        are_needed = self.retired.split_us is not None or self.retired.joined > 0
        return with_pauses(found, self.cells, everywhere, self.rules, are_needed=are_needed)

    def _judged_in_scope(self, rows: Ints, clock: Clock) -> Judged:
        """As `judged_of`, after cells of one id that were judged before their first fact are put out of scope: their
        earlier facts are retired.

        The engine may rightly not answer a repeat (`collapse`), or list an id as often as before and once more
        (emission `cumulative`). Only cells with a new violation are looked up.
        """
        judged = self.judged_of(rows)
        if self.rules.oracle.has_windows or not clock.retired:
            return judged
        new = np.zeros(len(rows), dtype=np.bool_)
        for name in VIOLATIONS if self.rules.oracle.by_key else ("missing", "duplicate"):
            new |= judged.counts[name] > self.cells[f"recorded_{name}"][rows]
        suspects = rows[new]
        if len(suspects):
            # SEMANTICS 7.6: an earlier verdict than the first fact means that retention dropped facts of this cell.
            before = self.known.judged_before(self.cells.keys(suspects), self.cells["first_seen_us"][suspects])
            self.cells.put(RETIRED_BEFORE, suspects[before], 1)
            if before.any():
                return self.judged_of(rows)
        return judged

    def _parts(self, rows: Ints) -> Iterator[Ints]:
        """Return rows in parts whose verdicts fit into memory together; in one part if a verdict depends on other
        cells."""
        size = max(1, len(rows)) if self.cells.depends_on_others else JUDGED_AT_ONCE
        return (rows[start : start + size] for start in range(0, max(1, len(rows)), size))

    def _note(self, noted: Sequence[tuple[Ints, Judged]]) -> None:
        rows = np.concatenate([rows for rows, _ in noted])
        order = np.argsort(rows, kind="stable")
        self.rows, self.judged = rows[order], joined([judged for _, judged in noted]).of(order)

    def _review(self, others: Bools) -> None:
        """Add the cells among ``others`` with a recorded violation to those that may have changes to record.

        The suspected or withdrawn classes have changed, and the violation may be of such a class.
        """
        columns = [self.cells[f"{part}_{name}"] for name in VIOLATIONS for part in ("recorded", "confirmed")]
        some = np.logical_or.reduce([column > 0 for column in columns])
        rows = np.flatnonzero(others & some)
        assert self.judged is not None, "cells are judged before they are reviewed"
        if len(rows):
            self._note([(self.rows, self.judged), (rows, self.judged_of(rows))])

    def judged_of(self, rows: Ints) -> Judged:
        """Return the verdicts of the cells ``rows``, in rising order, by the clock of the last batch."""
        assert self._clock is not None, "cells are judged before their verdicts are requested"
        if self.cells.depends_on_others:
            return judge(self.cells, self._clock, self.rules).of(rows)
        return judge(self.cells.some(rows), self._clock, self.rules)

    def _sampled(self, rows: Ints, judged: Judged, room: int) -> tuple[Bools, int]:
        """Choose the agreeing cells whose ids are compared as a check on fingerprints.

        They are those of ``judged.sampled`` whose facts are in memory, with at most ``room`` contributions together.
        Also returns the remaining room.
        """
        cells, found = self.cells, np.zeros(len(rows), dtype=np.bool_)
        at = np.flatnonzero(judged.sampled)
        at = at[cells["first_batch"][rows[at]] >= self.known.in_memory_from]
        sizes = cells["expected_count"][rows[at]] + cells["processed_count"][rows[at]]
        at, sizes = at[sizes <= SAMPLED_AT_ONCE], sizes[sizes <= SAMPLED_AT_ONCE]
        fits = np.cumsum(sizes) <= room
        found[at[fits]] = True
        return found, room - int(sizes[fits].sum())

    def is_overtaken_by(self, horizon_us: int | None) -> bool:
        """Return whether a new horizon puts settled cells that left memory out of scope. If so, all facts must be
        folded again."""
        rises = horizon_us is not None and horizon_us > self.evicted.oldest_start_us(-1)
        return rises and horizon_us != self.horizon_us

    def judge_recovered(self, progress: IngestProgress) -> None:
        """Judge recovered cells by the clock of ``progress``, to show and grade them, if no batch was judged since.

        The verdicts do not count as recorded. The next batch records those that the derived tables lack.
        """
        if self.judged is None:
            self.absorb(
                None, progress.clock(), partition_offsets_of(progress, reports_unconsumed=self.rules.reports_unconsumed)
            )
            self.judged = self._clock = None
            self.changed = []

    def retire(self, removed: Bools, through_epoch: int, retired: CellTotals) -> None:
        """Remove the cells for which ``removed`` holds, and the settled cells of the epochs up to ``through_epoch``.
        ``retired``: totals of all cells that were ever retired."""
        assert self._clock is not None, "cells were judged before they are retired"
        self._note_recorded()
        self.cells.lateness.forget(self.retirement_effect(removed, through_epoch).lateness_from_us)
        self.cells.drop(removed)
        self._unknown.drop(removed)
        self.evicted.retire(through_epoch)
        self._forget_rows()
        # The next batch judges all remaining cells.
        self._clock = None
        self.retired = retired

    def _forget_rows(self) -> None:
        """Let the rows of tables leave memory that no cell needs any more."""
        rows, cells = self.cells.table_rows, self.cells
        if rows is None or self._clock is None or not self._clock.retired:
            return
        # SEMANTICS 7.6: a new cell that starts before the horizon is out of scope.
        horizon_us = max(at_us for _, at_us in self._clock.retired)
        begins_us = min(int(cells.begins_us.min(initial=NEVER)), self.evicted.oldest_start_us(-1))
        batch = min(int(cells["first_batch"].min(initial=NEVER)), self.evicted.oldest_batch)
        rows.forget(min(horizon_us, begins_us), batch)

    def retirement_effect(self, removed: Bools, through_epoch: int) -> RetirementEffect:
        """Return the effect of retiring the cells for which ``removed`` holds and the settled cells of the epochs up to
        ``through_epoch``."""
        sums, newest_us = self.evicted.through(through_epoch)
        starts = self.cells.begins_us
        newest_us = max(newest_us, int(starts[removed].max(initial=ABSENT)))
        stays_us = min(self.evicted.oldest_start_us(through_epoch), int(starts[~removed].min(initial=NEVER)))
        if newest_us == ABSENT:
            return RetirementEffect(sums, None, ABSENT)
        oracle = self.rules.oracle
        # An event that is late by its own time may be earlier than its cell.
        early_us = oracle.scope_margin_us + oracle.grid_us if oracle.states_pairs else 0
        return RetirementEffect(sums, newest_us + 1, min(newest_us + 1, stays_us - early_us))

    def evict_settled(self) -> None:
        """Note that the effects of the last step are recorded, and remove settled cells from memory.

        Memory then has the state that recovery derives from the facts and the derived tables, without settled cells.
        """
        self._note_recorded()
        self._settle()
        # Only the watermarks that closed a cell, and the last one, are needed. A new cell closes when it is first seen,
        # or later. If an event moves a cell's end, the cell closes when the event is read, or later. Both instants
        # are later than those of all known watermarks.
        marks = [mark_us for mark_us, _ in self.watermark_steps]
        needed = set(np.searchsorted(marks, np.unique(self.cells["end_us"])).tolist()) | {len(marks) - 1}
        self.watermark_steps[:] = [step for number, step in enumerate(self.watermark_steps) if number in needed]
        seen_us = int(self.cells["first_seen_us"].min(initial=NEVER))
        self.run_ends[:] = [rest for rest in self.run_ends if rest[0] >= seen_us]

    def _note_times(self, clock: Clock) -> None:
        mark_us = clock.watermark_us
        if mark_us is not None and (not self.watermark_steps or mark_us > self.watermark_steps[-1][0]):
            self.watermark_steps.append((mark_us, clock.lookup_us))
        if clock.run_end.is_due:
            self.run_ends.append((clock.lookup_us, clock.run_end))

    def _may_leave(self, cells: Columns, it: Judged) -> Bools:
        """Return which of ``cells`` have a verdict that, once it is stored, only new facts can change. ``it``: their
        verdicts."""
        if self.evict_at is None or not self.rules.oracle.ends_are_known:
            return np.zeros(len(it.settled), dtype=np.bool_)
        # SEMANTICS 7.8: unconsumed events can become consumed, which changes what is due for other ids in a join.
        compared = it.compared & (it.outstanding == 0) & (not self.rules.reports_unconsumed)
        if self.rules.oracle.asks_lateness:
            compared &= ~self._may_owe_more(cells)
        found: Bools = it.settled & it.in_scope & it.resolved & (it.agrees | compared) & ~it.violated & ~it.provisional
        found &= it.closed & ~it.wants_evidence
        for name in VIOLATIONS:
            found &= it.on_record[name] == 0
        return found

    def _may_owe_more(self, cells: Columns) -> Bools:
        """Return the compared cells that may owe more once undecodable records are settled: until then, some events
        count as possibly late, and the partners of such events are not owed."""
        latest_us = max((max(ends, default=ABSENT) for ends in self.cells.lateness.possible.values()), default=ABSENT)
        # SEMANTICS 7.8: settling a hidden record proves that it made no event late, and the event's partners are owed.
        found: Bools = (cells["end_us"] <= latest_us) & (cells["x_expected"] < cells["expected_count"])
        for topic in cells.inputs:
            # Without a partner, the events of one side owe the same, whether they are late or not.
            found &= cells[f"given/{topic}"] > 0
        return found

    def _settle(self) -> None:
        """Remove cells from memory whose verdict is stored, and can be changed only by new facts."""
        if self.evict_at is None or self._clock is None or self._clock.watermark_us is None:
            return
        cells, size = self.cells, len(self.cell_states)
        least = max(self.evict_at, size // _SETTLED_SHARE)
        removed = self.cell_states.may_leave[:size]
        if np.count_nonzero(removed) < least:
            return
        # SEMANTICS 3.32: the end of a run closes cells before the watermark passes their end. Retention must derive no
        # horizon from these.
        removed = removed & (cells["end_us"] <= self._clock.watermark_us)
        if np.count_nonzero(removed) < least:
            return
        for epoch in np.unique(cells["epoch"][removed]).tolist():
            of_epoch = np.flatnonzero(removed & (cells["epoch"] == epoch))
            self.evicted.add(cells, of_epoch, self.cell_states.sums(of_epoch))
        cells.drop(removed)
        self._unknown.drop(removed)
        self.cell_states.drop(removed)

    def reload_evicted(
        self, facts: pa.Table, clock: Clock, offsets: Mapping[TopicPartition, PartitionOffsets], *, before_batch: int
    ) -> None:
        """Bring back the settled cells that have more facts among ``facts``, which are not folded yet.
        ``before_batch``: the first batch of which no fact is folded."""
        facts = contributing(facts.select(_CELL_COLUMNS))
        starts = ints(facts["window_start_us"])
        recalled = self.evicted.may_hold(starts, self.rules.oracle.ends_us(starts))
        recalled[recalled] = self.cells.rows_of_facts(facts.filter(pa.array(recalled))) < 0
        if not recalled.any():
            return
        wanted = CellIndex()
        wanted.add(starts[recalled], facts["key"].filter(pa.array(recalled)))
        first = self.evicted.first_batch(starts[recalled])
        back = Judging(_FactsBefore(self.known, before_batch), self.rules, evict_at=None)
        back.cells.lateness = self.cells.lateness
        back.cells.table_rows = self.cells.table_rows
        if back.cells.newest is not None and self.cells.newest is not None:
            back.cells.newest.topics = self.cells.newest.topics
        for part in back.known.facts_to_fold(first, int(starts[recalled].min()), int(starts[recalled].max())):
            known = contributing(part)
            mine = wanted.find(ints(known["window_start_us"]), known["key"]) >= 0
            back.cells.fold(known.filter(pa.array(mine)))
        if not len(back.cells):
            return
        if back.cells.newest is not None:
            back.cells.newest.settle()
        # SEMANTICS 7.8: they are judged as when they left memory: all inputs that may explain their answers had been
        # read.
        back.cells["closed_us"] = self._closed_us(back.cells, clock)
        back.judge_evicted(clock, offsets)
        for epoch in np.unique(back.cells["epoch"]).tolist():
            self.evicted.subtract(epoch, back.sum_of(back.cells["epoch"] == epoch))
        self.cells.adopt(back.cells)

    def _closed_us(self, cells: Columns, clock: Clock) -> Ints:
        """Return the closing times of settled cells, or later instants if the steps that closed them are not known.

        The new facts can be answers that make other ids owed, as in a join. These ids are due from the closing on.
        """
        marks = [mark_us for mark_us, _ in self.watermark_steps]
        instants = np.array([*(at_us for _, at_us in self.watermark_steps), clock.lookup_us], dtype=np.int64)
        return np.maximum(instants[np.searchsorted(marks, cells["end_us"])], cells["first_seen_us"])

    def _close_by_watermark(self, cells: Columns, clock: Clock) -> None:
        """Give closed cells that have facts after the end of a run the closing times that the watermark gives them.

        The end of the run may have closed them earlier. The facts show that the pipeline was not at rest. A restart
        restores the same closing times.
        """
        # SEMANTICS 3.32: a later closing time only delays a loss, so a slow engine is not accused.
        again = (cells["closed_us"] != ABSENT) & (cells["closed_us"] <= cells["rest_us"]) & ~is_resting(cells)
        if again.any():
            closed = np.where(again, np.maximum(cells["closed_us"], self._closed_us(cells, clock)), cells["closed_us"])
            cells["closed_us"] = closed_with_its_events(cells, closed)

    def judge_evicted(self, clock: Clock, offsets: Mapping[TopicPartition, PartitionOffsets]) -> None:
        """Judge settled cells as when they were settled: all inputs and answers count as read, although the closing
        times may be later now. Their verdicts count as stored."""
        all_us = NEVER - 1
        read = replace(clock, inputs_us=all_us, outputs_us=all_us, inputs_held=False, run_end=RunEnd.NONE)
        judged = judge(self.cells, read, self.rules)
        wanting = np.flatnonzero(judged.wants_expansion)
        if len(wanting):
            self._compare(wanting, judged.version[wanting], offsets)
        self._clock = read
        self.cells["recorded_digest"] = judge(self.cells, read, self.rules).digest

    def _effects(self, of_results: list[Violation]) -> Effects:
        judged, clock = self.judged, self._clock
        assert judged is not None, "cells were judged"
        assert clock is not None, "cells were judged"
        rows = changed_violations(
            self.cells,
            self.rows,
            judged,
            self.rules,
            self.evidence,
            suspected=self.suspected,
            withdrawn=self.withdrawn,
            lookup_us=self.lookup_us,
            outages=clock.outages,
        )
        verdicts = pa.concat_tables(part.table for part in self.changed) if self.changed else None
        return Effects(self.sums, [*rows, *of_results], verdicts, self.unread.unexamined)

    def _verdicts(self, rows: Ints, judged: Judged) -> ChangedVerdicts:
        cells = self.cells
        columns: dict[str, pa.Array] = {
            "window_start_us": nullable(cells["window_start_us"][rows]),
            "key": cells.keys(rows).cast(pa.string()),
            "state": pa.DictionaryArray.from_arrays(pa.array(judged.state), pa.array(STATES)).cast(pa.string()),
            "closed_us": nullable(cells["closed_us"][rows]),
            **{name: pa.array(judged.counts[name]) for name in (*CONTRIBUTIONS, *RESULTS)},
        }
        return ChangedVerdicts(rows, judged.digest, pa.table(columns))

    def _mark_stale(self, facts: pa.Table) -> Ints:
        """Mark compared cells with an event among ``facts`` that owes nothing, so that they are compared again: a late
        or rejected record may be of this event. No count of the cell shows that."""
        rows: Ints = self.cells.rows_of_facts(unowed(facts))
        rows = rows[rows >= 0]
        rows = rows[self.cells["x_version"][rows] != ABSENT]
        self.cells.put("x_version", rows, STALE)
        return rows

    def _passed_elsewhere(self, before: Mapping[TopicPartition, int]) -> Ints:
        """Mark the compared cells whose end a partition has passed now, so that they are compared again: its records
        may make events of other partitions late. ``before``: what `_reached_elsewhere` returned before the batch."""
        cells, found = self.cells, np.zeros(len(self.cells), dtype=np.bool_)
        # SEMANTICS 7.2: the verdict must not depend on when the ids were compared.
        for partition, now_us in self._reached_elsewhere().items():
            if now_us > (before_us := before.get(partition, ABSENT)):
                found |= (cells["end_us"] > before_us) & (cells["end_us"] <= now_us)
        found &= cells["x_version"] != ABSENT
        rows = np.flatnonzero(found)
        cells.put("x_version", rows, STALE)
        return rows

    def _reached_elsewhere(self) -> dict[TopicPartition, int]:
        """Return, for each partition, the latest window end for which it may make events of others late; while pauses
        are followed, the latest one for which others may make its own events late."""
        if self.rules.follows_pauses:
            return {partition: max(ends) for partition, ends in self.cells.lateness.paused.items() if ends}
        return self.cells.lateness.furthest() if self.rules.looks_elsewhere else {}

    def _note_recorded(self) -> None:
        if self.judged is not None:
            some = self.cells.some(self.rows)
            changed = note_recorded_violations(
                some,
                self.judged,
                suspected=self.suspected,
                withdrawn=self.withdrawn,
                lookup_us=self.lookup_us,
            )
            # SEMANTICS 2.21: a verdict also depends on what is on record.
            self.cell_states.touch(self.rows[changed])
            for part in self.changed:
                self.cells.put("recorded_digest", part.rows, part.digests)
                self.cell_states.touch(part.rows)
            self.judged, self.changed = None, []

    def sum_of(self, chosen: Bools, unprovable: frozenset[str] = frozenset()) -> CellTotals:
        """Return the totals over these cells. ``unprovable``: violation classes whose suspected violations in the
        cells are never confirmed."""
        found = CellTotals.empty()
        for rows in self._parts(np.flatnonzero(chosen)):
            some, it = self.cells.some(rows), self.judged_of(rows)
            kept = {
                name: confirmed_of(some, it, name, self.suspected, self.withdrawn)
                if name in unprovable
                else it.on_record[name]
                for name in VIOLATIONS
            }
            found = found.plus(totals_of(some, it, kept))
        # SEMANTICS 2.27: a pause within the result of a session that leaves memory still shows what gap the engine has.
        return with_pauses(found, self.cells, chosen, self.rules, are_needed=True)

    def _compare(self, wanting: Ints, versions: Ints, offsets: Mapping[TopicPartition, PartitionOffsets]) -> None:
        """Compare the ids of some cells. ``versions``: the version of each cell that the comparison is based on."""
        if self.rules.oracle.by_key:
            # `key_verdicts.compare` has compared all cells, without their facts.
            return
        for chosen in self._window_parts(wanting):
            rows = wanting[chosen]
            compared = self._compared(rows, offsets, self.known.inputs_with)
            expanded(self.cells, compared, versions[chosen])
            self._unknown.compared(rows, compared.unknown, compared.unknown_texts)
            self.evidence.update(compared.evidence)

    def _compared(
        self,
        rows: Ints,
        offsets: Mapping[TopicPartition, PartitionOffsets],
        known: Callable[[RequestedIds], RequestedIds],
    ) -> Compared:
        windows = self.cells["window_start_us"][rows]
        oldest = int(self.cells["first_batch"][rows].min())
        last = int(self.cells["end_us"][rows].max()) if self.cells.merges else int(windows.max())
        if self.rules.oracle.condition is not None and (self._set_aside(rows) > 0).any():
            # SEMANTICS 2.6: a cell does not record the batches of events that owe nothing, and such an event may excuse
            # a record that was set aside.
            oldest = 0
        near = self.known.facts_of_windows(oldest, int(windows.min()), last)
        resolved = None
        if self.rules.oracle.answers_once and self._clock is not None:
            resolved = is_resolved(SomeCells(self.cells, rows), self._clock)
        outages = () if self._clock is None else self._clock.outages
        return compare(self.cells, rows, near, self.rules, offsets, known, resolved=resolved, outages=outages)

    def _set_aside(self, rows: Ints) -> Ints:
        """Return the number of ids that late and rejected records place in the cells."""
        found: Ints = self.cells["late_count"][rows] + self.cells["rejected_count"][rows]
        return found

    def foreign_ids(self, chosen: Bools) -> Iterator[RequestedIds]:
        """Yield the unexpected ids in the answers of the chosen judged cells, in parts that fit into
        memory. A cell is left out if no input is known to have any of these ids."""
        rows = np.flatnonzero(chosen & ((self.cells["recorded_misplaced"] > 0) | (self.cells["x_known"] > 0)))
        rows = rows[(self.judged_of(rows).on_record["misplaced"] > 0) | (self.cells["x_known"][rows] > 0)]
        requested: list[RequestedIds] = []

        def taken(ids: RequestedIds) -> RequestedIds:
            requested.append(ids)
            return ids

        for part in self._window_parts(rows) if len(rows) else ():
            self._compared(rows[part], {}, taken)
            yield from requested
            requested.clear()

    def _window_parts(self, wanting: Ints) -> Iterator[Ints]:
        """Yield indexes into ``wanting``, by window, in parts whose contributions fit into memory."""
        cells = self.cells
        order = np.argsort(cells["window_start_us"][wanting], kind="stable")
        ordered = wanting[order]
        sizes = sum(cells[f"{name}_count"][ordered] for name in ("expected", "processed", "late", "rejected"))
        part = np.cumsum(sizes) // COMPARED_AT_ONCE
        yield from np.split(order, np.flatnonzero(np.diff(part)) + 1)

"""Rebuilds the state of a run from its tables: progress, cells with their closing times, and recorded verdicts.

Only the tables decide. If an earlier process saved its cells (`validator.stream.saved_cells`), only the facts of later
batches are read. Saved cells are ignored if the tables show that they are no longer valid.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from validator.config.model import Config
from validator.core.evicted import EVICTED_AT_ONCE, EvictedCells
from validator.core.fit_sample import SAMPLE_COLUMNS, FitSample
from validator.core.judging import Facts, Judging, new_cells, partition_offsets_of
from validator.core.unread import (
    CLASS,
    EXTENT_COLUMNS,
    OF_RESULTS,
    Unexamined,
    Unread,
    extents_in,
    unread_rows,
    with_unexamined,
)
from validator.measure.expected import MINUTE_US
from validator.measure.recent import oldest_minute
from validator.model.arrays import ABSENT, NEVER, Ints, ints
from validator.model.coverage import differences_by
from validator.model.frontier import PartitionId, RunEnd
from validator.model.progress import IngestProgress, TimeRules
from validator.model.violation import Violation
from validator.oracles.seam import Oracle
from validator.reconcile.by_key import RECORDED_DUE
from validator.reconcile.cells import FACT_COLUMNS, Cells
from validator.reconcile.evidence.kinds import evidence_of
from validator.reconcile.facts import Kind, Side
from validator.reconcile.judge import (
    CONTRIBUTIONS,
    RESULTS,
    VIOLATIONS,
    Rules,
    closed_with_its_events,
    digest_of_rows,
    is_resting,
)
from validator.reconcile.key_verdicts import due_of_rows
from validator.reconcile.lateness import Lateness
from validator.state.acknowledgements import Acknowledgement
from validator.state.known_facts import KnownFacts
from validator.state.positions import MARK, REREAD, Positions, positions_of
from validator.state.recorded_violations import began_us, confirmed_since, growth_of, summed, violation_of
from validator.state.tables import StateTables, Table
from validator.stream.commit_rows import (
    cut_back_by,
    faults_topics_by,
    former_ids_by,
    frontier_from,
    outages_by,
    replaced_by,
    rest_mark,
    summaries,
    superseded_by,
)
from validator.stream.fault_records import recorded
from validator.stream.retention import RETIRED, Retired, drop_folders, retired_so_far
from validator.stream.run_record import RunRecord
from validator.stream.saved_cells import SavedCells
from validator.stream.void_facts import Rereads, marks_of, rereads_of, without_void

LATEST_KEPT = 100
"""Number of latest violations that a restart restores."""

_VIOLATION_COLUMNS: Final = ("batch", "lookup_us", "window_start_us", "key", "count", "confirmed", "retracted")

Mark = tuple[str, int, int]
"""Text, batch, and lookup instant of the batch (microseconds)."""

Instants = dict[int, tuple[int, int | None]]
"""Batch -> its lookup instant, and the watermark when it began (microseconds)."""


class StateDamaged(Exception):
    """A table of the state cannot be read: one of its files is missing or damaged."""

    exit_status = 3


@contextmanager
def _translate_damage(tables: StateTables) -> Iterator[None]:
    try:
        yield
    except (DeltaError, pa.ArrowException, FileNotFoundError) as error:
        reason = " ".join(str(error).split())[:300]
        raise StateDamaged(
            f"the tables of the state {tables.state} cannot be read: files in it are missing or broken ({reason}): "
            "restore the folder from a backup, or give state.path a new folder"
        ) from error


@dataclass(frozen=True)
class Recovered:
    """The recovered state. A state without facts has no progress and no cells.

    ``sample``, ``evicted``, ``watermark_steps``, ``run_ends``, ``horizon_us``, ``unread``: as in `Judging`.
    ``rereads``: topics that are read again from their start. ``folded_from``: the first batch whose facts were folded.
    """

    progress: IngestProgress
    cells: Cells
    retired: Retired
    sample: FitSample | None = None
    positions: Positions = field(default_factory=Positions)
    evicted: EvictedCells = field(default_factory=EvictedCells)
    watermark_steps: list[tuple[int, int]] = field(default_factory=list)
    run_ends: list[tuple[int, RunEnd]] = field(default_factory=list)
    horizon_us: int | None = None
    rereads: Rereads = field(default_factory=dict)
    unread: Unread = field(default_factory=Unread)
    folded_from: int = 0

    def judging(self, known: Facts, rules: Rules, evict_at: int | None = EVICTED_AT_ONCE) -> Judging:
        """The judging that continues from this state. ``known``: the facts of the state."""
        return Judging(
            known,
            rules,
            cells=self.cells,
            sample=FitSample.of(rules.oracle) if self.sample is None else self.sample,
            retired=self.retired.sums,
            watermark_steps=self.watermark_steps,
            run_ends=self.run_ends,
            horizon_us=self.horizon_us,
            evict_at=evict_at,
            evicted=self.evicted,
            unread=self.unread,
        )


def take_over(tables: StateTables) -> None:
    """See `StateTables.take_over`. Raises `StateDamaged` and `StateTaken`."""
    with _translate_damage(tables):
        tables.take_over()


def time_rules_of(config: Config) -> TimeRules:
    """Return the times of a configuration that frontiers need."""
    timing, oracle = config.timing, config.oracle
    follows = timing.lateness_scope == "idle" and timing.late_policy == "drop" and oracle.excuses_pauses
    return TimeRules(
        timing.max_disorder_us,
        timing.idle_after_us,
        timing.allowed_lateness_us,
        pause_us=timing.idle_after_us // 2 if follows else None,
        follows_inputs=oracle.follows_inputs,
    )


def recover(tables: StateTables, rules: TimeRules, oracle: Oracle, saved: SavedCells | None = None) -> Recovered:
    """Rebuild a state from its facts, or from ``saved`` and the facts of later batches. Raises `StateDamaged`.

    ``saved`` is modified and must not be used afterwards.
    """
    with _translate_damage(tables):
        found = None if saved is None else _since(tables, rules, saved)
        return found or _recovered(tables, rules, oracle)


def _since(tables: StateTables, rules: TimeRules, saved: SavedCells) -> Recovered | None:
    """``saved`` with the facts of later batches; None if ``saved`` is no longer valid."""
    marks = list(marks_of(tables, saved.batch))
    if any(_undoes(mark) for mark, _, _ in marks):
        return None
    kept = ds.field("epoch") > saved.retired.through_epoch
    newest, instants = _frontiers(tables, kept & (ds.field("batch") >= saved.batch))
    if instants.get(saved.batch, (None,))[0] != saved.lookup_us:
        # The tables belong to another state, or are an older copy.
        return None
    drop_folders(tables, saved.retired.through_epoch)
    found = _folded(tables, rules, saved, newest, instants, marks)
    rises = found.progress.clock().horizon_us
    # If the horizon has passed settled cells, they are out of scope, and all cells have to be judged again.
    overtaken = rises != saved.horizon_us and rises is not None and rises > saved.evicted.oldest_start_us(-1)
    return None if overtaken else found


def _reload_evicted(
    tables: StateTables, saved: SavedCells, rules: Rules, later: pa.Table, progress: IngestProgress
) -> None:
    """Reload those settled cells of ``saved`` for which later batches have more facts."""
    known = KnownFacts(tables, first_batch=progress.batch + 1)
    judging = Judging(known, rules, cells=saved.cells, evicted=saved.evicted)
    offsets = partition_offsets_of(progress, reports_unconsumed=rules.reports_unconsumed)
    judging.reload_evicted(later, progress.clock(), offsets, before_batch=saved.batch + 1)


def _undoes(mark: str) -> bool:
    """Whether ``mark`` changes the meaning of facts that were committed before it."""
    return mark.startswith((RETIRED, REREAD, MARK))


def _recovered(tables: StateTables, rules: TimeRules, oracle: Oracle) -> Recovered:
    retired = retired_so_far(tables)
    drop_folders(tables, retired.through_epoch)
    newest, instants = _frontiers(tables, ds.field("epoch") > retired.through_epoch)
    if not newest:
        return Recovered(IngestProgress(rules), new_cells(oracle), Retired())
    # SEMANTICS 4.27: the sample outlives the facts of retired cells.
    sample = FitSample.of(oracle)
    sample.add_json(retired.sample)
    nothing = SavedCells(new_cells(oracle), retired, retired.known_positions(), rereads_of(tables), sample)
    return _folded(tables, rules, nothing, newest, instants, list(marks_of(tables)))


def _folded(
    tables: StateTables,
    rules: TimeRules,
    saved: SavedCells,
    newest: list[dict[str, Any]],
    instants: Instants,
    marks: list[Mark],
) -> Recovered:
    """``saved``, with the facts and derived rows of later batches added.

    ``newest``: the frontier rows of the last batch. ``instants``: the instants of the batch of ``saved`` and of all
    later batches. ``marks``: the marks of later batches.
    """
    retired, rereads = saved.retired, saved.rereads
    kept = (ds.field("epoch") > retired.through_epoch) & (ds.field("batch") >= saved.batch)
    last, texts = newest[0]["batch"], [mark for mark, _, _ in marks]
    positions = positions_of(tables, saved.positions, kept)
    before = IngestProgress(
        rules,
        batch=last,
        lookup_us=newest[0]["lookup_us"],
        watermark_us=newest[0]["frontier"]["watermark_us"],
        frontiers=dict(frontier_from(row) for row in newest),
        retirements=retired.retirements,
        replaced=saved.replaced | replaced_by(texts),
        cut_back=saved.cut_back | cut_back_by(texts),
        faults_topics=saved.faults_topics | faults_topics_by(texts),
        former_ids=saved.former_ids | former_ids_by(texts),
        accepted_records=dict(positions.accepted_records),
        differences=saved.differences,
    ).with_outages(*saved.outages, *outages_by(texts))
    before = before.with_differences(differences_by(texts))
    if (superseded := superseded_by(marks)) is not None:
        # If the last batch had it, the next one counts, too.
        before = replace(before, superseded_us=superseded[1], is_superseding=superseded[0] == last)
    cells, not_examined = saved.cells, saved.unexamined
    of_last = []
    sampled = SAMPLE_COLUMNS if saved.sample.ids_most else ()
    columns = list(dict.fromkeys([*cells.fact_columns, *sampled, "first_event_time_us", "stretches"]))
    for facts in tables.scan(Table.FACTS, columns, kept & (ds.field("kind") == Kind.FACT.value)):
        of_last.append(facts.filter(pa.array(ints(facts["batch"]) == last)))
        later = without_void(facts.filter(pa.array(ints(facts["batch"]) > saved.batch)), rereads)
        if saved.rules is not None:
            _reload_evicted(tables, saved, saved.rules, later, before)
        not_examined = with_unexamined(not_examined, unread_rows(later))
        cells.absorb(positions.unsettled(later))
        saved.sample.absorb(later)
    progress = before.with_facts(summaries(pa.concat_tables(of_last)) if of_last else [])
    steps = _watermark_steps(instants, progress, saved.watermark_steps)
    run_ends = [*saved.run_ends, *_run_ends(marks, rereads)]
    if cells.newest is not None:
        # SEMANTICS 7.4, 3.12: a result that was withdrawn after the end of a run has opened its cell again.
        cells.newest.settle()
    _restore_closing(cells, steps, run_ends)
    _restore_recorded(tables, cells, saved.batch)
    return Recovered(
        progress,
        cells,
        retired,
        saved.sample,
        positions,
        evicted=saved.evicted,
        watermark_steps=steps,
        run_ends=run_ends,
        horizon_us=saved.horizon_us,
        rereads=rereads,
        unread=unread_of(tables, progress, not_examined),
        folded_from=saved.batch + 1,
    )


def unread_of(tables: StateTables, progress: IngestProgress, unexamined: Mapping[PartitionId, Unexamined]) -> Unread:
    """The records whose content is not known. ``unexamined``: as in `Unread`."""
    rows = [row for part in tables.scan(Table.VIOLATIONS, None, ds.field("class") == CLASS) for row in part.to_pylist()]
    began = began_us(tables, {row["violation"] for row in rows})
    recorded: dict[str, Violation] = {}
    for row in sorted(rows, key=itemgetter("batch")):
        before = recorded.get(row["key"])
        confirmed_now = row["confirmed"] - row["retracted"] + (0 if before is None else before.confirmed_now)
        recorded[row["key"]] = replace(violation_of(row, began.get(row["violation"])), confirmed_now=confirmed_now)
    known = {name: one.count for name, one in recorded.items()}
    is_behind = any(
        frontier.side == Side.OUTPUT.value and frontier.undecodable > known.get(str(partition), 0)
        for partition, frontier in progress.frontiers.items()
    )
    # After a kill between the commits of facts and violations, the offsets of all batches are read once.
    parts = tables.scan(Table.FACTS, EXTENT_COLUMNS, OF_RESULTS) if is_behind else ()
    return Unread(unexamined, recorded, extents_in(parts))


def lateness_of(tables: StateTables, positions: Positions, through_epoch: int) -> Lateness:
    """The lateness proven by the facts of epochs after ``through_epoch``. Settled records are left out."""
    found = Lateness()
    where = (
        (ds.field("epoch") > through_epoch) & (ds.field("kind") == Kind.FACT.value) & ds.field("reach_us").is_valid()
    )
    columns = [*FACT_COLUMNS, "stretches"]
    rereads = rereads_of(tables)
    for facts in tables.scan(Table.FACTS, columns, where & (ds.field("side") == Side.INPUT.value)):
        found.absorb(positions.unsettled(without_void(facts, rereads)))
    return found


def _frontiers(tables: StateTables, kept: ds.Expression) -> tuple[list[dict[str, Any]], Instants]:
    """The frontier rows of the last batch, and the instants of every batch.

    The facts may hold the batches of several days, so only two numbers of each batch are kept in memory.
    """
    newest: list[dict[str, Any]] = []
    instants: Instants = {}
    columns = ["batch", "lookup_us", "side", "topic", "partition", "frontier"]
    for part in tables.scan(Table.FACTS, columns, kept & (ds.field("kind") == Kind.FRONTIER.value)):
        batch = ints(part["batch"])
        watermarks = pc.struct_field(part["frontier"], "watermark_us").to_pylist()
        instants.update(zip(batch.tolist(), zip(part["lookup_us"].to_pylist(), watermarks, strict=True), strict=True))
        last = int(batch.max())
        if not newest or last > newest[0]["batch"]:
            newest = []
        if not newest or last == newest[0]["batch"]:
            newest += part.filter(pa.array(batch == last)).to_pylist()
    return newest, instants


def _restore_closing(cells: Cells, steps: list[tuple[int, int]], run_ends: list[tuple[int, RunEnd]]) -> None:
    """Restore the cells' closing times and instants of rest, as they were decided."""
    reached = [watermark for watermark, _ in steps]
    ends, at = np.unique(cells["end_us"], return_inverse=True)
    passed = np.full(len(ends), ABSENT, dtype=np.int64)
    for i, end in enumerate(ends.tolist()):
        # Watermarks never fall: the first step that reached the cell's end closed it.
        step = bisect_left(reached, end)
        if step < len(steps):
            passed[i] = steps[step][1]
    first_seen = cells["first_seen_us"]
    # If the row of a key, or of a part of a session, has no facts of its own, it was never seen.
    known_seen = np.where(first_seen == NEVER, ABSENT, first_seen)
    closed = np.where(passed[at] == ABSENT, ABSENT, np.maximum(passed[at], known_seen))
    for instant, run_end in sorted(run_ends):
        seen = first_seen <= instant
        if run_end.is_due:
            cells["rest_us"] = np.where(seen, instant, cells["rest_us"])
        if run_end.closes_all:
            # Facts that were read later have reopened the cell (`judge.close`).
            rests = seen & is_resting(cells)
            closed[rests & ((closed == ABSENT) | (closed > instant))] = instant
    cells["closed_us"] = closed_with_its_events(cells, closed)


def _run_ends(marks: Iterable[Mark], rereads: Rereads) -> list[tuple[int, RunEnd]]:
    """The ends of `--once` runs that found the pipeline at rest: lookup instant, and what was closed."""
    of_mark = {rest_mark(run_end): run_end for run_end in RunEnd if run_end.is_due}
    # A topic that is read again may contain results that were missing: earlier ends of runs are void.
    over_us = max((lookup_us for _, lookup_us in rereads.values()), default=-1)
    return [(lookup_us, of_mark[mark]) for mark, _, lookup_us in marks if mark in of_mark and lookup_us > over_us]


def _watermark_steps(
    instants: Instants, progress: IngestProgress, known: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """(watermark, lookup instant of the batch that reached it), in rising order.

    ``known``: the steps before the first of ``instants``.
    """
    found = dict(known)
    before: int | None = None
    for _, (lookup_us, watermark_us) in sorted(instants.items()):
        # A frontier row has the watermark at the start of its batch. The previous batch reached that watermark.
        if watermark_us is not None and before is not None:
            found[watermark_us] = min(before, found.get(watermark_us, before))
        before = lookup_us
    steps = sorted(found.items())
    if progress.watermark_us is not None and (not steps or progress.watermark_us > steps[-1][0]):
        steps.append((progress.watermark_us, progress.lookup_us))
    return steps


def _restore_recorded(tables: StateTables, cells: Cells, after_batch: int = -1) -> None:
    """Restore the cells' recorded verdicts and violations from derived rows of batches after ``after_batch``."""
    later = ds.field("batch") > after_batch
    columns = ["batch", "window_start_us", "key", *CONTRIBUTIONS, *RESULTS]
    _latest(cells, tables.scan(Table.VERDICTS, columns, later), "recorded_digest", digest_of_rows)
    if cells.oracle.by_key:
        for part in tables.scan(Table.VERDICTS, columns, later & (ds.field("missing") > 0)):
            own = cells.own_rows_of(part)
            np.maximum.at(cells.array(RECORDED_DUE), own[own >= 0], due_of_rows(part)[own >= 0])
    for name in VIOLATIONS:
        of_class = later & (ds.field("class") == evidence_of(cells.oracle).class_of(name))
        rows = tables.scan(Table.VIOLATIONS, _VIOLATION_COLUMNS, of_class)
        _restore_violations(cells, name, rows)
    # A kill between the appends to the two tables leaves violations without a verdict. The cell counts as recorded.
    some = np.zeros(len(cells), dtype=np.bool_)
    for name in VIOLATIONS:
        some |= cells[f"recorded_{name}"] != 0
    cells.put("recorded_digest", np.flatnonzero(some & (cells["recorded_digest"] == ABSENT)), 0)


def _restore_violations(cells: Cells, name: str, parts: Iterable[pa.Table]) -> None:
    """Restore the cells' violations of class ``name`` from rows of the violations table."""
    found: list[tuple[Ints, ...]] = [(np.empty(0, dtype=np.int64),) * 5]
    for part in parts:
        rows = rows_of_derived(cells, part)
        columns = (rows, *(ints(part[column]) for column in ("batch", "lookup_us", "count")))
        grown = growth_of(part)
        found.append(tuple(column[rows >= 0] for column in (*columns, grown)))
    rows, batch, lookup_us, count, grown = (np.concatenate(columns) for columns in zip(*found, strict=True))
    np.add.at(cells.array(f"confirmed_{name}"), rows, grown)
    order = np.lexsort((batch, rows))
    rows, lookup_us, count = rows[order], lookup_us[order], count[order]
    before = cells[f"recorded_{name}"][rows]
    same = rows[1:] == rows[:-1]
    before[1:][same] = count[:-1][same]
    began = (count > 0) & (before == 0)
    # If a cell has several rows, the last assignment, of the newest row, wins.
    cells.put(f"recorded_{name}", rows, count)
    cells.put(f"began_{name}", rows[began], lookup_us[began])


def rows_of_derived(cells: Cells, derived: pa.Table) -> Ints:
    """Indices of the cells of a derived table's rows; -1 if retention dropped the cell of a row.

    A record that is read later for such a cell creates a new cell, which is out of scope and does not match these rows:
    it was first seen after them. For a session's part, the slot's instant counts: `first_seen_us` may be the session's.
    """
    rows, seen_us = cells.own_rows_of(derived), cells.slot_seen_us
    known = rows >= 0
    rows[known] = np.where(ints(derived["lookup_us"])[known] < seen_us[rows[known]], -1, rows[known])
    return rows


def _latest(cells: Cells, parts: Iterable[pa.Table], name: str, value: Any) -> None:
    """Fill the column ``name`` with the value of each cell's newest row."""
    newest = np.full(len(cells), ABSENT, dtype=np.int64)
    column = cells.array(name)
    for part in parts:
        rows = cells.own_rows_of(part)
        batch: Ints = ints(part["batch"])
        values: Ints = value(part)
        order = np.argsort(batch, kind="stable")
        order = order[rows[order] >= 0]
        order = order[batch[order] >= newest[rows[order]]]
        # If a cell has several rows, the last assignment, of the newest row, wins.
        column[rows[order]] = values[order]
        newest[rows[order]] = batch[order]


def follow_acknowledged(tables: StateTables, record: RunRecord, found: Mapping[str, Acknowledgement]) -> None:
    """Apply the current acknowledgements to ``record``. Raises `StateDamaged`."""
    with _translate_damage(tables):
        record.acknowledged.follow(tables, found)


def restore_record(tables: StateTables, record: RunRecord) -> None:
    """Restore counters, recent minutes, latest violations, faults and the number of earlier starts of ``record``.

    Raises `StateDamaged`.
    """
    with _translate_damage(tables):
        _restored(tables, record)
        record.faults_read(recorded(tables))
        record.restarts = sum(part.num_rows for part in tables.scan(Table.RUNS, ["generation"]))


def _restored(tables: StateTables, record: RunRecord) -> None:
    newest: list[dict[str, Any]] = []
    sums: list[dict[str, Any]] = []
    for part in tables.scan(Table.VIOLATIONS):
        sums += summed(part)
        last = part.sort_by([("batch", "descending")]).slice(0, LATEST_KEPT)
        newest = sorted([*newest, *last.to_pylist()], key=lambda row: -row["batch"])[:LATEST_KEPT]
    record.add_recorded(sums)
    newest_us = max((row["lookup_us"] for row in sums), default=0)
    for move in confirmed_since(tables, oldest_minute(newest_us) * MINUTE_US):
        record.recent.apply_change(*move)
    began = began_us(tables, [row["violation"] for row in newest])
    for row in reversed(newest):
        record.remember(violation_of(row, began.get(row["violation"])))

"""A restarted process closes the same cells, parts of sessions and rows of keys as one that goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit import retained_run
from tests.unit.memory_tables import MemoryTables
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from tests.unit.retained_run import (
    CUMULATIVE,
    EPOCH_US,
    OF_LISTS,
    OF_SESSIONS,
    RETENTION_US,
    START_US,
    TIME_RULES,
    ListRun,
    Run,
    clock,
    event,
    events,
    progress,
    results,
)
from validator.core.judging import Judging
from validator.model.frontier import Clock, Frontier, PartitionId, RunEnd
from validator.model.progress import IngestProgress
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables, Table
from validator.stream.commit_rows import epoch_of, frontier_rows, mark_row, rest_mark
from validator.stream.recording import CommitContext, record
from validator.stream.recovery import recover, restore_record
from validator.stream.run_record import RunRecord


@pytest.fixture
def watermarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs commit the watermark of each batch."""
    monkeypatch.setattr(
        retained_run, "frontier_rows", lambda progress, _, us: frontier_rows(progress, progress.watermark_us, us)
    )


@pytest.mark.usefixtures("watermarks")
@pytest.mark.parametrize("restarts", [False, True])
def test_parts_of_an_answered_session_are_not_undecided(restarts: bool, tmp_path: Path) -> None:
    run = Run(tmp_path / "state")
    run.judging = Judging(KnownFacts(run.tables, first_batch=0), OF_SESSIONS)
    session = [event(number, number * MINUTE_US, START_US, 0) for number in range(3)]
    run.batch(START_US, *session, fact("output", [0, 1, 2], batch=0, lookup_us=START_US))
    run.batch(START_US + 100)
    if restarts:
        known = KnownFacts(run.tables, first_batch=run.progress.batch + 1)
        run.judging = recover(run.tables, TIME_RULES, OF_SESSIONS.oracle).judging(known, OF_SESSIONS)
    later = START_US + RETENTION_US + 2 * EPOCH_US
    run.batch(later, event(9, 100 * MINUTE_US, later, run.progress.batch + 1))
    run.retire()
    assert (run.retired.sums.cells_seen, run.retired.sums.cells_undecided) == (1, 0)


@pytest.mark.usefixtures("watermarks")
@pytest.mark.parametrize("restarts", [False, True])
def test_the_row_of_a_key_leaves_with_its_cells(restarts: bool, tmp_path: Path) -> None:
    run, at = ListRun(tmp_path / "state"), START_US
    run.read(at, events(1, at, (1, "k", at - 9)))
    if restarts:
        found = recover(run.tables, TIME_RULES, CUMULATIVE)
        known = KnownFacts(run.tables, first_batch=run.progress.batch + 1)
        run.judging = found.judging(known, OF_LISTS)
    run.read(at + 1, results(2, at + 1, ("k", [1])))
    for number in range(1, 4):
        later = at + number * (RETENTION_US + 2 * EPOCH_US)
        id_ = 10 + number
        run.read(later, events(id_, later, (id_, f"z{number}", later - 5)), results(id_, later, (f"z{number}", [id_])))
        run.retire()
    assert '["k"]' not in run.judging.cells.keys().to_pylist()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_cell_that_a_withdrawal_opened_again_after_the_end_of_a_run_is_due_since_it_closed(restarts: bool) -> None:
    """The newest list of a key lacks an id for a time, as after a restart of the engine."""
    rules = Rules(oracle=CUMULATIVE, overdue_after_us=1, missing_after_us=100)
    tables, at = MemoryTables(), START_US
    judging = Judging(KnownFacts(tables, first_batch=0), rules)

    def clock_at(us: int, watermark_us: int, end: RunEnd = RunEnd.NONE) -> Clock:
        return Clock(us, watermark_us, us, us, us, None, None, 0, False, False, run_end=end)

    def batch(number: int, us: int, before: int | None, now: int, parts: Sequence[pa.Table], end: RunEnd) -> None:
        frontiers = {
            PartitionId(topic, 0): Frontier(side, topic, 0, "topic", 0, 10, 0, 10, 10, us, read_through_us=us)
            for side, topic in (("input", "in"), ("output", "out"))
        }
        reached = IngestProgress(TIME_RULES, batch=number, lookup_us=us, watermark_us=now, frontiers=frontiers)
        rows = [*parts, frontier_rows(reached, before, RETENTION_US)]
        rows += [mark_row(reached, rest_mark(end), RETENTION_US)] if end.is_due else []
        tables.append(pa.concat_tables(rows), Table.FACTS, writer="w", version=number)
        judging.absorb(pa.concat_tables(parts) if parts else None, clock_at(us, now, end), {})

    batch(0, at, None, 500, [events(0, at, (1, "k", 1000)), results(0, at, ("k", [1]))], RunEnd.NONE)
    batch(1, at + 10, 500, 500, [], RunEnd.ALL)
    batch(2, at + 20, 500, 500, [events(2, at + 20, (2, "k", 1100)), results(2, at + 20, ("k", [2]))], RunEnd.NONE)
    batch(3, at + 110, 500, 2000, [events(3, at + 110, (3, "z", 2001))], RunEnd.NONE)
    if restarts:
        found = recover(tables, TIME_RULES, CUMULATIVE)
        judging = found.judging(KnownFacts(tables, first_batch=4), rules)
    sums = judging.absorb(None, clock_at(at + 130, 2000), {})
    assert (sums.counts["overdue"], sums.counts["missing"]) == (1, 0)


@pytest.mark.parametrize("killed", [False, True])
def test_a_violation_of_a_part_is_retracted_also_after_a_kill(killed: bool, tmp_path: Path) -> None:
    """A session is joined by an earlier slot and answered. The sidecar is killed after these facts, before the
    retraction. A table returns its newest file first."""
    tables, run_record = StateTables(tmp_path), RunRecord()
    judging = Judging(KnownFacts(tables, first_batch=0), OF_SESSIONS)

    def batch(number: int, at: int, rows: Sequence[dict[str, Any]], *, recorded: bool = True) -> None:
        dated = [{**row, "epoch": epoch_of(at, RETENTION_US)} for row in rows]
        table = facts(*dated) if dated else None
        reached = progress(number, at, 2**60)
        parts = [frontier_rows(reached, 2**60 if number else None, RETENTION_US), *([] if table is None else [table])]
        tables.append(pa.concat_tables(parts), Table.FACTS, writer="w", version=number)
        if recorded:
            judging.absorb(table, clock(at), {})
            record(judging._effects([]), CommitContext(tables, "w", number, at), run_record, lambda: at)

    at = START_US
    batch(0, at, [event(1, 10 * MINUTE_US + 5, at, 0)])
    batch(1, at + 10, [])
    answer = fact("output", [1, 2], batch=2, lookup_us=at + 20, window_us=9 * MINUTE_US)
    batch(2, at + 20, [event(2, 9 * MINUTE_US + 30_000_000, at + 20, 2), answer], recorded=not killed)
    if killed:
        found = recover(tables, TIME_RULES, OF_SESSIONS.oracle)
        run_record = RunRecord()
        restore_record(tables, run_record)
        judging = found.judging(KnownFacts(tables, first_batch=3), OF_SESSIONS)
    batch(3, at + 40, [])
    rows = [row for part in tables.scan(Table.VIOLATIONS) for row in part.to_pylist() if row["class"] == "missing"]
    assert (sum(row["confirmed"] for row in rows), sum(row["retracted"] for row in rows)) == (1, 1)

"""Retention: data older than `state.retention` leaves memory and disk, and the totals stay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from tests.unit.retained_run import (
    EPOCH_US,
    RETENTION_US,
    RULES,
    START_US,
    TIME_RULES,
    WATERMARK_US,
    Run,
    clock,
    progress,
)
from validator.core.judging import Judging, new_cells
from validator.model.arrays import ABSENT
from validator.model.frontier import PartitionId
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.judge import close
from validator.reconcile.lateness import offset_gap_row
from validator.state.known_facts import KnownFacts
from validator.state.positions import Positions, Settlement, Stretch
from validator.state.tables import StateTables, Table
from validator.stream import retention
from validator.stream.commit_rows import epoch_length_us, epoch_of, replaced_mark
from validator.stream.recovery import lateness_of, recover


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Two old cells, one of which has new facts later, and a new cell. The old epoch can then be dropped."""
    run = Run(tmp_path / "state")
    at = START_US
    run.batch(
        at,
        fact("input", [1, 2, 3], batch=0, lookup_us=at, key="done"),
        fact("output", [1, 2], batch=0, lookup_us=at, key="done"),
        fact("input", [7, 8], batch=0, lookup_us=at, key="open"),
    )
    later = at + RETENTION_US + 2 * epoch_length_us(RETENTION_US)
    run.batch(
        later,
        fact("output", [7, 8, 8], batch=1, lookup_us=later, key="open"),
        fact("input", [9], batch=1, lookup_us=later, window_us=MINUTE_US, key="new"),
    )
    return run


def test_unchanged_cells_are_retired_and_their_totals_stay(run: Run) -> None:
    before = run.judging.sums
    assert (before.counts["missing"], before.counts["duplicate"]) == (1, 1)
    run.retire()
    assert run.judging.cells.keys().to_pylist() == ["open", "new"]
    after = run.judging.absorb(None, clock(run.progress.lookup_us), {})
    assert (after.counts, after.cells_seen, after.cells_violated) == (
        before.counts,
        before.cells_seen,
        before.cells_violated,
    )


def test_excess_stays_counted_when_its_cells_are_retired(tmp_path: Path) -> None:
    """Excess that hidden inputs cannot explain stays confirmed: the passing of time never makes it explicable."""
    run = Run(tmp_path / "state")
    for number in range(3):
        at = START_US + number * (RETENTION_US + 2 * EPOCH_US)
        key = f"cell-{number}"
        run.batch(
            at,
            fact("input", [1], batch=number, lookup_us=at, window_us=number * MINUTE_US, key=key),
            fact("output", [1, 1], batch=number, lookup_us=at, window_us=number * MINUTE_US, key=key),
        )
        if number:
            run.retire()
    assert run.judging.cells.keys().to_pylist() == ["cell-2"]
    after = run.judging.absorb(None, clock(run.progress.lookup_us), {})
    assert (after.on_record["duplicate"], after.cells_in_excess) == (3, 3)
    again = _of_a_restart(run).sums
    assert (again.on_record["duplicate"], again.cells_in_excess) == (3, 3)


def test_missing_events_stay_counted_when_their_cell_is_retired(run: Run) -> None:
    run.retire()
    sums = run.judging.absorb(None, clock(run.progress.lookup_us), {})
    assert (sums.on_record["missing"], sums.cells_missing) == (1, 1)


def test_old_epochs_are_deleted_and_remaining_facts_rewritten(run: Run) -> None:
    old = epoch_of(START_US, RETENTION_US)
    assert old in run.epochs()
    run.retire()
    assert old not in run.epochs()
    keys = [row["key"] for part in run.tables.scan(Table.FACTS) for row in part.to_pylist() if row["kind"] == "fact"]
    assert sorted(keys) == ["new", "open", "open"]


def test_a_restart_after_retention_reports_the_same(run: Run) -> None:
    run.retire()
    again = recover(StateTables(run.tables.state), TIME_RULES, RULES.oracle)
    judging = Judging(
        KnownFacts(run.tables, first_batch=again.progress.batch + 1), RULES, again.cells, retired=again.retired.sums
    )
    # The restart closes a cell, since this progress has no watermark. It is due by the second step.
    for later in (1, 10):
        found = judging.absorb(None, clock(run.progress.lookup_us + later), {})
        expected = run.judging.absorb(None, clock(run.progress.lookup_us + later), {})
    assert (found.counts, found.results, found.cells_seen) == (expected.counts, expected.results, expected.cells_seen)
    assert again.retired == run.retired


def test_a_start_deletes_the_folders_that_a_killed_process_left(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as killed:
        killed.setattr(retention, "drop_folders", lambda *_: None)
        run.retire()
    old = epoch_of(START_US, RETENTION_US)
    assert old in run.epochs()
    again = recover(StateTables(run.tables.state), TIME_RULES, RULES.oracle)
    assert old not in run.epochs()
    assert sorted(map(str, again.cells.keys().to_pylist())) == ["new", "open"]


def test_a_cell_that_closes_when_it_is_old_stays_until_its_loss_is_proven(tmp_path: Path) -> None:
    """The inputs paused for longer than the retention. The event that ends the pause closes the window."""
    run = Run(tmp_path / "state")
    run.batch(START_US, fact("input", [1], batch=0, lookup_us=START_US, key="old"), watermark_us=0)
    later = START_US + RETENTION_US + 2 * EPOCH_US
    run.batch(later, fact("input", [2], batch=1, lookup_us=later, window_us=MINUTE_US, key="new"))
    assert run.judging.sums.counts["missing"] == 0
    run.retire()
    assert run.judging.absorb(None, clock(later + RULES.missing_after_us + 1), {}).counts["missing"] == 2
    last = later + 2 * RETENTION_US
    run.batch(last)
    run.retire()
    assert not len(run.judging.cells), "it is not kept for good"
    assert run.judging.absorb(None, clock(last), {}).counts["missing"] == 2


def test_a_cell_whose_ids_are_not_compared_yet_is_counted_as_an_estimate(tmp_path: Path) -> None:
    run = Run(tmp_path / "state")
    run.progress = progress(0, START_US)
    late_rows = [
        fact("input", [1, 2], batch=0, lookup_us=START_US, key="behind"),
        fact("output", [1, 9], batch=0, lookup_us=START_US, key="behind"),
        fact("input", [3], batch=0, lookup_us=START_US, key="open"),
    ]
    run._append(facts(*late_rows))
    behind = replace(clock(START_US), inputs_us=START_US - 1)
    found = run.judging.absorb(facts(*late_rows), behind, {})
    assert (found.cells_estimated, found.counts["processed"], found.counts["unresolved"]) == (1, 2, 0)
    found = run.judging.absorb(None, clock(START_US), {})
    assert (found.cells_estimated, found.counts["processed"], found.counts["unknown_id"]) == (0, 1, 1)


def test_a_record_read_later_for_a_retired_cell_is_out_of_scope(run: Run) -> None:
    run.retire()
    at = run.progress.lookup_us + 5
    late = facts(fact("output", [3], batch=9, lookup_us=at, key="done"))
    now = replace(clock(at), retired=tuple((r.at_us, r.horizon_us) for r in run.progress.retirements))
    run.judging.absorb(late, now, {})
    judged = run.judging.judged_of(np.arange(len(run.judging.cells)))
    row = run.judging.cells.keys().to_pylist().index("done")
    assert not judged.in_scope[row]
    assert not judged.violated[row]


def _of_a_restart(run: Run) -> Judging:
    again = recover(StateTables(run.tables.state), TIME_RULES, RULES.oracle)
    known = KnownFacts(run.tables, first_batch=again.progress.batch + 1)
    found = Judging(known, RULES, again.cells, retired=again.retired.sums)
    for later in (1, 10):
        found.absorb(None, clock(run.progress.lookup_us + later), {})
        run.judging.absorb(None, clock(run.progress.lookup_us + later), {})
    return found


def _same(found: Judging, expected: Judging) -> None:
    assert (found.sums.counts, found.sums.cells_seen) == (expected.sums.counts, expected.sums.cells_seen)


def test_a_cell_read_across_two_epochs_is_retired_as_a_whole(tmp_path: Path) -> None:
    """A newer result keeps the cell, so its events of the old epoch are rewritten. They must leave with the cell."""
    run = Run(tmp_path / "state")
    at = START_US
    run.batch(at, fact("input", [1, 2], batch=0, lookup_us=at, key="across"))
    run.batch(at + EPOCH_US, fact("output", [1, 2], batch=1, lookup_us=at + EPOCH_US, key="across"))
    for number in (1, 2):
        now = at + RETENTION_US + number * EPOCH_US
        run.batch(now, fact("input", [9], batch=2 * number, lookup_us=now, window_us=number * MINUTE_US, key="new"))
        run.retire()
    assert "across" not in run.judging.cells.keys().to_pylist()
    found = _of_a_restart(run)
    assert "across" not in found.cells.keys().to_pylist()
    _same(found, run.judging)


def test_a_cell_is_counted_once_for_any_instant_of_retention(tmp_path: Path) -> None:
    """If retention runs late in an epoch, some cells are older than it allows while their epoch is not dropped yet."""
    run = Run(tmp_path / "state")
    at = START_US
    run.batch(at, fact("input", [1], batch=0, lookup_us=at, key="old"))
    run.batch(at + EPOCH_US, fact("input", [2], batch=1, lookup_us=at + EPOCH_US, key="next"))
    run.batch(
        now := at + RETENTION_US + EPOCH_US + EPOCH_US // 2, fact("input", [3], batch=2, lookup_us=now, key="new")
    )
    run.retire()
    found = _of_a_restart(run)
    _same(found, run.judging)
    assert found.sums.counts["expected"] == 3


def test_an_event_far_in_the_future_hides_no_event_after_retention(tmp_path: Path) -> None:
    run = Run(tmp_path / "state")
    far_us = WATERMARK_US * 2
    at = START_US
    run.batch(at, fact("input", [1], batch=0, lookup_us=at, window_us=far_us, key="far"))
    later = at + RETENTION_US + 2 * EPOCH_US
    run.batch(later, fact("input", [2], batch=1, lookup_us=later, key="new"))
    run.retire()
    at = run.progress.lookup_us + 5
    now = replace(clock(at), retired=tuple((r.at_us, r.horizon_us) for r in run.progress.retirements))
    coming = facts(fact("input", [3], batch=9, lookup_us=at, window_us=MINUTE_US, key="coming"))
    run.judging.absorb(coming, now, {})
    judged = run.judging.judged_of(np.arange(len(run.judging.cells)))
    assert judged.in_scope[run.judging.cells.keys().to_pylist().index("coming")]
    # The cell stays: it was rewritten into an epoch that is kept.
    assert "far" in run.judging.cells.keys().to_pylist()
    assert "far" in _of_a_restart(run).cells.keys().to_pylist()


def test_an_event_at_the_end_of_time_closes_nothing() -> None:
    cells = new_cells(RULES.oracle)
    window_us = 2**63 - 1 - MINUTE_US // 2
    cells.absorb(facts(fact("input", [1], batch=0, lookup_us=START_US, window_us=window_us)))
    close(cells, clock(START_US))
    assert cells["closed_us"].tolist() == [ABSENT]


def test_evidence_for_passed_windows_is_retired_with_them(tmp_path: Path) -> None:
    """Otherwise one entry per window and partition would remain for as long as the sidecar runs."""
    run = Run(tmp_path / "state")
    for number in range(4):
        at = START_US + number * (RETENTION_US + 2 * EPOCH_US)
        window_us = number * MINUTE_US
        event = fact("input", [number], batch=number, lookup_us=at, window_us=window_us)
        run.batch(at, {**event, "reach_us": window_us})
        if number:
            run.retire()
    assert run.judging.cells["window_start_us"].tolist() == [3 * MINUTE_US]
    assert list(run.judging.cells.lateness.proven["input", 0]) == [3 * MINUTE_US]


def test_a_start_after_retention_restores_late_and_possibly_late_events(tmp_path: Path) -> None:
    """The facts that showed the lateness have been dropped, but cells of later windows are still open and need it."""
    run = Run(tmp_path / "state")
    run.judging.rules = replace(RULES, drops_late=True)
    window_us = 5 * MINUTE_US
    for number in range(3):
        at = START_US + number * (RETENTION_US + 2 * EPOCH_US)
        event = fact("input", [number], batch=number, lookup_us=at, window_us=number * MINUTE_US)
        poison = {**offset_gap_row("input", 0, 7, window_us), "batch": number, "lookup_us": at, "epoch": 0}
        run.batch(at, {**event, "reach_us": window_us}, *([poison] if number == 0 else []))
        if number:
            run.retire()
    known = run.judging.cells.lateness
    assert (known.proven, known.possible) == ({("input", 0): {window_us: 0}}, {("input", 0): {window_us: 6}})
    assert recover(run.tables, TIME_RULES, TumblingWindow.of(MINUTE_US)).cells.lateness == known


def test_an_operator_settles_positions_folded_by_retention(tmp_path: Path) -> None:
    """The operator's settlement does not cover an event that was too far ahead, or expired records."""
    run = Run(tmp_path / "state")
    run.judging.rules = replace(RULES, drops_late=True)
    window_us, place = 9 * MINUTE_US, PartitionId("input", 0)
    poison = {**offset_gap_row("input", 0, 7, window_us), "records": 2, "last_offset": 9}
    poison["stretches"] = [{"first": at, "last": at, "records": 1} for at in (6, 9)]
    ahead = {**fact("input", [5], batch=0, lookup_us=START_US, window_us=8 * MINUTE_US), "reach_us": 8 * MINUTE_US}
    ahead |= {"newest_event_time_us": None, "first_offset": 3, "last_offset": 3}
    gone = {**offset_gap_row("input", 0, 2, 7 * MINUTE_US), "batch": 0, "lookup_us": START_US}
    for number in range(3):
        at = START_US + number * (RETENTION_US + 2 * EPOCH_US)
        event = fact("input", [number], batch=number, lookup_us=at, window_us=number * MINUTE_US)
        run.batch(at, event, *([{**poison, "batch": 0, "lookup_us": at}, ahead, gone] if number == 0 else []))
        if number:
            run.retire()
    known, others = Positions(), {7 * MINUTE_US: 1, 8 * MINUTE_US: 3}
    for offset, left in ((None, {window_us: 6}), (6, {window_us: 9}), (9, {}), (3, {}), (1, {})):
        if offset is not None:
            known.apply(Settlement(place, (Stretch(offset, offset, 1),), "a probe"))
        found = lateness_of(run.tables, known, run.retired.through_epoch)
        assert found.possible == {("input", 0): others | left}


def test_a_recreated_topic_stays_known_after_retention(tmp_path: Path) -> None:
    run = Run(tmp_path / "state")
    at = START_US
    run.batch(at, fact("input", [1], batch=0, lookup_us=at, key="old"))
    run.mark(replaced_mark(PartitionId("input", 0)))
    later = at + RETENTION_US + 2 * EPOCH_US
    run.batch(later, fact("input", [2], batch=1, lookup_us=later, window_us=MINUTE_US, key="new"))
    run.retire()
    assert min(run.epochs()) > epoch_of(at, RETENTION_US)
    assert recover(run.tables, TIME_RULES, TumblingWindow.of(MINUTE_US)).progress.replaced == {PartitionId("input", 0)}

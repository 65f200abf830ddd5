"""Coverage (SEMANTICS section 5): the sums hold through retention, restarts and settled cells. Planted defects in the
reader, the stage, the fold and the retirement break them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit import fed_run
from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import MINUTE_US
from validator.core.evicted import EvictedCells
from validator.model.classes import Verdict
from validator.model.coverage import Counting, Difference, RangeCount, differences_by
from validator.model.snapshot import Snapshot
from validator.publish import samples
from validator.publish.report import build
from validator.publish.text import render
from validator.reconcile.cells import Cells
from validator.stream import retention
from validator.stream.kafka_reading import Range

ORDERS, PAID = "orders", "paid-orders"
HOUR_US = 60 * MINUTE_US


class _Saving(FedRun):
    saves = True


class _Planted(FedRun):
    planted = True


class _PlantedSaving(_Planted):
    saves = True


def run_of(folder: Path, kind: type[FedRun] = FedRun) -> FedRun:
    """A filter, whose events may belong to no cell."""
    return kind(folder, settings=("state.retention=2h", "oracle.bucket=60s"), example="filter")


def step(run: FedRun, number: int, *more: Fed, after_us: int = HOUR_US) -> Snapshot:
    """``after_us`` later an event passes the filter and is answered, and another one is left out."""
    at = number * MINUTE_US
    taken = [Fed(ORDERS, (2 * number,), at), Fed(PAID, (2 * number,), at)]
    return run.feed([*taken, Fed(ORDERS, (2 * number + 1,), at, owed=False), *more], after_us=after_us)


def doubt(shown: Snapshot) -> str:
    """The one reason that coverage gives, with the alert's series and the report's words checked on the way."""
    assert set(shown.verdicts.values()) == {Verdict.UNKNOWN}
    [difference] = shown.coverage_differences
    assert any(reason.startswith(f"{difference}: do not rely on the counts") for reason in shown.reasons)
    assert samples.of(shown).plain["coverage_differences"][()] == 1
    assert not shown.coverage_complete
    report = build(shown)
    assert report["coverage"]["differences"] == [difference]
    said = " ".join(render(report).split())
    assert f"{difference[0].upper()}{difference[1:]}." in said
    return difference


@pytest.mark.parametrize("kind", [FedRun, _Saving])
def test_every_record_is_found_again(kind: type[FedRun], tmp_path: Path) -> None:
    run = run_of(tmp_path, kind)
    bad = Fed(ORDERS, None), Fed(PAID, None)
    for number in range(9):
        # The late answer brings back a cell that settled, or belongs to a retired one.
        shown = step(run, number, *bad, Fed(PAID, (0,), 0), Fed(ORDERS, (0,), 0))
        if number in (3, 6):
            run.restart()
    assert run.runner.retired.sums.events["settled"] > 0
    assert samples.of(shown).plain["coverage_differences"][()] == 0
    events, answers = shown.events_accounted, shown.answers_accounted
    assert (events["read"], events["in_no_cell"], events["undecodable"]) == (36, 9, 9)
    assert (answers["read"], answers["in_cells"], answers["undecodable"]) == (27, 18, 9)
    assert sum(count or 0 for name, count in events.items() if name != "read") == 36
    assert "9 in no cell + 9 undecodable + 0 tombstone = 36 read." in " ".join(render(build(shown)).split())


def test_a_fold_that_loses_a_row_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path, _Planted)
    step(run, 0)
    fold = Cells.fold
    with monkeypatch.context() as patched:
        patched.setattr(Cells, "fold", lambda cells, facts: fold(cells, facts.slice(0, max(0, facts.num_rows - 1))))
        shown = step(run, 1)
    assert doubt(shown).startswith("the coverage sum over answers does not hold: 1 in cells + 0 undecodable + ")
    # The facts are complete: another process folds them again.
    run.restart()
    assert run.feed([]).coverage_differences == ()


def _doubled(plan: Any) -> Any:
    """`retention.plan`, which counts the retired cells twice."""

    def doubling(tables: Any, judging: Any, progress: Any, retired: Any, *more: Any) -> retention.Plan:
        found: retention.Plan = plan(tables, judging, progress, retired, *more)
        again = found.retired.sums.plus(found.retired.sums.minus(retired.sums))
        return replace(found, retired=replace(found.retired, sums=again))

    return doubling


def _forgotten(plan: Any) -> Any:
    """`retention.plan`, which does not count the retired cells."""

    def forgetting(tables: Any, judging: Any, progress: Any, retired: Any, *more: Any) -> retention.Plan:
        found: retention.Plan = plan(tables, judging, progress, retired, *more)
        return replace(found, retired=replace(found.retired, sums=retired.sums))

    return forgetting


@pytest.mark.parametrize("defect", [_doubled, _forgotten])
def test_a_retirement_that_miscounts_is_found_and_stays_so_after_a_restart(
    defect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, number = run_of(tmp_path, _Planted), 0
    with monkeypatch.context() as patched:
        patched.setattr(retention, "plan", defect(retention.plan))
        while run.runner.retired.through_epoch < 0:
            assert step(run, number).coverage_differences == ()
            number += 1
    for restarts in (False, True):
        if restarts:
            run.restart()
        number += 1
        shown = step(run, number)
        assert set(shown.verdicts.values()) == {Verdict.UNKNOWN}
        [of_events, of_answers] = shown.coverage_differences
        assert of_events.startswith("the coverage sum over events does not hold: ")
        assert of_answers.startswith("the coverage sum over answers does not hold: ")
        found = sum(count or 0 for name, count in shown.events_accounted.items() if name != "read")
        assert (found > (shown.events_accounted["read"] or 0)) is (defect is _doubled)


def test_a_settled_cell_that_is_not_subtracted_when_it_returns_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, _PlantedSaving)
    for number in range(3):
        step(run, number, after_us=10 * MINUTE_US)
    assert not run.runner.judging.evicted.is_empty
    monkeypatch.setattr(EvictedCells, "subtract", lambda *_: None)
    shown = step(run, 3, Fed(PAID, (0,), 0))
    assert len(shown.coverage_differences) == 2


def test_a_stage_that_loses_a_record_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader met a record at each offset. A fact row is missing."""

    def without_gaps(ranges: Sequence[Range], facts: pa.Table) -> tuple[RangeCount, ...]:
        del facts
        return tuple(RangeCount(one.topic, one.partition, 0) for one in ranges)

    run = run_of(tmp_path, _Planted)
    step(run, 0)
    monkeypatch.setattr(fed_run, "counted", without_gaps)
    assert step(run, 1).coverage_differences == ()
    run.logs.ends[ORDERS] += 1
    expected = (
        f"the coverage sum of {ORDERS}-0 does not hold: 6 records read + 0 expired + 0 offsets without a visible "
        "record is not 7 offsets spanned"
    )
    assert doubt(step(run, 2)) == expected
    # Counts of the facts and of the reader are stored with the frontiers.
    run.restart()
    assert doubt(run.feed([])) == expected


def test_a_range_that_no_task_read_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of(tmp_path, _Planted)
    monkeypatch.setattr(fed_run, "counted", lambda *_: ())
    run.logs.ends[ORDERS] += 3
    assert "0 offsets without a visible record is not 3 offsets spanned" in doubt(run.feed([]))


def counted(start: int, end: int, *chunks: Sequence[int]) -> RangeCount:
    counting = Counting(start, end)
    for chunk in chunks:
        counting.add(np.array(chunk, dtype=np.int64))
    return counting.result("t", 1)


def test_the_reader_counts_offsets_without_a_record() -> None:
    assert counted(5, 9, [5, 6], [7, 8]) == ("t", 1, 0, ())
    assert counted(5, 9) == ("t", 1, 4, ((5, 9),))
    assert counted(3, 20, [5, 6, 9], [12]) == ("t", 1, 13, ((3, 5), (7, 9), (10, 12), (13, 20)))


def test_few_gaps_are_named_and_the_choice_is_repeatable() -> None:
    offsets = list(range(0, 100, 2))
    found = counted(0, 100, offsets)
    assert (found.skipped, len(found.gaps), len(set(found.gaps))) == (50, 8, 8)
    assert all(first % 2 == 1 and end == first + 1 for first, end in found.gaps)
    assert found == counted(0, 100, offsets[:7], offsets[7:])


def test_a_difference_is_kept_in_a_mark() -> None:
    found = [Difference("t/a", 1, 5, 9, 3, 4), Difference("t", 0, 5, 9, 4, 4)]
    assert differences_by(["rest_all", *(one.to_mark() for one in found)]) == tuple(found)
    again = "from offset 5 to 8 found 4 records"
    assert [one.sentence for one in found] == [
        f"a second reading of t/a-1 {again}, but the stored facts count 3",
        f"a second reading of t-0 {again} as in the stored facts, but with other ids or offsets",
    ]

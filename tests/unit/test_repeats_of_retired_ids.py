"""Running aggregates: a repeat whose event time is later than the horizon, read after its id was retired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.retained_run import CUMULATIVE, LATER_US, START_US, TIME_RULES, ListRun, events, results
from validator.core import judging
from validator.core.judging import Judging
from validator.model.progress import Retirement
from validator.oracles.running_aggregate import RunningAggregate
from validator.reconcile.cells import Columns
from validator.reconcile.judge import Judged, Rules, judge
from validator.state.known_facts import KnownFacts
from validator.stream.recording import CommitContext, record
from validator.stream.recovery import recover
from validator.stream.run_record import RunRecord


def retired_id(folder: Path, oracle: RunningAggregate, *, collapse: bool) -> ListRun:
    """A state that has retired the answered id 1 of the key k. Verdicts are recorded."""
    run = ListRun(folder)
    rules = Rules(oracle=oracle, overdue_after_us=1, missing_after_us=2, collapse=collapse)
    run.judging = Judging(KnownFacts(run.tables, first_batch=0), rules)
    at = START_US
    batch(run, at, [events(1, at, (1, "k", at - 9)), results(1, at, ("k", [1]))])
    batch(run, LATER_US, [events(2, LATER_US, (2, "j", LATER_US - 5)), results(2, LATER_US, ("j", [2]))])
    run.retire()
    assert (run.retired.sums.cells_seen, run.counts) == (1, {"expected": 2, "processed": 2})
    return run


def batch(run: ListRun, at_us: int, parts: Sequence[pa.Table]) -> dict[str, int]:
    """As `Run.batch`, with the changes recorded."""
    counts = run.read(at_us, *parts)
    context = CommitContext(run.tables, "test", run.progress.batch, at_us)
    record(run.judging._effects([]), context, RunRecord(), lambda: at_us)
    return counts


def restarted(run: ListRun) -> None:
    known = KnownFacts(run.tables, first_batch=run.progress.batch + 1)
    run.judging = recover(run.tables, TIME_RULES, run.judging.rules.oracle).judging(known, run.judging.rules)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_repeat_that_the_pipeline_drops_is_not_missing(restarts: bool, tmp_path: Path) -> None:
    run = retired_id(tmp_path / "state", RunningAggregate.of(), collapse=True)
    at = LATER_US + 100
    batch(run, at, [events(3, at, (1, "k", at - 5), (3, "k", at - 5))])
    if restarts:
        restarted(run)
    batch(run, at + 10, [])
    counts = batch(run, at + 20, [])
    assert counts == {"expected": 3, "processed": 2, "missing": 1, "out_of_scope": 1}, "id 3 is lost"


@pytest.mark.parametrize("restarts", [False, True])
def test_a_list_with_the_repeat_and_the_retired_copy_has_no_duplicate(restarts: bool, tmp_path: Path) -> None:
    run = retired_id(tmp_path / "state", CUMULATIVE, collapse=False)
    at = LATER_US + 100
    batch(run, at, [events(3, at, (3, "k", at - 5)), results(3, at, ("k", [1, 3]))])
    more = [events(4, at + 10, (1, "k", at - 4), (4, "k", at - 4)), results(4, at + 10, ("k", [1, 3, 1, 4, 4]))]
    counts = batch(run, at + 10, more)
    if restarts:
        restarted(run)
        counts = batch(run, at + 20, [])
    expected = {"expected": 4, "processed": 4, "duplicate": 1, "out_of_scope": 1}
    assert counts == expected, "id 4 is repeated"


def test_an_answered_repeat_stays_in_scope(tmp_path: Path) -> None:
    run = retired_id(tmp_path / "state", RunningAggregate.of(), collapse=False)
    at = LATER_US + 100
    batch(run, at, [events(3, at, (1, "k", at - 5))])
    assert batch(run, at + 1, [results(4, at + 1, ("k", [1]))]) == {"expected": 3, "processed": 3}


def test_the_retirement_of_an_id_need_not_be_known_any_more(tmp_path: Path) -> None:
    """Only so many retirements are kept. A list has named the retired id again long ago."""
    run = retired_id(tmp_path / "state", CUMULATIVE, collapse=False)
    at = LATER_US + 100
    batch(run, at, [results(3, at, ("k", [1]))])
    kept = Retirement(START_US - 1, START_US), Retirement(at + 1, LATER_US - 10)
    run.retired = replace(run.retired, retirements=kept)
    counts = batch(run, at + 10, [events(4, at + 10, (1, "k", at + 5)), results(4, at + 10, ("k", [1, 1]))])
    assert counts == {"expected": 2, "processed": 2, "out_of_scope": 1}


def test_cells_whose_ids_are_compared_are_judged_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If results replace each other, each verdict is derived from all cells."""
    run = retired_id(tmp_path / "state", CUMULATIVE, collapse=False)
    sizes: list[int] = []

    def counted(cells: Columns, *given: Any) -> Judged:
        sizes.append(len(cells))
        return judge(cells, *given)

    monkeypatch.setattr(judging, "judge", counted)
    at = LATER_US + 100
    counts = run.read(at, events(3, at, (3, "k", at - 5)), results(3, at, ("k", [3, 3])))
    assert (counts["duplicate"], len(sizes)) == (1, 2)

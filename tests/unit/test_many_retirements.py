"""Retired cells stay out of scope after more retirements than are kept."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from tests.unit.retained_run import EPOCH_US, RETENTION_US, START_US, ListRun, Run, clock, events, results
from validator.core.judging import Judging
from validator.model.progress import Retirement
from validator.oracles.distinct import Distinct
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.stream import retention

STEP_US = RETENTION_US + 2 * EPOCH_US
DISTINCT = Rules(oracle=Distinct.of(MINUTE_US), overdue_after_us=1, missing_after_us=2, collapse=True)


@pytest.fixture(autouse=True)
def few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MARKS_KEPT", 3)


@pytest.mark.parametrize("restarts", [False, True])
def test_retired_ids_that_lists_name_again_stay_out_of_scope(
    restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key pauses for longer than the retention, and then has results all the time."""
    run, at = ListRun(tmp_path / "state"), START_US
    monkeypatch.setattr(retention, "MARKS_KEPT", 2)
    run.read(at, events(1, at, (1, "k", at - 9)), results(1, at, ("k", [1])))
    said = [1]
    for number in range(2, 9):
        at += STEP_US
        others, of_key = (100 + number, f"z{number}", at - 5), (number, "k", at - 5)
        # Only the newest retirement puts this event out of scope.
        late = 200 + number, f"y{number}", at - 2 * STEP_US - 100
        answered = [(key, [id_]) for id_, key, _ in (others, late)]
        if number > 3:
            said.append(number)
            read = events(number, at, others, late, of_key), results(number, at, *answered, ("k", said))
        else:
            read = events(number, at, others, late), results(number, at, *answered)
        run.read(at, *read)
        run.retire()
    assert len(run.retired.retirements) == retention.MARKS_KEPT
    counts = run.restarted() if restarts else run.read(at + 1)
    assert counts.keys() <= {"expected", "processed", "out_of_scope"}


def test_retirements_of_earlier_windows_leave_the_highest_horizon(tmp_path: Path) -> None:
    """A window is retired. Then only events of earlier windows come for a time. At last an id of the window repeats."""
    run = Run(tmp_path / "state")
    run.judging = Judging(KnownFacts(run.tables, first_batch=0), DISTINCT)
    window_us = 100 * MINUTE_US
    for number in range(6):
        at = START_US + number * STEP_US
        us, key = 0 if number else window_us, f"k{number}"
        event = fact("input", [number], batch=number, lookup_us=at, window_us=us, key=key)
        run.batch(at, event, fact("output", [number], batch=number, lookup_us=at, window_us=us, key=key))
        if number:
            run.retire()
    assert len(run.retired.retirements) == retention.MARKS_KEPT
    retired = tuple((it.at_us, it.horizon_us) for it in run.retired.retirements)
    repeat = fact("input", [0], batch=99, lookup_us=at + 10, window_us=window_us, key="k0")
    for step in (10, 20):
        now = replace(clock(at + step), retired=retired)
        counts = run.judging.absorb(facts(repeat) if step == 10 else None, now, {}).counts
    assert (counts["missing"], counts["out_of_scope"]) == (0, 2), "the repeat, and the last of the earlier windows"


def test_the_choice_of_the_retirements_to_keep_takes_little_memory() -> None:
    judging, count = Judging(KnownFacts(None, first_batch=0), DISTINCT), 100_000
    keys = pa.array(map(str, range(count)))
    judging.cells.rows_of(np.zeros(count, dtype=np.int64), keys, adding=True)
    judging.cells["first_seen_us"] = np.arange(count)
    retirements = tuple(Retirement(number, number) for number in range(51))
    tracemalloc.start()
    retention._bounded_retirements(retirements, judging, np.full(count, True))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * count, "bytes"

"""Cells that left memory still take part in retention and in the latency of results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from tests.unit.retained_run import EPOCH_US, RETENTION_US, START_US, WATERMARK_US, Run, clock
from validator.measure.latency import latency_buckets
from validator.model.frontier import RunEnd


def test_a_cell_closed_by_the_end_of_a_run_hides_nothing_after_retention(tmp_path: Path) -> None:
    """The watermark has not passed the cell's window, which is far in the future. A `--once` run judged the cell."""
    run = Run(tmp_path / "state")
    run.judging.evict_at = 1
    far_us, at = WATERMARK_US * 2, START_US
    both = [fact(side, [1], batch=0, lookup_us=at, window_us=far_us, key="far") for side in ("input", "output")]
    run.batch(at, *both)
    run.judging.absorb(None, replace(clock(at + 1), run_end=RunEnd.ALL), {})
    run.judging.absorb(None, clock(at + 2), {})
    later = at + RETENTION_US + 2 * EPOCH_US
    run.batch(later, fact("input", [2], batch=1, lookup_us=later, key="new"))
    run.retire()
    at = run.progress.lookup_us + 5
    now = replace(clock(at), retired=tuple((r.at_us, r.horizon_us) for r in run.progress.retirements))
    coming = facts(fact("input", [3], batch=9, lookup_us=at, window_us=MINUTE_US, key="coming"))
    run.judging.absorb(coming, now, {})
    judged = run.judging.judged_of(np.arange(len(run.judging.cells)))
    assert judged.in_scope[run.judging.cells.keys().to_pylist().index("coming")]


def test_a_settled_cell_still_dates_the_close_of_the_previous_window(tmp_path: Path) -> None:
    """A late result is measured from the first event after its window, whichever cell has that event."""
    latencies = []
    for evict_at in (None, 1):
        run = Run(tmp_path / f"state-{evict_at}")
        run.judging.evict_at = evict_at
        at = START_US
        run.batch(at, fact("input", [1], batch=0, lookup_us=at, key="slow"))
        answered = [fact(side, [2], batch=1, lookup_us=at + 10, window_us=MINUTE_US) for side in ("input", "output")]
        run.batch(at + 10, *answered)
        late = at + 5 * MINUTE_US
        run.batch(late, fact("input", [3], batch=2, lookup_us=late, window_us=5 * MINUTE_US))
        assert len(run.judging.cells) == (3 if evict_at is None else 2)
        result = fact("output", [1], batch=3, lookup_us=late + 1, key="slow")
        run.batch(late + 1, result)
        rows = latency_buckets(facts(result), run.judging.cells, run.judging.evicted.opened_us())
        latencies.append([row["sum_us"] for row in rows if row["definition"] == "window_close"])
    assert latencies == [[late + 1 - (START_US + 10)]] * 2

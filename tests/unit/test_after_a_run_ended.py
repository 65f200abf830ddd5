"""A state whose run with `--once` has ended, and which a later run continues while its windows are still open."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import MINUTE_US
from validator.model.snapshot import Snapshot

SECOND_US = 1_000_000


def missing(shown: Snapshot) -> tuple[int, int]:
    """Contributions that are missing, and confirmed as missing."""
    return shown.contributions["missing"], shown.violations["confirmed"]["missing"]


@pytest.fixture(params=[False, True], ids=["running", "restarted"])
def restarts(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_window_that_a_run_left_open_has_its_time_after_it_closes(restarts: bool, tmp_path: Path) -> None:
    """`--leave-open` assumes nothing about windows that the watermark has not passed."""
    run = FedRun(tmp_path)
    run.feed([Fed("click", (1,)), Fed("output", (1,))], after_us=SECOND_US)
    run.feed([Fed("click", (2,), MINUTE_US), Fed("click", (3,), MINUTE_US)], after_us=SECOND_US)
    run.now_us += SECOND_US
    run.runner.conclude(run.logs.lookup(run.logs.ends), leave_open=True, at_rest=False)
    if restarts:
        run.restart()
    closed = run.feed([Fed("click", (5,), 2 * MINUTE_US)], after_us=10 * SECOND_US)
    assert missing(closed) == (0, 0)
    assert missing(run.feed([Fed("output", (2,), MINUTE_US)], after_us=SECOND_US)) == (0, 0)
    run.feed([], after_us=2 * MINUTE_US)
    assert missing(run.feed([], after_us=SECOND_US)) == (1, 1), "the other one is lost"


def test_a_window_with_a_result_after_its_run_is_due_since_the_watermark_passed_it(
    restarts: bool, tmp_path: Path
) -> None:
    """The pipeline was not at rest. The watermark passes the window before its first result is read."""
    run = FedRun(tmp_path)
    run.feed([Fed("click", (2,), MINUTE_US), Fed("click", (3,), MINUTE_US)], after_us=SECOND_US)
    assert missing(run.end()) == (2, 2)
    run.feed([Fed("click", (5,), 3 * MINUTE_US)], after_us=10 * MINUTE_US)
    again = run.feed([Fed("output", (2,), MINUTE_US)], after_us=SECOND_US)
    assert missing(again) == (0, 1), "only ids retract what the end of the run confirmed"
    if restarts:
        run.restart()
    assert missing(run.feed([], after_us=SECOND_US)) == (0, 1)
    run.feed([], after_us=2 * MINUTE_US)
    assert missing(run.feed([], after_us=SECOND_US)) == (1, 1)


def test_a_window_that_a_run_closed_is_open_again_with_a_new_event(restarts: bool, tmp_path: Path) -> None:
    """The pipeline was not at rest. The window's result is due after the watermark has passed its end."""
    run = FedRun(tmp_path)
    run.feed([Fed("click", (2,), MINUTE_US), Fed("output", (2,), MINUTE_US)], after_us=SECOND_US)
    ended = run.end()
    assert ended.contributions["processed"] == 1
    if restarts:
        run.restart()
    run.feed([Fed("click", (3,), MINUTE_US)], after_us=10 * SECOND_US)
    for _ in range(4):
        assert missing(run.feed([], after_us=MINUTE_US)) == (0, 0)
    run.feed([Fed("click", (4,), 3 * MINUTE_US)], after_us=SECOND_US)
    assert missing(run.feed([], after_us=MINUTE_US)) == (0, 0)
    run.feed([], after_us=2 * MINUTE_US)
    assert missing(run.feed([], after_us=SECOND_US)) == (1, 1)

"""Procedures of docs/operations.md that need no separate process."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest

from testbed.checkout import ROOT
from tests.integration.sidecar_fixtures import Pipeline, answer, click, counts
from validator.stream import batch

pytestmark = pytest.mark.timeout(900)
_HOUR_NS = 3_600_000_000_000


@pytest.mark.full  # the clock has its own tests: tests/unit/test_clock_of_a_run.py
def test_a_step_of_the_clock_proves_no_loss(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock jumps an hour ahead while a result is due, and back: the result is not overdue."""
    wall = time.time_ns
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 11))
    with pipeline.live("timing.overdue_after=600s", "timing.missing_after=600s") as live:
        live.until(lambda report: report["cells"]["closed"] == 1)
        for step in (_HOUR_NS, -_HOUR_NS):
            monkeypatch.setattr(time, "time_ns", lambda step=step: wall() + step)
            report = live.batches(3)
            assert counts(report) == {"expected": 2, "pending": 2}
        pipeline.answers(answer([1]))
        report = live.until(lambda report: report["contributions"]["processed"] == 1)
        assert report["violations"]["retracted"]["missing"] == 0
    assert live.status == 0


@pytest.mark.full
def test_a_past_interval_is_verified_in_a_state_of_its_own(pipeline: Pipeline) -> None:
    """Verification from an instant on. Earlier results cause no violation. One of them may contain a missing id, so
    no loss is confirmed."""
    pipeline.create()
    # A window whose result comes after the instant, a loss before it, and a window that the instant cuts in two.
    pipeline.clicks(click(1, 1), click(2, 2), click(3, 11), click(4, 21))
    pipeline.answers(answer([1]))
    began = time.time()
    time_of = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(began)) + f".{int(began % 1 * 1000) + 1:03d}Z"
    while time.time() < began + 0.01:
        continue
    pipeline.answers(answer([3], 1), answer([4, 5], 2))
    pipeline.clicks(click(5, 22), click(6, 31), click(7, 41), click(8, 42), click(9, 55))
    pipeline.answers(answer([6], 3), answer([7], 4))
    run = pipeline.once(f"start={time_of}", state="backfill", leave_open=True)
    # Windows that begin after the first event time of the partition (22 s) plus max_disorder (0 s): window 3 is
    # correct, 4 lacks event 8, 5 is open.
    classes = ("expected", "processed", "missing", "overdue", "pending", "duplicate", "unknown_id", "misplaced")
    assert run.counts(*classes) == {
        "expected": 4,
        "processed": 2,
        "missing": 0,
        "overdue": 1,
        "pending": 1,
        "duplicate": 0,
        "unknown_id": 0,
        "misplaced": 0,
    }
    assert run.status == 3
    # A second run of the same command reads nothing twice.
    assert pipeline.once(f"start={time_of}", state="backfill", leave_open=True).counts() == run.counts()

    # The page's program selects windows of the interval: here window 3, which now has a repeated event.
    pipeline.answers(answer([6], 3))
    assert pipeline.once(f"start={time_of}", state="backfill", leave_open=True).counts("duplicate") == {"duplicate": 1}
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for end, printed in ((30, "0 0"), (40, "0 1")):
        changed = re.sub(r"until_us = [\d_]+", f"until_us = {end * 1_000_000}", program)
        command = [sys.executable, "-c", changed]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=pipeline.folder)
        assert done.stdout.strip() == printed


@pytest.mark.full
def test_a_result_that_became_due_in_an_outage_is_not_missing(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """test_sidecar_outage.py tests the outage itself with a killed broker. Here the outage is longer than
    `missing_after`: 6 s and 4 s stand for an hour and two minutes."""
    pipeline.create()
    pipeline.clicks(click(1, 1), click(2, 11))
    outage = 6.0
    with pipeline.live("timing.overdue_after=2s", "timing.missing_after=4s") as live:
        live.until(lambda report: report["cells"]["closed"] == 1)
        held: list[bool] = []

        def reach(name: str) -> None:
            if name == "after_publishing" and not held:
                held.append(True)
                live.ended.wait(outage)
                pipeline.answers(answer([1]))

        monkeypatch.setattr(batch, "reach", reach)
        report = live.until(lambda report: report["contributions"]["processed"] == 1)
        # Events whose results are in the topic when the sidecar looks again were never lost.
        assert report["violations"]["retracted"]["missing"] == 0
        assert report["violations"]["confirmed"]["missing"] == 0
    assert live.status == 0

"""A real campaign: a broker, the reference engine, two faults, and the resulting table."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from testbed.campaign import journal
from testbed.campaign.matrix import matrix, runs
from testbed.campaign.plan import load
from testbed.campaign.result import read
from testbed.checkout import python_path, streamproof
from testbed.demo.folder import PREFIX
from tests.e2e.test_demo import marked, until

SECONDS_MAX = 500.0
PLAN = {
    "engines": ["reference"],
    "guarantees": ["at_least_once"],
    "faults": ["pause_below_timeout", "crash", "none"],
    "repetitions": 1,
    "phases": {"warm_up": "2s", "control": "12s", "failure": "5s", "recovery": "12s"},
    "rate": 1200,
    "window": "1s",
    "missing_after": "30s",
}


@contextmanager
def campaign(plan: Path, scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `streamproof campaign`. All processes that it starts have ``scratch`` in their environment."""
    with (plan.parent / "said.log").open("ab") as said:
        process = subprocess.Popen(
            [str(part) for part in streamproof("campaign", plan, "--resume")],
            stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **python_path(), "TMPDIR": str(scratch)},
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def left(scratch: Path) -> list[tuple[int, str]]:
    """Return the campaign's live processes."""
    return list(marked(str(scratch)))


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_a_killed_campaign_is_resumed_and_its_table_shows_the_cost_of_the_crash(tmp_path: Path) -> None:
    plan, scratch = tmp_path / "two.yaml", tmp_path / "scratch"
    scratch.mkdir()
    plan.write_text(yaml.safe_dump(PLAN), encoding="utf-8")
    loaded = load(plan)
    first, second, third = runs(matrix(loaded).cells, loaded)

    def said() -> str:
        return (tmp_path / "said.log").read_text(errors="replace")

    with campaign(plan, scratch) as process:
        until(lambda: "pause-below-timeout: verified" in said() or process.poll() is not None, SECONDS_MAX, said)
        assert process.poll() is None, said()
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not left(scratch), SECONDS_MAX, lambda: left(scratch))
    assert read(loaded.results, first) is None
    with campaign(plan, scratch) as process:
        assert process.wait(SECONDS_MAX) == 0, said()
    assert left(scratch) == []
    assert list(scratch.glob(PREFIX + "*")) == []

    paused, crashed, calm = (read(loaded.results, run) for run in (first, second, third))
    assert paused is not None
    assert crashed is not None
    assert calm is not None
    for found in (paused, crashed, calm):
        assert found.settled
        assert (found.missing, found.incorrect, found.verdicts["at_least_once"]) == (0, 0, "pass")
        assert found.handled_ratio == 1.0
        assert {phase.phase for phase in found.phases} >= {"control", "failure"}
    # Results are written before commits: a kill repeats the results since the last commit, a short pause repeats
    # nothing.
    assert paused.duplicate == 0
    assert crashed.cost.failure_cost_seconds is not None
    assert crashed.cost.failure_cost_seconds > 1.0, "its pages were not answered for the whole failure phase"
    assert calm.duplicate == 0
    assert calm.cost.failure_cost_seconds is not None
    assert calm.cost.failure_cost_seconds < crashed.cost.failure_cost_seconds
    rates = {phase.phase: phase.throughput_per_second or 0.0 for phase in calm.phases}
    assert rates["failure"] == pytest.approx(rates["control"], rel=0.5)
    (failure,) = journal.failures(journal.read_lines(loaded.results))
    assert (failure.run, failure.reason) == (first.name, journal.CUT_OFF)
    assert (loaded.results / "table.md").read_text().startswith("Complete: all 3 runs are done; 1 attempt failed")

"""A real campaign: a broker, the reference engine, two faults, and the resulting table."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import yaml

from testbed.campaign import journal
from testbed.campaign.matrix import matrix, runs
from testbed.campaign.plan import load
from testbed.campaign.result import RunResult, read
from testbed.campaign.sampler import GROUP
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


def assert_has_series(folder: Path, found: RunResult) -> None:
    """The files of a run have what its processes used, its output, and the latency of each result."""
    samples = pq.read_table(folder / f"{found.run}.parquet")
    used: dict[str, float] = {}
    for row in samples.to_pylist():
        used[row["process"]] = used.get(row["process"], 0.0) + (row["processor_seconds"] or 0.0)
    assert all(used[name] > 0 for name in ("worker-0", "worker-1", "broker", "sidecar", "generator"))
    group = samples.filter(pc.equal(samples["process"], GROUP))
    assert pc.sum(group["produced_events"]).as_py() == pytest.approx(found.sent, rel=0.2), "all but the first seconds"
    assert pc.sum(group["consumed_events"]).as_py() > found.sent / 2
    output = pq.read_table(folder / f"{found.run}.output.parquet")
    latencies = pq.read_table(folder / f"{found.run}.latency.parquet")
    results = pc.sum(output["results"]).as_py()
    assert results == latencies.num_rows > 0
    assert latencies["window_close_seconds"].null_count < results / 2


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
    assert crashed.cost.recovered
    assert crashed.cost.recovery_seconds is not None
    assert crashed.cost.recovery_seconds > 3.0, "the rate cannot return before the worker"
    assert crashed.cost.peak_latency_p99_seconds is not None
    assert crashed.cost.peak_latency_p99_seconds > 3.0
    # On a busy machine one of them may not stay as before until the load ends.
    returned = (crashed.cost.latency_recovery_seconds, crashed.cost.lag_recovery_seconds)
    assert any(seconds is not None and seconds > 3.0 for seconds in returned), returned
    rates = {phase.phase: phase.throughput_per_second or 0.0 for phase in calm.phases}
    assert rates["failure"] == pytest.approx(rates["control"], rel=0.5)
    for found in (paused, crashed, calm):
        assert_has_series(loaded.results / "series", found)
    page = (loaded.results / "report.html").read_text(encoding="utf-8")
    assert all(f"<h2>{heading}" in page for heading in ("Recovery time", "Failure cost", "The course of a run"))
    assert all(f'<option value="{found.run}">' in page for found in (paused, crashed, calm))
    (failure,) = journal.failures(journal.read_lines(loaded.results))
    assert (failure.run, failure.reason) == (first.name, journal.CUT_OFF)
    assert (loaded.results / "table.md").read_text().startswith("Complete: all 3 runs are done; 1 attempt failed")


RECURRENT = {
    "control": "10s",
    "recovery": "20s",
    "repeat": 2,
    "faults": [{"kind": "process_kill", "target": {"labels": {"role": "worker"}}, "for": "4s"}],
}


@pytest.mark.full
@pytest.mark.timeout(700)
def test_recurrent_kills_of_an_engine_that_starts_on_a_backlog_are_one_row(tmp_path: Path) -> None:
    plan, scratch = tmp_path / "recurrent.yaml", tmp_path / "scratch"
    scratch.mkdir()
    changes = {"faults": ["kills"], "schedules": {"kills": {"schedule": RECURRENT}}, "preload": "8s"}
    plan.write_text(yaml.safe_dump(PLAN | changes), encoding="utf-8")
    loaded = load(plan)
    [run] = runs(matrix(loaded).cells, loaded)
    with campaign(plan, scratch) as process:
        assert process.wait(SECONDS_MAX) == 0, (tmp_path / "said.log").read_text(errors="replace")
    found = read(loaded.results, run)
    assert found is not None
    assert found.settled
    assert (found.missing, found.incorrect, found.verdicts["at_least_once"]) == (0, 0, "pass")
    assert len(found.faults) == 2
    assert all(one.healed and (one.failure_cost_seconds or 0.0) > 1.0 for one in found.faults), found.faults
    assert found.cost.failure_cost_seconds == sum(one.failure_cost_seconds or 0.0 for one in found.faults)
    latencies = pq.read_table(loaded.results / "series" / f"{run.name}.latency.parquet")
    first = latencies.sort_by("time")["first_input_seconds"][0].as_py()
    assert first > 4.0, "half of the backlog: its windows waited for the engine"
    [row] = csv.DictReader((loaded.results / "table.csv").read_text(encoding="utf-8").splitlines())
    assert (row["fault"], row["faults_median"], row["runs_done"]) == ("kills", "2", "1")


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_campaign_judges_a_stage_of_a_chain(tmp_path: Path) -> None:
    plan, scratch = tmp_path / "chain.yaml", tmp_path / "scratch"
    scratch.mkdir()
    chain = {"workloads": ["traffic_lanes"], "guarantees": ["exactly_once"], "faults": ["crash"], "parallelism": 1}
    plan.write_text(yaml.safe_dump({**PLAN, **chain}), encoding="utf-8")
    loaded = load(plan)
    [run] = runs(matrix(loaded).cells, loaded)
    with campaign(plan, scratch) as process:
        assert process.wait(SECONDS_MAX) == 0, (tmp_path / "said.log").read_text(errors="replace")
    assert left(scratch) == []
    found = read(loaded.results, run)
    assert found is not None
    assert found.settled
    assert (found.missing, found.duplicate, found.incorrect) == (0, 0, 0)
    assert (found.handled_ratio, found.verdicts["exactly_once"]) == (1.0, "pass")

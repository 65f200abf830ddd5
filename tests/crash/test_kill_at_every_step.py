"""A sidecar that is killed at every step and restarted ends with the results of an undisturbed one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from random import Random

import pytest

from tests.crash import history
from tests.crash.sidecars import PROCESS_SECONDS_MAX, Scraper, Sidecars, await_no_orphan, kill_group, until
from validator.stream.failpoints import NAMES

STEPS = (
    "batch_begun:2",
    "before_facts:1",
    "after_judging:1",
    "after_facts:1",
    "after_violations:1:jvm",
    "after_verdicts:1",
    "before_publishing:1",
    "after_publishing:1",
)
"""Each start continues where the previous one was killed."""
AT_REST = ("before_rest:1", "after_rest:1")
"""None of these has `:jvm`: the remaining steps do not use the JVM, so the sidecar would continue without it."""
RETIRING = ("before_retiring:1", "after_retiring:1", "after_saving:1")
RETENTION = ("--set", "state.retention=5s", "--set", "timing.missing_after=4s")
KILLED = -signal.SIGKILL
JVM_ENDED = 3


def test_the_sequence_has_every_failpoint() -> None:
    assert {step.split(":")[0] for step in (*STEPS, *AT_REST, *RETIRING)} == set(NAMES)


@pytest.mark.timeout(1200)
def test_kills_at_every_step_leave_the_counts_of_an_undisturbed_run(sidecars: Sidecars) -> None:
    """One state is killed in its batches, another one at the end of its run and in retirements, side by side."""
    append(sidecars, range(12))
    with ThreadPoolExecutor(1) as beside:
        in_batches = beside.submit(killed_in_batches, sidecars)
        assert sidecars.once("undisturbed") == 1
        for step in AT_REST:
            killed(sidecars, "rested", step)
        for step in RETIRING:
            killed(sidecars, "rested", step, *RETENTION)
        assert sidecars.once("rested", *RETENTION) == 1
        in_batches.result()
    assert totals_of(sidecars, "rested") == totals_of(sidecars, "undisturbed")
    assert_same(sidecars, "batches", "undisturbed")


def killed_in_batches(sidecars: Sidecars) -> None:
    for step in STEPS:
        killed(sidecars, "batches", step)
    assert sidecars.once("batches") == 1


@pytest.mark.full  # the test above has a kill at every step
@pytest.mark.timeout(3000)
def test_random_kills_and_a_retraction_leave_the_counts_of_an_undisturbed_run(sidecars: Sidecars) -> None:
    state, scraper = sidecars.state("killed"), Scraper()
    append(sidecars, range(12))
    with scraper.watching(state):
        for step in (*STEPS, "after_facts:1:jvm"):
            killed(sidecars, "killed", step)
        append(sidecars, range(12, 24))
        for seed in (1, 2):
            killed_at_random(sidecars, state, Random(seed))
        for step in AT_REST:
            killed(sidecars, "killed", step)
        # The next run confirms contributions of window 24 as missing. The results appended after it retract them.
        append(sidecars, range(24, 26), answered=range(25, 26))
        sidecars.once("killed")
        history.append(sidecars.servers, history.answers(sidecars.name, range(24, 25)))
        status = sidecars.once("killed")
    assert scraper.scrapes > 0
    assert scraper.falls == []
    assert sidecars.once("undisturbed") == status == 1
    assert_same(sidecars, "killed", "undisturbed")


def assert_same(sidecars: Sidecars, one: str, other: str) -> None:
    assert sidecars.verdicts(one) == sidecars.verdicts(other)
    assert sidecars.violations(one) == sidecars.violations(other)
    totals = totals_of(sidecars, one)
    assert totals == totals_of(sidecars, other)
    facts = sidecars.facts(one)
    assert facts == sidecars.facts(other)
    assert sum(count for (side, *_), count in facts.items() if side == "input") == totals["inputs"]["read"]
    assert sidecars.report(one)["coverage"]["complete"]


def append(sidecars: Sidecars, windows: range, answered: range | None = None) -> None:
    both = chain(
        history.clicks(sidecars.name, windows),
        history.answers(sidecars.name, windows if answered is None else answered),
    )
    history.append(sidecars.servers, both)


def killed(sidecars: Sidecars, state: str, step: str, *arguments: str) -> None:
    status = sidecars.once(state, *arguments, failpoint=step)
    expected = JVM_ENDED if step.endswith(":jvm") else KILLED
    assert status == expected, f"{step}: {(sidecars.folder / f'{state}.log').read_text()[-2000:]}"


def killed_at_random(sidecars: Sidecars, state: Path, random: Random) -> None:
    """Kill driver and JVM together, when the state has grown by a random number of files."""
    process = sidecars.start("killed", "--once")
    try:
        enough = len(list(files(state))) + random.randint(3, 25)
        until(
            lambda: len(list(files(state))) >= enough or not process.is_running,
            PROCESS_SECONDS_MAX,
            lambda: f"the state does not grow: {process.last_lines()}",
        )
        kill_group(process)
        process.wait(PROCESS_SECONDS_MAX)
        await_no_orphan(process.pid)
    finally:
        process.kill()


def files(state: Path) -> Iterator[Path]:
    return (path for path in state.rglob("*") if path.suffix in (".json", ".parquet"))


def totals_of(sidecars: Sidecars, state: str) -> dict[str, dict[str, int]]:
    report = sidecars.report(state)
    return {name: report[name] for name in ("verdicts", "contributions", "results", "inputs", "late_records", "cells")}

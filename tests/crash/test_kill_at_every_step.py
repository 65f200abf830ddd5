"""A sidecar that is killed at every step and restarted ends with the results of an undisturbed one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from random import Random

import pytest

from tests.crash import history
from tests.crash.shared_jvm import shared_jvm
from tests.crash.sidecars import PROCESS_SECONDS_MAX, Scraper, Sidecars, await_no_orphan, kill_group, until
from validator.stream.failpoints import NAMES

STEPS = (
    "batch_begun:2",
    "before_facts:1",
    "after_judging:1",
    "after_facts:1",
    "after_violations:1",
    "after_verdicts:1",
    "before_publishing:1",
    "after_publishing:1",
)
"""Each start continues where the previous one was killed."""
AT_REST = ("before_rest:1", "after_rest:1")
RETIRING = ("before_retiring:1", "after_retiring:1", "after_saving:1")
RETENTION = ("state.retention=5s", "timing.missing_after=4s")
KILLED = -signal.SIGKILL
JVM_ENDED = 3


def test_the_sequence_has_every_failpoint() -> None:
    assert {step.split(":")[0] for step in (*STEPS, *AT_REST, *RETIRING)} == set(NAMES)


@pytest.mark.timeout(900)
def test_kills_at_every_step_leave_the_counts_of_an_undisturbed_run(sidecars: Sidecars) -> None:
    append(sidecars, range(12))
    with shared_jvm(sidecars.folder) as jvm:

        def once(state: str, *settings: str, failpoint: str | None = None) -> int:
            log = sidecars.folder / f"{state}.log"
            return jvm.once(sidecars.config, log, f"state.path={sidecars.state(state)}", *settings, failpoint=failpoint)

        for step in (*STEPS, *AT_REST):
            assert once("killed", failpoint=step) == KILLED, step
        assert once("killed") == once("undisturbed") == 1
        assert_same(sidecars, "killed", "undisturbed")
        for step in RETIRING:
            assert once("killed", *RETENTION, failpoint=step) == KILLED, step
        assert once("killed", *RETENTION) == 1
    assert totals_of(sidecars, "killed") == totals_of(sidecars, "undisturbed")


@pytest.mark.full  # the test above has a kill at every step, of the driver only
@pytest.mark.timeout(3000)
def test_kills_of_whole_sidecars_and_a_retraction_leave_the_counts_of_an_undisturbed_run(sidecars: Sidecars) -> None:
    state, scraper = sidecars.state("killed"), Scraper()
    append(sidecars, range(12))
    with scraper.watching(state):
        for step in (*STEPS[:-1], "after_facts:1:jvm", "after_violations:1:jvm"):
            killed(sidecars, step)
        append(sidecars, range(12, 24))
        for seed in (1, 2):
            killed_at_random(sidecars, state, Random(seed))
        for step in AT_REST:
            killed(sidecars, step)
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


def killed(sidecars: Sidecars, step: str) -> None:
    status = sidecars.once("killed", failpoint=step)
    expected = JVM_ENDED if step.endswith(":jvm") else KILLED
    assert status == expected, f"{step}: {(sidecars.folder / 'killed.log').read_text()[-2000:]}"


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

"""Simultaneous faults: each has its own instants, and they are healed in reverse order, however the runner ends."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from faults.errors import NotHealed, NotVerified
from faults.journal import Entry, read
from faults.runner import run
from faults.schedule import timeline
from tests.faults.stage import KILLED, WITHIN_SECONDS, Runner, Stage, heal, is_alive, state_of, wait_until

PAUSE = {"kind": "process_pause", "target": "w0"}
KILL = {"kind": "process_kill", "target": "w1"}


@pytest.fixture
def pair(stage: Stage) -> Stage:
    """A stage with two workers."""
    stage.add_worker("w0")
    stage.add_worker("w1")
    return stage


def entries(stage: Stage) -> list[Entry]:
    return list(read(stage.folder / "st").values())


def during(stage: Stage, *faults: dict[str, Any], look: Callable[[str], None] = lambda _: None, **more: Any) -> None:
    config = stage.write(*faults, **more)
    run(config, timeline(config), look, threading.Event())


def test_faults_of_a_group_are_active_together_and_healed_in_reverse_order(pair: Stage) -> None:
    first, seen = pair.pid("w1"), []

    def look(line: str) -> None:
        if "failure: process-kill" in line:
            seen.append((state_of(pair.pid("w0")), is_alive(first)))

    during(pair, {"together": [{**KILL, "after": "300ms"}, PAUSE], "for": "100ms"}, look=look)
    assert seen == [("T", False)]
    assert state_of(pair.pid("w0")) != "T"
    assert is_alive(pair.pid("w1"))
    pause, kill = entries(pair)
    assert (pause.fault.kind, kill.fault.kind) == ("process_pause", "process_kill")
    assert (kill.states["injected"] - pause.states["injected"]).total_seconds() >= 0.3
    assert (kill.states["heal_started"] - kill.states["verified"]).total_seconds() >= 0.1
    assert kill.states["heal_started"] <= pause.states["heal_started"]
    assert pause.states["heal_started"] <= min(kill.states["healed"], pause.states["healed"])


@pytest.mark.full
@pytest.mark.parametrize(
    ("pause", "kill", "first"), [("100ms", "1s", "process_pause"), ("2s", "100ms", "process_kill")]
)
def test_a_fault_with_its_own_duration_is_healed_while_the_other_stays_active(
    pair: Stage, pause: str, kill: str, first: str
) -> None:
    during(pair, {"together": [{**PAUSE, "for": pause}, {**KILL, "after": "50ms", "for": kill}]})
    by_kind = {entry.fault.kind: entry for entry in entries(pair)}
    early = by_kind.pop(first)
    (late,) = by_kind.values()
    assert early.states["healed"] < late.states["heal_started"]
    for entry in (early, late):
        assert list(entry.states) == ["injected", "verified", "heal_started", "healed"]
    for entry, lasts in ((early, 0.1), (late, 1.0)):
        assert (entry.states["heal_started"] - entry.states["verified"]).total_seconds() >= lasts
    assert state_of(pair.pid("w0")) != "T"
    assert is_alive(pair.pid("w1"))


@pytest.mark.full
def test_a_fault_without_its_own_duration_ends_with_the_group(pair: Stage) -> None:
    during(pair, {"together": [{**PAUSE, "for": "2s"}, KILL], "for": "100ms"})
    pause, kill = entries(pair)
    assert kill.states["healed"] < pause.states["heal_started"]
    assert pair.unhealed() == []


@pytest.mark.full
def test_the_next_step_waits_until_all_of_a_group_are_healed(pair: Stage) -> None:
    during(pair, {"together": [PAUSE, KILL]}, PAUSE)
    *group, after = entries(pair)
    assert len(group) == 2
    assert after.states["injected"] > max(entry.states["healed"] for entry in group)


@pytest.mark.full
def test_a_loop_of_a_group_continues_while_others_are_injected(pair: Stage) -> None:
    loop = {"kind": "restart_loop", "target": "w1", "parameters": {"interval": "50ms"}}
    pids: set[int] = set()
    config = pair.write({"together": [loop, {**PAUSE, "after": "600s"}]})
    stop = threading.Event()
    running = threading.Thread(target=run, args=(config, timeline(config), lambda _: None, stop))
    running.start()
    try:
        wait_until(lambda: pids.add(pair.pid("w1")) or len(pids) > 3, "it is killed again and again")
    finally:
        stop.set()
        running.join(WITHIN_SECONDS)
    assert [entry.fault.kind for entry in entries(pair)] == ["restart_loop"], "what was not reached was never begun"
    assert pair.unhealed() == []


@pytest.mark.full
def test_an_unverified_fault_ends_the_run_with_all_healed(pair: Stage) -> None:
    first = pair.pid("w1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("faults.backends.processes.is_stopped", lambda _: False)
        with pytest.raises(NotVerified, match="process-pause on w0: no probe"):
            during(pair, {"together": [KILL, PAUSE]}, limits={"verified_within": "1s"})
    assert state_of(pair.pid("w0")) != "T"
    assert pair.pid("w1") != first
    assert pair.unhealed() == []


@pytest.mark.full
def test_a_process_that_does_not_return_does_not_prevent_healing_the_others(pair: Stage) -> None:
    pair.targets["w1"]["ready"] = "127.0.0.1:1"
    with pytest.raises(NotHealed, match=r"^process-kill on w1 .*CONFIG`\.$"):
        during(pair, {"together": [PAUSE, KILL]}, limits={"healed_within": "300ms"})
    assert pair.unhealed() == ["process-kill"]
    assert state_of(pair.pid("w0")) != "T"


@pytest.fixture
def group(pair: Stage) -> Iterator[Callable[[str, str], Runner]]:
    """Starts a runner with a pause of w0 and, ``after`` it, a kill of w1. Returns when it prints ``until``."""
    runners: list[Runner] = []

    def start(after: str, until: str) -> Runner:
        pair.write({"together": [PAUSE, {**KILL, "after": after}], "for": "600s"})
        runners.append(Runner(pair, until))
        return runners[-1]

    yield start
    for runner in runners:
        runner.stop()


@pytest.mark.full
@pytest.mark.parametrize("who", KILLED)
@pytest.mark.parametrize(
    ("after", "until", "kinds"),
    [
        ("600s", "failure: process-pause", ["process_pause"]),
        ("0s", "failure: process-kill", ["process_pause", "process_kill"]),
    ],
    ids=["half", "whole"],
)
def test_a_group_of_a_killed_runner_is_healed(
    pair: Stage, group: Callable[[str, str], Runner], after: str, until: str, kinds: list[str], who: str
) -> None:
    first = pair.pid("w1")
    runner = group(after, until)
    if who == "heal":
        os.kill(runner.watchdog(), signal.SIGKILL)
    runner.kill()
    if who == "heal":
        assert pair.unhealed() == [kind.replace("_", "-") for kind in reversed(kinds)]
        assert state_of(pair.pid("w0")) == "T"
        heal(pair)
    wait_until(lambda: pair.unhealed() == [], "all are healed")
    assert [entry.fault.kind for entry in entries(pair)] == kinds
    assert state_of(pair.pid("w0")) != "T"
    assert (pair.pid("w1") == first) is (len(kinds) == 1)
    assert is_alive(pair.pid("w1"))
    for entry in entries(pair):
        assert list(entry.states) == ["injected", "verified", "heal_started", "healed"]

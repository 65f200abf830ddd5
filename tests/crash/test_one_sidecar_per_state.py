"""One sidecar per state: a second one is refused while any process of the first lives, and accepted right after
SIGKILL."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.crash import history
from tests.crash.sidecars import (
    ORPHAN_SECONDS_MAX,
    PROCESS_SECONDS_MAX,
    Sidecars,
    await_no_orphan,
    jvm_of,
    processes_of,
    until,
)
from validator.state.lock import StateLocked, acquire


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_second_sidecar_is_refused_until_driver_and_jvm_have_ended(sidecars: Sidecars) -> None:
    state = sidecars.state("one")
    history.append(sidecars.servers, history.clicks(sidecars.name, range(2)))
    first = sidecars.start("one")
    try:
        until((state / "report.json").exists, PROCESS_SECONDS_MAX, first.last_lines)
        assert sidecars.once("one") == 2
        assert "another sidecar is running" in (sidecars.folder / "one.log").read_text()
        assert first.is_running

        jvm = jvm_of(first.pid)
        os.kill(jvm, signal.SIGSTOP)
        os.kill(first.pid, signal.SIGKILL)
        first.wait(10)
        assert list(processes_of(first.pid)) == [jvm]
        with pytest.raises(StateLocked):
            acquire(state)
        os.kill(jvm, signal.SIGCONT)
        await_no_orphan(first.pid)
        free_again(state)
    finally:
        first.kill()


@pytest.mark.timeout(600)
def test_a_driver_without_its_jvm_ends_and_frees_the_state(sidecars: Sidecars) -> None:
    state = sidecars.state("one")
    history.append(sidecars.servers, history.clicks(sidecars.name, range(2)))
    first = sidecars.start("one")
    try:
        until((state / "report.json").exists, PROCESS_SECONDS_MAX, first.last_lines)
        os.kill(jvm_of(first.pid), signal.SIGKILL)
        assert first.wait(15) == 3
        assert "start the sidecar again" in first.last_lines()
        await_no_orphan(first.pid)
        free_again(state)
    finally:
        first.kill()


def free_again(state: Path) -> None:
    """A killed JVM is a zombie before its last thread has closed its descriptors."""
    until(lambda: not is_locked(state), ORPHAN_SECONDS_MAX, lambda: "the state is still locked")


def is_locked(state: Path) -> bool:
    try:
        acquire(state).release()
    except StateLocked:
        return True
    return False

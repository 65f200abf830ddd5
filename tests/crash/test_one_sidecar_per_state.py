"""A state has one sidecar: refused while any process of the first lives, free right after SIGKILL."""

from __future__ import annotations

import os
import signal

import pytest

from tests.crash import history
from tests.crash.sidecars import PROCESS_SECONDS_MAX, Sidecars, await_no_orphan, jvm_of, processes_of, until
from validator.state.lock import StateLocked, acquire


@pytest.mark.extended
@pytest.mark.timeout(600)
def test_a_second_one_is_refused_until_driver_and_jvm_are_gone(sidecars: Sidecars) -> None:
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
        acquire(state).release()
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
        acquire(state).release()
        await_no_orphan(first.pid)
    finally:
        first.kill()

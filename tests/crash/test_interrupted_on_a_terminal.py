"""Ctrl-C ends a sidecar as SIGTERM does: with the verdict so far, and no trace of a half-done batch."""

from __future__ import annotations

import os
import signal

import pytest

from tests.crash import history
from tests.crash.sidecars import PROCESS_SECONDS_MAX, Sidecars, await_no_orphan, until


@pytest.mark.timeout(600)
def test_ctrl_c_ends_it_with_the_verdict(sidecars: Sidecars) -> None:
    history.append(sidecars.servers, history.clicks(sidecars.name, range(2)))
    process = sidecars.start("interrupted")
    try:
        until((sidecars.state("interrupted") / "report.json").exists, PROCESS_SECONDS_MAX, process.last_lines)
        os.killpg(process.pid, signal.SIGINT)  # a terminal tells the whole group
        status = process.wait(60)
        await_no_orphan(process.pid)
    finally:
        process.kill()
    outcome = sidecars.report("interrupted")["outcome"]
    assert status == {"pass": 0, "fail": 1, "unknown": 3}[outcome]
    assert "Exception" not in (sidecars.folder / "interrupted.log").read_text()
    assert not (sidecars.state("interrupted") / "endpoint.json").exists()

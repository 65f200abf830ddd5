"""A stop takes at most 30 s, also if Spark does not answer."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.crash import history
from tests.crash.sidecars import PROCESS_SECONDS_MAX, Sidecars, jvm_of, until


@pytest.mark.full  # it waits for the limit
@pytest.mark.timeout(400)
def test_a_sidecar_whose_jvm_hangs_ends_within_half_a_minute(sidecars: Sidecars) -> None:
    history.append(sidecars.servers, history.clicks(sidecars.name, range(2)))
    process = sidecars.start("hung")
    report = sidecars.state("hung") / "report.json"
    try:
        until(report.exists, PROCESS_SECONDS_MAX, lambda: "no report")
        os.kill(jvm_of(process.pid), signal.SIGSTOP)
        began = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        status = process.wait(60)
        assert time.monotonic() - began < 30
        assert status == 3
        assert "the stop was not complete after 28 s: " in process.log.read_text()
    finally:
        process.kill()
    # Nothing is lost: the next start continues.
    assert sidecars.once("hung") == 1

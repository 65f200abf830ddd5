"""The wall clocks of a sidecar's two processes are moved while events are lost: it reads on, and confirms each loss."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Final

import pytest

from testbed.checkout import ROOT
from testbed.engines import clock_agent
from tests.crash import history
from tests.crash.history import Record
from tests.crash.sidecars import JAVA, PROCESS_SECONDS_MAX, Sidecars, until

_PATCH: Final = """
import os, time

def moved(real, unit):
    return lambda: real() + unit * int(open(os.environ["TEST_CLOCK_FILE"]).read())

time.time, time.time_ns = moved(time.time, 1), moved(time.time_ns, 1_000_000_000)
"""
"""A `sitecustomize` that moves Python's wall clock by the seconds in a file. The agent moves the JVM's by the same."""
SECONDS_MAX: Final = 60.0
"""A step is an hour or more; a sidecar that waits for its end fails."""


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_step_of_the_wall_clock_stops_nothing(sidecars: Sidecars, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(_PATCH)
    clock = tmp_path / "clock"
    clock.write_text("+0\n")
    process = sidecars.start(
        "moved",
        inside=[
            "env",
            f"PYTHONPATH={tmp_path / 'site'}{os.pathsep}{ROOT}",
            f"TEST_CLOCK_FILE={clock}",
            f"JAVA_TOOL_OPTIONS={JAVA} -javaagent:{clock_agent.jar()}={clock}",
        ],
    )
    windows = 0

    def append(*, loses: bool) -> None:
        """One more window of one page; without the result's second id if it ``loses`` an event."""
        nonlocal windows
        ids = [windows * 10 + n for n in range(10)]
        clicks = [{"id": n, "page": "a", "timestamp": _iso(n)} for n in ids]
        result = {"page": "a", "windowStart": _iso(ids[0]), "clickIds": [n for n in ids if not (loses and n % 10 == 1)]}
        # An event on the second partition, which closes windows as the first one does.
        other = {"id": 1_000_000 + windows, "page": "b", "timestamp": _iso(ids[0])}
        answer = {"page": "b", "windowStart": _iso(ids[0]), "clickIds": [other["id"]]}
        records = [Record(f"{sidecars.name}-in", json.dumps(click)) for click in clicks]
        records += [Record(f"{sidecars.name}-in", json.dumps(other), 1)]
        records += [Record(f"{sidecars.name}-out", json.dumps(one)) for one in (result, answer)]
        history.append(sidecars.servers, records)
        windows += 1

    def missing() -> int:
        return int(_report(sidecars).get("contributions", {}).get("missing", -1))

    try:
        append(loses=False)
        until(lambda: missing() == 0, PROCESS_SECONDS_MAX, lambda: "no report")
        for number, offset in enumerate(("-3600", "+7200", "-10800", "+0"), start=1):
            clock.write_text(f"{offset}\n")
            until(lambda offset=offset: _jvm_sees(clock, int(offset)), 30, lambda: "the JVM's clock does not move")
            append(loses=True)
            append(loses=False)
            until(lambda number=number: missing() == number, SECONDS_MAX, lambda: f"not found: {_report(sidecars)}")
    finally:
        status = process.terminate(PROCESS_SECONDS_MAX)
    assert status == 1


def _jvm_sees(clock: Path, offset_seconds: int) -> bool:
    """Whether the time that the agent wrote is that of the moved clock."""
    written = [float(file.read_text()) / 1000 for file in clock.parent.glob("clock.*") if file.suffix[1:].isdigit()]
    return any(abs(seconds - time.time() - offset_seconds) < 30 for seconds in written)


def _report(sidecars: Sidecars) -> dict[str, Any]:
    try:
        return sidecars.report("moved")
    except (OSError, ValueError):
        return {}


def _iso(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_767_225_600 + seconds))

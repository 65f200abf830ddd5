"""Procedures of docs/operations.md on the command line and a real broker, under a continuous load.

The state after a procedure is compared with a state that read the same topics in one run.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.checkout import ROOT, streamproof
from testbed.processes import OwnedProcess
from tests.crash import history
from tests.crash.sidecars import PROCESS_SECONDS_MAX, Sidecars, until

GRACE_SECONDS = 30.0

pytestmark = pytest.mark.timeout(1800)


class Load:
    """Windows of clicks and their results, some of them wrong, until the block ends."""

    def __init__(self, sidecars: Sidecars) -> None:
        self._sidecars = sidecars
        self._end = threading.Event()
        self.windows = 0

    def append(self, windows: int) -> None:
        """Append the next windows, and the results of all but the newest of them."""
        name, first = self._sidecars.name, self.windows
        self.windows += windows
        history.append(self._sidecars.servers, history.clicks(name, range(first, self.windows)))
        history.append(self._sidecars.servers, history.answers(name, range(max(0, first - 1), self.windows - 1)))

    @contextmanager
    def going_on(self) -> Iterator[None]:
        def work() -> None:
            while not self._end.wait(0.5):
                self.append(1)

        thread = threading.Thread(target=work, name="load")
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()


def _batches(sidecars: Sidecars, state: str, process: OwnedProcess, more: int) -> None:
    """Wait for ``more`` further batches."""

    def made() -> int:
        path = sidecars.state(state) / "report.json"
        return int(json.loads(path.read_text())["validator"]["batches"]) if path.exists() else 0

    reached = made() + more
    until(lambda: made() >= reached or not process.is_running, PROCESS_SECONDS_MAX, process.last_lines)
    assert process.is_running, process.last_lines()


def _same_as_undisturbed(sidecars: Sidecars, state: str) -> None:
    assert sidecars.once(state) == sidecars.once("undisturbed") == 1
    facts = sidecars.facts(state)
    assert set(facts.values()) == {1}, "a record was read twice"
    assert facts == sidecars.facts("undisturbed")
    assert sidecars.verdicts(state) == sidecars.verdicts("undisturbed")
    assert sidecars.violations(state) == sidecars.violations("undisturbed")
    assert sidecars.report(state)["contributions"] == sidecars.report("undisturbed")["contributions"]
    assert sidecars.report(state)["coverage"]["complete"]


@pytest.mark.full  # as above
def test_a_backup_of_a_running_sidecar_is_restored(sidecars: Sidecars, tmp_path: Path) -> None:
    """Copies are taken at several moments of a running sidecar. Each continues as if undisturbed."""
    load, copies = Load(sidecars), [f"copy-{number}" for number in range(3)]
    load.append(3)
    with load.going_on():
        running = sidecars.start("running")
        try:
            for copy in copies:
                _batches(sidecars, "running", running, 3)
                command = streamproof("backup", sidecars.state("running"), sidecars.state(copy))
                done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
                assert done.returncode == 0, done.stderr
                assert "To continue from this copy" in done.stdout
        finally:
            running.kill()
    for copy in copies:
        _same_as_undisturbed(sidecars, copy)
    # A backup never writes to a folder that has files.
    command = streamproof("backup", sidecars.state("running"), sidecars.state(copies[0]))
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, "holds files" in done.stderr) == (2, True)

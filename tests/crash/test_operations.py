"""Procedures of docs/operations.md on the command line and a real broker, under a continuous load.

The state after a procedure is compared with a state that read the same topics in one run.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from testbed.checkout import ROOT, streamproof
from testbed.processes import OwnedProcess
from tests.crash import history
from tests.crash.sidecars import PROCESS_SECONDS_MAX, Sidecars, until

PREVIOUS = "12b79e6"
"""The commit whose state a new version must be able to open."""
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


def _stopped(process: OwnedProcess) -> int:
    """Send SIGTERM to the started process, as a supervisor does; return the status, within the grace period."""
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    status = process.wait(GRACE_SECONDS)
    assert time.monotonic() - began < GRACE_SECONDS
    return status


def _same_as_undisturbed(sidecars: Sidecars, state: str) -> None:
    assert sidecars.once(state) == sidecars.once("undisturbed") == 1
    facts = sidecars.facts(state)
    assert set(facts.values()) == {1}, "a record was read twice"
    assert facts == sidecars.facts("undisturbed")
    assert sidecars.verdicts(state) == sidecars.verdicts("undisturbed")
    assert sidecars.violations(state) == sidecars.violations("undisturbed")
    assert sidecars.report(state)["contributions"] == sidecars.report("undisturbed")["contributions"]
    assert sidecars.report(state)["coverage"]["complete"]


def _previous_release(folder: Path) -> list[str | Path]:
    """Return the command prefix that runs a command with the previous release's code."""
    # A symbolic link in the package leads to the runbooks.
    wanted = ["validator", "docs/runbooks"]
    archive = subprocess.run(["git", "-C", ROOT, "archive", PREVIOUS, *wanted], check=False, capture_output=True)
    if archive.returncode != 0:
        pytest.skip(f"commit {PREVIOUS} is not in this checkout: {archive.stderr.decode().strip()}")
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return ["env", f"PYTHONPATH={folder}"]


@pytest.mark.extended  # four starts of a sidecar under a load
def test_a_rolling_upgrade_from_the_previous_release(sidecars: Sidecars, tmp_path: Path) -> None:
    """Stop the old version and start the new one on its state while the pipeline runs: no gap and no duplicate."""
    previous, load = _previous_release(tmp_path / "previous"), Load(sidecars)
    load.append(3)
    with load.going_on():
        old = sidecars.start("rolled", inside=previous)
        try:
            _batches(sidecars, "rolled", old, 4)
            assert _stopped(old) in (0, 1, 3)
        finally:
            old.kill()
        before = sidecars.report("rolled")["inputs"]["read"]
        assert before > 0
        text_lines = len(old.log.read_text().splitlines())
        new = sidecars.start("rolled", "--log-format", "json")
        try:
            _batches(sidecars, "rolled", new, 4)
            assert _stopped(new) in (0, 1, 3)
        finally:
            new.kill()
    assert sidecars.report("rolled")["inputs"]["read"] > before
    assert new.log == old.log
    lines = [json.loads(line) for line in new.log.read_text().splitlines()[text_lines:]]
    assert not [line["message"] for line in lines if line["message"].startswith("JVM: ")]
    assert any("resuming after batch" in line["message"] for line in lines)
    assert len({line["run"] for line in lines}) == 1
    assert {line["pipeline"] for line in lines} == {sidecars.name}
    _same_as_undisturbed(sidecars, "rolled")


@pytest.mark.extended  # as above
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

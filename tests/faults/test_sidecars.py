"""Faults of the sidecar, found by its state's lock. Here a process takes the lock with the sidecar's own code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from faults.errors import FaultRefused
from tests.faults.stage import (
    HEALERS,
    ROOT,
    Stage,
    abandoned,
    is_alive,
    state_of,
    wait_until,
)

_HOLD_LOCK = (
    "import signal, sys, threading, pathlib\n"
    f"sys.path.insert(0, {str(ROOT)!r})\n"
    "from validator.state.lock import acquire\n"
    "stop = threading.Event()\n"
    "signal.signal(signal.SIGTERM, lambda *_: stop.set())\n"
    "lock = acquire(pathlib.Path('state'), wait=lambda: True)\n"
    "stop.wait()\n"
)


@pytest.fixture
def sidecar(stage: Stage) -> Iterator[Callable[[], int]]:
    """A running process with the lock. Returns the process id in the lock, which is that of the newest holder."""
    command = [sys.executable, "-c", _HOLD_LOCK]
    process = subprocess.Popen(command, cwd=stage.folder, start_new_session=True)
    lock = stage.folder / "state" / "lock"
    wait_until(lambda: lock.exists() and lock.read_text() == f"{process.pid}\n", "it has the lock")
    stage.targets["sidecar"] = {"type": "sidecar", "state": "state", "start": command}
    try:
        yield lambda: int(lock.read_text())
    finally:
        for pid in {process.pid, int(lock.read_text())}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


@pytest.mark.full
@pytest.mark.parametrize("kind", ["sidecar_kill", "sidecar_restart"])
def test_a_sidecar_is_killed_and_its_successor_holds_the_lock(
    stage: Stage, sidecar: Callable[[], int], kind: str
) -> None:
    first, inode = sidecar(), (stage.folder / "state" / "lock").stat().st_ino

    def look() -> None:
        assert not is_alive(first)

    stage.during({"kind": kind, "target": "sidecar", "for": "50ms"}, look)
    assert sidecar() != first
    assert is_alive(sidecar())
    assert (stage.folder / "state" / "lock").stat().st_ino == inode, "the lock is another file, which lets a second in"


@pytest.mark.full
def test_a_paused_sidecar_is_stopped_until_the_fault_is_healed(stage: Stage, sidecar: Callable[[], int]) -> None:
    seen: list[str] = []
    stage.during({"kind": "sidecar_pause", "target": "sidecar"}, lambda: seen.append(state_of(sidecar())))
    assert seen == ["T"]
    assert state_of(sidecar()) != "T"


@pytest.mark.full
@pytest.mark.parametrize("healer", HEALERS)
@pytest.mark.parametrize("kind", ["sidecar_kill", "sidecar_pause", "sidecar_restart"])
def test_the_paused_sidecar_of_a_killed_runner_is_continued(
    stage: Stage, sidecar: Callable[[], int], kind: str, healer: str
) -> None:
    first = sidecar()
    is_paused = kind == "sidecar_pause"
    abandoned(
        stage,
        {"kind": kind, "target": "sidecar"},
        healer,
        lambda: state_of(first) == "T" if is_paused else not is_alive(first),
    )
    assert (sidecar() == first) is is_paused
    assert is_alive(sidecar())
    assert state_of(sidecar()) != "T"


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the locks that are held")
def test_the_id_of_an_ended_sidecar_is_not_a_process(stage: Stage) -> None:
    stage.add_worker("w0")  # another process with the ended sidecar's id
    (stage.folder / "state").mkdir()
    (stage.folder / "state" / "lock").write_text(f"{stage.pid('w0')}\n")
    stage.targets["sidecar"] = {"type": "sidecar", "state": "state", "supervised": True}
    with pytest.raises(FaultRefused, match=r"sidecar: .*lock does not run"):
        stage.during({"kind": "sidecar_kill", "target": "sidecar"}, lambda: None)
    assert is_alive(stage.pid("w0"))

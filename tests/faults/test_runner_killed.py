"""All faults are healed, whatever ends the runner: a signal, SIGKILL, or SIGKILL to it and its watchdog."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from faults.journal import read
from faults.watchdog import LOG_FILE
from tests.faults.stage import (
    ROOT,
    STREAMPROOF,
    WITHIN_SECONDS,
    Runner,
    Stage,
    echo_seconds,
    is_alive,
    state_of,
    wait_until,
)
from tests.tiers import full as in_second_tier

LONG = "600s"
FAULTS: dict[str, dict[str, Any]] = {
    "process_kill": {"target": "w0"},
    "process_pause": {"target": "w0"},
    "restart_loop": {"target": "w0", "parameters": {"interval": "100ms"}},
    "node_loss": {"target": "w0"},
    "net_delay": {"target": "link", "parameters": {"delay": "1s"}},
    "net_partition": {"target": "link"},
    "net_bandwidth": {"target": "link", "parameters": {"bytes_per_second": "10KB"}},
    "net_reset": {"target": "link"},
    "disk_full": {"target": "disk", "parameters": {"bytes": "1MiB", "reserve": "1MiB"}},
}
if sys.platform == "linux":
    FAULTS |= {
        "cpu_pressure": {"target": "here"},
        "memory_pressure": {"target": "here", "parameters": {"bytes": "16MiB"}},
    }

_SHORT = ("process_kill", "process_pause", "net_partition", "disk_full")
MOST_FULL = [kind if kind in _SHORT else in_second_tier(kind) for kind in FAULTS]

Run = Callable[[str], Runner]


def signs_of_health(stage: Stage) -> dict[str, Callable[[], bool]]:
    first = stage.pid("w0")

    def worker() -> bool:
        return is_alive(stage.pid("w0")) and state_of(stage.pid("w0")) != "T"

    def replaced() -> bool:
        return worker() and stage.pid("w0") != first

    def link() -> bool:
        try:
            return echo_seconds(stage.link_port, bytes(10_000), 0.5) < 0.5
        except OSError:
            return False

    def unpressed() -> bool:
        entries = read(stage.folder / "st").values()
        return not any(is_alive(process.pid) for entry in entries for process in entry.facts.processes)

    def empty() -> bool:
        return not list(stage.folder.glob(".streamproof-fault-*"))

    process = dict.fromkeys(("process_kill", "restart_loop", "node_loss"), replaced)
    network = dict.fromkeys(("net_delay", "net_partition", "net_bandwidth", "net_reset"), link)
    machine = dict.fromkeys(("cpu_pressure", "memory_pressure"), unpressed)
    return {"process_pause": worker, "disk_full": empty, **process, **network, **machine}


@pytest.fixture
def full(stage: Stage) -> Stage:
    """A stage with every kind of target except a link."""
    stage.add_worker("w0", host="a")
    return stage


@pytest.fixture
def pair(full: Stage) -> Stage:
    """A stage with two processes."""
    full.add_worker("w1", host="b")
    return full


@pytest.fixture
def run(full: Stage) -> Iterator[Callable[[str], Runner]]:
    """Starts a runner with a fault of a kind, and the proxy if the target is a link. Both end with the test."""
    with ExitStack() as stack:

        def start(kind: str) -> Runner:
            if FAULTS[kind]["target"] == "link":
                stack.enter_context(full.link())
            full.write({"kind": kind, "for": LONG, **FAULTS[kind]})
            runner = Runner(full)
            stack.callback(runner.stop)
            return runner

        yield start


@pytest.mark.parametrize("kind", MOST_FULL)
def test_the_watchdog_heals_the_faults_of_a_killed_runner(full: Stage, run: Run, kind: str) -> None:
    is_healthy = signs_of_health(full)[kind]
    runner = run(kind)
    if kind != "restart_loop":  # a restart loop looks healthy between kills
        assert not is_healthy()
    runner.kill()
    wait_until(is_healthy, f"{kind} is healed")
    wait_until(lambda: full.unhealed() == [], "the journal knows it")
    assert full.states() == ["injected", "verified", "heal_started", "healed"]


# Kills itself right after the given line of the journal is on disk.
DYING_RUNNER = """
import os, signal, sys
from faults.journal import Journal
from validator.cli.main import main
written, append = 0, Journal._append
def append_and_die(journal, line):
    global written
    append(journal, line)
    written += 1
    if written == int(sys.argv[2]): os.kill(os.getpid(), signal.SIGKILL)
Journal._append = append_and_die
main(["faults", "run", sys.argv[1]])
"""


@pytest.mark.parametrize("line", range(1, 7), ids=["begun", "injected", "facts", "verified", "heal_started", "healed"])
def test_a_runner_that_is_killed_at_any_step_leaves_no_fault_active(full: Stage, line: int) -> None:
    first = full.pid("w0")
    full.write({"kind": "process_kill", "target": "w0"})
    ran = subprocess.run([sys.executable, "-c", DYING_RUNNER, full.file, str(line)], cwd=ROOT, check=False)
    assert ran.returncode == -signal.SIGKILL
    wait_until(lambda: full.unhealed() == [], "the watchdog has healed")
    assert is_alive(full.pid("w0"))
    assert (full.pid("w0") == first) is (line <= 2)
    assert full.states()[-1] == "healed"


@pytest.mark.full
@pytest.mark.parametrize("kind", FAULTS)
def test_a_stopped_runner_heals_its_faults(full: Stage, run: Run, kind: str) -> None:
    is_healthy = signs_of_health(full)[kind]
    runner = run(kind)
    assert "stopped; all faults are healed" in runner.stop()
    assert runner.process.returncode == 130
    assert is_healthy()
    assert full.unhealed() == []


@pytest.mark.usefixtures("hears_hangups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_stopped_runner_heals_before_it_ends(full: Stage, run: Run, number: signal.Signals) -> None:
    runner = run("process_pause")
    runner.process.send_signal(number)
    out, _ = runner.process.communicate(timeout=WITHIN_SECONDS)
    assert runner.process.returncode == 130
    assert "stopped; all faults are healed" in out
    assert state_of(full.pid("w0")) != "T"
    assert full.unhealed() == []


@pytest.mark.full
@pytest.mark.parametrize("kind", FAULTS)
def test_heal_heals_faults_without_runner_and_watchdog(full: Stage, run: Run, kind: str) -> None:
    is_healthy = signs_of_health(full)[kind]
    runner = run(kind)
    os.kill(runner.watchdog(), signal.SIGKILL)
    runner.kill()
    assert full.unhealed() == [kind.replace("_", "-")]
    # Pressure ends with the runner, and a restart loop looks healthy between kills.
    if kind not in ("cpu_pressure", "memory_pressure", "restart_loop"):
        assert not is_healthy()
    assert "earlier run" in faults(full.file, "run", status=2)
    assert "healed and verified" in faults(full.file, "heal", status=0)
    assert is_healthy()
    assert "Nothing is broken" in faults(full.file, "heal", status=0)


@pytest.mark.full
def test_heal_leaves_a_running_run_alone(full: Stage, run: Run) -> None:
    run("process_pause")
    assert "uses this folder" in faults(full.file, "heal", status=2)
    assert state_of(full.pid("w0")) == "T"


# Simulates an unexpected error: a healing that raises an exception other than a fault's.
FAILING_RUNNER = """
import sys
from faults.kinds.process import Pause
from validator.cli.main import main
heal = Pause.heal
def fail_on_first(pause):
    if "w0" in pause._targets: raise ValueError("a defect")
    heal(pause)
Pause.heal = fail_on_first
sys.exit(main(["faults", "run", sys.argv[1]]))
"""


def test_an_unexpected_error_leaves_no_fault_active(pair: Stage) -> None:
    """The other fault is healed nevertheless, and the watchdog heals the rest."""
    both = [{"kind": "process_pause", "target": "w1"}, {"kind": "process_pause", "target": "w0"}]
    pair.write({"together": both}, limits={"targets_at_once": 2})
    ran = subprocess.run(
        [sys.executable, "-c", FAILING_RUNNER, pair.file], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode != 0
    assert state_of(pair.pid("w1")) != "T"
    wait_until(lambda: pair.unhealed() == [], "the watchdog has healed")
    assert state_of(pair.pid("w0")) != "T"


@pytest.mark.full
def test_a_watchdog_without_a_writable_log_heals(full: Stage, run: Run) -> None:
    (full.folder / "st").mkdir()
    (full.folder / "st" / LOG_FILE).symlink_to("/dev/full")
    run("process_pause").kill()
    wait_until(lambda: state_of(full.pid("w0")) != "T", "it goes on")
    wait_until(lambda: full.unhealed() == [], "the journal knows it")


@pytest.mark.full
@pytest.mark.usefixtures("hears_hangups")
def test_a_runner_whose_terminal_hangs_up_heals_to_the_end(pair: Stage) -> None:
    both = [{"kind": "process_pause", "target": name} for name in ("w0", "w1")]
    pair.write({"together": both, "for": LONG}, limits={"targets_at_once": 2})
    ours, theirs = pty.openpty()
    runner = subprocess.Popen([*STREAMPROOF, "run", pair.file], cwd=ROOT, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while said.count(b"failure:") < 2:
        said += os.read(ours, 1000)
    os.close(ours)
    runner.send_signal(signal.SIGHUP)
    runner.wait(WITHIN_SECONDS)
    assert {state_of(pair.pid(name)) for name in ("w0", "w1")} == {"S"}
    assert pair.unhealed() == []


@pytest.mark.full
def test_a_runner_with_nohup_outlives_its_terminal(pair: Stage) -> None:
    """As with nohup, which ignores the signal."""
    pair.write({"kind": "process_pause", "target": "w0", "for": "1s"})
    ignored = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", ignored, *STREAMPROOF, "run", pair.file], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert runner.stdout is not None
    while "failure:" not in runner.stdout.readline():
        assert runner.poll() is None
    runner.send_signal(signal.SIGHUP)
    assert "healed:" in runner.stdout.read()
    assert runner.wait(WITHIN_SECONDS) == 0


def faults(file: Path, action: str, status: int) -> str:
    ran = subprocess.run(
        [*STREAMPROOF, action, file], cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_SECONDS, check=False
    )
    assert ran.returncode == status, ran.stderr
    return ran.stdout + ran.stderr

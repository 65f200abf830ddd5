"""The demo's fault: injected into the engine, verified, healed, and published on the faults topic."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from faults.backends.processes import status_of
from faults.config import KafkaSection
from faults.fault import State, new_id, record
from faults.topic import FaultsTopicWriter
from testbed.demo.options import DemoPlan
from testbed.demo.result_counter import ResultCounter
from testbed.engines.base import ProcessEngine
from testbed.run_files import Topics

DOWN_SECONDS: Final = 1.0
"""Time from the engine's death to its restart, as an orchestrator would need."""
PAUSE_SECONDS: Final = 4.0
"""Below the engine's session timeout: the engine is slow, and is not replaced."""
READY_SECONDS_MAX: Final = 120.0
RESULT_SECONDS_MAX: Final = 15.0
"""A few windows of the demo."""
_LOOK_SECONDS: Final = 0.005
_VERIFY_SECONDS_MAX: Final = 5.0
_POLL_SECONDS: Final = 0.05
_NAMES: Final = {"kill": ("kill-the-engine", "process_kill"), "pause": ("pause-the-engine", "process_pause")}


class FaultFailed(Exception):
    """The fault could not be injected or verified; one sentence."""

    exit_status = 3


class DemoFault:
    """One fault on one engine. Run `run` in a separate thread; it ends early when ``stop`` is set."""

    def __init__(
        self,
        plan: DemoPlan,
        engine: ProcessEngine,
        bootstrap_servers: str,
        stop: threading.Event,
        say: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._engine = engine
        self._stop = stop
        self._say = say
        self._id = new_id()
        self._bootstrap_servers = bootstrap_servers
        self._topic = FaultsTopicWriter(KafkaSection(bootstrap_servers=bootstrap_servers, topic="faults"))

    def run(self) -> None:
        """Inject, verify, heal, verify. Raises FaultFailed, EngineError, NotPublished."""
        if self._plan.fault == "kill":
            self._kill()
        elif self._plan.fault == "pause":
            self._pause()
        if not self._stop.is_set():
            self._topic.flush()

    def _kill(self) -> None:
        self._await_result()
        self._say("FAULT: killing the engine (SIGKILL)")
        self._publish("injected")
        self._engine.kill(0)
        self._publish("verified")
        self._stop.wait(DOWN_SECONDS)
        if self._stop.is_set():
            return
        self._publish("heal_started")
        self._engine.restart(0)
        self._engine.ready(READY_SECONDS_MAX)
        self._publish("healed")
        self._say("healed: the engine was started again and has its partitions")

    def _await_result(self) -> None:
        """Return right after a result that the engine has not committed yet, or after a time limit."""
        deadline = time.monotonic() + RESULT_SECONDS_MAX
        with ResultCounter(self._bootstrap_servers, Topics().partitions["output"]) as answers:
            before = answers.count()
            while answers.count() == before and time.monotonic() < deadline and not self._stop.wait(_LOOK_SECONDS):
                pass

    def _pause(self) -> None:
        pid = self._engine.instances[0].pid
        if pid is None:
            raise FaultFailed("The engine cannot be paused: it has ended.")
        self._say(f"FAULT: pausing the engine for {PAUSE_SECONDS:g} s (SIGSTOP)")
        self._publish("injected")
        self._engine.send_signal(0, signal.SIGSTOP)
        try:
            self._await_stopped(pid, stopped=True)
            self._publish("verified")
            self._stop.wait(PAUSE_SECONDS)
            self._publish("heal_started")
        finally:
            self._engine.send_signal(0, signal.SIGCONT)
        self._await_stopped(pid, stopped=False)
        self._publish("healed")
        self._say("healed: the engine continues (SIGCONT)")

    def _await_stopped(self, pid: int, *, stopped: bool) -> None:
        deadline = time.monotonic() + _VERIFY_SECONDS_MAX
        while _is_stopped(pid) is not stopped:
            if time.monotonic() > deadline:
                raise FaultFailed(f"Process {pid} did not {'stop' if stopped else 'continue'} after the signal.")
            self._stop.wait(_POLL_SECONDS)

    def _publish(self, state: State) -> None:
        name, kind = _NAMES[self._plan.fault]
        now, target = datetime.now(UTC), f"{self._engine.name}-0"
        self._topic.write(self._id, record(self._id, name, kind, target, state, now, "demo", self._plan.seed))


def _is_stopped(pid: int) -> bool:
    status = status_of(pid)
    return status is not None and status.is_stopped

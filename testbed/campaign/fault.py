"""The fault of one run: one process is delayed, paused or killed. Injection and healing are verified and reported.

PGVal delays the packets of one worker by less and by more than the timeout (`testbed.campaign.delay`), or removes the
worker. A pause does not need root: below the timeout the other members see a slow worker, above it they declare it
dead. A run without a fault reports one all the same, so that its measures show the baseline of phases and costs.
"""

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
from testbed.campaign.delay import ABOVE_TIMEOUT, BELOW_TIMEOUT, delay
from testbed.campaign.matrix import Run
from testbed.campaign.plan import LEADER
from testbed.engines.base import EngineError, ProcessEngine
from testbed.engines.real import RealEngine
from testbed.node import NodeRelay

PAUSED_SHARE: Final = 0.5
"""A pause below the timeout lasts this fraction of it; the worker then runs for the same time before the next pause."""
READY_SECONDS_MAX: Final = 120.0
_VERIFY_SECONDS_MAX: Final = 10.0
_POLL_SECONDS: Final = 0.02
_WORKER: Final = 0
_KIND: Final = {
    "none": "none",
    "pause_below_timeout": "process_pause",
    "pause_above_timeout": "process_pause",
    "crash": "process_kill",
    LEADER: "process_kill",
}


class FaultFailed(Exception):
    """The fault could not be injected, verified or healed; one sentence."""

    exit_status = 3


class RunFault:
    """The fault of ``run`` on ``engine``, for ``lasts_seconds``. Run `do` in a separate thread. It ends early when
    ``stop`` is set, after which the engine is killed.
    """

    def __init__(
        self, run: Run, engine: ProcessEngine, *, lasts_seconds: float, timeout_seconds: float,
        bootstrap_servers: str, topic: str, stop: threading.Event, say: Callable[[str], None],
        relay: NodeRelay | None = None, probe: str = "",
    ) -> None:  # fmt: skip
        """``relay`` carries the packets of the worker that is delayed; ``probe`` accepts its connections."""
        self._run = run
        self._engine = engine
        self._hit = engine.leader if run.cell.fault == LEADER and isinstance(engine, RealEngine) else _WORKER
        self._lasts = lasts_seconds
        self._timeout = timeout_seconds
        self._stop = stop
        self._say = say
        self._id = new_id()
        self._kafka = KafkaSection(bootstrap_servers=bootstrap_servers, topic=topic)
        self._topic = FaultsTopicWriter(self._kafka)
        self._relay = relay
        self._probe = probe

    @property
    def may_end(self) -> frozenset[int]:
        """The instances that the fault ends, or that may end because of it: a worker that was replaced can give up."""
        fault = self._run.cell.fault
        if fault == "none":
            return frozenset()
        return frozenset({self._hit, *self._supervisors}) if fault == "crash" else frozenset({self._hit})

    @property
    def may_end_later(self) -> frozenset[int]:
        """The worker of an engine whose Supervisor may replace it because of the fault, also after the healing."""
        return frozenset({_WORKER}) & self.may_end if self._supervisors else frozenset()

    @property
    def _supervisors(self) -> tuple[int, ...]:
        return tuple(one.number for one in self._engine.instances if one.role == "supervisor")

    def do(self) -> None:
        """Inject, verify, hold, heal, verify and report. Raises FaultFailed, EngineError, FaultError."""
        fault = self._run.cell.fault
        if fault == "none":
            self._sham()
        elif fault == "crash":
            self._crash(self._hit, *self._supervisors)
        elif fault == LEADER:
            self._crash(self._hit)
        elif fault == "delay_above_timeout":
            self._delay(ABOVE_TIMEOUT * self._timeout)
        elif fault == "delay_below_timeout":
            self._delay(BELOW_TIMEOUT * self._timeout)
        elif fault == "pause_above_timeout":
            self._pause(self._lasts, 0.0)
        else:
            self._pause(PAUSED_SHARE * self._timeout, PAUSED_SHARE * self._timeout)
        if not self._stop.is_set():
            self._topic.flush()

    def _sham(self) -> None:
        """Report a fault window without doing anything."""
        self._publish("injected")
        self._publish("verified")
        self._stop.wait(self._lasts)
        if not self._stop.is_set():
            self._publish("heal_started")
            self._publish("healed")

    def _crash(self, *numbers: int) -> None:
        """Kill a process, and any that would restart it at once, for the whole failure phase."""
        pids = [i.pid for i in self._engine.instances if i.number in numbers and i.pid is not None]
        self._publish("injected")
        for number in reversed(numbers):
            self._engine.kill(number)
        self._await(lambda: not any(status_of(pid) for pid in pids), "was killed and is still running")
        self._publish("verified")
        self._stop.wait(self._lasts)
        if self._stop.is_set():
            return
        self._publish("heal_started")
        for number in numbers:
            self._engine.restart(number)
        self._engine.ready(READY_SECONDS_MAX)
        self._publish("healed")

    def _delay(self, seconds: float) -> None:
        assert self._relay is not None
        delay(
            self._relay, name=self._name, delay_seconds=seconds, lasts_seconds=self._lasts,
            bootstrap_servers=self._kafka.bootstrap_servers, topic=self._kafka.topic, probe=self._probe,
            seed=self._run.seed, stop=self._stop, say=self._say,
        )  # fmt: skip
        if not self._stop.is_set():
            self._restore_worker()

    @property
    def _name(self) -> str:
        return self._run.cell.fault.replace("_", "-")

    def _pause(self, stopped_seconds: float, between_seconds: float) -> None:
        """Stop the worker for ``stopped_seconds``, continue it for ``between_seconds``, and repeat during the whole
        phase.
        """
        until = time.monotonic() + self._lasts
        self._publish("injected")
        try:
            pid = self._stop_worker()
            self._publish("verified")
            while not self._stop.wait(stopped_seconds):
                if time.monotonic() + between_seconds + stopped_seconds > until:
                    break
                self._engine.send_signal(_WORKER, signal.SIGCONT)
                self._stop.wait(between_seconds)
                pid = self._stop_worker()
            if not self._stop.is_set():
                self._publish("heal_started")
        finally:
            self._engine.send_signal(_WORKER, signal.SIGCONT)
        if self._stop.is_set():
            return
        self._await(lambda: not _is_stopped(pid), "did not continue after SIGCONT")
        # As with a delay, the fault ends here; the time that the engine needs to become complete again is its recovery.
        self._publish("healed")
        self._restore_worker()

    def _stop_worker(self) -> int:
        pid = self._engine.instances[_WORKER].pid
        if pid is None:
            raise FaultFailed(f"The worker of {self._engine.name} cannot be paused: it has ended.")
        self._engine.send_signal(_WORKER, signal.SIGSTOP)
        self._await(lambda: _is_stopped(pid), "did not stop after SIGSTOP")
        return pid

    def _restore_worker(self) -> None:
        """Restart the worker if it gave up because it had been replaced; wait until the engine is ready."""
        try:
            self._engine.ready(READY_SECONDS_MAX)
        except EngineError:
            if self._engine.instances[_WORKER].alive:
                raise
            self._say("the worker ended by itself and is restarted")
            self._engine.restart(_WORKER)
            self._engine.ready(READY_SECONDS_MAX)

    def _await(self, holds: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + _VERIFY_SECONDS_MAX
        while not holds():
            if time.monotonic() > deadline:
                raise FaultFailed(f"The worker of {self._engine.name} {complaint}.")
            self._stop.wait(_POLL_SECONDS)

    def _publish(self, state: State) -> None:
        cell = self._run.cell
        name, target = self._name, f"{self._engine.name}-{self._hit}"
        published = record(
            self._id, name, _KIND[cell.fault], target, state, datetime.now(UTC), "campaign", self._run.seed,
            {"seconds": self._lasts},
        )  # fmt: skip
        self._topic.write(self._id, published)
        self._say(f"{name}: {state}")


def _is_stopped(pid: int) -> bool:
    status = status_of(pid)
    return status is not None and status.is_stopped

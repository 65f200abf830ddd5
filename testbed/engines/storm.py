"""Storm as a cluster of processes: ZooKeeper, Nimbus, a Supervisor, and the worker that the Supervisor starts.

The Supervisor restarts a killed worker; the testbed does not. A worker has no state: its spout reads again from the
committed offsets. With at-least-once these cover only events whose windows have produced their results.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from testbed.engines import zookeeper
from testbed.engines.base import EngineError, Instance
from testbed.engines.effective import ClientConfig, Effective, client_configs
from testbed.engines.jvm import HERE, SOURCES, JvmEngine
from testbed.engines.real import EngineRefused, RealEngineSettings
from testbed.engines.settings import Guarantee
from testbed.engines.storm_files import JAVA_OPTIONS, LOOPBACK, StormPorts, write_cluster
from testbed.ports import free_ports
from testbed.processes import OwnedProcess

WORKER: Final = 0
_ROLES: Final = ("worker", zookeeper.ROLE, "nimbus", "supervisor")
_SUPERVISOR: Final = _ROLES.index("supervisor")
_MAIN: Final = {
    zookeeper.ROLE: (f"org.apache.storm.shade.{zookeeper.MAIN}", zookeeper.HEAP_MB),
    "nimbus": ("org.apache.storm.daemon.nimbus.Nimbus", 192),
    "supervisor": ("org.apache.storm.daemon.supervisor.Supervisor", 160),
}
"""Role -> class and heap in MB."""
_SUBMIT_HEAP_MB: Final = 128
_MESSAGE_TIMEOUT_SECONDS: Final = 300
_SUBMIT_SECONDS_MAX: Final = 120
_DEATH_SECONDS_MAX: Final = 10.0
_CHECK_SECONDS: Final = 0.05
_READY: Final = "spout ready"


class StormEngine(JvmEngine):
    """Instance 0 is the worker, followed by the daemons. ``parallelism`` is the number of the worker's window
    executors."""

    name = "storm"
    guarantees = ("at_least_once", "at_most_once")
    lock = HERE / "storm.lock"
    sources = (SOURCES / "StormJob.java",)
    is_led = True
    leader = _ROLES.index("nimbus")

    def __init__(self, settings: RealEngineSettings, folder: Path) -> None:
        """Raises EngineRefused."""
        if settings.joins and settings.idle_after_seconds is not None:
            raise EngineRefused("The join of storm waits for all partitions; leave out idle_after_seconds.")
        super().__init__(_with_message_timeout(settings), folder, roles=_ROLES)
        self._submitter: OwnedProcess | None = None
        self._ports = _ports()

    @classmethod
    def workloads(cls) -> tuple[str, ...]:
        """PGVal's own."""
        return ("sst", "mst")

    def _command(self, instance: int) -> list[str | Path]:
        role = self._roles[instance]
        main, heap_mb = _MAIN[role]
        arguments = [str(self._folder / "zookeeper.cfg")] if role == zookeeper.ROLE else []
        own = []
        if self.node is not None and self._is_on_node(instance):
            # Percent encoding: Storm decodes the option like a part of a URL, and parses its value as JSON.
            own = [f"-Dstorm.options=storm.local.hostname=%22{self.node.address}%22"]
        return self._java(main, *arguments, heap_mb=heap_mb, options=[*self._options(), *own])

    def _is_on_node(self, instance: int) -> bool:
        """Return true for the Supervisor: its worker is then in the node's network too."""
        return instance == _SUPERVISOR

    def _options(self) -> list[str]:
        home = self._folder
        return [
            *JAVA_OPTIONS,
            f"-Dstorm.home={home}",
            f"-Dstorm.log.dir={home / 'logs'}",
            f"-Dstorm.conf.file={home / 'conf' / 'storm.yaml'}",
            f"-Dlog4j2.configurationFile={home / 'log4j2' / 'daemon.xml'}",
        ]

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The worker, with the process id of the live one, and the daemons."""
        pid = self._worker()
        return (Instance(WORKER, pid, pid is not None, self._log(WORKER), _ROLES[WORKER]), *super().instances[1:])

    def restart(self, instance: int | None = None) -> None:
        """Start the daemons that are not running, and submit the topology the first time; return at once.

        The Supervisor starts the worker.
        """
        if self._submitter is None:
            write_cluster(
                self._folder, self._ports, self.engine_jars(),
                times=self.settings.timeouts, log=self._log(WORKER), options=self.settings.options,
                host=LOOPBACK if self.node is None else self.node.host,
            )  # fmt: skip
        if self._worker() is None and self._log(WORKER).exists():
            # Skip the ended worker's log: the next worker logs when it is ready.
            self._log_starts[WORKER] = self._log(WORKER).stat().st_size
        for number in self._numbers(instance):
            if number != WORKER:
                super().restart(number)
        if self._submitter is None:
            job = self.class_path()[0]
            command = self._java(
                "StormJob", str(self._folder / f"{self.name}.json"), str(_SUBMIT_SECONDS_MAX),
                heap_mb=_SUBMIT_HEAP_MB, options=[*self._options(), f"-Dstorm.jar={job}"],
            )  # fmt: skip
            self._submitter = OwnedProcess(command, log=self._folder / "storm-submit.log", name="storm-submit")

    def ready(self, timeout: float = 60.0) -> None:
        """Wait until the worker's spout has polled its partitions. Raises EngineError."""
        deadline = time.monotonic() + timeout
        if self._submitter is None:
            raise EngineError("storm was not started.")
        while not self._is_ready(WORKER):
            for process in self._processes(None):
                if not process.is_running:
                    raise EngineError(f"{process.name} ended with status {process.returncode}:\n{process.last_lines()}")
            if self._submitter.returncode not in (None, 0):
                raise EngineError(f"The topology was not accepted:\n{self._submitter.last_lines()}")
            if time.monotonic() > deadline:
                raise EngineError(f"The worker of storm was not ready in {timeout} s; see {self._folder}.")
            time.sleep(_CHECK_SECONDS)

    def _is_ready(self, instance: int) -> bool:
        assert instance == WORKER
        return self._worker() is not None and self._log(WORKER).exists() and _READY in self._log_since_start(WORKER)

    def stop(self, timeout: float = 30.0) -> None:
        """Stop the Supervisor with its worker, then Nimbus and ZooKeeper; kill those that do not end."""
        deadline = time.monotonic() + timeout
        for process in reversed(self._processes(None)):
            process.terminate(max(0.0, deadline - time.monotonic()))
        self.kill()

    def kill(self, instance: int | None = None) -> None:
        """Send SIGKILL, and wait until the kernel has removed the process. The Supervisor's worker dies with it."""
        if instance == WORKER:
            self._kill_worker()
            return
        for number in reversed(self._numbers(instance)):
            super().kill(number)
        if instance is None and self._submitter is not None:
            self._submitter.kill()

    def process(self, instance: int) -> OwnedProcess:
        """Return the latest process of a daemon. Raises EngineError for the worker, which the Supervisor starts."""
        if instance == WORKER:
            raise EngineError("The worker of storm is a process of its Supervisor; use kill and send_signal for it.")
        return super().process(instance)

    def send_signal(self, instance: int, number: signal.Signals) -> None:
        """Send a signal to an instance; for the worker, to the live process, if any."""
        if instance != WORKER:
            super().send_signal(instance, number)
        elif (pid := self._worker()) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _kill_worker(self) -> None:
        pid = self._worker()
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _DEATH_SECONDS_MAX
        while self._worker() == pid:
            if time.monotonic() > deadline:
                raise EngineError(f"The worker of storm (process {pid}) was killed and is still running.")
            time.sleep(_CHECK_SECONDS)
        self._log_starts[WORKER] = self._log(WORKER).stat().st_size

    def _worker(self) -> int | None:
        """Return the live worker's process id. The Supervisor keeps a file for each worker, including dead ones."""
        supervisor = self._running[_SUPERVISOR]
        if supervisor is None or not supervisor.is_running:
            return None  # the worker was in the Supervisor's process group, and has ended with the Supervisor
        for path in (self._folder / "local" / "workers").glob("*/pids/*"):
            with suppress(ProcessLookupError, PermissionError):
                # Another process with this id is in another group.
                if os.getpgid(int(path.name)) == supervisor.pid:
                    return int(path.name)
        return None

    def effective(self) -> Effective:
        """Return the guarantee from the live worker's log. Raises EngineError if no worker is ready."""
        if not self._is_ready(WORKER):
            raise EngineError("No worker of storm is ready.")
        return effective_of(self._log_since_start(WORKER))


def effective_of(log: str) -> Effective:
    """Return the guarantee of a worker with this ``log``. Raises EngineError if the log is incomplete."""
    configs = client_configs(log)
    producers = [c for c in configs if c.kind == "ProducerConfig"]
    consumers = [c for c in configs if c.kind == "ConsumerConfig"]
    processing = re.search(r"KafkaSpoutConfig\[offsetCommitPeriodMs=(\d+).*processingGuarantee=(\w+)", log)
    ackers = _topology_option(log, "topology.acker.executors")
    if not producers or not consumers or processing is None or ackers is None:
        raise EngineError("The worker of storm has not logged the configuration of its spout, ackers and clients.")
    guarantee: Guarantee = "at_most_once"
    if processing[2] == "AT_LEAST_ONCE" and ackers > 0 and _is_safe(producers, consumers):
        guarantee = "at_least_once"
    return Effective(
        engine="storm",
        guarantee=guarantee,
        evidence=(
            f"processing guarantee of the spout: {processing[2]}",
            f"ackers: {ackers}",
            f"transactional.id {'set' if all(p.transactional for p in producers) else 'not set'} in the producers",
            f"acks {'all' if all(p.acknowledged for p in producers) else 'not all'}",
        ),
        commit_interval_seconds=int(processing[1]) / 1000,
        transaction_timeout_seconds=None,
        session_timeout_seconds=_topology_option(log, "supervisor.worker.timeout.secs"),
        heartbeat_interval_seconds=_topology_option(log, "worker.heartbeat.frequency.secs"),
    )


def _topology_option(log: str, name: str) -> int | None:
    """Return an integer of the worker's logged configuration, which merges the cluster's and the topology's."""
    found = re.search(rf"Worker has topology config \{{(?:.*[ ,])?{re.escape(name)}=(\d+)", log)
    return None if found is None else int(found[1])


def _with_message_timeout(settings: RealEngineSettings) -> RealEngineSettings:
    """Return ``settings`` with a message timeout.

    Events are acknowledged only with their window's result. Raises EngineRefused if they would be read again before
    that.
    """
    times = settings.timeouts
    lag_ms = settings.max_disorder_ms + settings.allowed_lateness_ms
    longest = (2 * settings.window_ms + lag_ms) / 1000
    timeout = times.message_timeout_seconds
    if timeout is None:
        timeout = max(_MESSAGE_TIMEOUT_SECONDS, 5 * settings.window_ms / 1000)
    if timeout <= longest:
        raise EngineRefused(
            f"storm acknowledges a window only after the next window's results, {longest:g} s after the window's start."
            f" With a message timeout of {timeout:g} s, storm reads the window again before that; use shorter windows,"
            " or a longer timeout."
        )
    return settings.model_copy(update={"timeouts": times.model_copy(update={"message_timeout_seconds": timeout})})


def _is_safe(producers: Sequence[ClientConfig], consumers: Sequence[ClientConfig]) -> bool:
    return all(p.acknowledged for p in producers) and all(
        c.options.get("enable.auto.commit") == "false" for c in consumers
    )


def _ports() -> StormPorts:
    return StormPorts(*free_ports(4))

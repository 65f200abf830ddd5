"""Engines as processes that tests, the demo and the fault runner start, kill and restart.

An engine is a group of instances, numbered from 0. Each is one operating system process with its own log. They end with
the process that started them (``testbed.processes``).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Protocol, Self

from testbed.engines.job import READY
from testbed.engines.settings import Clock, EngineSettings, Node
from testbed.processes import OwnedProcess

_ROOT: Final = Path(__file__).resolve().parents[2]
_CHECK_SECONDS: Final = 0.02


class EngineError(Exception):
    """An engine did not complete an operation in time; the message contains the end of its log."""


@dataclass(frozen=True)
class Instance:
    """One process of an engine at one time. ``pid`` is the process id of its latest start."""

    number: int
    pid: int | None
    alive: bool
    log_path: Path
    role: str = "worker"
    """Its role in the engine: worker, standby, jobmanager, nimbus ..."""


class Engine(Protocol):
    """The operations of an engine. ``instance`` None means all instances; timeouts are seconds."""

    name: str

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The instances, in order."""

    @property
    def log_path(self) -> Path:
        """The folder with one log per instance."""

    def start(self) -> None:
        """Start all instances; returns at once."""

    def ready(self, timeout: float = 60.0) -> None:
        """Wait until every live instance has its partitions and their state. Raises EngineError."""

    def stop(self, timeout: float = 30.0) -> None:
        """Send SIGTERM to all instances, wait until they end, then kill the rest. Raises nothing."""

    def kill(self, instance: int | None = None) -> None:
        """Send SIGKILL, and wait until the kernel has removed the process."""

    def restart(self, instance: int | None = None) -> None:
        """Start the instances that are not running; return at once."""


class ProcessEngine(ABC):
    """An engine of processes, one for each of ``roles``: workers first, then the processes that direct them.

    A context manager that kills the engine at the end.
    """

    name: str
    node: Node | None = None
    """The separate network in which one instance starts; None without one."""
    clocks: Mapping[int, Clock] = MappingProxyType({})
    """Instance -> the clock with which it starts, if it has its own."""

    def __init__(self, folder: Path, *, roles: Sequence[str]) -> None:
        """``folder`` receives the configuration and the logs."""
        self._folder = folder
        self._roles = tuple(roles)
        self._running: list[OwnedProcess | None] = [None] * len(self._roles)
        self._log_starts = [0] * len(self._roles)
        folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def _command(self, instance: int) -> list[str | Path]:
        """Return the command line of an instance. Called at each of its starts."""

    @abstractmethod
    def _environment(self, instance: int) -> dict[str, str]:
        """Return the variables that are added to this process's environment."""

    @abstractmethod
    def _is_ready(self, instance: int) -> bool:
        """Return whether a live instance does its work. May raise EngineError if it never will."""

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The instances, in order."""
        return tuple(
            Instance(i, None if p is None else p.pid, p is not None and p.is_running, self._log(i), self._roles[i])
            for i, p in enumerate(self._running)
        )

    @property
    def log_path(self) -> Path:
        """The folder with one log per instance."""
        return self._folder

    def start(self) -> None:
        """Start all instances that are not running."""
        self.restart()

    def restart(self, instance: int | None = None) -> None:
        """Start the instances that are not running; return at once."""
        for i in self._numbers(instance):
            process = self._running[i]
            if process is not None and process.is_running:
                continue
            if process is not None:
                process.kill()
            log = self._log(i)
            self._log_starts[i] = log.stat().st_size if log.exists() else 0
            entry = self.node.entry if self.node is not None and self._is_on_node(i) else []
            self._running[i] = OwnedProcess(
                [*entry, *self._command(i)],
                log=log,
                name=self._log(i).stem,
                environment={**self._environment(i), **(self.clocks[i].environment if i in self.clocks else {})},
                folder=self._working_folder(i),
            )

    def ready(self, timeout: float = 60.0) -> None:
        """Wait until every instance has its partitions and their state. Raises EngineError."""
        deadline = time.monotonic() + timeout
        for i, process in enumerate(self._running):
            if process is None:
                raise EngineError(f"{self._log(i).stem} was not started.")
            while not self._is_ready(i):
                if not process.is_running:
                    raise EngineError(f"{process.name} ended with status {process.returncode}:\n{process.last_lines()}")
                if time.monotonic() > deadline:
                    raise EngineError(f"{process.name} was not ready in {timeout} s:\n{process.last_lines()}")
                time.sleep(_CHECK_SECONDS)

    def wait(self, timeout: float = 120.0) -> tuple[int, ...]:
        """Wait until all instances have ended by themselves; return their exit statuses. Raises EngineError."""
        deadline = time.monotonic() + timeout
        statuses = []
        for process in self._processes(None):
            try:
                statuses.append(process.wait(max(0.0, deadline - time.monotonic())))
            except TimeoutError as error:
                raise EngineError(f"{error}\n{process.last_lines()}") from error
        return tuple(statuses)

    def stop(self, timeout: float = 30.0) -> None:
        """Send SIGTERM to all instances, wait until they end, and kill those that do not end in time."""
        processes = self._processes(None)
        for process in processes:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + timeout
        for process in processes:
            process.terminate(max(0.0, deadline - time.monotonic()))

    def kill(self, instance: int | None = None) -> None:
        """Send SIGKILL, and wait until the kernel has removed the process."""
        for process in self._processes(instance):
            process.kill()

    def process(self, instance: int) -> OwnedProcess:
        """Return the latest process of an instance, for faults. Raises EngineError before its first start."""
        process = self._running[instance]
        if process is None:
            raise EngineError(f"{self.name}-{instance} was not started.")
        return process

    def send_signal(self, instance: int, number: signal.Signals) -> None:
        """Send a signal to an instance and its process group. Raises EngineError before its first start."""
        self.process(instance).send_signal(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _is_on_node(self, instance: int) -> bool:
        """Return whether an instance starts in ``node``, if the engine has a node."""
        return instance == 0

    def _numbers(self, instance: int | None) -> range:
        return range(len(self._running)) if instance is None else range(instance, instance + 1)

    def _log(self, instance: int) -> Path:
        return self._folder / f"{self.name}-{instance}.log"

    def _working_folder(self, instance: int) -> Path | None:
        """Return the folder that an instance runs in; None: this process's folder."""
        del instance
        return None

    def _log_since_start(self, instance: int) -> str:
        """Return what the latest start of an instance has logged."""
        with self._log(instance).open("rb") as log:
            log.seek(self._log_starts[instance])
            return log.read().decode(errors="replace")

    def _processes(self, instance: int | None) -> list[OwnedProcess]:
        return [p for i in self._numbers(instance) if (p := self._running[i]) is not None]


class PythonEngine(ProcessEngine):
    """An engine whose instances are ``python -m <module> engine.json --instance N``."""

    module: str

    def __init__(
        self, settings: EngineSettings, folder: Path, *, instances: int = 1, arguments: Sequence[str] = ()
    ) -> None:
        """``arguments`` are additional flags of the command line. Raises EngineError."""
        if instances > 1 and settings.workload.needs_shuffle:
            kind = settings.workload.kind
            raise EngineError(f"{self.name} has no shuffle, which several instances need for {kind}; start one.")
        super().__init__(folder, roles=["worker"] * instances)
        self.settings = settings
        self.node = settings.node
        self._arguments = tuple(arguments)
        self._config = folder / f"{self.name}.json"
        self._config.write_text(settings.model_dump_json(indent=1), encoding="utf-8")

    def _command(self, instance: int) -> list[str | Path]:
        return [sys.executable, "-m", self.module, self._config, "--instance", str(instance), *self._arguments]

    def _environment(self, instance: int) -> dict[str, str]:
        del instance
        return {"PYTHONPATH": os.pathsep.join([str(_ROOT), *_python_path()])}

    def _is_ready(self, instance: int) -> bool:
        return any(line.startswith(READY) for line in self._log_since_start(instance).splitlines())


class ReferenceEngine(PythonEngine):
    """The engine that keeps its guarantee."""

    module = "testbed.engines.reference"
    name = "reference"


class MutantEngine(PythonEngine):
    """The engine that breaks its guarantee, and writes the ground truth (``settings.truth``)."""

    module = "testbed.engines.mutant"
    name = "mutant"


def _python_path() -> list[str]:
    value = os.environ.get("PYTHONPATH", "")
    return [value] if value else []

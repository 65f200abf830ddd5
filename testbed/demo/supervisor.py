"""The demo's supervisor: restarts processes that a fault has killed, and writes the files with their process ids.

It has the role of a real pipeline's orchestrator. If a fault holds a process down, it is restarted only after the
runner's journal records the start of healing. It writes the process id only when the process does its work, so that a
fault is healed when the engine is ready, not when a process exists.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from faults.journal import read
from testbed.demo.targets import STARTED_BY
from testbed.engines.base import EngineError, ProcessEngine
from validator.publish.atomic import replace_file

_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True)
class SupervisedProcess:
    """A supervised process. ``pid`` is None while it does not run. ``pid_file`` None: no file is needed."""

    name: str
    pid: Callable[[], int | None]
    restart: Callable[[], object]
    is_ready: Callable[[], bool]
    pid_file: Path | None


class Supervisor:
    """A thread from `start` to `stop`. ``failure`` is the exception that ended it before `stop`, if any."""

    def __init__(
        self, processes: Sequence[SupervisedProcess], journal_folder: Path, say: Callable[[str], None]
    ) -> None:
        self._supervised = tuple(processes)
        self._journal_folder = journal_folder
        self._say = say
        self._written: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)
        self.failure: Exception | None = None

    def start(self) -> None:
        """Start supervising."""
        for process in self._supervised:
            if process.pid_file is not None:
                process.pid_file.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()

    def stop(self) -> None:
        """Restart no more processes."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def all_ready(self) -> bool:
        """Whether each process is ready, with its process id written."""
        return len(self._written) == len(self._supervised)

    def _run(self) -> None:
        try:
            while not self._ended.wait(_LOOK_SECONDS):
                self.look()
        except Exception as error:  # noqa: BLE001 - the main thread raises it again
            self.failure = error

    def look(self) -> None:
        """Check each process once."""
        for process in self._supervised:
            self._supervise(process)

    def _supervise(self, process: SupervisedProcess) -> None:
        pid = process.pid()
        if pid is None:
            if process.pid_file is not None:
                process.pid_file.unlink(missing_ok=True)
            if process.name in self._held_down() or self._ended.is_set():
                return
            if self._written.pop(process.name, None) is not None:
                self._say(_restart_message(process.name))
            process.restart()
        elif self._written.get(process.name) != pid and process.is_ready():
            if process.pid_file is not None:
                replace_file(process.pid_file, f"{pid}\n")
            self._written[process.name] = pid

    def _held_down(self) -> set[str]:
        """Return the targets of active faults whose healing has not begun, except those of a restart loop: these are
        restarted, so that the loop can kill them again."""
        return {
            name
            for entry in read(self._journal_folder).values()
            if entry.was_injected and "heal_started" not in entry.states and entry.fault.kind != "restart_loop"
            for name in entry.fault.targets
        }


def _restart_message(name: str) -> str:
    if (starter := STARTED_BY.get(name)) is None:
        return f"the supervisor starts {name} again"
    return f"{name} has ended; {starter} restarts it as soon as {starter} runs"


def supervised_processes(
    engine: ProcessEngine, names: Sequence[str], pid_file: Callable[[str], Path]
) -> list[SupervisedProcess]:
    """Return the instances of an engine, each under its target's name."""

    def pid(number: int) -> int | None:
        instance = engine.instances[number]
        return instance.pid if instance.alive else None

    def is_ready() -> bool:
        """Return whether the whole engine is ready: its job needs all of its processes."""
        try:
            engine.ready(0)
        except EngineError:
            return False
        return True

    return [
        SupervisedProcess(name, partial(pid, number), partial(engine.restart, number), is_ready, pid_file(name))
        for number, name in enumerate(names)
    ]

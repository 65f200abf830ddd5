"""Fault of processes: their wall clock is off, by libfaketime, which they were started with.

The library reads its file at each look at the clock, so that a line in the file moves the clock of a running process,
and another one puts it right. The probe is a process of our own with the same library and file; that the target has
both is read from the system. What the target itself saw, no other process can see.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from faults.backends import processes
from faults.backends.faketime import LIBRARY
from faults.errors import FaultRefused
from faults.facts import Facts
from faults.fault import Fault
from faults.kinds.base import for_each
from faults.kinds.process import OnProcesses
from faults.parameters import ClockParameters

_FILE_VARIABLE: Final = "FAKETIME_TIMESTAMP_FILE"
_KNOWN: Final = (_FILE_VARIABLE, "FAKETIME_NO_CACHE", "FAKETIME_CACHE_DURATION", "FAKETIME_SHARED")
"""Variables of the library beside which its file alone says the time; ``FAKETIME`` and others win over the file."""
_SWITCHES: Final = {"FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}
_NOW: Final = "import time; print(time.time())"
_SLACK_SECONDS: Final = 0.1


class ClockSkew(OnProcesses):
    """The offset in the file of each target, and none to heal."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, ClockParameters)
        self._offset_seconds = fault.parameters.offset_seconds
        self._libraries = dict(facts.libraries)

    def prepare(self) -> None:
        """Find the processes. Raises FaultRefused where one was not started with the library and the target's file."""
        super().prepare()
        for known in self.facts.processes:
            target = self._targets[known.target]
            if target.clock_file is None:
                raise FaultRefused(f"{known.target}: give the target clock_file, the file that its libfaketime reads.")
            library, variables = processes.mapped(known.pid, LIBRARY), processes.environment(known.pid)
            others = sorted(name for name in variables if name.startswith("FAKETIME") and name not in _KNOWN)
            if others:
                raise FaultRefused(
                    f"{known.target}: it was started with {', '.join(others)}, which its clock follows instead of the "
                    "file; start it without."
                )
            wanted = {_FILE_VARIABLE: str(target.clock_file), **_SWITCHES}
            if library is None or any(variables.get(name) != value for name, value in wanted.items()):
                told = " ".join(f"{name}={value}" for name, value in wanted.items())
                raise FaultRefused(f"{known.target}: start it with LD_PRELOAD=(path of libfaketimeMT.so.1) {told}.")
            if not target.clock_file.is_file():
                raise FaultRefused(f"{known.target}: there is no {target.clock_file}; make it, with +0 in it.")
            self._libraries[known.target] = library
        if not self._is_off_by(0.0):
            raise FaultRefused("clock_skew: a clock is off already; write +0 into its clock_file first.")
        self.facts = self.facts.model_copy(update={"libraries": self._libraries})

    def inject(self) -> None:
        """Move the clocks."""
        self._write(self._offset_seconds)

    def is_in(self) -> bool:
        """The clock of a process with the same library and file is off by the offset, and all processes run."""
        alive = all(processes.is_alive(process) for process in self.facts.processes)
        return alive and self._is_off_by(self._offset_seconds)

    def heal(self) -> None:
        """Put the clocks right."""
        self._write(0.0)

    def is_gone(self) -> bool:
        """The clock of such a process is right."""
        return self._is_off_by(0.0)

    def _write(self, offset_seconds: float) -> None:
        def write(file: Path | None) -> None:
            assert file is not None
            new = file.with_name(f"{file.name}.new")
            new.write_text(f"{offset_seconds:+.3f}\n", encoding="utf-8")
            new.replace(file)  # at no moment it is empty

        for_each((target.clock_file for target in self._targets.values()), write)

    def _is_off_by(self, seconds: float) -> bool:
        for name, library in self._libraries.items():
            variables = {_FILE_VARIABLE: str(self._targets[name].clock_file), **_SWITCHES, "LD_PRELOAD": library}
            before = time.time()
            shown = float(subprocess.check_output([sys.executable, "-I", "-S", "-c", _NOW], env=variables))
            after = time.time()
            if not before - _SLACK_SECONDS <= shown - seconds <= after + _SLACK_SECONDS:
                return False
        return True

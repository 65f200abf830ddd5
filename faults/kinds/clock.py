"""Fault of processes: their wall clock is off by an offset. libfaketime or, in a JVM, this project's agent applies it.

Both read the offset from a file, so that the clock of a running process can be moved and reset. The agent reports the
time that its process sees. libfaketime does not: there the probe is a child process with the same library and file,
and /proc shows that the target has both. A JVM under libfaketime is extremely slow, hence the agent.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from faults.backends import jvm_clock, processes
from faults.backends.faketime import LIBRARY
from faults.errors import FaultRefused
from faults.facts import Facts, KnownProcess
from faults.fault import Fault
from faults.kinds.base import for_each
from faults.kinds.process import OnProcesses
from faults.parameters import ClockParameters

_FILE_VARIABLE: Final = "FAKETIME_TIMESTAMP_FILE"
_KNOWN: Final = (_FILE_VARIABLE, "FAKETIME_NO_CACHE", "FAKETIME_CACHE_DURATION", "FAKETIME_SHARED")
"""Variables that leave the offset to the file. Others, such as ``FAKETIME``, take precedence over the file."""
_SWITCHES: Final = {"FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}
_NOW: Final = "import time; print(time.time())"
_SLACK_SECONDS: Final = 0.1
_AGENT_SLACK_SECONDS: Final = 0.4
"""A JVM may pause between reading its clock and writing the time to its file."""


class ClockSkew(OnProcesses):
    """Writes the offset to the clock file of each target, and 0 to heal.

    A target without a library in the facts is a JVM with the agent.
    """

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, ClockParameters)
        self._offset_seconds = fault.parameters.offset_seconds
        self._libraries = dict(facts.libraries)

    def prepare(self) -> None:
        """Find the processes. Raises FaultRefused if one was started neither with the library and the target's file nor
        with the agent, or if a clock is off already."""
        super().prepare()
        for name, target in self._targets.items():
            if target.clock_file is None:
                raise FaultRefused(f"{name}: set clock_file to the file that the target's agent or libfaketime reads.")
        jvms = [known for known in self.facts.processes if jvm_clock.has_reported(self._file_of(known), known.pid)]
        with_agent = {known.target for known in jvms}
        others = [known for known in self.facts.processes if known.target not in with_agent]
        for known in others:
            library, variables = processes.mapped(known.pid, LIBRARY), processes.environment(known.pid)
            winning = sorted(name for name in variables if name.startswith("FAKETIME") and name not in _KNOWN)
            if winning:
                raise FaultRefused(
                    f"{known.target}: environment variables take precedence over clock_file: {', '.join(winning)}; "
                    "start the process without them."
                )
            wanted = {_FILE_VARIABLE: str(self._file_of(known)), **_SWITCHES}
            if library is None or any(variables.get(name) != value for name, value in wanted.items()):
                settings = " ".join(f"{name}={value}" for name, value in wanted.items())
                raise FaultRefused(
                    f"{known.target}: its clock cannot be moved; start it with LD_PRELOAD=(path of libfaketimeMT.so.1) "
                    f"{settings}, or a JVM with our agent (docs/faults.md), and wait a second before the run."
                )
            self._libraries[known.target] = library
        for name, target in self._targets.items():
            if target.clock_file is not None and not target.clock_file.is_file():
                raise FaultRefused(f"{name}: {target.clock_file} does not exist; create it with the content +0.")
        # In a process group with a JVM that has the agent, processes without the agent keep their clock.
        self.facts = self.facts.model_copy(update={"processes": (*jvms, *others), "libraries": self._libraries})
        for known in jvms:
            if jvm_clock.offset_seconds(self._file_of(known), known.pid) is None:
                raise FaultRefused(
                    f"{known.target}: process {known.pid} has not reported its clock for "
                    f"{jvm_clock.FRESH_SECONDS:g} s; is it stopped?"
                )
        if not self._is_off_by(0.0):
            raise FaultRefused("clock_skew: a clock has an offset already; write +0 to its clock_file first.")

    def inject(self) -> None:
        """Write the offset to the clock files."""
        self._write(self._offset_seconds)

    def is_active(self) -> bool:
        """Whether all processes run with the offset, as reported by the agent or read in a child process."""
        alive = all(processes.is_alive(process) for process in self.facts.processes)
        return alive and self._is_off_by(self._offset_seconds)

    def heal(self) -> None:
        """Reset the clocks. Files in a removed folder are skipped; `is_healed` still probes the processes."""
        self._write(0.0, may_be_absent=True)

    def is_healed(self) -> bool:
        """Whether all clocks are right, as reported by the agents of running JVMs or read in a child process."""
        return self._is_off_by(0.0)

    def _write(self, offset_seconds: float, *, may_be_absent: bool = False) -> None:
        def write(file: Path | None) -> None:
            assert file is not None
            if may_be_absent and not file.parent.exists():
                return
            new = file.with_name(f"{file.name}.new")
            new.write_text(f"{offset_seconds:+.3f}\n", encoding="utf-8")
            new.chmod(0o644)  # the target must be able to read it, whatever the umask of the runner
            new.replace(file)  # a reader never finds the file empty

        for_each((target.clock_file for target in self._targets.values()), write)

    def _file_of(self, known: KnownProcess) -> Path:
        file = self._targets[known.target].clock_file
        assert file is not None, "refused without"
        return file

    def _is_off_by(self, seconds: float) -> bool:
        return self._jvms_are_off_by(seconds) and self._others_are_off_by(seconds)

    def _jvms_are_off_by(self, seconds: float) -> bool:
        for known in self.facts.processes:
            if known.target in self._libraries or not processes.is_alive(known):
                continue
            off = jvm_clock.offset_seconds(self._file_of(known), known.pid)
            if off is None or abs(off - seconds) > _AGENT_SLACK_SECONDS:
                return False
        return True

    def _others_are_off_by(self, seconds: float) -> bool:
        for name, library in self._libraries.items():
            variables = {_FILE_VARIABLE: str(self._targets[name].clock_file), **_SWITCHES, "LD_PRELOAD": library}
            before = time.time()
            shown = float(subprocess.check_output([sys.executable, "-I", "-S", "-c", _NOW], env=variables))
            after = time.time()
            if not before - _SLACK_SECONDS <= shown - seconds <= after + _SLACK_SECONDS:
                return False
        return True

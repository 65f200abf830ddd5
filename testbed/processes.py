"""Processes that end when this process ends them, and also when this process dies.

Every process started here leads its own process group, writes to a log file, and dies with the process that started it,
even if that one is killed with SIGKILL. Two mechanisms ensure this, because each covers cases that the other does not:

* on Linux the kernel kills the group's leader (``PR_SET_PDEATHSIG``), from its first instruction on;
* a *guardian*, one small process for all groups, waits until this process's end of a pipe closes and then kills the
  groups. It covers the other members of the groups, and systems without ``PR_SET_PDEATHSIG``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

TERMINATE_GRACE_SECONDS = 10.0
_GROUP_POLL_SECONDS = 0.02

# The kernel sends the signal of PR_SET_PDEATHSIG (1) when the starting *thread* ends, hence _spawner below. If the
# parent died before the call, no signal is sent; the next line checks for that. exec keeps the setting.
# The process itself sends the guardian its group, before it can have a further member: a parent that is killed right
# after the start could not.
_DIE_WITH_PARENT = """
import ctypes, os, sys
if sys.platform == "linux" and ctypes.CDLL(None).prctl(1, 9) != 0 or os.getppid() != int(sys.argv[1]): os._exit(125)
guardian = int(sys.argv[2])
try: os.write(guardian, b"+%d\\n" % os.getpid())
except BrokenPipeError: pass
os.close(guardian)
try: os.execvp(sys.argv[3], sys.argv[3:])
except OSError as error: print(f"{sys.argv[3]}: {error}", file=sys.stderr, flush=True); os._exit(127)
"""

_GUARD = """
import os, signal, sys
for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP): signal.signal(ignored, signal.SIG_IGN)
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try: os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError): pass
"""


class ProcessStartError(Exception):
    """A command could not be started; the message names the command and the reason."""


class _Guardian:
    """Connection to the guardian process. The guardian gets the live groups, and kills them when this process ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def pipe(self) -> int:
        """The file descriptor that it reads ``+GROUP`` and ``-GROUP`` from. The first call starts the guardian."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._process = _spawner.submit(self._start).result()
            assert self._process.stdin is not None
            return self._process.stdin.fileno()

    def forget(self, group: int) -> None:
        """Not kill the group: it has ended."""
        # If the guardian was killed, PR_SET_PDEATHSIG still works.
        with contextlib.suppress(BrokenPipeError):
            os.write(self.pipe(), f"-{group}\n".encode())

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


# One thread starts all processes and lives as long as the interpreter: PR_SET_PDEATHSIG would kill a process as soon as
# the thread that started it ends.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="process-spawner")
_guardian = _Guardian()


class OwnedProcess:
    """A running command, the leader of its own process group.

    As a context manager it is terminated at the end. All methods may be called after the process has ended.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        name: str | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Start ``command`` with stdout and stderr appended to ``log``, without stdin, and with ``environment`` added
        to this process's.

        Raises :class:`ProcessStartError` if no process can be started, for example in a missing ``folder``. A program
        that does not exist is named in the log, and the exit status is 127, as in a shell.
        """
        self.log = log
        self.name = name or Path(command[0]).name
        guardian = _guardian.pipe()
        ended_with_this = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), str(guardian)]
        command = [*ended_with_this, *map(str, command)]
        self._popen = _spawner.submit(self._start, command, guardian, environment, folder).result()

    def _start(
        self, command: Sequence[str | Path], guardian: int, environment: Mapping[str, str] | None, folder: Path | None
    ) -> subprocess.Popen[bytes]:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            try:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(guardian,),
                    env={**os.environ, **(environment or {})},
                    cwd=folder,
                )
            except OSError as error:
                raise ProcessStartError(f"{self.name} could not be started: {error}.") from error

    @property
    def pid(self) -> int:
        """Process id of the command itself, and id of its process group."""
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for a signal, or ``None`` while it is running."""
        return self._popen.poll()

    @property
    def is_running(self) -> bool:
        """Whether the command itself (not only another member of its group) is running."""
        return self.returncode is None

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the end; the exit status. Raises :class:`TimeoutError` if it is still running after the timeout."""
        try:
            return self._popen.wait(timeout_seconds)
        except subprocess.TimeoutExpired as expired:
            raise TimeoutError(
                f"{self.name} (process {self.pid}) was still running after {timeout_seconds} s."
            ) from expired

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; no effect if the group has no member."""
        # macOS raises PermissionError for a group that has only unreaped processes.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def terminate(self, grace_seconds: float = TERMINATE_GRACE_SECONDS) -> int:
        """SIGTERM, then after ``grace_seconds`` SIGKILL, to the whole group; the exit status of the command."""
        if self.is_running:
            self.send_signal(signal.SIGTERM)
            self.send_signal(signal.SIGCONT)  # a stopped process does not handle SIGTERM
            # kill() below ends it after the grace period.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(grace_seconds)
        return self.kill()

    def kill(self) -> int:
        """SIGKILL the whole group and wait for it; the exit status of the command."""
        self.send_signal(signal.SIGKILL)
        status = self._popen.wait()
        self._await_empty_group()
        _guardian.forget(self.pid)
        return status

    def _await_empty_group(self) -> None:
        # Other members than the leader end soon but not at once; until then they hold their ports and locks.
        deadline = time.monotonic() + TERMINATE_GRACE_SECONDS
        while _has_live_member(self.pid) and time.monotonic() < deadline:
            time.sleep(_GROUP_POLL_SECONDS)

    def last_lines(self, count: int = 15) -> str:
        """The last lines of the log, for an error message."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:])

    def __enter__(self) -> Self:
        """Return the running process."""
        return self

    def __exit__(self, *_: object) -> None:
        """Terminate the process."""
        self.terminate()


def _has_live_member(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    if sys.platform != "linux":
        return True
    # Dead orphans remain in the group until init reaps them, which can take seconds: check for live members.
    return any(_state_and_group(process) == (True, group) for process in Path("/proc").glob("[0-9]*"))


def _state_and_group(process: Path) -> tuple[bool, int]:
    try:
        fields = (process / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False, 0
    return fields[0] not in "ZX", int(fields[2])

"""Local processes: finds, identifies, signals and starts them. Reads /proc on Linux, uses ps elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from faults.errors import FaultRefused
from faults.facts import KnownProcess
from faults.targets import LocalProcess, SidecarTarget

_CONNECT_SECONDS: Final = 1.0
_STALE_SECONDS: Final = 2.0
"""A process that started more than this time after its file was written did not write it; clocks are inexact."""
_STARTED: Final = re.compile(r"\d+[ \t]+(\d+)\s*(?:\n|$)")
"""A line: process id, and start of the process in clock ticks since boot. No clock change affects the ticks."""
# The shell writes its own id and then execs the command, so that the id is on disk before the command runs. If the
# runner is killed meanwhile, healing finds the process and does not start a second one.
_START = 'echo $$ >"$0.new" && mv "$0.new" "$0" && exec "$@"'


@dataclass(frozen=True)
class ProcessStatus:
    """An existing process. A zombie counts as ended."""

    pid: int
    group: int
    started: str
    is_stopped: bool


def status_of(pid: int) -> ProcessStatus | None:
    """The process ``pid`` as it is now; None if it does not exist."""
    return _status_from_proc(pid) if sys.platform == "linux" else status_from_ps(pid)


def _status_from_proc(pid: int) -> ProcessStatus | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else ProcessStatus(pid, int(fields[2]), fields[19], fields[0] in "Tt")


def status_from_ps(pid: int) -> ProcessStatus | None:
    """As :func:`see`, on any POSIX system. ``started`` has a resolution of one second."""
    command = ["ps", "-o", "state=", "-o", "pgid=", "-o", "lstart=", "-p", str(pid)]
    answer = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
    ).stdout.split(maxsplit=2)
    if len(answer) < 3 or answer[0][0] in "ZX":
        return None
    return ProcessStatus(pid, int(answer[1]), answer[2].strip(), answer[0][0] in "Tt")


def group_of(group: int) -> list[ProcessStatus]:
    """All processes of a process group."""
    if sys.platform == "linux":
        pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    else:
        pids = [int(pid) for pid in subprocess.check_output(["ps", "-A", "-o", "pid="], text=True).split()]
    return [status for pid in pids if (status := status_of(pid)) is not None and status.group == group]


def pid_of(target: LocalProcess) -> int | None:
    """The process id that the target names now; None if its file does not exist or contains none."""
    if target.pid is not None:
        return target.pid
    file = where_named(target)
    try:
        pid = int(file.read_text(encoding="utf-8").split()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    if isinstance(target, SidecarTarget) and target.state is not None and not _is_locked_by(pid, file):
        return None
    return pid if pid > 1 else None


def where_named(target: LocalProcess) -> Path:
    """The file with the target's process id. If a sidecar is given by its state folder, it is the folder's lock."""
    if isinstance(target, SidecarTarget) and target.state is not None:
        return target.state / "lock"
    assert target.pid_file is not None
    return target.pid_file


def _is_locked_by(pid: int, file: Path) -> bool:
    """Whether ``pid`` holds the lock of ``file``. The file keeps the id of a process that has ended.

    Read from the kernel's list of locks: trying the lock could make a starting sidecar fail. Other
    systems have no such list; there the id alone counts.
    """
    if sys.platform != "linux":
        return True
    inode = str(file.stat().st_ino)
    for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if fields[1] == "FLOCK" and fields[4] == str(pid) and fields[5].rpartition(":")[2] == inode:
            return True
    return False


def leader_of(target: LocalProcess) -> ProcessStatus | None:
    """The target's process as it is now; None if it does not exist."""
    pid = pid_of(target)
    return None if pid is None else status_of(pid)


def members(name: str, target: LocalProcess) -> tuple[KnownProcess, ...]:
    """All processes of the target. Raises FaultRefused if there is none, or one is the fault runner or its parent."""
    leader = leader_of(target)
    if leader is None:
        where = f"process {target.pid}" if target.pid is not None else f"the process named in {where_named(target)}"
        raise FaultRefused(f"{name}: {where} does not run; start it, then run the faults.")
    if (why_another := _why_another(target, leader)) is not None:
        raise FaultRefused(f"{name}: process {leader.pid} {why_another}; write the file again.")
    found = group_of(leader.group) if target.group else [leader]
    ours = {os.getpid(), os.getppid()}
    if ours & {status.pid for status in found}:
        raise FaultRefused(f"{name}: this would hit the fault runner itself; run the target in a group of its own.")
    return tuple(KnownProcess(target=name, pid=status.pid, started=status.started) for status in found)


def _why_another(target: LocalProcess, status: ProcessStatus) -> str | None:
    """Why the process is not the one whose id was written to the target's file; None if there is no such reason."""
    if target.pid_file is None:
        return None
    recorded = _STARTED.match(target.pid_file.read_text(encoding="utf-8"))
    if recorded is not None and sys.platform == "linux":
        if recorded[1] != status.started:
            return f"is not the one in {target.pid_file}, which names another start time"
    elif started_after(target.pid_file, status):
        return f"started after {target.pid_file} was written: the file names an earlier process, or the clock was set"
    return None


def started_after(file: Path, status: ProcessStatus) -> bool:
    """Whether the process started after the file was written, by the present wall clock."""
    if sys.platform == "linux":
        up_seconds = time.clock_gettime(time.CLOCK_BOOTTIME)
        started = time.time() - up_seconds + int(status.started) / os.sysconf("SC_CLK_TCK")
    else:
        started = time.mktime(time.strptime(status.started))
    return started > file.stat().st_mtime + _STALE_SECONDS


def is_alive(process: KnownProcess) -> bool:
    """Whether this process exists. A later process with the same id does not count."""
    status = status_of(process.pid)
    return status is not None and status.started == process.started


def is_stopped(process: KnownProcess) -> bool:
    """Whether this process exists and is stopped by a signal."""
    status = status_of(process.pid)
    return status is not None and status.started == process.started and status.is_stopped


def send(process: KnownProcess, number: signal.Signals) -> None:
    """Send a signal to this process, if it exists. Raises FaultRefused without permission."""
    if not is_alive(process):
        return
    try:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)
    except PermissionError as error:
        raise FaultRefused(
            f"{process.target}: process {process.pid} belongs to another user; run the faults as that user or as root."
        ) from error


def is_command(target: LocalProcess) -> bool:
    """Whether the target's start command is a program, in PATH or from its folder."""
    program = target.start[0]
    return shutil.which(target.folder / program if "/" in program else program) is not None


def start(name: str, target: LocalProcess, log: Path) -> subprocess.Popen[bytes]:
    """Start the target's command in its own session, so that it outlives this process. The output goes to ``log``.

    Raises FaultRefused if the command cannot run.
    """
    # A sidecar writes the lock of its state folder itself. Replacing that file would let a second sidecar start.
    pid_file = target.pid_file or log.with_suffix(".pid")
    pid_file.parent.mkdir(parents=True, exist_ok=True)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        try:
            return subprocess.Popen(
                ["/bin/sh", "-c", _START, str(pid_file), *target.start],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=target.folder,
            )
        except OSError as error:
            raise FaultRefused(
                f"{name}: its start command cannot run in {target.folder} ({error.strerror})."
            ) from error


def is_ready(target: LocalProcess) -> bool:
    """Whether the target runs, is not stopped, and accepts a connection at its ``ready`` address, if it has one."""
    status = leader_of(target)
    if status is None or status.is_stopped:
        return False
    if target.ready is None:
        return True
    host, _, port = target.ready.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def cpu_seconds(pid: int) -> float:
    """Processor time of a process until now (Linux); 0 if it does not exist."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process (Linux); 0 if it does not exist."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def mapped(pid: int, library: str) -> str | None:
    """The file of a loaded library whose name contains ``library`` (Linux); None if there is none."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    paths = (line.split(maxsplit=5)[5] for line in lines if line.count("/") > 0)
    return next((path for path in paths if library in Path(path).name), None)


def environment(pid: int) -> dict[str, str]:
    """The environment with which a process was started (Linux); empty if the process does not exist."""
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return dict(entry.split("=", 1) for entry in content.split("\0") if "=" in entry)

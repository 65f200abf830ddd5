"""Local processes: found, identified, signalled, started. /proc on Linux, ps elsewhere."""

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
"""A process that started later than its file by more than this is none that wrote it; clocks are a little off."""
_STARTED: Final = re.compile(r"\d+[ \t]+(\d+)\s*(?:\n|$)")
"""A process id and, on its line, when the process started, in clock ticks since boot: those nobody sets."""
# The shell writes its own id, then becomes the command: the id is on disk before the command runs, so that a runner
# killed meanwhile leaves no process that healing does not know and starts a second time.
_START = 'echo $$ >"$0.new" && mv "$0.new" "$0" && exec "$@"'


@dataclass(frozen=True)
class Seen:
    """A process that exists; a zombie does not."""

    pid: int
    group: int
    started: str
    is_stopped: bool


def see(pid: int) -> Seen | None:
    """The process ``pid`` as it is now."""
    return _see_in_proc(pid) if sys.platform == "linux" else see_with_ps(pid)


def _see_in_proc(pid: int) -> Seen | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else Seen(pid, int(fields[2]), fields[19], fields[0] in "Tt")


def see_with_ps(pid: int) -> Seen | None:
    """As :func:`see`, on any POSIX system; ``started`` is to the second."""
    command = ["ps", "-o", "state=", "-o", "pgid=", "-o", "lstart=", "-p", str(pid)]
    answer = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, "LC_ALL": "C"}
    ).stdout.split(maxsplit=2)
    if len(answer) < 3 or answer[0][0] in "ZX":
        return None
    return Seen(pid, int(answer[1]), answer[2].strip(), answer[0][0] in "Tt")


def group_of(group: int) -> list[Seen]:
    """All processes of a process group."""
    if sys.platform == "linux":
        pids = [int(folder.name) for folder in Path("/proc").glob("[0-9]*")]
    else:
        pids = [int(pid) for pid in subprocess.check_output(["ps", "-A", "-o", "pid="], text=True).split()]
    return [seen for pid in pids if (seen := see(pid)) is not None and seen.group == group]


def pid_of(target: LocalProcess) -> int | None:
    """The process id that the target names now; None where its file is absent or holds none."""
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
    """The file that holds the target's process id: for a sidecar known by its state, the lock of that folder."""
    if isinstance(target, SidecarTarget) and target.state is not None:
        return target.state / "lock"
    assert target.pid_file is not None
    return target.pid_file


def _is_locked_by(pid: int, file: Path) -> bool:
    """Whether ``pid`` took the lock of ``file`` and it is still held; the file keeps the id of one that is gone.

    Read from the kernel's list, since trying the lock could refuse a sidecar that starts at that moment. Other
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


def leader_of(target: LocalProcess) -> Seen | None:
    """The target's process as it is now."""
    pid = pid_of(target)
    return None if pid is None else see(pid)


def members(name: str, target: LocalProcess) -> tuple[KnownProcess, ...]:
    """All processes of the target. Raises FaultRefused where there is none, or where one is ours."""
    leader = leader_of(target)
    if leader is None:
        where = f"process {target.pid}" if target.pid is not None else f"the process named in {where_named(target)}"
        raise FaultRefused(f"{name}: {where} does not run; start it, then run the faults.")
    if (why_another := _why_another(target, leader)) is not None:
        raise FaultRefused(f"{name}: process {leader.pid} {why_another}; write the file anew.")
    found = group_of(leader.group) if target.group else [leader]
    ours = {os.getpid(), os.getppid()}
    if ours & {seen.pid for seen in found}:
        raise FaultRefused(f"{name}: this would hit the fault runner itself; run the target in a group of its own.")
    return tuple(KnownProcess(target=name, pid=seen.pid, started=seen.started) for seen in found)


def _why_another(target: LocalProcess, seen: Seen) -> str | None:
    """Why the process that has the id of the target's file now is not the one of which the file tells."""
    if target.pid_file is None:
        return None
    told = _STARTED.match(target.pid_file.read_text(encoding="utf-8"))
    if told is not None and sys.platform == "linux":
        if told[1] != seen.started:
            return f"started at another time than {target.pid_file} tells, so that it is another one"
    elif started_after(target.pid_file, seen):
        return f"started after {target.pid_file} was written, so that it is another one, unless the clock was set since"
    return None


def started_after(file: Path, seen: Seen) -> bool:
    """Whether the file is older than the process, by the wall clock as it is now."""
    if sys.platform == "linux":
        up_seconds = time.clock_gettime(time.CLOCK_BOOTTIME)
        started = time.time() - up_seconds + int(seen.started) / os.sysconf("SC_CLK_TCK")
    else:
        started = time.mktime(time.strptime(seen.started))
    return started > file.stat().st_mtime + _STALE_SECONDS


def is_alive(process: KnownProcess) -> bool:
    """Whether that very process exists."""
    seen = see(process.pid)
    return seen is not None and seen.started == process.started


def is_stopped(process: KnownProcess) -> bool:
    """Whether that very process exists and is stopped by a signal."""
    seen = see(process.pid)
    return seen is not None and seen.started == process.started and seen.is_stopped


def send(process: KnownProcess, number: signal.Signals) -> None:
    """Send a signal to that very process; nothing happens where it is gone. Raises FaultRefused without permission."""
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
    """Start the target's command in a session of its own, so that it outlives us; output goes to ``log``."""
    # A sidecar writes the lock of its state itself; a rename onto it would let a second one in.
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
    """Whether the target runs, goes on (is not stopped), and takes a connection where ``ready`` names an address."""
    seen = leader_of(target)
    if seen is None or seen.is_stopped:
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
    """Processor time of a process until now (Linux); 0 where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Memory that a process holds (Linux); 0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (FileNotFoundError, ProcessLookupError):
        return 0


def mapped(pid: int, library: str) -> str | None:
    """The file of a loaded library whose path holds this name (Linux); None where there is none."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return None
    paths = (line.split(maxsplit=5)[5] for line in lines if line.count("/") > 0)
    return next((path for path in paths if library in Path(path).name), None)


def environment(pid: int) -> dict[str, str]:
    """The variables that a process was started with (Linux); none where it is gone."""
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return dict(entry.split("=", 1) for entry in content.split("\0") if "=" in entry)

"""The demo's disk: it has its stated size, no other process sees it, and it ends with the process that mounted it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed import disk
from testbed.checkout import python_path

pytestmark = pytest.mark.skipif(disk.why_not_here() is not None, reason=f"disks of their own: {disk.why_not_here()}")

# Prints the size of the folder's file system, as seen by itself and by a child, then waits.
_OWNER = """
import os, shutil, subprocess, sys
from pathlib import Path
from testbed import disk
folder = Path(sys.argv[1])
disk.enter_own_mounts()
disk.mount(folder)
print(shutil.disk_usage(folder).total, flush=True)
subprocess.run([sys.executable, "-c", "import shutil, sys; print(shutil.disk_usage(sys.argv[1]).total)", folder])
if sys.argv[2] == "unmount":
    disk.unmount(folder)
    print(os.path.ismount(folder), flush=True)
else:
    (folder / "kept").write_text("x")
    print("waiting", flush=True)
    sys.stdin.read()
"""


def owner(folder: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _OWNER, str(folder), how]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**python_path(), "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
    )


def test_processes_of_the_owner_see_a_small_disk_until_it_is_unmounted(tmp_path: Path) -> None:
    said, _ = owner(tmp_path / "state", "unmount").communicate(timeout=30)
    assert said.split() == [str(disk.SIZE_BYTES), str(disk.SIZE_BYTES), "False"]


@pytest.mark.full
def test_no_other_process_sees_the_disk_and_it_ends_with_a_killed_owner(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with owner(folder, "stay") as running:
        assert running.stdout is not None
        assert next(line for line in running.stdout if line.startswith("waiting"))
        assert list(folder.iterdir()) == []
        running.kill()
    folder.rmdir()

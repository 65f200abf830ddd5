"""A full disk of `spark.local.dir` when Spark starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.sidecars import PROCESS_SECONDS_MAX, Sidecars


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="a small file system needs root on Linux")
def test_the_full_disk_is_named_in_the_last_line(sidecars: Sidecars, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k,nr_inodes=3", "none", disk], check=True)
    try:
        process = sidecars.start("full", "--set", f"spark.options.spark.local.dir={disk}/spark")
        try:
            assert process.wait(PROCESS_SECONDS_MAX) == 3
        finally:
            process.kill()
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
    last = process.log.read_text().splitlines()[-1]
    assert last.startswith(f"streamproof: no space is left on the disk of {disk}/spark")
    assert " bytes are free there): free some space" in last

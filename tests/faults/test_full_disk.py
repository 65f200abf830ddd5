"""A file system that is filled to the last byte: a small one that is unmounted after the test."""

from __future__ import annotations

import errno
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.errors import FaultRefused
from faults.runner import run
from faults.schedule import timeline
from tests.faults.stage import HEALERS, Stage, abandoned

FULL = {"kind": "disk_full", "target": "small", "parameters": {"bytes": "1GiB", "reserve": 0}}
SIZE_BYTES = 8 << 20


@pytest.fixture
def small(stage: Stage) -> Iterator[Path]:
    """A file system of 8 MiB with 1 MiB in use; a target of the stage."""
    folder = stage.folder / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES}", "streamproof-test", str(folder)]
    ran = subprocess.run(mount, check=False, capture_output=True, text=True)
    if ran.returncode:
        pytest.skip(f"this test mounts a file system, which needs root; the mount failed ({ran.stderr.strip()})")
    try:
        (folder / "data").write_bytes(bytes(1 << 20))
        stage.targets["small"] = {"type": "folder", "path": "small"}
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def refusal_of_a_write(folder: Path) -> int | None:
    """Return the errno of a one-byte write; None if it succeeds."""
    file = folder / "one-more"
    try:
        file.write_bytes(b"1")
    except OSError as error:
        return error.errno
    finally:
        file.unlink(missing_ok=True)
    return None


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_without_a_reserve_no_byte_can_be_written_until_it_is_healed(stage: Stage, small: Path) -> None:
    before, seen = free_bytes(small), []
    stage.during(FULL, lambda: seen.append((refusal_of_a_write(small), free_bytes(small))))
    assert seen == [(errno.ENOSPC, 0)]
    assert free_bytes(small) == before
    assert refusal_of_a_write(small) is None
    assert names(small) == ["data"]


@pytest.mark.full
@pytest.mark.parametrize("healer", HEALERS)
def test_the_disk_that_a_killed_runner_filled_is_freed(stage: Stage, small: Path, healer: str) -> None:
    before = free_bytes(small)
    abandoned(stage, FULL, healer, lambda: refusal_of_a_write(small) == errno.ENOSPC)
    assert free_bytes(small) == before
    assert refusal_of_a_write(small) is None


@pytest.mark.full
def test_a_reserve_is_kept(stage: Stage, small: Path) -> None:
    fault = {**FULL, "parameters": {"bytes": "1GiB", "reserve": 1}}
    with pytest.raises(FaultRefused, match=r"small: .* 0 bytes of .*small .*reserve is 1"):
        stage.during(fault, lambda: None)
    assert names(small) == ["data"]


@pytest.mark.full
def test_the_file_system_of_the_journal_is_not_filled(stage: Stage, small: Path) -> None:
    config = stage.write(FULL, state="small/st")
    with pytest.raises(FaultRefused, match=r"small: the journal in .*small/st "):
        run(config, timeline(config), lambda _: None, threading.Event())
    assert names(small) == ["data", "st"]

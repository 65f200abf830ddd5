"""The folder of temporary files of a run: what a killed run left is removed, and nothing else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import pytest

from validator.stream import scratch


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    return tmp_path


def test_the_next_run_removes_what_a_killed_run_left(temporary: Path) -> None:
    state, other = temporary / "state", temporary / "other"
    killed, beside = scratch.emptied(state, {}), scratch.emptied(other, {})
    for folder in (killed, beside):
        (folder / "blockmgr-1").mkdir()
    again = scratch.emptied(state, {})
    assert again == killed
    assert [file.name for file in again.iterdir()] == ["lock"]
    assert stat.S_IMODE(again.stat().st_mode) == 0o700
    assert (beside / "blockmgr-1").exists()


def test_a_link_with_the_folder_s_name_is_not_followed(temporary: Path) -> None:
    state, precious = temporary / "state", temporary / "precious"
    expected = scratch.emptied(state, {})
    scratch.removed(expected)
    precious.mkdir()
    (precious / "file").touch()
    expected.symlink_to(precious)
    found = scratch.emptied(state, {})
    assert found != expected
    assert (precious / "file").exists()


def test_a_folder_that_another_process_uses_stays(temporary: Path) -> None:
    """For example that of another container, with the same path of its state."""
    state = temporary / "state"
    first = scratch.emptied(state, {})
    code = "import sys; from pathlib import Path; from validator.stream import scratch; "
    code += "print(scratch.emptied(Path(sys.argv[1]), {}))"
    environment = {**os.environ, "TMPDIR": str(temporary)}
    second = subprocess.run(
        [sys.executable, "-c", code, state], capture_output=True, text=True, check=True, env=environment
    )
    assert Path(second.stdout.strip()) != first
    assert (first / "lock").exists()


def test_sockets_have_a_short_path(temporary: Path) -> None:
    short, long = Path("/tmp/a"), temporary / ("long" * 20)
    assert scratch.for_sockets(short) == short
    found = scratch.for_sockets(long)
    assert len(f"{found}/.{uuid.uuid4()}.sock") < 104
    assert stat.S_IMODE(found.stat().st_mode) == 0o700


def test_it_is_on_the_disk_that_spark_may_fill(temporary: Path) -> None:
    disk = temporary / "disk"
    assert scratch.emptied(temporary / "state", {"spark.local.dir": str(disk)}).parent == disk
    assert scratch.emptied(temporary / "state", {"spark.local.dir": f"{disk},/b"}).parent == temporary

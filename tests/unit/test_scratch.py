"""The folder of temporary files of a run: what a killed run left is removed, and nothing else."""

from __future__ import annotations

import stat
import tempfile
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
    assert list(again.iterdir()) == []
    assert stat.S_IMODE(again.stat().st_mode) == 0o700
    assert (beside / "blockmgr-1").exists()


def test_a_link_with_the_folder_s_name_is_not_followed(temporary: Path) -> None:
    state, precious = temporary / "state", temporary / "precious"
    expected = scratch.emptied(state, {})
    expected.rmdir()
    precious.mkdir()
    (precious / "file").touch()
    expected.symlink_to(precious)
    found = scratch.emptied(state, {})
    assert found != expected
    assert (precious / "file").exists()


def test_it_is_on_the_disk_that_spark_may_fill(temporary: Path) -> None:
    disk = temporary / "disk"
    assert scratch.emptied(temporary / "state", {"spark.local.dir": str(disk)}).parent == disk
    assert scratch.emptied(temporary / "state", {"spark.local.dir": f"{disk},/b"}).parent == temporary

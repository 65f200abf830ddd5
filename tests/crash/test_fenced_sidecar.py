"""Two sidecars on one state whose lock does not reach the other host: the newer sidecar fences the older one.

Each runs in separate mount, process and host name namespaces. A different lock file mounted over `lock` simulates a
file system that keeps locks local to each host.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from testbed.checkout import python_path
from tests.crash import history
from tests.crash.sidecars import PROCESS_SECONDS_MAX, Sidecars, until
from validator.state import lock
from validator.state.folder import StateRefused
from validator.state.tables import StateTables, StateTaken, Table, rows_of

_ROW = {"kind": "mark", "batch": 1, "lookup_us": 1, "epoch": 0, "mark": "x"}
_NAMESPACES = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]


def _can_unshare() -> bool:
    tool = shutil.which("unshare")
    return tool is not None and subprocess.run([*_NAMESPACES, "true"], check=False, capture_output=True).returncode == 0


needs_namespaces = pytest.mark.skipif(not _can_unshare(), reason="namespaces need root on Linux and util-linux")


def _rows(state: Path) -> list[int]:
    found = StateTables(state).scan(Table.FACTS, ["batch"])
    return sorted(batch for part in found for batch in part["batch"].to_pylist())


def _fact(batch: int) -> pa.Table:
    return rows_of(Table.FACTS, [{**_ROW, "batch": batch}])


def test_an_older_writer_commits_nothing_to_any_table(tmp_path: Path) -> None:
    first, second = StateTables(tmp_path), StateTables(tmp_path)
    first.take_over()
    first.append(_fact(1), Table.FACTS, writer="a", version=1)
    second.take_over()
    for table in Table:
        with pytest.raises(StateTaken, match="took over"):
            first.append(rows_of(table, [{}]), table, writer="a", version=2)
    with pytest.raises(StateTaken):
        first.delete_facts(0)
    second.append(_fact(2), Table.FACTS, writer="b", version=2)
    assert _rows(tmp_path) == [1, 2]


def test_a_commit_in_progress_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The takeover happens between the ownership check and the commit."""
    first = StateTables(tmp_path)
    first.take_over()
    looked = StateTables._check_turn

    def overtaken(tables: StateTables, known: object, table: Table) -> None:
        looked(tables, known, table)  # type: ignore[arg-type]
        if tables is first:
            subprocess.run(
                [sys.executable, "-c", _TAKE_OVER, tmp_path], check=True, env={**os.environ, **python_path()}
            )

    monkeypatch.setattr(StateTables, "_check_turn", overtaken)
    with pytest.raises(StateTaken):
        first.append(_fact(1), Table.FACTS, writer="a", version=1)
    assert _rows(tmp_path) == []


def test_a_takeover_succeeds_while_the_older_writer_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older writer commits to each table after the newer writer has read it, and before the newer one commits."""
    first, second = StateTables(tmp_path), StateTables(tmp_path)
    first.take_over()
    commit, overtaken = StateTables._commit, set()

    def overtaking(tables: StateTables, known: object, table: Table, *rest: object) -> None:
        if tables is second and table not in overtaken:
            overtaken.add(table)
            monkeypatch.setattr(StateTables, "_commit", commit)
            first._commit(first._newest(table), table, rows_of(table, []), [])  # type: ignore[arg-type]
            monkeypatch.setattr(StateTables, "_commit", overtaking)
        commit(tables, known, table, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(StateTables, "_commit", overtaking)
    second.take_over()
    assert overtaken == set(Table)
    second.append(_fact(2), Table.FACTS, writer="b", version=2)
    with pytest.raises(StateTaken):
        first.append(_fact(1), Table.FACTS, writer="a", version=1)
    assert _rows(tmp_path) == [2]


_TAKE_OVER = """
import pathlib, sys
from validator.state.tables import StateTables
StateTables(pathlib.Path(sys.argv[1])).take_over()
"""


@needs_namespaces
@pytest.mark.full  # five starts of a sidecar: a minute and a half; the tests above cover the fence itself
@pytest.mark.timeout(900)
def test_the_second_of_two_hosts_on_one_folder_is_refused(sidecars: Sidecars) -> None:
    state, view, other_lock = sidecars.state("shared"), sidecars.state("view"), sidecars.folder / "other-lock"
    view.mkdir()
    other_lock.write_bytes(b"")
    history.append(sidecars.servers, history.clicks(sidecars.name, range(4)))
    history.append(sidecars.servers, history.answers(sidecars.name, range(2)))

    def on_host(name: str, before: str = ":") -> list[str | Path]:
        script = f'hostname {name} && {before} && exec "$@"'
        return [*_NAMESPACES, "sh", "-c", script, "sh"]

    first = sidecars.start("shared", inside=on_host("first"))
    second = None
    try:
        until((state / "report.json").exists, PROCESS_SECONDS_MAX, first.last_lines)
        # The lock works through another mount of the folder, with another process id and another host name.
        assert sidecars.once("view", inside=on_host("second", f"mount --bind {state} {view}")) == 2
        assert "another sidecar is running" in (sidecars.folder / "view.log").read_text()
        assert first.is_running

        first_log = first.log.rename(sidecars.folder / "first.log")
        second = sidecars.start("shared", inside=on_host("second", f"mount --bind {other_lock} {state}/lock"))
        assert first.wait(PROCESS_SECONDS_MAX) == 2
        assert "took over the state" in first_log.read_text()
        history.append(sidecars.servers, history.answers(sidecars.name, range(2, 4)))
        read = len(list(history.answers(sidecars.name, range(4))))
        until(
            lambda: (
                sidecars.report("shared")["results"]["read"] + sidecars.report("shared")["late_records"]["read"] == read
            ),
            PROCESS_SECONDS_MAX,
            second.last_lines,
        )
    finally:
        first.kill()
        if second is not None:
            second.kill()
    sidecars.once("shared")
    sidecars.once("alone")
    assert set(sidecars.facts("shared").values()) == {1}
    assert sidecars.facts("shared") == sidecars.facts("alone")
    assert sidecars.verdicts("shared") == sidecars.verdicts("alone")
    assert sidecars.violations("shared") == sidecars.violations("alone")


_MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /srv/a\\040b rw - nfs4 host:/a rw,vers=4.2,local_lock=none,addr=10.0.0.1
31 22 0:41 / /srv/old rw - nfs host:/b rw,vers=3,local_lock=all
32 31 0:42 / /srv/old/win rw - cifs //host/c rw,nobrl
33 31 0:43 / /srv/old/win rw - ext4 /dev/vdb rw
"""


def test_a_mount_with_local_locks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [lock.mount_of(Path(name), _MOUNTS) for name in ("/srv", "/srv/a b/state", "/srv/old/x", "/srv/old/win/x")]
    assert [(mount.type, bool(mount.options & lock.REFUSED_OPTIONS)) for mount in found if mount is not None] == [
        ("ext4", False),
        ("nfs4", False),
        ("nfs", True),
        ("ext4", False),
    ]
    mounts = tmp_path / "mounts"
    mounts.write_text(f"31 22 0:41 / {tmp_path} rw - nfs host:/b rw,vers=3,local_lock=all\n")
    monkeypatch.setattr(lock, "_MOUNTS", mounts)
    with pytest.raises(StateRefused, match="local_lock=all"):
        lock.acquire(tmp_path / "state")

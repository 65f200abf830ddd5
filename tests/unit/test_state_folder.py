"""A state folder is marked before anything else is written. The files of a wrong `state.path` stay unchanged."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.reconcile_rows import fact, facts
from validator.cli import pipeline
from validator.cli.exits import status_of
from validator.cli.main import main
from validator.config.examples import EXAMPLES
from validator.state import folder
from validator.state import tables as state_tables
from validator.state.acknowledgements import FILE as ACKNOWLEDGED
from validator.state.folder import MARK, StateRefused, check, is_state, take
from validator.state.lock import StateLocked, acquire
from validator.state.tables import StateTables, Table
from validator.stream.retention import drop_folders, trim_logs
from validator.stream.start_offsets import new_generation

pytestmark = pytest.mark.unit


def tree(place: Path) -> dict[str, bytes | str]:
    """Everything below ``place``: path -> contents, or the target of a link."""
    return {
        str(path.relative_to(place)): str(path.readlink())
        if path.is_symlink()
        else b""
        if path.is_dir()
        else path.read_bytes()
        for path in sorted(place.rglob("*"))
    }


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def others_files(place: Path) -> None:
    for name in (
        "checkpoint/1/thesis.tex",
        "checkpoint/2024/photo.jpg",
        "facts/epoch=5/data",
        "facts/_delta_log/00.json",
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("mine")


def a_lock_of_others(place: Path) -> None:
    (place / "lock").write_text("combination 4711\n")


def an_identity_of_others(place: Path) -> None:
    (place / "identity.json").write_text('{"name": "alice"}')


def a_mark_of_others(place: Path) -> None:
    (place / MARK).write_text('{"streamproof": "plan"}')


FOREIGN: dict[str, Callable[[Path], None]] = {
    "files": others_files,
    "a lock": a_lock_of_others,
    "an identity": an_identity_of_others,
    "a mark of another kind": a_mark_of_others,
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_folder_is_refused_by_every_command_and_unchanged(
    make: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "home"
    place.mkdir()
    make(place)
    before, mode = tree(place), place.stat().st_mode
    with pytest.raises(StateRefused, match="holds other files") as refused:
        acquire(place)
    assert status_of(refused.value) == 2
    config = tmp_path / "pipeline.yaml"
    config.write_text(EXAMPLES["minimal"])
    # No broker responds at the example's address: the folder is refused before anything is started or called.
    for command in (
        ["validate", str(config), "--once", "--set", f"state.path={place}"],
        ["ack", str(place), "x", "--reason", "r"],
        ["report", str(place)],
        ["explain", str(place), "--id", "1"],
    ):
        assert main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert str(place) in line
    (found,) = pipeline._state(place)  # `doctor`'s check of the folder alone
    assert (found.status, "holds other files" in found.text) == ("problem", True)
    assert (tree(place), place.stat().st_mode) == (before, mode)


def test_a_path_that_is_or_is_below_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    for place in (file, file / "state"):
        with pytest.raises(StateRefused, match="is a file or"):
            take(place)
    assert file.read_text() == "mine"


def test_a_link_to_an_absent_folder_is_named(tmp_path: Path) -> None:
    link, target = tmp_path / "dangling", tmp_path / "nowhere"
    link.symlink_to("nowhere")
    for place, what in ((link, "is a link"), (link / "state", f"is below {link}, a link")):
        said = (
            f"state.path {place} {what} to {target}, which does not exist: create that folder, or name another folder"
        )
        with pytest.raises(StateRefused, match=f"^{re.escape(said)}$"):
            take(place)
    assert not target.exists()
    target.mkdir()
    take(link)
    assert is_state(target)


def test_folders_that_are_likely_mistakes_are_refused() -> None:
    for place in (Path("/"), Path("/etc"), Path(__file__).parent):
        with pytest.raises(StateRefused, match="holds other files"):
            check(place)


def test_the_mark_comes_first_and_only_the_owner_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent, empty, volume = tmp_path / "deep" / "absent", tmp_path / "empty", tmp_path / "volume"
    empty.mkdir(mode=0o755)
    (volume / "lost+found").mkdir(parents=True)
    for place in (absent, empty, volume):
        acquire(place).release()
        assert is_state(place)
        assert place.stat().st_mode & 0o777 == 0o700
        assert all((place / name).stat().st_mode & 0o777 == 0o600 for name in (MARK, "lock"))
    # Permissions that the operator widened stay.
    absent.chmod(0o750)
    acquire(absent).release()
    assert absent.stat().st_mode & 0o777 == 0o750

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        acquire(tmp_path / "killed")
    monkeypatch.undo()
    assert MARK not in names(tmp_path / "killed")
    acquire(tmp_path / "killed").release()


def test_a_state_of_another_schema_is_refused_by_every_command_and_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    take(state)
    others_files(state)
    (state / MARK).write_text(json.dumps({"streamproof": "state", "schema": folder.SCHEMA + 1}))
    before = tree(state)
    said = (
        f"the state {state} has schema {folder.SCHEMA + 1}, and this version of streamproof reads schema "
        f"{folder.SCHEMA}: use the version that wrote it, or give state.path a new folder"
    )
    with pytest.raises(StateRefused, match=re.escape(said)):
        acquire(state)
    config = tmp_path / "pipeline.yaml"
    config.write_text(EXAMPLES["minimal"])
    for command in (
        ["validate", str(config), "--once", "--set", f"state.path={state}"],
        ["ack", str(state), "x", "--reason", "r"],
        ["report", str(state)],
        ["explain", str(state), "--id", "1"],
        ["backup", str(state), str(tmp_path / "copy")],
    ):
        assert main(command) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line
    assert tree(state) == before


def test_a_state_inside_another_is_refused(tmp_path: Path) -> None:
    take(tmp_path / "outer")
    (tmp_path / "way").symlink_to(tmp_path / "outer")
    for place in (tmp_path / "outer" / "inner", tmp_path / "way" / "checkpoint" / "1"):
        with pytest.raises(StateRefused, match="is inside the state"):
            take(place)
    assert set(names(tmp_path / "outer")) == {MARK}


def test_a_second_sidecar_on_one_state_is_refused(tmp_path: Path) -> None:
    held = acquire(tmp_path / "state")
    with pytest.raises(StateLocked):
        acquire(tmp_path / "state")
    held.release()
    acquire(tmp_path / "state").release()


@pytest.mark.parametrize("name", ["lock", "checkpoint", "facts", "identity.json", "acknowledgements.jsonl", MARK])
def test_links_in_a_state_are_refused_and_not_followed(name: str, tmp_path: Path) -> None:
    state, others = tmp_path / "state", tmp_path / "others"
    take(state)
    others.mkdir()
    others_files(others)
    (others / "file").write_text('{"streamproof": "state", "schema": 1}')
    (state / name).unlink(missing_ok=True)
    (state / name).symlink_to(others if name in ("checkpoint", "facts") else others / "file")
    before = tree(tmp_path)
    with pytest.raises(StateRefused):
        acquire(state)
    assert tree(tmp_path) == before


def test_a_foreign_lock_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    for number, make in enumerate((os.mkfifo, lambda lock: os.link(tmp_path / "precious", lock))):
        state = tmp_path / str(number)
        take(state)
        make(state / "lock")
        with pytest.raises(StateRefused, match=r"lock was not created by a sidecar of this user"):
            acquire(state)
    assert (tmp_path / "precious").read_text() == "mine"


def test_removal_follows_no_link_and_leaves_foreign_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, others = tmp_path / "state", tmp_path / "others"
    take(state)
    others.mkdir()
    others_files(others)
    tables = StateTables(state)
    for batch in range(3):
        rows = facts(fact("input", [batch], batch=batch, lookup_us=batch, epoch=batch))
        tables.append(rows, Table.FACTS, writer="w", version=batch)
    log = state / "facts" / "_delta_log"
    (log / "_last_checkpoint").write_text('{"version": 900}')
    (log / "5.notes.txt").write_text("mine")
    (state / "facts" / "epoch=0900").symlink_to(others)
    (state / "facts" / "epoch=²").mkdir()
    (state / "checkpoint").mkdir()
    (state / "checkpoint" / "7").symlink_to(others)
    (state / "checkpoint" / "6").mkdir()
    (state / "checkpoint" / "notes").mkdir()
    before = tree(others)
    assert new_generation(state) == 8
    assert (names(state / "checkpoint")) == ["7", "8", "notes"]
    drop_folders(tables, 1)
    assert (names(state / "facts")) == ["_delta_log", "epoch=0900", "epoch=2", "epoch=²"]
    # Vacuum would follow the link and remove files that the log does not list.
    monkeypatch.setattr(state_tables, "_VACUUM_EVERY", 1)
    tables.append(facts(fact("input", [9], batch=9, lookup_us=9, epoch=2)), Table.FACTS, writer="w", version=9)
    trim_logs(state)
    assert names(log) == ["5.notes.txt", "_last_checkpoint"]
    assert tree(others) == before


def test_an_acknowledgement_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / ACKNOWLEDGED).symlink_to(tmp_path / "other")
    from validator.state.acknowledgements import _append

    with pytest.raises(OSError, match="symbolic links"):
        _append(tmp_path, [])
    assert not (tmp_path / "other").exists()


def test_links_are_found_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert not folder.holds_links(tmp_path)
    (tmp_path / "a" / "b" / "c").symlink_to("/etc")
    assert folder.holds_links(tmp_path)

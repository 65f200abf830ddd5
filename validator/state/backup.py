"""Copies a state while a sidecar writes to it. The copy corresponds to the state after a SIGKILL at one instant.

A batch appends to `facts`, `faults`, `violations`, `verdicts` and `frontiers` in this order. Each table is a Delta log
of files that never change. The versions are read in the opposite order, within milliseconds, and their files are copied
afterwards. So a table of the copy is at least as new as the tables to which a batch appends later.
A sidecar can start on the copy as after a SIGKILL.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from deltalake import DeltaTable

from validator.state import folder
from validator.state.tables import Table, exists, path_of

_LAST_APPENDED_FIRST: Final = (
    *(Table.RUNS, Table.FRONTIERS, Table.VERDICTS),
    *(Table.VIOLATIONS, Table.FAULTS, Table.FACTS),
)
_LEFT_OUT: Final = re.compile(r"lock|endpoint\.json|hs_err_pid.*|.*\.tmp")
_TRIES: Final = 3


def backup(state: Path, target: Path) -> int:
    """Copy ``state`` to the new or empty folder ``target``. Returns the size of the copy in bytes.

    Raises `StateRefused`, and OSError if a file cannot be copied.
    """
    _refuse(state, target)
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in sorted(state.iterdir()):
        if path.is_file() and not path.is_symlink() and not _LEFT_OUT.fullmatch(path.name) and path.name != folder.MARK:
            _copied(path, target / path.name)
    for remaining in reversed(range(_TRIES)):
        try:
            _copy_tables(state, target)
            break
        except FileNotFoundError:
            # Files of the looked-up versions were removed before they were copied.
            if not remaining:
                raise
            for table in Table:
                shutil.rmtree(target / table.value, ignore_errors=True)
    # The mark is copied last, so that an incomplete copy is not a state.
    _copied(state / folder.MARK, target / folder.MARK)
    return sum(path.stat().st_size for path in target.rglob("*") if path.is_file())


def _refuse(state: Path, target: Path) -> None:
    if not folder.is_state(state):
        raise folder.StateRefused(f"{state} is not a state of streamproof: name the state.path of a sidecar")
    folder.check_schema(state)
    if target.resolve().is_relative_to(state.resolve()):
        raise folder.StateRefused(f"{target} is inside the state: name a folder outside of it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise folder.StateRefused(f"{target} holds files: name a new or an empty folder")


def _copy_tables(state: Path, target: Path) -> None:
    looked_up = {table: DeltaTable(path_of(state, table)) for table in _LAST_APPENDED_FIRST if exists(state, table)}
    for table, known in looked_up.items():
        source = state / table.value
        names = [_relative(uri, source) for uri in known.file_uris()]
        for path in sorted((source / "_delta_log").iterdir()):
            # `_last_checkpoint` is not copied, since it may name a later checkpoint: readers then list the log.
            version = re.match(r"\d{20}(?=\.)", path.name)
            if version is not None and int(version[0]) <= known.version():
                names.append(path.relative_to(source))
        for name in names:
            (target / table.value / name).parent.mkdir(parents=True, exist_ok=True)
            _copied(source / name, target / table.value / name)
        copy = DeltaTable(path_of(target, table))
        if (copy.version(), len(copy.file_uris())) != (known.version(), len(known.file_uris())):
            raise FileNotFoundError(2, os.strerror(2), str(source / "_delta_log"))


def _relative(uri: str, source: Path) -> Path:
    path = Path(unquote(urlparse(uri).path)) if uri.startswith("file:") else Path(uri)
    return path.absolute().relative_to(source.absolute())


def _copied(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    target.chmod(0o600)
    with target.open("rb") as written:
        os.fsync(written.fileno())

"""Recognises state folders. A mark is the first file written to a state: without it nothing else is written or removed.

`take` accepts an absent folder, an empty folder, and a state of this schema. Any other folder is refused and not
changed. Links in a state are refused, never followed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from pathlib import Path
from typing import Final, TextIO

MARK: Final = "streamproof-state.json"
LOCK: Final = "lock"

SCHEMA: Final = 3
"""The version of everything in a state. Incremented when a table or file changes: no other version is read."""

_LEFT_OVER: Final = re.compile(rf"{re.escape(MARK)}\.\d+\.tmp")
"""A file left by a start that was killed before it completed the mark."""
_LOST_AND_FOUND: Final = "lost+found"
_SMALL_BYTES: Final = 16 * 1024 * 1024
_SHOWN_MAX: Final = 3
PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors of the disk, which may pass without a change of the configuration: a supervisor starts the sidecar again."""


class StateRefused(Exception):
    """The folder cannot be used as the state. Nothing in it was changed."""

    exit_status = 2


def is_state(state: Path) -> bool:
    """Whether the folder is the state of a sidecar, of any schema."""
    return _schema_of(state) is not None


def check_schema(state: Path) -> None:
    """Raise `StateRefused` if the folder is a state of another schema."""
    found = _schema_of(state)
    if found not in (None, SCHEMA):
        raise StateRefused(
            f"the state {state} has schema {found}, and this version of streamproof reads schema {SCHEMA}: use the "
            "version that wrote it, or give state.path a new folder"
        )


def check(state: Path) -> None:
    """Raise `StateRefused` if `take` would refuse the folder because of its location or content."""
    whole = Path(os.path.realpath(state))
    outer = next((parent for parent in whole.parents if is_state(parent)), None)
    if outer is not None:
        raise StateRefused(f"state.path {state} is inside the state {outer}: name a folder outside of it")
    try:
        with os.scandir(state) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        _refuse_dangling(state)
        return
    except NotADirectoryError:
        raise StateRefused(f"state.path {state} is a file or is below a file: name a folder") from None
    except OSError as error:
        raise StateRefused(f"state.path {state} cannot be read ({error.strerror}): change its permissions") from None
    if not is_state(state):
        _refuse_others(state, found)
    check_schema(state)
    link = next((entry.name for entry in found if entry.is_symlink()), None)
    if link is not None:
        raise StateRefused(
            f"the state {state} holds the link {link}, and links are not followed: replace it with its target"
        )


def _refuse_dangling(state: Path) -> None:
    link = next((place for place in (state, *state.parents) if place.is_symlink() and not place.exists()), None)
    if link is not None:
        what = "is a link" if link == state else f"is below {link}, a link"
        raise StateRefused(
            f"state.path {state} {what} to {os.path.realpath(link)}, which does not exist: create that folder, or name "
            "another folder"
        )


def _refuse_others(state: Path, found: list[os.DirEntry[str]]) -> None:
    others = [entry.name for entry in found if not _is_left_over(state, entry)]
    if others:
        more = f" and {len(others) - _SHOWN_MAX} more" if len(others) > _SHOWN_MAX else ""
        shown = ", ".join(others[:_SHOWN_MAX]) + more
        raise StateRefused(
            f"state.path {state} is not a state of streamproof and holds other files ({shown}): name a new or an empty "
            "folder; nothing in it was changed"
        )


def _is_left_over(state: Path, entry: os.DirEntry[str]) -> bool:
    if entry.name == LOCK:
        content = _small_file(state / LOCK)
        return content is not None and re.fullmatch(rb"\d{0,20}\n?", content) is not None
    if entry.name == _LOST_AND_FOUND:
        return entry.is_dir(follow_symlinks=False)
    return _LEFT_OVER.fullmatch(entry.name) is not None


def take(state: Path) -> None:
    """Create or recognise the state folder and mark it. Only its owner may access it from then on.

    The permissions are set only when the folder is marked, so later changes by the operator stay. Raises
    `StateRefused`, or OSError if the disk or the quota is full, or the file system is read-only.
    """
    check(state)
    if is_state(state):
        return
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(state / MARK, json.dumps({"streamproof": "state", "schema": SCHEMA}) + "\n")
    except OSError as error:
        if error.errno in PASSING:
            raise
        raise StateRefused(
            f"state.path {state} cannot be written ({error.strerror}): change its permissions, or name another folder"
        ) from None
    with contextlib.suppress(PermissionError):  # a volume with another owner keeps its permissions
        state.chmod(0o700)


def write_whole(path: Path, text: str) -> None:
    """Write a small file of the state atomically, synced to the disk. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    with open_new(temporary) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def open_new(path: Path) -> TextIO:
    """Create a file that only its owner may access. Raises OSError, also if the file exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    return os.fdopen(descriptor, "w", encoding="utf-8")


def holds_links(folder: Path) -> bool:
    """Whether ``folder`` is a link or contains one at any depth. Files in such a folder must not be removed by name."""
    if folder.is_symlink():
        return True
    return any(Path(place, name).is_symlink() for place, folders, files in os.walk(folder) for name in folders + files)


def _schema_of(state: Path) -> int | None:
    """The schema in the mark of ``state``; None if the folder is not a state."""
    content = _small_file(state / MARK)
    try:
        found = None if content is None else json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("streamproof") != "state":
        return None
    schema = found.get("schema", 0)
    return schema if type(schema) is int else None


def _small_file(path: Path) -> bytes | None:
    """The content of a regular file; None if it is a link or another type, cannot be read, or is too large."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        seen = os.fstat(descriptor)
        return file.read() if stat.S_ISREG(seen.st_mode) and seen.st_size <= _SMALL_BYTES else None

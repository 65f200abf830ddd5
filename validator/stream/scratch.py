"""The folder for what a run needs only while it lives: Spark's blocks, its sockets and its settings.

A run that is killed leaves these files. Its folder is named after its state, so that the next run on the state finds
and removes it, unless a process holds the folder's lock: two containers may share a temporary folder and both have a
state `/state`.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PREFIX: Final = "streamproof-"
_LOCK: Final = "lock"
_held: Final[dict[Path, int]] = {}
"""Folder -> the descriptor that holds its lock."""
_LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"
_SOCKET_FOLDER_BYTES_MAX: Final = 60
"""A socket's path has at most 104 bytes on macOS (108 on Linux); Spark appends 43."""


def parent(options: Mapping[str, str]) -> Path:
    """The folder that holds the scratch folder: `spark.local.dir` of the options for Spark, else the temporary one."""
    chosen = options.get("spark.local.dir", "")
    return Path(chosen or tempfile.gettempdir())


def chooses_elsewhere(options: Mapping[str, str]) -> bool:
    """Whether Spark writes its blocks elsewhere: to several folders, or to those of its environment variable."""
    return _LOCAL_DIRS in os.environ or "," in options.get("spark.local.dir", "")


def emptied(state: Path, options: Mapping[str, str]) -> Path:
    """Return the empty scratch folder of the state, which only this user may access. ``options``: those for Spark.

    What an earlier run left is removed. If another user owns a file of this name, or a process uses the folder, the
    new folder gets a random name. Raises OSError.
    """
    inside = Path(tempfile.gettempdir()) if chooses_elsewhere(options) else parent(options)
    name = hashlib.sha256(os.fsencode(state.absolute())).hexdigest()[:12]
    folder = inside / f"{_PREFIX}{os.getuid()}-{name}"
    inside.mkdir(parents=True, exist_ok=True)
    if _is_own_folder(folder) and _takes_lock(folder):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=inside))
    _takes_lock(folder)
    return folder


def of_this_process() -> Path:
    """Return a new scratch folder, which is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    atexit.register(removed, folder)
    return folder


def for_sockets(folder: Path) -> Path:
    """Return the folder for Spark's sockets: ``folder``, or one with a short path, as a socket's path is limited."""
    if len(os.fsencode(folder)) <= _SOCKET_FOLDER_BYTES_MAX:
        return folder
    short = Path(tempfile.mkdtemp(prefix=_PREFIX, dir="/tmp"))
    atexit.register(removed, short)
    return short


def removed(folder: Path) -> None:
    """Remove a scratch folder, or as much of it as possible."""
    _release(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _takes_lock(folder: Path) -> bool:
    """Lock the folder until it is removed or this process ends. Returns False if another process holds it."""
    _release(folder)
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    _held[folder] = descriptor
    return True


def _release(folder: Path) -> None:
    if folder in _held:
        os.close(_held.pop(folder))


def _is_own_folder(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()

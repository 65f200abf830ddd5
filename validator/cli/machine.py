"""Checks of this machine: what a sidecar requires before it can start."""

from __future__ import annotations

import platform
import resource
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from validator.cli.check_result import CheckResult, note, ok, problem
from validator.stream import jars

PYTHON_MIN: Final = (3, 11)
PYTHON_MAX: Final = (3, 13)
FILES_MIN: Final = 4096
"""Minimum limit of open files, for Spark's shuffle, Delta's log listings and Kafka's sockets."""
MEMORY_MIN_BYTES: Final = 4 << 30
DISK_MIN_BYTES: Final = 1 << 30
SPARKS_JAR: Final = "spark-sql-kafka-0-10_2.13"
"""The locked jar that must have the same version as PySpark."""


def check() -> Iterator[CheckResult]:
    """The findings of all checks of the machine."""
    yield _python()
    yield _java()
    yield _pyspark()
    yield _jars()
    yield _open_files()
    yield _memory()


def _python() -> CheckResult:
    version = platform.python_version()
    if not PYTHON_MIN <= sys.version_info[:2] <= PYTHON_MAX:
        return problem("python", f"Python {version} is not supported", "use Python 3.11 to 3.13")
    return ok("python", f"Python {version}")


def _java() -> CheckResult:
    try:
        found = jars.find_java()
    except jars.JavaNotFoundError as error:
        # The error's sentence already says how to fix it.
        return CheckResult("problem", "java", str(error))
    return ok("java", f"Java {found.version}, {found.executable}")


def _pyspark() -> CheckResult:
    [wanted] = [jar.version for jar in jars.read_lock(jars.SIDECAR_LOCK) if jar.artifact == SPARKS_JAR]
    try:
        have = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return problem("pyspark", "it is not installed", f"install pyspark=={wanted}")
    if have != wanted:
        return problem("pyspark", f"version {have} does not match the sidecar's jars", f"install pyspark=={wanted}")
    return ok("pyspark", have)


def _jars() -> CheckResult:
    cache = jars.default_cache()
    locked = jars.read_lock(jars.SIDECAR_LOCK)
    absent = [jar.coordinates for jar in locked if not (cache / jar.relative_path).is_file()]
    if absent:
        are = "is" if len(absent) == 1 else "are"
        return note("jars", f"{len(absent)} of {len(locked)} jars {are} not in {cache}: the next start downloads them")
    return ok("jars", f"all {len(locked)} in {cache}")


def _open_files() -> CheckResult:
    limit, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= FILES_MIN:
        return ok("open files", "no limit" if limit == resource.RLIM_INFINITY else f"up to {limit}")
    fix = f"raise it with `ulimit -n {FILES_MIN}`"
    if hard != resource.RLIM_INFINITY and hard < FILES_MIN:
        fix = f"let the administrator raise the hard limit to {FILES_MIN}"
    return problem("open files", f"the limit is {limit}, and a long run needs {FILES_MIN}", fix)


def _memory() -> CheckResult:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return note("memory", "free memory cannot be read on this system; 4 GiB are recommended")
    kibibytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    available = kibibytes.get("MemAvailable", kibibytes.get("MemFree", 0)) * 1024
    if available < MEMORY_MIN_BYTES:
        return note("memory", f"{available / (1 << 30):.1f} GiB are free, and 4 GiB are recommended")
    return ok("memory", f"{available / (1 << 30):.1f} GiB are free")


def disk(folder: Path) -> CheckResult:
    """The finding on free disk space for ``folder``, which must exist."""
    free = shutil.disk_usage(folder).free
    if free < DISK_MIN_BYTES:
        fix = "free disk space, or set state.path to another disk"
        return problem("disk", f"{free / (1 << 20):.0f} MiB are free, and the state needs 1 GiB", fix)
    return ok("disk", f"{free / (1 << 30):.0f} GiB are free for the state")

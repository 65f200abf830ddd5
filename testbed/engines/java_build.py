"""Compiles the project's Java sources at their first use: small files, kept as a jar per engine in the user's cache.

The jar's name contains the hash of the sources and of the lock file of its dependencies. Only a change of
these compiles it again.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from validator.stream.jars import PrerequisiteError, find_java, user_cache

JAVA_RELEASE: Final = 17
"""The oldest Java version that the project supports."""
_COMPILE_SECONDS_MAX: Final = 180
_JAR: Final = "{jar}"
"""Placeholder of the jar's own name in a manifest."""
_ZIP_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""Fixed, so that the same classes give the same jar, byte for byte."""


class JavacNotFoundError(PrerequisiteError):
    """A Java is installed, but without a compiler."""


class CompileError(Exception):
    """The compilation failed: an error in the source, or jars that do not fit it."""


def find_javac() -> Path:
    """Return the compiler of the Java in use, else the first one on the PATH.

    Raises :class:`JavacNotFoundError`, or :class:`validator.stream.jars.JavaNotFoundError`.
    """
    java = find_java().executable
    beside = java.resolve().with_name("javac")
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("javac")
    if found is None:
        raise JavacNotFoundError(
            f"The Java at {java} has no compiler (javac), which this engine needs; install it with "
            "`sudo apt-get install openjdk-17-jdk-headless` (Debian, Ubuntu) or `brew install openjdk@17` (macOS)."
        )
    return Path(found)


def job_jar(sources: Sequence[Path], lock: Path, jars: Sequence[Path], *, cache: Path | None = None) -> Path:
    """Return the jar of ``sources``, compiled against ``jars``, which ``lock`` lists. ``cache`` is a folder.

    Raises JavacNotFoundError, JavaNotFoundError, CompileError.
    """
    named_by = b"".join(file.read_bytes() for file in (*sources, lock))
    return _compiled(sources, jars, named_by=named_by, cache=cache)


def agent_jar(source: Path, main: str, *, cache: Path | None = None) -> Path:
    """Return the jar of a JVM agent without other jars, visible to all class loaders. ``main`` is its class.

    Raises the same errors as `job_jar`.
    """
    manifest = f"Premain-Class: {main}\nBoot-Class-Path: {_JAR}\nCan-Retransform-Classes: true\n"
    return _compiled([source], (), named_by=source.read_bytes() + manifest.encode(), manifest=manifest, cache=cache)


def _compiled(
    sources: Sequence[Path], jars: Sequence[Path], *, named_by: bytes, cache: Path | None, manifest: str = ""
) -> Path:
    cache = user_cache() / "engines" if cache is None else cache
    jar = cache / f"{sources[0].stem}-{hashlib.sha256(named_by).hexdigest()[:16]}.jar"
    if jar.exists():
        return jar
    javac = find_javac()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".compile-", dir=cache) as name:
        classes = Path(name, "classes")
        command: list[str | Path] = [javac, "-proc:none", "--release", str(JAVA_RELEASE), "-encoding", "UTF-8"]
        command += ["-cp", os.pathsep.join(map(str, jars)) or ".", "-d", classes, *sources]
        try:
            run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_COMPILE_SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise CompileError(f"{javac} did not compile {sources[0].name} in {_COMPILE_SECONDS_MAX} s.") from error
        if run.returncode != 0:
            raise CompileError(f"{javac} does not compile {sources[0].name}:\n{run.stderr}{run.stdout}")
        packed = Path(name, jar.name)
        _pack(classes, packed, manifest.replace(_JAR, jar.name))
        packed.replace(jar)  # concurrent processes write equal files
    return jar


def _pack(classes: Path, jar: Path, manifest: str) -> None:
    with zipfile.ZipFile(jar, "w", zipfile.ZIP_DEFLATED) as archive:
        if manifest:
            archive.writestr(zipfile.ZipInfo("META-INF/MANIFEST.MF", _ZIP_TIME), f"Manifest-Version: 1.0\n{manifest}")
        for path in sorted(classes.rglob("*.class")):
            archive.writestr(zipfile.ZipInfo(path.relative_to(classes).as_posix(), _ZIP_TIME), path.read_bytes())

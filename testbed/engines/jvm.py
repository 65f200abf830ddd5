"""Engines that run on Java: jars with their own lock file, a job in Java, processes of a few hundred MB."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from testbed import gc_log
from testbed.engines.java_build import find_javac, job_jar
from testbed.engines.real import RealEngine
from validator.stream.jars import find_java, resolve

HERE: Final = Path(__file__).parent
SOURCES: Final = HERE / "java"
GENERIC: Final = (SOURCES / "Work.java", SOURCES / "Matcher.java")
"""What the generic jobs share."""


class JvmEngine(RealEngine):
    """An engine of Java processes. Its requirements are downloaded and compiled when the engine is constructed."""

    lock: Path
    """Lock file of its jars, with lines ``group:artifact:version sha256``."""
    sources: tuple[Path, ...]
    """Source files of its job; the first has the class to run."""

    @classmethod
    def require(cls) -> None:
        """Raise a PrerequisiteError if this machine lacks what the engine needs. Downloads nothing."""
        find_javac()

    @classmethod
    def class_path(cls) -> list[Path]:
        """Return the job's jar, then the engine's. Missing jars are downloaded and compiled.

        Raises PrerequisiteError, CompileError.
        """
        cls.require()
        jars = cls.engine_jars()
        return [job_jar(cls.sources, cls.lock, jars), *jars]

    @classmethod
    def engine_jars(cls) -> list[Path]:
        """Return the engine's jars; download missing ones."""
        return resolve(cls.lock)

    def _java(self, main: str, *arguments: str, heap_mb: int, options: Sequence[str] = ()) -> list[str | Path]:
        """Return a command line. The JVM keeps its temporary files in the engine's folder."""
        scratch = self._folder / "tmp"
        scratch.mkdir(exist_ok=True)
        return [
            find_java().executable,
            f"-Xmx{heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:-UsePerfData",
            gc_log.option(self._folder),
            "-XX:+ExitOnOutOfMemoryError",
            f"-Djava.io.tmpdir={scratch}",
            *options,
            "-cp",
            os.pathsep.join(map(str, self.class_path())),
            main,
            *arguments,
        ]

    def _environment(self, instance: int) -> dict[str, str]:
        del instance
        return {}

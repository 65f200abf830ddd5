"""The text that Spark's JVM writes outside log4j, to stdout and stderr: read line by line, without known noise.

log4j has its own rules (`log4j2.properties`). This text comes from the launcher and from the JVM itself: no logger can
drop it, but it also has the reason why a JVM does not start or crashes.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from validator.model.terminal import plain

_NOISE: Final = re.compile(
    # Spark's launcher adds this module for its vectorised linear algebra, also to a JVM that needs none. Java has no
    # option that silences the warning or takes the module away again.
    r"WARNING: Using incubator modules: jdk\.incubator\.vector"
    # Java repeats the user's own variables, once per JVM. They may have secrets.
    r"|(NOTE: )?Picked up (JDK_JAVA_OPTIONS|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS): .*"
    # An agent in these variables (a monitor, a shifted clock) disables a shortcut of the start.
    r"|.* VM warning: Sharing is only supported for boot loader classes because bootstrap classpath has been appended"
)
_KEPT_MAX: Final = 20
_KEPT_SECONDS: Final = 10.0
"""Older lines do not say why the JVM ended."""
_DRAIN_SECONDS: Final = 2.0

Reader = Callable[[str], None]


def without_noise(output: str) -> str:
    """The lines of ``output`` that are not noise, as one text."""
    return _as_text(line for line in output.splitlines() if _NOISE.fullmatch(line) is None)


def _as_text(lines: Iterable[str]) -> str:
    return "; ".join(stripped for line in lines if (stripped := line.strip("# ")))


def to_stderr(line: str) -> None:
    """Write a line to this process's stderr, without its buffer: the thread may still run while Python exits."""
    if sys.__stderr__ is not None:
        with suppress(OSError, ValueError):
            os.write(sys.__stderr__.fileno(), f"{plain(line.expandtabs(4))}\n".encode())


class JvmOutput:
    """Reads what JVMs write. Each line that is not noise goes to the reader, in a thread."""

    def __init__(self) -> None:
        self._reader: Reader = to_stderr
        self._kept: deque[tuple[float, str]] = deque(maxlen=_KEPT_MAX)
        self._thread: threading.Thread | None = None

    def read_by(self, reader: Reader) -> None:
        """Set the reader of the lines of JVMs that are started from now on. The default is `to_stderr`."""
        self._reader = reader

    @contextmanager
    def sink(self) -> Iterator[int]:
        """The file descriptor that a JVM started within this context gets as its stdout and stderr."""
        source, sink = os.pipe()
        # A daemon: the JVM, which holds the other end, ends after this process.
        self._thread = threading.Thread(
            target=self._read, args=(source, self._reader), name="output of the JVM", daemon=True
        )
        self._thread.start()
        try:
            yield sink
        finally:
            os.close(sink)

    def drain(self) -> None:
        """Wait until all lines of a JVM that has ended are read."""
        if self._thread is not None:
            self._thread.join(_DRAIN_SECONDS)

    def last_lines(self) -> str:
        """The lines of the last seconds, as one text; empty if there are none."""
        since = time.monotonic() - _KEPT_SECONDS
        return _as_text(line for at, line in tuple(self._kept) if at >= since)

    def _read(self, source: int, reader: Reader) -> None:
        with os.fdopen(source, encoding="utf-8", errors="replace") as lines:
            for ended_line in lines:
                line = ended_line.rstrip("\n")
                if _NOISE.fullmatch(line) is None:
                    self._kept.append((time.monotonic(), line))
                    reader(line)


OUTPUT: Final = JvmOutput()
"""Of the JVM of this process: PySpark has one per process."""

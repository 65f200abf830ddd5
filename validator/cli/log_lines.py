"""The lines that `validate` writes to stderr: plain text for people, or JSON objects for a log collector."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from validator.model.terminal import plain
from validator.publish.stderr import to_stderr

FORMATS: Final = ("text", "json")
_JVM_LOG_VARIABLE: Final = "STREAMPROOF_LOG_PATTERN"
"""Environment variable with the layout of the JVM's log lines, read by `validator/stream/log4j2.properties`."""


class TextLines:
    """Plain lines. Errors are prefixed with the name of the program."""

    def set_pipeline(self, pipeline: str) -> None:
        """Do nothing: plain lines do not contain the pipeline's name."""

    def say(self, line: str) -> None:
        """Write one line."""
        to_stderr(line)

    def error(self, line: str) -> None:
        """Write the line that ends the command."""
        to_stderr(f"streamproof: {line}")


@dataclass
class JsonLines:
    """JSON objects with `time`, `level`, `pipeline`, `run` and `message`. ``run`` is a random id of this process."""

    pipeline: str | None = None
    run: str = field(default_factory=lambda: os.urandom(6).hex())
    now: Callable[[], datetime] = lambda: datetime.now(UTC)

    def set_pipeline(self, pipeline: str) -> None:
        """Set the pipeline's name in all further lines, including those of the JVM."""
        self.pipeline = pipeline
        labels = f'"pipeline":{json.dumps(pipeline)},"run":{json.dumps(self.run)}'
        # log4j interprets dollar signs (variables), backslashes (escapes) and percent signs (conversions).
        for sign, escaped in (("$", "\\u0024"), ("\\", "\\\\"), ("%", "%%")):
            labels = labels.replace(sign, escaped)
        time = "%d{yyyy-MM-dd'T'HH:mm:ss.SSS'Z'}{UTC}"
        of_record = f'"time":"{time}","level":"%level{{lowerCase=true}}"'
        message = '"message":"%enc{%c{1}: %m}{JSON}"'
        os.environ[_JVM_LOG_VARIABLE] = f"{{{of_record},{labels},{message}}}%ex{{0}}%n"

    def say(self, line: str) -> None:
        """Write one line."""
        self._write("info", line)

    def pass_on(self, line: str) -> None:
        """Write a line that the JVM wrote. An object with ``run`` has the layout of `set_pipeline` and
        stays as it is; other text becomes the message of an object.

        May be called by a thread that still runs while Python exits, so it does not use the buffer of stderr.
        """
        if sys.__stderr__ is None:
            return
        text = line if self._is_own(line) else self._object("info", f"JVM: {line}")
        with suppress(OSError, ValueError):
            os.write(sys.__stderr__.fileno(), f"{text}\n".encode())

    def error(self, line: str) -> None:
        """Write the line that ends the command."""
        self._write("error", line)

    def _is_own(self, line: str) -> bool:
        try:
            read = json.loads(line)
        except (ValueError, RecursionError):
            return False
        return isinstance(read, dict) and read.get("run") == self.run

    def _write(self, level: str, line: str) -> None:
        if sys.stderr is None:
            return
        # One call per line: several threads write. A closed stderr or a full disk must not end the command.
        with suppress(OSError):
            sys.stderr.write(f"{self._object(level, line)}\n")
            sys.stderr.flush()

    def _object(self, level: str, line: str) -> str:
        time = self.now().isoformat(timespec="milliseconds").replace("+00:00", "Z")
        fields = {"time": time, "level": level, "pipeline": self.pipeline, "run": self.run, "message": plain(line)}
        return json.dumps(fields)


Lines = TextLines | JsonLines


def format_in(arguments: Sequence[str]) -> str | None:
    """The last value of `--log-format` in ``arguments`` that the parser may have refused; None without one."""
    found = None
    for place, argument in enumerate(arguments):
        name, sign, value = argument.partition("=")
        if name == "--log-format":
            found = value if sign else next(iter(arguments[place + 1 : place + 2]), None)
    return found


def lines_of(form: str | None) -> Lines:
    """The lines of a command in the format of its `--log-format`; plain text for None."""
    return JsonLines() if form == "json" else TextLines()

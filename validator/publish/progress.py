"""How far a run with `--once` has read: one line in place on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import Final, TextIO

from validator.model.terminal import plain
from validator.publish.report_types import Report

LINE_EVERY_SECONDS: Final = 10.0
"""Interval of the lines if the output is not a terminal."""


class Progress:
    """Shows reports of batches on ``stream`` (None: no terminal), or with ``say_line``. Other lines go through `say`.

    ``clock``: monotonic, in seconds.
    """

    def __init__(
        self, stream: TextIO | None, say_line: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._say_line, self._clock = stream, say_line, clock
        self._in_place = stream is not None and stream.isatty() and os.environ.get("TERM") != "dumb"
        self._began: float | None = None
        self._shown_at = 0.0
        self._line = ""
        self._read: int | None = None
        self._unread = 0
        self._first: int | None = None

    def resume(self, report: Report) -> None:
        """Take note of what an earlier run has read."""
        self._first = _offsets(report)[0]

    def update(self, report: Report, *, age_seconds: float = 0.0) -> None:
        """Show the progress of the newest batch."""
        del age_seconds
        self._read, self._unread = _offsets(report)
        self.write_status()

    def write_status(self, *, because: str | None = None) -> None:
        """Show the progress, if it is time for it. ``because``: why no batch is read, if that is known."""
        now = self._clock()
        if self._began is None:
            self._began = self._shown_at = now
        if now - self._shown_at < (1.0 if self._in_place else LINE_EVERY_SECONDS):
            return
        self._shown_at = now
        line = self._progress(now - self._began) + (f": {because}" if because else "")
        if self._in_place:
            self._draw(line)
        else:
            self._say_line(line)

    def say(self, line: str) -> None:
        """Write another line, above the progress."""
        kept = self._line
        self._draw("")
        self._say_line(line)
        self._draw(kept)

    def close(self) -> None:
        """Remove the progress from the terminal."""
        self._draw("")

    def _progress(self, seconds: float) -> str:
        if self._read is None:
            return f"reading the first batch, {seconds:.0f} s"
        read = self._read - (self._first or 0)
        if not self._unread:
            return f"{read:,} offsets read, judging, {seconds:.0f} s"
        rate = read / seconds if seconds else 0.0
        left = f", about {self._unread / rate:.0f} s left" if rate else ""
        return f"{read:,} of {read + self._unread:,} offsets read, {rate:,.0f}/s{left}"

    def _draw(self, line: str) -> None:
        if self._stream is None or not self._in_place or line == self._line == "":
            return
        # A line that the terminal wraps would take two lines to erase.
        self._stream.write(f"\r\x1b[K{plain(line)[: shutil.get_terminal_size().columns - 1]}")
        self._stream.flush()
        self._line = line


def _offsets(report: Report) -> tuple[int, int]:
    """Return how many offsets were read, and how many are left."""
    partitions = report["coverage"]["partitions"]
    read = sum(partition["next_offset"] - partition["first_offset"] for partition in partitions)
    return read, sum(partition["lag_events"] for partition in partitions)

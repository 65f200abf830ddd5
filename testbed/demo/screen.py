"""The demo's output: lines with the seconds since its start, and the live table below them."""

from __future__ import annotations

import os
import threading
import time
from typing import TextIO

from validator.publish.live_table import LiveTable
from validator.publish.report_types import Report


class Screen:
    """Output of the demo. Several threads may write to it."""

    def __init__(self, stream: TextIO) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._table = LiveTable(stream, os.environ)
        self._stream = stream
        self.first_verdict_seconds: float | None = None
        """When the first verdict other than unknown was shown, in seconds since the start."""

    def say(self, text: str) -> None:
        """Write one line, with the time."""
        with self._lock:
            self._table.note(f"{self._seconds():6.1f} s  {text}")

    def show(self, report: Report) -> None:
        """Show the table of ``report``."""
        first = self.first_verdict_seconds is None and report["outcome"] != "unknown"
        if first:
            self.first_verdict_seconds = self._seconds()
            self.say(f"first verdict: {report['guarantee'].replace('_', ' ')} {report['outcome']}")
        with self._lock:
            self._table.show(report)

    def write(self, text: str) -> None:
        """Write ``text`` unchanged."""
        with self._lock:
            self._stream.write(text)
            self._stream.flush()

    def _seconds(self) -> float:
        return time.monotonic() - self._began

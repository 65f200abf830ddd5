"""Disk space of each table of a state folder, measured periodically."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from validator.state.tables import Table

EVERY_SECONDS: Final = 30.0
"""Interval of measurements. A table may have thousands of files and grows slowly, so not every batch measures it."""


class TableSizes:
    """The sizes of the tables of one state folder."""

    def __init__(self, state: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._clock = clock
        self._measured: dict[str, int] = {}
        self._due = clock()

    def recent(self) -> dict[str, int]:
        """Table -> bytes of its files, at most `EVERY_SECONDS` old. Tables that do not exist are left out."""
        if self._clock() >= self._due:
            self._due = self._clock() + EVERY_SECONDS
            folders = {table.value: self._state / table.value for table in Table}
            self._measured = {name: _bytes_below(folder) for name, folder in folders.items() if folder.is_dir()}
        return self._measured


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):  # retention has just removed the file
                total += Path(parent, file).stat().st_size
    return total

"""Samples that a thread takes while a `with` block runs."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Self


class PeriodicSampler(ABC):
    """A context manager that samples in a thread of its own until the `with` block ends."""

    def __init__(self, name: str, every_seconds: float) -> None:
        """``every_seconds``: pause between two samples."""
        self._every_seconds = every_seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._every_seconds):
            self._sample()

    @abstractmethod
    def _sample(self) -> None:
        """Take a sample."""

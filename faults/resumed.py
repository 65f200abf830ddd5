"""Watches processes that were resumed after a pause: one that ends has lost something, such as its session.

A process detects such a loss only when its next request fails. Therefore it is watched after the pause too: until
the run is over, or until the next fault begins, since that fault may end the process, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container
from typing import Final, NamedTuple

from faults.backends import processes
from faults.facts import KnownProcess
from faults.kinds.process import Pause

_LOOK_SECONDS: Final = 0.2


class _Watched(NamedTuple):
    fault: str
    process: KnownProcess
    since: float


class ResumedProcesses:
    """The resumed processes of one run. ``ended``: a sentence for each process that ended in or after a pause."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._watched: list[_Watched] = []
        self.ended: list[str] = []

    def add(self, fault: str, pause: Pause, hit_too: Container[int]) -> None:
        """Watch the processes of ``pause``, which is healed. Those with the ids ``hit_too`` are not watched, since
        another fault hits them at the same time and may end them."""
        self.ended += pause.ended_by_itself(hit_too)
        now = time.monotonic()
        self._watched += [
            _Watched(fault, known, now)
            for known in pause.facts.processes
            if known.pid not in hit_too and processes.is_alive(known)
        ]

    def look(self) -> None:
        """Report the processes that have ended."""
        for watched in tuple(self._watched):
            known = watched.process
            if not processes.is_alive(known):
                self._watched.remove(watched)
                after = time.monotonic() - watched.since
                said = (
                    f"{watched.fault} on {known.target}: process {known.pid} ended at most {after:.1f} s after it was "
                    "resumed, so the run did not measure a pause."
                )
                self._say(f"over: {said}")
                self.ended.append(said)

    def forget(self) -> None:
        """Report the processes that have ended, then stop watching: another fault begins, and may end the others."""
        self.look()
        self._watched.clear()

    def outlast(self, seconds: float, stop: threading.Event) -> None:
        """Watch each process until ``seconds`` after it was resumed, or until ``stop`` is set."""
        while True:
            self.look()
            now = time.monotonic()
            if not any(now - watched.since < seconds for watched in self._watched) or stop.wait(_LOOK_SECONDS):
                return

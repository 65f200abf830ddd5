"""What a person reads who leaves the sidecar running in a terminal or a journal: verdicts that change, new classes of
violations, and the state of things every minute."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from validator.model.terminal import plain
from validator.publish.findings import findings
from validator.publish.history import History
from validator.publish.live import render_line, when
from validator.publish.sentences import what_broke

STATUS_EVERY_SECONDS: Final = 60.0


def to_stderr(line: str) -> None:
    """Print ``line`` on stderr, made `plain`. A reader that has gone (``2>&1 | head``) or a full disk ends nothing."""
    with suppress(OSError):
        print(plain(line), file=sys.stderr, flush=True)


def release_stderr() -> None:
    """Where stderr takes nothing more, drop what it still holds: Python would end with a status of its own (120)."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.flush()
    except OSError:
        with suppress(OSError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stderr.fileno())
            os.close(null)


class Notices:
    """Lines about one report after another, given to ``say``. ``clock``: seconds, monotonic."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._verdict: str | None = None
        self._classes: frozenset[str] = frozenset()
        self._report: dict[str, Any] | None = None
        self._read_at = self._said_at = clock()

    def resume(self, report: Mapping[str, Any]) -> None:
        """Take ``report`` of an earlier process for known: only what changes from here on is news."""
        self._verdict, self._classes = report["outcome"], _confirmed(report)

    def read(self, report: dict[str, Any]) -> None:
        """Say what is new in the report of the newest batch. The first one of a process is followed by its status."""
        first = self._report is None
        self._report, self._read_at = report, self._clock()
        if report["outcome"] != self._verdict:
            change = report["outcome"] if self._verdict is None else f"{self._verdict} -> {report['outcome']}"
            self._say(f"{when(report)} {report['guarantee']}: {change}: {_why(report)}")
            self._verdict = report["outcome"]
        for sentence, found in zip(what_broke(report), findings(report, None, History()), strict=True):
            if found.violation not in self._classes:
                self._say(f"{when(report)} new class of violation, {found.violation}: {sentence}")
        self._classes = _confirmed(report)
        self.look(due=first)

    def look(self, *, due: bool = False) -> None:
        """Say the status where that is ``due``, or was last said a minute ago. To be called now and then."""
        now = self._clock()
        if self._report is None or not (due or now - self._said_at >= STATUS_EVERY_SECONDS):
            return
        self._said_at = now
        silent = now - self._read_at
        old = f"; no batch for {silent:.0f} s" if silent >= STATUS_EVERY_SECONDS / 2 else ""
        self._say(f"{render_line(self._report)}{old}")


def _confirmed(report: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(name for name, count in report["violations"]["confirmed"].items() if count)


def _why(report: dict[str, Any]) -> str:
    """The first reason of the declared guarantee's verdict, and how many more there are."""
    broken = what_broke(report)
    doubts: list[str] = report["reasons"][len(broken) :]
    told = {"fail": broken, "unknown": doubts}.get(report["outcome"], [])
    if not told:
        return "no violation of it is confirmed, and nothing is in doubt"
    more = len(told) - 1
    return told[0].rstrip(".") + (f" (and {more} more: see the report)" if more else "")

"""The lines that a live sidecar writes to a terminal or a journal: changes of the verdict, new violation classes, and
the status every minute."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from validator.publish.findings import findings
from validator.publish.live_table import render_line, when
from validator.publish.report_types import Report
from validator.publish.sentences import verdict_line, what_broke, why

STATUS_EVERY_SECONDS: Final = 60.0


class Notices:
    """Passes lines about one report after another to ``say``. ``clock``: monotonic, in seconds."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._verdict: str | None = None
        self._classes: frozenset[str] = frozenset()
        self._report: Report | None = None
        self._read_at = self._said_at = clock()

    def resume(self, report: Report) -> None:
        """Treat ``report`` of an earlier process as known: after its verdict, only later changes are reported."""
        self._say(f"the earlier run ended with {verdict_line(report)}")
        self._verdict, self._classes = report["outcome"], _confirmed(report)

    def update(self, report: Report, *, age_seconds: float = 0.0) -> None:
        """Report what is new in the report of the newest batch, which is ``age_seconds`` old. After the first report,
        also write the status."""
        first = self._report is None
        self._report, self._read_at = report, self._clock() - age_seconds
        if report["outcome"] != self._verdict:
            change = report["outcome"] if self._verdict is None else f"{self._verdict} -> {report['outcome']}"
            self._say(f"{when(report)} {report['guarantee']}: {change}: {why(report)}")
            self._verdict = report["outcome"]
        for sentence, found in zip(what_broke(report), findings(report), strict=True):
            if found.violation not in self._classes:
                self._say(f"{when(report)} new class of violation, {found.violation}: {sentence}")
        self._classes = _confirmed(report)
        self.write_status(due=first)

    def write_status(self, *, due: bool = False, because: str | None = None) -> None:
        """Write the status if it is ``due``, or if the last one is a minute old. To be called regularly.

        ``because``: why no batch is read, if that is known.
        """
        now = self._clock()
        if self._report is None or not (due or now - self._said_at >= STATUS_EVERY_SECONDS):
            return
        self._said_at = now
        silent = now - self._read_at
        old = f"; no batch for {silent:.0f} s" if silent >= STATUS_EVERY_SECONDS / 2 else ""
        self._say(f"{render_line(self._report)}{old}{f': {because}' if old and because else ''}")


def _confirmed(report: Report) -> frozenset[str]:
    return frozenset(name for name, count in report["violations"]["confirmed"].items() if count)

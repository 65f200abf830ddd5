"""The live table of a run: updated in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Final, TextIO

from validator.model.terminal import plain, plain_values
from validator.publish.report_types import Report
from validator.publish.sentences import number

COLOURS: Final = {"pass": "32", "fail": "31", "unknown": "33"}
COLUMNS: Final = 5
"""Number of counts per row. With names and numbers of twelve characters they fit a terminal of 80 columns."""
_TIME_LETTERS: Final = 19
SHOWN: Final = (
    "expected",
    "processed",
    "late",
    "duplicate",
    "incorrect",
    "missing",
    "pending",
    "overdue",
    "unresolved",
)


def render(report: Report) -> str:
    """Return ``report`` as a table of a few lines, without colours."""
    report = plain_values(report)
    lines = [f"{report['pipeline']}  {when(report)}  batch {number(report['validator']['batches'])}"]
    lines += ["  ".join(f"{name} {verdict.upper()}" for name, verdict in report["verdicts"].items())]
    counts = [(name, number(report["contributions"][name])) for name in SHOWN]
    width = max(len(text) for pair in counts for text in pair) + 2
    for i in range(0, len(counts), COLUMNS):
        row = counts[i : i + COLUMNS]
        lines += ["".join(name.rjust(width) for name, _ in row), "".join(value.rjust(width) for _, value in row)]
    topics: dict[str, int] = {}
    for partition in report["coverage"]["partitions"]:
        topics[partition["topic"]] = topics.get(partition["topic"], 0) + partition["lag_events"]
    lag = ", ".join(f"{topic} {number(events)}" for topic, events in topics.items()) or "nothing read yet"
    rate = number(report["validator"]["input_events_per_second"])
    lines += [f"lag: {lag}; {rate} input events/s"]
    active = [f"{fault['name']} on {fault['target']}" for fault in report["faults"] if fault["healed"] is None]
    lines += [f"fault now: {', '.join(active)}"] if active else []
    return "\n".join(lines)


def render_line(report: Report) -> str:
    """Return ``report`` as one line, for logs."""
    counts = " ".join(f"{name}={number(report['contributions'][name])}" for name in SHOWN)
    return f"{when(report)} {report['guarantee']}={report['outcome']} {counts}"


def when(report: Report) -> str:
    """Return the time of the report, padded to a fixed width. Before the first batch it is "no batch yet"."""
    told = str(report["time"] or "")[:_TIME_LETTERS] if report["validator"]["batches"] else "no batch yet"
    return told.ljust(_TIME_LETTERS)


def coloured(table: str) -> str:
    """Return ``table`` with coloured verdicts."""
    for verdict, code in COLOURS.items():
        table = table.replace(f" {verdict.upper()}", f" \x1b[1;{code}m{verdict.upper()}\x1b[0m")
    return table


class LiveTable:
    """Shows one report after another on ``stream``. Respects `NO_COLOR` in ``environment``."""

    def __init__(self, stream: TextIO, environment: Mapping[str, str]) -> None:
        self._stream = stream
        self._in_place = stream.isatty() and environment.get("TERM") != "dumb"
        self._colour = self._in_place and not environment.get("NO_COLOR")
        self._height = 0
        self._table = ""
        self._last = ""

    def show(self, report: Report) -> None:
        """Replace the table on a terminal. Elsewhere, write a line, unless only the time changed."""
        if not self._in_place:
            line = render_line(report)
            if line[_TIME_LETTERS:] != self._last:
                self._stream.write(line + "\n")
                self._last = line[_TIME_LETTERS:]
        else:
            # A line that the terminal wraps would take two lines to erase.
            columns = shutil.get_terminal_size().columns - 1
            self._table = "\n".join(line[:columns] for line in render(report).splitlines())
            self._redraw("")
        self._stream.flush()

    def note(self, line: str) -> None:
        """Write ``line`` above the table, where it stays."""
        line = plain(line)
        if self._in_place:
            self._redraw(line + "\n")
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def _redraw(self, above: str) -> None:
        # Move up to the beginning of the last table, then clear to the end of the screen.
        back = f"\x1b[{self._height}A\r\x1b[J" if self._height else ""
        table = self._table + "\n" if self._table else ""
        self._stream.write(back + above + (coloured(table) if self._colour else table))
        self._height = table.count("\n")

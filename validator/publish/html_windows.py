"""Violations by window, with the faults: the worst windows as a table."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from itertools import pairwise
from typing import Final

from validator.model.wording import plural
from validator.publish.report_types import FaultOfReport, Report
from validator.publish.sentences import clock, listed, number
from validator.publish.times import parse_rfc3339, rfc3339
from validator.reconcile.judge import VIOLATIONS

Windows = Mapping[int, Mapping[str, int]]
"""Start of a window (microseconds since the epoch) -> contribution class -> count."""

ROWS_MAX: Final = 20


def classes_by_window(report: Report, windows: Windows) -> str:
    """Return the section `Classes per window`; empty if no window was judged."""
    if not windows:
        return ""
    starts = sorted(windows)
    size_us = min((later - earlier for earlier, later in pairwise(starts)), default=1)
    bad = {start: counts for start, counts in windows.items() if _broken(counts)}
    said = (
        f"{_broken_sentence(bad, len(windows))} Windows by their start (UTC, event time). The newest verdict of each"
        " cell counts. A fault is active in a window that it overlaps (times by the brokers' clock)."
    )
    table = _table(report, bad, size_us) if bad else ""
    return f'<section id="windows"><h2>Classes per window</h2><p class="dim">{escape(said)}</p>{table}</section>'


def _broken(counts: Mapping[str, int]) -> int:
    return sum(counts.get(name, 0) for name in VIOLATIONS)


def _broken_sentence(bad: Windows, total: int) -> str:
    if not bad:
        return f"{plural(total, 'window')}, none with a violation."
    sums = {name: sum(counts.get(name, 0) for counts in bad.values()) for name in VIOLATIONS}
    found = ", ".join(f"{number(count)} {listed([name])}" for name, count in sums.items() if count)
    first, last = clock(rfc3339(min(bad))), clock(rfc3339(max(bad)))
    return f"{found} in {len(bad):,} of {total:,} windows, from {first} to {last}."


def _active_span(fault: FaultOfReport, now: str | None) -> tuple[int, int] | None:
    """Return the start and the end (now if not healed) of a fault, in microseconds; None if it never began."""
    if fault["start"] is None:
        return None
    start = parse_rfc3339(fault["start"])
    end = fault["healed"] or now
    return start, parse_rfc3339(end) if end else start


def _table(report: Report, bad: Windows, size_us: int) -> str:
    """Return the table of the worst windows with violations, in the order of time."""
    worst = sorted(sorted(bad, key=lambda start: (-_broken(bad[start]), start))[:ROWS_MAX])
    used = [name for name in VIOLATIONS if any(counts.get(name) for counts in bad.values())]
    heads = ["window", *(listed([name]) for name in used), "expected", "active fault"]
    kinds = ["", *["n"] * (len(used) + 1), ""]
    head = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in zip(heads, kinds, strict=True))
    rows = []
    for start in worst:
        spans = ((fault, _active_span(fault, report["time"])) for fault in report["faults"])
        active = [f["name"] or f["kind"] for f, span in spans if span and start < span[1] and start + size_us > span[0]]
        counts = [number(bad[start].get(name, 0)) for name in (*used, "expected")]
        cells = [clock(rfc3339(start)), *counts, ", ".join(active) or "-"]
        inside = (
            f'<td class="{kind}" data-head="{name}"><span>{escape(cell)}</span></td>'
            for name, kind, cell in zip(heads, kinds, cells, strict=True)
        )
        rows.append(f"<tr>{''.join(inside)}</tr>")
    left = len(bad) - len(worst)
    said = f"The worst {len(worst)} windows. Omitted: {plural(left, 'further window')} with violations." if left else ""
    more = f'<p class="dim">{said}</p>' if said else ""
    table = f"<table class='stack'><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll">{table}</div>{more}'

"""Violations by window, with the faults: bars per window and class, and the worst windows as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Final

from validator.model.wording import plural
from validator.publish import svg
from validator.publish.report_plots import TONES
from validator.publish.report_types import FaultOfReport, Report
from validator.publish.sentences import clock, listed, number
from validator.publish.svg import Shade, Stack
from validator.publish.times import parse_rfc3339, rfc3339
from validator.reconcile.judge import VIOLATIONS

Windows = Mapping[int, Mapping[str, int]]
"""Start of a window (microseconds since the epoch) -> contribution class -> count."""

VIOLATION_TONES: Final = {name: TONES[name] for name in VIOLATIONS}
"""Violation class of contributions -> class of the style sheet."""
BAR_PARTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "processed": ("t3", ("processed",)),
    "late or rejected": ("t1", ("late", "rejected", "dropped_late")),
    "outstanding": ("t6", ("pending", "overdue", "blocked", "unconsumed", "unresolved")),
    "violations": ("t5", tuple(VIOLATION_TONES)),
}
"""Part of a bar -> its class of the style sheet, and the contribution classes that it sums."""
BARS_MAX: Final = 60
ROWS_MAX: Final = 20


@dataclass(frozen=True)
class _Bar:
    """Adjacent windows that are drawn as one bar: from ``start_us`` until ``end_us``, with their counts."""

    start_us: int
    end_us: int
    counts: Mapping[str, int]


def classes_by_window(report: Report, windows: Windows) -> str:
    """Return the section `Classes per window`; empty if no window was judged."""
    if not windows:
        return ""
    starts = sorted(windows)
    size_us = min((later - earlier for earlier, later in pairwise(starts)), default=1)
    each = math.ceil(len(starts) / BARS_MAX)
    bars = [_bar(starts[i : i + each], windows, size_us) for i in range(0, len(starts), each)]
    shades = _shades(report["faults"], report.get("time"), bars)
    bad = {start: counts for start, counts in windows.items() if _broken(counts)}
    broken = _broken_plot(bars, bad, len(windows), shades) if bad else ""
    merged = f" A bar stands for {each} windows." if each > 1 else ""
    said = (
        f"{plural(len(windows), 'window')} by their start (UTC, event time). The newest verdict of each cell"
        f" counts.{merged} Shaded: the window overlaps an active fault (times by the brokers' clock)."
    )
    plots = broken + _figure("All contributions", svg.stacks(_all_label(bars), *_all_parts(bars), shades))
    table = _table(report, bad, size_us) if bad else '<p class="dim">No window has a violation.</p>'
    return (
        f'<section id="windows"><h2>Classes per window</h2><p class="dim">{escape(said)}</p>'
        f'<div class="plots">{plots}</div>{table}</section>'
    )


def _bar(starts: Sequence[int], windows: Windows, size_us: int) -> _Bar:
    names = {name for start in starts for name in windows[start]}
    counts = {name: sum(windows[start].get(name, 0) for start in starts) for name in names}
    return _Bar(starts[0], starts[-1] + size_us, counts)


def _broken(counts: Mapping[str, int]) -> int:
    return sum(counts.get(name, 0) for name in VIOLATION_TONES)


def _broken_plot(bars: Sequence[_Bar], bad: Windows, total: int, shades: Sequence[Shade]) -> str:
    used = [name for name in VIOLATION_TONES if any(bar.counts.get(name) for bar in bars)]
    sums = [f"{number(sum(counts.get(name, 0) for counts in bad.values()))} {listed([name])}" for name in used]
    first, last = clock(rfc3339(min(bad))), clock(rfc3339(max(bad)))
    where = f"{len(bad):,} of {total:,} windows, from {first} to {last}"
    label = f"Violations per window: {', '.join(sums)} in {where}. The table below lists the worst windows."
    stacks = [Stack(label_of(bar, bars), [bar.counts.get(name, 0) for name in used]) for bar in bars]
    drawn = svg.stacks(label, stacks, [(listed([name]), VIOLATION_TONES[name]) for name in used], shades)
    return _figure(f"Violations: {', '.join(sums)}", drawn)


def _all_parts(bars: Sequence[_Bar]) -> tuple[list[Stack], list[tuple[str, str]]]:
    used = {name: of for name, of in BAR_PARTS.items() if any(_part(bar, of[1]) for bar in bars)}
    stacks = [Stack(label_of(bar, bars), [_part(bar, classes) for _, classes in used.values()]) for bar in bars]
    return stacks, [(name, tone) for name, (tone, _) in used.items()]


def _all_label(bars: Sequence[_Bar]) -> str:
    sums = {name: sum(_part(bar, classes) for bar in bars) for name, (_, classes) in BAR_PARTS.items()}
    return "All contributions per window: " + ", ".join(f"{number(n)} {name}" for name, n in sums.items() if n)


def _part(bar: _Bar, classes: Sequence[str]) -> int:
    return sum(bar.counts.get(name, 0) for name in classes)


def label_of(bar: _Bar, bars: Sequence[_Bar]) -> str:
    """Return the start of a bar: the time of day if all bars are within one day, else also the date."""
    first, last = clock(rfc3339(bars[0].start_us)), clock(rfc3339(bars[-1].start_us))
    said = clock(rfc3339(bar.start_us))
    return said[11:] if first[:10] == last[:10] else said[5:16]


def _shades(faults: Sequence[FaultOfReport], now: str | None, bars: Sequence[_Bar]) -> list[Shade]:
    shades = []
    for fault in faults:
        span = _active_span(fault, now)
        active = [i for i, bar in enumerate(bars) if span and bar.start_us < span[1] and bar.end_us > span[0]]
        if active:
            shades.append(Shade(fault["name"] or fault["kind"], active[0], active[-1]))
    return shades


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
    used = [name for name in VIOLATION_TONES if any(counts.get(name) for counts in bad.values())]
    heads = ["window", *(listed([name]) for name in used), "expected", "active fault"]
    kinds = ["", *["n"] * (len(used) + 1), ""]
    head = "".join(f'<th scope="col" class="{kind}">{name}</th>' for name, kind in zip(heads, kinds, strict=True))
    rows = []
    for start in worst:
        spans = ((fault, _active_span(fault, report.get("time"))) for fault in report["faults"])
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
    return f'<h3>Windows with violations</h3><div class="scroll">{table}</div>{more}'


def _figure(title: str, plot: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{plot}</figure>"

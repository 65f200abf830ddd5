"""Sections of the HTML report: the timeline, latency per phase, coverage."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from validator.model.snapshot import Histogram
from validator.model.terminal import plain
from validator.model.wording import plural
from validator.publish import series
from validator.publish.history import LATENCIES, History
from validator.publish.live_page import resource
from validator.publish.report_types import FaultOfReport, PartitionOfReport, Report
from validator.publish.sentences import number

UPLOT_NOTICE: Final = "/* uPlot: Copyright (c) 2022 Leon Sorokin, MIT License */\n"
_DRAW: Final = """
const sent = JSON.parse(document.getElementById("sent").textContent), lasts = sent.rows.at(-1)[0] - sent.rows[0][0];
Timeline.start({ place: document.getElementById("plots"), spans: document.getElementById("spans"), lasts });
Timeline.whole(sent);
Timeline.add([], sent.restarts, sent.faults, sent.definition);
"""


@dataclass(frozen=True)
class PhaseLatency:
    """Definition of latency -> latencies of the results of a phase. ``name``: shown to people."""

    name: str
    latency: Mapping[str, Histogram]


def timeline(report: Report, history: History) -> str:
    """Return the plots of the status page over the whole history, or a sentence if no history was kept."""
    if len(history.points) < 2:
        return _section("Timeline", _note("There is no timeline: the history has fewer than two batches of the run."))
    said = (
        "Times are UTC. Shaded: a fault is active. Dashed: the sidecar restarted. Throughput and latency are means"
        " over the time since the previous point."
        " A point older than ten minutes covers 30 seconds. A point older than two hours covers 5 minutes."
    )
    sent = {**series.plain(history), "faults": [_shaded(fault) for fault in report["faults"]]}
    # Escaped, so that no name of a fault can end the element.
    data = json.dumps(sent, separators=(",", ":")).replace("<", "\\u003c")
    scripts = (UPLOT_NOTICE + resource("vendor/uPlot.iife.min.js"), resource("plots.js"), _DRAW)
    return _section(
        "Timeline",
        f'{_note(said)}<noscript>{_note("The plots need JavaScript.")}</noscript><div id="spans" role="group"></div>'
        f'<div id="plots" class="plots"></div><script type="application/json" id="sent">{data}</script>'
        + "".join(f"<script>{script}</script>" for script in scripts),
    )


def _shaded(fault: FaultOfReport) -> dict[str, str | None]:
    return {"name": plain(fault["name"] or fault["kind"]), "start": fault["start"], "healed": fault["healed"]}


def latency_by_phase(phases: Sequence[PhaseLatency]) -> str:
    """Return the latencies of each phase and definition as a table; empty if none is known."""
    rows = [
        (phase.name, definition.replace("_", " "), latency)
        for phase in phases
        for definition in LATENCIES
        if (latency := phase.latency.get(definition)) is not None and latency.count
    ]
    if not rows:
        return ""
    said = "In seconds. Phases consist of whole seconds: a second belongs to the phase in which it begins."
    heads = ("phase", "latency from", "results", "p50", "p90", "p99", "max")
    body = "".join(
        f"<tr><td>{escape(name)}</td><td>{definition}</td>"
        + "".join(f'<td class="n">{cell}</td>' for cell in _latency_cells(latency))
        + "</tr>"
        for name, definition, latency in rows
    )
    return _section("Latency per phase", _note(said) + _table(heads, body))


def _latency_cells(latency: Histogram) -> Iterable[str]:
    quantiles = (number(latency.quantile(share)) for share in (0.5, 0.9, 0.99))
    return (number(latency.count), *quantiles, number(latency.max_seconds))


def coverage(report: Report) -> str:
    """Return the record sums in a sentence, and the share of each partition that was read."""
    sums = report["coverage"]["sums"]
    balance = "The coverage sums balance" if report["coverage"]["complete"] else "The coverage is NOT complete"
    said = (
        f"{balance}: {plural(sums['records'], 'record')} read, "
        f"{number(sums['expired'])} expired, {plural(sums['invisible'], 'offset')} without a visible record, "
        f"{plural(sums['offsets_spanned'], 'offset')} spanned."
    )
    said += "".join(f" {sentence[0].upper()}{sentence[1:]}." for sentence in report["coverage"]["differences"])
    heads = ("topic", "role", "partition", "read", "lag", "first offset", "next offset", "high watermark", "expired")
    rows = "".join(_partition(part) for part in report["coverage"]["partitions"])
    return _section("Coverage", _note(said) + _table(heads, rows))


def _partition(part: PartitionOfReport) -> str:
    spanned = part["high_watermark"] - part["first_offset"]
    share = 1.0 if spanned <= 0 else min(1.0, (part["next_offset"] - part["first_offset"]) / spanned)
    # Truncated, not rounded: a partition that is not read to its end must not be shown as 100 %.
    percent = f"{int(share * 1000) / 10:g} %"
    offsets = (part["first_offset"], part["next_offset"], part["high_watermark"])
    cells = (str(part["partition"]), percent, *map(number, (part["lag_events"], *offsets, part["expired"])))
    numbers = "".join(f'<td class="n">{cell}</td>' for cell in cells)
    return f"<tr><td>{escape(part['topic'])}</td><td>{escape(part['role'])}</td>{numbers}</tr>"


def _table(heads: Iterable[str], body: str) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


def _note(said: str) -> str:
    return f'<p class="dim">{escape(said)}</p>'

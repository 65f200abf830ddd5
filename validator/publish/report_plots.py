"""The plots of the HTML report: the timeline with faults, latency per phase, coverage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal

from validator.model.snapshot import Histogram
from validator.model.wording import plural
from validator.publish import series, svg
from validator.publish.history import LATENCIES, History
from validator.publish.report_types import FaultOfReport, PartitionOfReport, Report
from validator.publish.sentences import number
from validator.publish.svg import Band, Line, Stack
from validator.publish.times import parse_rfc3339

TONES: Final = {
    "missing": "t5",
    "duplicate": "t2",
    "misplaced": "t4",
    "unknown_id": "t1",
    "inconsistent": "t3",
    "undecodable": "t6",
    "wrong_value": "t3",
}
"""Violation class -> class of the style sheet. A violation class has the same colour in all plots."""
OUTSTANDING: Final = "Contributions that are outstanding or not explained"
TIMELINE: Final[tuple[tuple[str, Mapping[str, str]], ...]] = (
    ("Throughput, events per second", {"read_per_second": "t1", "processed_per_second": "t3"}),
    ("Latency, seconds", {"latency_p99_seconds": "t2", "latency_p50_seconds": "t1"}),
    (
        OUTSTANDING,
        {"pending": "t6", "overdue": "t2", "unresolved": "t4", "blocked": "t1", "unconsumed": "t3"},
    ),
    (
        "Violations, confirmed so far",
        {name: TONES[name] for name in ("missing", "duplicate", "misplaced", "unknown_id", "undecodable")},
    ),
)
"""Title of a plot -> column of the series -> class of its line."""
COUNTED: Final = (OUTSTANDING, "Violations, confirmed so far")
"""The plots of counts, which hold until the next point. The other plots show means since the previous point."""
NAMES: Final = {
    "read_per_second": "inputs read",
    "processed_per_second": "processed",
    "unresolved": "not explained",
    "latency_p50_seconds": "p50",
    "latency_p99_seconds": "p99",
}
PHASES_SHOWN: Final = 8


@dataclass(frozen=True)
class PhaseLatency:
    """Definition of latency -> latencies of the results of a phase. ``name``: shown to people."""

    name: str
    latency: Mapping[str, Histogram]


def timeline(report: Report, history: History) -> str:
    """Return four plots over time, or a sentence if no history was kept."""
    if len(history.points) < 2:
        return _section("Timeline", _note("There is no timeline: the history has fewer than two batches of the run."))
    rows = series.rows(history)
    columns = dict(zip(series.COLUMNS, zip(*rows, strict=True), strict=True))
    times = [time for time in columns["time"] if time is not None]
    bands, marks = _bands(report["faults"], times[-1]), series.restarts(history)
    figures = []
    for title, tones in TIMELINE:
        form: Literal["held", "stretches"] = "held" if title in COUNTED else "stretches"
        lines = [
            Line(NAMES.get(name, name.replace("_", " ")), columns[name], tone, form) for name, tone in tones.items()
        ]
        # A line that is 0 throughout would hide others at the bottom of the plot. It is named below the plot instead.
        drawn = [line for line in lines if any(line.values)]
        flat = [line.name for line in lines if line not in drawn and any(v is not None for v in line.values)]
        if not drawn and not flat:
            continue
        if title.startswith("Latency") and history.definition:
            title = f"{title} from {history.definition.replace('_', ' ')}"  # noqa: PLW2901
        plot = svg.over_time(f"{title}: {_summary(drawn) or 'all 0'}", times, drawn, bands, marks)
        figures.append(_figure(title, plot + (_note(f"Always 0: {', '.join(flat)}.") if flat else "")))
    said = (
        "Times are UTC. Shaded: a fault is active. Dashed: the sidecar restarted. Throughput and latency are means"
        " over the time since the previous point."
    )
    older = " A point older than ten minutes covers 30 seconds. A point older than two hours covers 5 minutes."
    return _section("Timeline", _note(said + older) + f'<div class="plots">{"".join(figures)}</div>')


def latency_by_phase(phases: Sequence[PhaseLatency]) -> str:
    """Return a latency distribution for each of the newest phases and each definition; empty if none is known."""
    measured = [phase for phase in phases if any(told.count for told in phase.latency.values())]
    newest = measured[-PHASES_SHOWN:]
    parts = []
    for definition in LATENCIES:
        told = [(phase.name, phase.latency[definition]) for phase in newest if definition in phase.latency]
        told = [(name, latency) for name, latency in told if latency.count]
        if told:
            head = f"<h3>From {escape(definition.replace('_', ' '))}</h3>"
            parts.append(f'{head}<div class="plots">{_distributions(told)}</div>')
    if not parts:
        return ""
    said = (
        "Number of results per latency bucket. A bucket is named by its upper bound, in seconds."
        " Phases consist of whole seconds: a second belongs to the phase in which it begins."
    )
    left = len(measured) - len(newest)
    are = "is" if left == 1 else "are"
    more = f" {plural(left, 'earlier phase')} {are} left out." if left else ""
    return _section("Latency per phase", _note(said + more) + "".join(parts))


def _distributions(told: Sequence[tuple[str, Histogram]]) -> str:
    """Return one plot for each phase, all with the same buckets."""
    used = [i for _, latency in told for i, count in enumerate(latency.counts) if count]
    buckets = range(min(used), max(used) + 1)
    figures = []
    for name, latency in told:
        p50, p99 = (number(latency.quantile(share)) for share in (0.5, 0.99))
        title = f"{name}: {plural(latency.count, 'result')}, half within {p50} s, 99 % within {p99} s"
        bars = [Stack(_bucket(latency.bounds, i), (latency.counts[i],)) for i in buckets]
        figures.append(_figure(title, svg.stacks(title, bars, (("results", "t1"),))))
    return "".join(figures)


def coverage(report: Report) -> str:
    """Return the record sums in a sentence, and the share of each partition that was read."""
    sums = report["coverage"]["sums"]
    balance = "The coverage sums balance" if report["coverage"]["complete"] else "The coverage is NOT complete"
    said = (
        f"{balance}: {plural(sums['records'], 'record')} read, "
        f"{number(sums['expired'])} expired, {plural(sums['invisible'], 'offset')} without a visible record, "
        f"{plural(sums['offsets_spanned'], 'offset')} spanned."
    )
    differences = report["coverage"].get("differences") or []
    said += "".join(f" {sentence[0].upper()}{sentence[1:]}." for sentence in differences)
    heads = (
        "topic",
        "role",
        "partition",
        "read",
        "",
        "lag",
        "first offset",
        "next offset",
        "high watermark",
        "expired",
    )
    rows = "".join(_partition(part) for part in report["coverage"]["partitions"])
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    table = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    return _section("Coverage", _note(said) + table)


def _partition(part: PartitionOfReport) -> str:
    spanned = part["high_watermark"] - part["first_offset"]
    share = 1.0 if spanned <= 0 else min(1.0, (part["next_offset"] - part["first_offset"]) / spanned)
    # Truncated, not rounded: a partition that is not read to its end must not be shown as 100 %.
    percent = f"{int(share * 1000) / 10:g} %"
    bar = (
        '<svg class="share" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="grid" width="100" height="10"/><rect class="t3" width="{share * 100:.1f}" height="10"/></svg>'
    )
    offsets = (part["first_offset"], part["next_offset"], part["high_watermark"])
    cells = [
        f"<td>{escape(part['topic'])}</td><td>{escape(part['role'])}</td>",
        f'<td class="n">{part["partition"]}</td>',
    ]
    cells += [
        f'<td class="n">{percent}</td><td>{bar}</td>',
        *(f'<td class="n">{number(n)}</td>' for n in (part["lag_events"], *offsets, part["expired"])),
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _bands(faults: Iterable[FaultOfReport], last: float) -> list[Band]:
    bands = []
    for fault in faults:
        if fault["start"] is not None:
            end = parse_rfc3339(fault["healed"]) / 1e6 if fault["healed"] else last
            bands.append(Band(fault["name"] or fault["kind"], parse_rfc3339(fault["start"]) / 1e6, end))
    return bands


def _summary(lines: Iterable[Line]) -> str:
    said = []
    for line in lines:
        values = [value for value in line.values if value is not None]
        said.append(f"{line.name} at the end {number(values[-1])}, highest {number(max(values))}")
    return "; ".join(said)


def _bucket(bounds: Sequence[float], i: int) -> str:
    return f"{bounds[i]:g}" if i < len(bounds) else f"> {bounds[-1]:g}"


def _section(title: str, content: str) -> str:
    return f"<section><h2>{title}</h2>{content}</section>"


def _note(said: str) -> str:
    return f'<p class="dim">{escape(said)}</p>'


def _figure(title: str, plot: str) -> str:
    caption = f"<figcaption>{escape(title)}</figcaption>" if title else ""
    return f"<figure>{caption}{plot}</figure>"

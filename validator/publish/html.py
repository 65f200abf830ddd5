"""The report as one HTML file that loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

from validator.model.terminal import plain_lines
from validator.model.violation import Violation
from validator.publish import html_sections
from validator.publish.effective import EFFECTIVE_TITLE, SETTINGS_TITLE, effective_lines, effective_settings
from validator.publish.findings import Finding, findings
from validator.publish.history import History
from validator.publish.html_sections import PhaseLatency
from validator.publish.html_windows import Windows, classes_by_window
from validator.publish.live_page import resource
from validator.publish.next_steps import STATE
from validator.publish.report_types import Latency, Reliability, Report
from validator.publish.sentences import (
    UNSEEN_TITLE,
    clock,
    fault_sentences,
    headline,
    not_judged,
    number,
    outstanding,
    phase_sentences,
    ratio,
    some_ids,
    standing,
)
from validator.publish.times import rfc3339

IDS_SHOWN: Final = 6
MARKS: Final = {"pass": "✔", "fail": "✖", "unknown": "?"}


def render(
    report: Report,
    violations: Sequence[Violation] = (),
    state: str = STATE,
    history: History | None = None,
    windows: Windows | None = None,
    latencies: Sequence[PhaseLatency] = (),
) -> str:
    """Return ``report`` as a page that can be kept, mailed, printed and read without a network.

    ``violations``: the newest ones. ``windows``: counts by window, from the state's verdicts.
    ``latencies``: those of the phases. ``state``: the folder that the commands name. If ``violations``, ``history``,
    ``windows`` or ``latencies`` is absent, its section is left out, or states that it is absent.
    """
    found = findings(report, violations, state)
    style = "".join(map(resource, ("style.css", "vendor/uPlot.min.css", "report.css")))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(report['outcome'])} – {escape(report['pipeline'])}</title>",
        f'<link rel="icon" href="data:,"><style>{style}</style></head><body>',
        f"<header><h1>{escape(headline(report))}</h1>",
        f'<p class="dim">{escape(_as_of(report))}</p></header><main>',
        _verdicts(report, found),
        _findings(found, state),
        # Confirmed violations are listed above. Doubts are listed only here.
        _list(
            "Why", report["reasons"] if report["outcome"] == "unknown" or len(report["reasons"]) > len(found) else []
        ),
        _list(UNSEEN_TITLE, report["cannot_see"]),
        _list(EFFECTIVE_TITLE, effective_lines(report)),
        _engine_settings(report),
        _list("Outstanding", outstanding(report)),
        _list("Not judged", not_judged(report)),
        _list("Faults", fault_sentences(report["faults"])),
        _list("Phases", phase_sentences(report)),
        html_sections.timeline(report, history or History()),
        html_sections.latency_by_phase(latencies),
        classes_by_window(report, windows or {}),
        '<div class="columns">',
        _counts("Contributions", report["contributions"]),
        _counts("Results", report["results"]),
        _counts("Cells", report["cells"]),
        _reliability(report["reliability"]),
        "</div>",
        _latencies(report),
        html_sections.coverage(report),
        _violations(violations),
        "</main></body></html>",
    ]
    return plain_lines("\n".join(part for part in parts if part)) + "\n"


def _as_of(report: Report) -> str:
    return f"As of {clock(report['time'])} UTC, streamproof {report['validator']['version']}"


def _verdicts(report: Report, found: Iterable[Finding]) -> str:
    cards = []
    first = min((finding.since for finding in found if finding.since and not finding.tolerated), default=None)
    # The declared guarantee comes first: its verdict is the outcome. The mark is for print and colour-blind readers.
    for name, verdict in sorted(report["verdicts"].items(), key=lambda entry: entry[0] != report["guarantee"]):
        declared = name == report["guarantee"]
        title = escape(name.replace("_", " ")) + (" (declared)" if declared else "")
        kind = escape(verdict) + (" declared" if declared else "")
        said = [", ".join(f"last {span}: {of.get(name) or '-'}" for span, of in report["verdicts_over"].items())]
        said += [f"first confirmed {clock(first)} UTC"] if declared and verdict == "fail" and first else []
        over = "".join(f'<span class="over">{escape(line)}</span>' for line in said if line)
        big = f"<b>{MARKS.get(verdict, '')} {escape(verdict)}</b>"
        cards.append(f'<div class="verdict {kind}">{title}{big}{over}</div>')
    return f'<section class="verdicts" aria-label="Verdict per guarantee">{"".join(cards)}</section>'


def _findings(found: Iterable[Finding], state: str) -> str:
    cards = "".join(_finding(finding, state) for finding in found)
    if not cards:
        return _list("What broke", ["Nothing: no violation is confirmed."])
    return f'<section><h2>What broke</h2><div class="findings">{cards}</div></section>'


def _finding(finding: Finding, state: str) -> str:
    lines = [("since", f"first confirmed {clock(finding.since)} UTC")] if finding.since else []
    lines += [("where", finding.where)] if finding.where else []
    lines += [("fault", finding.attributed)] if finding.attributed else []
    lines += [("accepted", finding.acknowledged)] if finding.acknowledged else []
    lines += [("note", "The declared guarantee tolerates this class.")] if finding.tolerated else []
    lines += [("do", finding.advice)]
    listed = "".join(f"<dt>{name}</dt><dd>{escape(said)}</dd>" for name, said in lines)
    note = " (STATE is the state folder)" if state == STATE else ""
    commands = (
        ("history", finding.command, note),
        ("acknowledge", finding.acknowledge, note),
        ("acknowledge all", finding.acknowledge_all, f" ({finding.acknowledge_reach})"),
    )
    given = "".join(
        f"<dt>{name}</dt><dd><code>{escape(line)}</code>{after}</dd>" for name, line, after in commands if line
    )
    is_accepted = finding.acknowledged and finding.acknowledge is None
    kind = "finding tolerated" if finding.tolerated or is_accepted else "finding"
    head = f"<strong>{number(finding.count)}</strong> {escape(finding.sentence)}."
    return f'<div class="{kind}">{head}<dl>{listed}{given}</dl></div>'


def _list(title: str, sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f"<section><h2>{title}</h2><ul>{items}</ul></section>" if items else ""


def _counts(title: str, counts: Mapping[str, int | None]) -> str:
    return _values(title, {name: number(value) for name, value in counts.items()})


def _reliability(measured: Reliability) -> str:
    shown = {
        "handled_ratio": ratio(measured["handled_ratio"]),
        "exact_ratio": ratio(measured["exact_ratio"]),
        "reliable_throughput_per_second": number(measured["reliable_throughput_per_second"]),
    }
    return _values("Reliability", shown)


def _values(title: str, shown: Mapping[str, str]) -> str:
    rows = "".join(
        f'<tr><td>{escape(name.replace("_", " "))}</td><td class="n">{value}</td></tr>' for name, value in shown.items()
    )
    return f"<section><h2>{title}</h2><table><tbody>{rows}</tbody></table></section>"


def _table(title: str, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(value)}</td>" for value in row) + "</tr>" for row in rows)
    opened = f'<h2>{title}</h2><div class="scroll"><table>'
    return f"{opened}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _engine_settings(report: Report) -> str:
    rows = effective_settings(report)
    return _table(SETTINGS_TITLE, ("setting", "value"), rows) if rows else ""


def _latencies(report: Report) -> str:
    columns = ("count", "p50", "p90", "p99", "max")
    rows = [[name.replace("_", " "), *_latency(measured)] for name, measured in report["latency_seconds"].items()]
    because, within = report["latency_absent_because"], report["latency_resolution_seconds"]
    if within and not because:
        because = f"The resolution of the latencies is {number(within)} s, because a topic has CreateTime."
    note = f"<p class='dim'>{escape(because)}</p>" if because else ""
    return _table("Latency in seconds", ("definition", *columns), rows) + note


def _latency(measured: Latency) -> tuple[str, ...]:
    quantiles = (measured["p50"], measured["p90"], measured["p99"], measured["max"])
    return (number(measured["count"]), *map(number, quantiles))


def _violations(violations: Sequence[Violation]) -> str:
    if not violations:
        return ""
    heads = ("class", "window", "key", "count", "what was seen")
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "".join(_violation(record, heads) for record in violations)
    table = f'<table class="stack"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<section><h2>Violations</h2><div class="scroll">{table}</div></section>'


def _violation(record: Violation, heads: Iterable[str]) -> str:
    seen = [record.explanation]
    seen += [f"after fault {record.fault}"] if record.fault else []
    seen += [f"ids {some_ids(record, IDS_SHOWN)}"] if record.ids else []
    seen += [record.id]
    cells = (
        [record.violation_class.replace("_", " "), standing(record)],
        [clock(rfc3339(record.window_start_us))],
        [record.key],
        [number(record.count)],
        seen,
    )
    shown = (_table_cell(name, *lines) for name, lines in zip(heads, cells, strict=True))
    return f"<tr>{''.join(shown)}</tr>"


def _table_cell(head: str, first: str, *more: str) -> str:
    """Return a table cell with one line, and small lines below it. A phone shows ``head`` beside it."""
    below = "".join(f"<small>{escape(line)}</small>" for line in more)
    return f'<td data-head="{head}"><span>{escape(first)}</span>{below}</td>'

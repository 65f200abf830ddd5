"""The report for a terminal: sentences first, then aligned columns; at most 100 columns wide.

Only commands may be longer: each has a line of its own, so that it can be pasted. Control characters in data from
records are escaped (:mod:`validator.model.terminal`).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from validator.model.terminal import plain, shell_word
from validator.model.violation import Violation
from validator.model.wording import plural
from validator.publish.effective import EFFECTIVE_TITLE, SETTINGS_TITLE, effective_lines, effective_settings
from validator.publish.findings import Finding, findings
from validator.publish.next_steps import STATE
from validator.publish.report_types import Report
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
    settled_positions,
    some_ids,
    standing,
    verified,
    what_broke,
)
from validator.publish.times import rfc3339

WIDTH: Final = 100
VIOLATIONS_SHOWN: Final = 5
IDS_SHOWN: Final = 8
_COMMAND: Final = re.compile(r"`(streamproof [^`]*)`")
"""A command in a sentence. It has a line of its own, so that it can be pasted."""


def render(report: Report, violations: Sequence[Violation] = (), state: str = STATE) -> str:
    """Return ``report`` as text; with ``violations`` also the newest of them.

    ``state``: the folder that the commands name.
    """
    lines = _summary(report, violations, state)
    lines += _section(EFFECTIVE_TITLE, effective_lines(report))
    lines += _section(SETTINGS_TITLE, [f"{name:<22}{value}" for name, value in effective_settings(report)])
    lines += _section("Outstanding", outstanding(report))
    lines += _section("Not judged", not_judged(report))
    lines += _section("Settled undecodable records", settled_positions(report))
    lines += _section("Faults", fault_sentences(report["faults"]))
    lines += _section("Phases", phase_sentences(report))
    lines += ["", "Counts"]
    lines += _columns(
        [(name, number(value)) for name, value in report["contributions"].items()],
        [(f"results {name}", number(value)) for name, value in report["results"].items()]
        + [(f"cells {name}", number(value)) for name, value in report["cells"].items()],
    )
    lines += ["", "Measures"]
    lines += _columns(_reliability(report), _latencies(report))
    if report["latency_resolution_seconds"]:
        lines += [
            f"  Resolution of latencies: {number(report['latency_resolution_seconds'])} s (a topic has CreateTime)."
        ]
    if report["latency_absent_because"]:
        lines += _wrap(f"No latency: {report['latency_absent_because']}", "  ")
    lines += _coverage(report)
    lines += _violations(violations) if violations else []
    return _joined(lines)


def summary(report: Report, violations: Sequence[Violation], state: str = STATE) -> str:
    """Return the first part of `render`: the verdict, the violations, outstanding contributions and where to look; and
    the command that prints the rest."""
    lines = _summary(report, violations, state)
    lines += _section("Outstanding", outstanding(report))
    lines += _section("Not judged", not_judged(report))
    return _joined([*lines, "", "The whole report:", f"  streamproof report {shell_word(state)}"])


def _joined(lines: Iterable[str]) -> str:
    # Sentences are already escaped, and commands are already quoted for a shell.
    return "\n".join(plain(line).rstrip() for line in lines) + "\n"


def _summary(report: Report, violations: Sequence[Violation], state: str) -> list[str]:
    found = findings(report, violations, state)
    lines = [*_wrap(headline(report), "")]
    batches = plural(report["validator"]["batches"], "batch", "batches")
    lines += [f"As of {clock(report['time'])} UTC, after {batches}.", ""]
    lines += _verdicts(report)
    broken = what_broke(report)
    if len(report["reasons"]) > len(broken):  # there is a doubt among them; otherwise they repeat the violations
        lines += _section("Why", report["reasons"])
    lines += _section("What broke", _broken(broken, found) or ["Nothing: no violation is confirmed."])
    lines += _section("What was verified", verified(report))
    lines += _section(UNSEEN_TITLE, report["cannot_see"])
    lines += _where_to_look(found)
    return lines


def _verdicts(report: Report) -> list[str]:
    spans = list(report["verdicts_over"])
    lines = [f"  {'guarantee':<16}{'whole run':<12}" + "".join(f"last {span:<8}" for span in spans)]
    for name, verdict in report["verdicts"].items():
        over = "".join(f"{report['verdicts_over'][span].get(name) or '-':<13}" for span in spans)
        declared = " (declared)" if name == report["guarantee"] else ""
        lines.append(f"  {name:<16}{verdict:<12}{over}{declared}")
    return lines


def _section(title: str, sentences: Iterable[str]) -> list[str]:
    wrapped = [line for sentence in sentences for line in _wrap(sentence, "  ")]
    return ["", title, *wrapped] if wrapped else []


def _broken(sentences: list[str], found: list[Finding]) -> list[str]:
    """Return each of ``sentences``, which are in the order of ``found``, with the first confirmation and the extent."""
    told = []
    for sentence, finding in zip(sentences, found, strict=True):
        since = f" First confirmed at {clock(finding.since)} UTC." if finding.since else ""
        told.append(f"{sentence}{since}" + (f" Affected: {finding.where}." if finding.where else ""))
    return told


def _where_to_look(found: list[Finding]) -> list[str]:
    lines = ["", "Where to look"] if found else []
    for finding in found:
        lines += _wrap(f"{finding.violation.replace('_', ' ')}: {finding.advice}", "  ")
        offered = (
            ("The history of one event", finding.command),
            ("Acknowledge this violation", finding.acknowledge),
            (f"Acknowledge all {finding.acknowledge_reach}", finding.acknowledge_all),
        )
        for purpose, command in offered:
            lines += [f"    {purpose}:", f"      {command}"] if command else []
    return lines


def _wrap(sentence: str, indent: str) -> list[str]:
    more = indent and indent + "  "
    # Every other part is a command.
    first, *others = _COMMAND.split(plain(sentence))
    lines = textwrap.wrap(first, WIDTH, initial_indent=indent, subsequent_indent=more, break_on_hyphens=False)
    for command, rest in zip(others[::2], others[1::2], strict=True):
        lines.append(f"{more}  {command}")
        lines += textwrap.wrap(rest.lstrip("; "), WIDTH, initial_indent=more, subsequent_indent=more)
    return lines


def _columns(left: list[tuple[str, str]], right: list[tuple[str, str]]) -> list[str]:
    lines = []
    for i in range(max(len(left), len(right))):
        line = ""
        for place, column in enumerate((left, right)):
            if i < len(column):
                name, value = column[i]
                line = line.ljust(place * 50) + f"  {name.replace('_', ' '):<30}{value:>14}"
        lines.append(line)
    return lines


def _reliability(report: Report) -> list[tuple[str, str]]:
    reliability = report["reliability"]
    delay = report["validator"]["detection_delay_seconds"]
    return [
        ("handled ratio", ratio(reliability["handled_ratio"])),
        ("exact ratio", ratio(reliability["exact_ratio"])),
        ("reliable throughput, 1/s", number(reliability["reliable_throughput_per_second"])),
        ("newest batch: inputs read, 1/s", number(report["validator"]["input_events_per_second"])),
        ("detection delay p99, s", number(delay["p99"])),
        ("restarts", number(report["validator"]["restarts"])),
    ]


def _latencies(report: Report) -> list[tuple[str, str]]:
    return [
        (f"latency {name} {quantile}, s", number(seconds))
        for name, measured in report["latency_seconds"].items()
        for quantile, seconds in (("p50", measured["p50"]), ("p99", measured["p99"]))
    ]


def _coverage(report: Report) -> list[str]:
    coverage = report["coverage"]
    lines = ["", "Coverage"]
    sums = coverage["sums"]
    balance = "=" if sums["records"] + sums["expired"] + sums["invisible"] == sums["offsets_spanned"] else "is NOT"
    sentence = (
        f"{plural(sums['records'], 'record')} read + {number(sums['expired'])} expired + "
        f"{plural(sums['invisible'], 'offset')} without a visible record {balance} "
        f"{plural(sums['offsets_spanned'], 'offset')} spanned."
    )
    lines += _wrap(sentence, "  ")
    lines += _accounted("Events", coverage["events"]) + _accounted("Answers", coverage["answers"])
    again = coverage["second_reading"]
    sentence = f"Read again: {plural(again['offsets'], 'offset')} in {plural(again['ranges'], 'range')}"
    undone = f"; {plural(again['not_done'], 'range')} could not be read again" if again["not_done"] else ""
    lines += _wrap(f"{sentence}{undone}.", "  ")
    lines += [line for said in coverage["differences"] for line in _wrap(f"{said[0].upper()}{said[1:]}.", "  ")]
    lines += ["  The coverage sums balance." if coverage["complete"] else "  The coverage is NOT complete."]
    waiting = report["waiting_for"]
    lines += _wrap(f"Topics that do not exist: {', '.join(waiting)}.", "  ") if waiting else []
    return lines


def _accounted(name: str, terms: Mapping[str, int]) -> list[str]:
    """What became of the records that were read."""
    found = {term.replace("_", " "): count for term, count in terms.items() if term != "read"}
    said = " + ".join(f"{number(count)} {term}" for term, count in found.items())
    balance = "=" if sum(found.values()) == terms["read"] else "is NOT"
    return _wrap(f"{name}: {said} {balance} {number(terms['read'])} read.", "  ")


def _violations(listed: Sequence[Violation]) -> list[str]:
    lines = [
        "",
        f"Newest violations ({min(len(listed), VIOLATIONS_SHOWN)} of the {len(listed)} that violations.json holds)",
    ]
    for record in listed[:VIOLATIONS_SHOWN]:
        head = f"{record.id}: {record.violation_class.replace('_', ' ')}, {record.state}, "
        head += f"{clock(rfc3339(record.window_start_us))}, key {record.key}: {record.explanation}"
        lines += _wrap(head, "  ")
        lines += _wrap(f"ids {some_ids(record, IDS_SHOWN)}", "    ") if record.ids else []
        lines += _wrap(standing(record), "    ") if record.acknowledged is not None else []
    return lines

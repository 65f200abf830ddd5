"""The report for a CI run: a summary in Markdown, and an annotation as GitHub's workflow command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from validator.model.terminal import plain, plain_values
from validator.model.violation import Violation
from validator.publish.findings import findings
from validator.publish.next_steps import STATE
from validator.publish.report_types import Report
from validator.publish.sentences import (
    clock,
    fault_sentences,
    headline,
    number,
    outstanding,
    some_ids,
    standing,
    verified,
    what_broke,
    why,
)
from validator.publish.times import rfc3339

VIOLATIONS_SHOWN: Final = 20
IDS_SHOWN: Final = 8
_SIGNS: Final = {"pass": "✅", "fail": "❌", "unknown": "❓"}
_COUNTS: Final = ("expected", "processed", "duplicate", "missing", "incorrect", "late", "unresolved", "overdue")


def summary(report: Report, violations: Sequence[Violation] = (), state: str = STATE) -> str:
    """Return ``report`` as Markdown. ``state``: the folder that the commands name."""
    found = findings(report, violations, state)  # before escaping, because the commands quote for a shell
    report = plain_values(report)
    lines = [f"## {_SIGNS[report['outcome']]} {_text(headline(report))}", ""]
    said = report["reasons"] or what_broke(report) or verified(report)
    lines += [f"- {_text(sentence)}" for sentence in said]
    lines += ["", "| guarantee | verdict |", "|---|---|"]
    for name, verdict in report["verdicts"].items():
        declared = " (declared)" if name == report["guarantee"] else ""
        lines.append(f"| {name}{declared} | {verdict} |")
    lines += ["", f"| {' | '.join(_COUNTS)} |", f"|{'---:|' * len(_COUNTS)}"]
    lines.append(f"| {' | '.join(number(report['contributions'].get(name)) for name in _COUNTS)} |")
    for title, sentences in (("Outstanding", outstanding(report)), ("Faults", fault_sentences(report["faults"]))):
        lines += ["", f"**{title}**", "", *(f"- {_text(one)}" for one in sentences)] if sentences else []
    commands = [command for one in found for command in (one.command, one.acknowledge) if command]
    if found:
        lines += ["", "**Where to look**", "", *(f"- {_text(f'{one.violation}: {one.advice}')}" for one in found)]
        lines += ["", "```console", *(f"$ {plain(command)}" for command in commands), "```"]
    shown = violations[:VIOLATIONS_SHOWN]
    if shown:
        more = f" (the newest {len(shown)} of {len(violations)})" if len(violations) > len(shown) else ""
        lines += ["", f"<details><summary>Violations{more}</summary>", ""]
        lines += ["| class | state | window | key | ids |", "|---|---|---|---|---|"]
        lines += [_row(record) for record in shown]
        lines += ["", "</details>"]
    return "\n".join([*lines, "", f"As of {clock(report['time'])} UTC.", ""])


def annotation(report: Report) -> str:
    """Return one of GitHub's workflow commands: an error if the guarantee fails, a warning if that is not known."""
    report = plain_values(report)
    kind = {"pass": "notice", "fail": "error"}.get(report["outcome"], "warning")
    title = f"streamproof: {report['pipeline']}".translate(_IN_PROPERTY)
    said = headline(report) if report["outcome"] == "pass" else f"{headline(report)} {why(report)}."
    return f"::{kind} title={title}::{said.translate(_IN_MESSAGE)}\n"


_IN_MESSAGE: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_IN_PROPERTY: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})
_IN_MARKDOWN: Final = str.maketrans({sign: f"\\{sign}" for sign in "\\`*_{}[]<>#|~"} | {"\n": " ", "\r": " "})


def _text(sentence: str) -> str:
    """Text of a record must not become a link, HTML or a column."""
    return plain(sentence).translate(_IN_MARKDOWN)


def _row(record: Violation) -> str:
    window = clock(rfc3339(record.window_start_us))
    cells = (record.violation_class, standing(record), window, record.key, some_ids(record, IDS_SHOWN))
    return f"| {' | '.join(_text(cell) for cell in cells)} |"

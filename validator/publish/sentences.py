"""The sentences of a report, for text, HTML and JUnit: violations, outstanding contributions, costs of faults."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from typing import Final

from validator.model.classes import VIOLATES, Guarantee, ViolationClass
from validator.model.violation import Violation
from validator.model.wording import plural
from validator.publish.report_types import FaultOfReport, PhaseOfReport, Report
from validator.publish.times import rfc3339

VIOLATION_SENTENCES: Final[dict[ViolationClass, tuple[str, str]]] = {
    ViolationClass.MISSING: (
        "event was lost: no result, late or rejected record carries it",
        "events were lost: no result, late or rejected record carries them",
    ),
    ViolationClass.DUPLICATE: (
        "duplicate: an event was counted more than once",
        "duplicates: events were counted more than once",
    ),
    ViolationClass.MISPLACED: (
        "event was counted in a CELL or for a key to which it does not belong",
        "events were counted in a CELL or for a key to which they do not belong",
    ),
    ViolationClass.UNKNOWN_ID: (
        "id in a result belongs to no input event",
        "ids in results belong to no input event",
    ),
    ViolationClass.INCONSISTENT: (
        "result does not follow from the ids that it carries, or from the table",
        "results do not follow from the ids that they carry, or from the table",
    ),
    ViolationClass.UNDECODABLE: ("result could not be decoded", "results could not be decoded"),
    ViolationClass.WRONG_VALUE: (
        "result states another value than its events give",
        "results state other values than their events give",
    ),
}
"""Class -> sentence for one contribution or result, and for several. CELL stands for the oracle's noun."""

UNSEEN_TITLE: Final = "What this evidence cannot show"
"""The heading of `Report.cannot_see`."""
PHASES_SHOWN: Final = 20
_CONCURRENT_SHOWN: Final = 3
_HIDDEN_SHOWN: Final = 3
_RAISED_MIN: Final = 1.1
"""A steady output reaches ratios up to this by chance."""

OUTSTANDING: Final[dict[str, str]] = {
    "pending": "not due yet",
    "overdue": "overdue: without a result, and not proven lost",
    "blocked": "held back by an open transaction",
    "unconsumed": "not consumed by the engine yet",
    "dropped_late": "dropped as late, which the late policy tolerates",
}


def number(value: float | None) -> str:
    """Return a count or measure for people: with thousands separators; fractions with four significant digits; a dash
    if absent."""
    if value is None:
        return "-"
    if isinstance(value, int):
        return f"{value:,}"
    # Four significant digits would show a large number as 1.5e+04.
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def ratio(value: float | None) -> str:
    """Return a ratio, truncated after six digits: a ratio below 1 must not be shown as 1."""
    return "-" if value is None else f"{math.floor(value * 1_000_000) / 1_000_000:.6f}".rstrip("0").rstrip(".")


def headline(report: Report) -> str:
    """Return the outcome in one sentence."""
    guarantee = report["guarantee"].replace("_", "-")
    said = {
        "pass": f"keeps its {guarantee} guarantee",
        "fail": f"breaks its {guarantee} guarantee",
        "unknown": f"could not be verified to keep its {guarantee} guarantee",
    }
    return f"Pipeline {report['pipeline']} {said[report['outcome']]}."


def violation_sentence(violation: ViolationClass, count: int, report: Report) -> str:
    """Return the sentence that follows the number ``count`` of violations of a class."""
    return VIOLATION_SENTENCES[violation][count != 1].replace("CELL", report["cell_noun"])


def breaks(violation: ViolationClass, guarantee: str) -> bool:
    """Return whether ``violation`` breaks ``guarantee`` (SEMANTICS section 4)."""
    return violation in VIOLATES[Guarantee(guarantee)]


def what_broke(report: Report) -> list[str]:
    """Return a sentence for each class with a confirmed violation; classes that break the declared guarantee first."""
    lines: list[tuple[bool, str]] = []
    for violation in VIOLATION_SENTENCES:
        count = report["violations"]["confirmed"].get(violation.value) or 0
        if not count:
            continue
        breaking = breaks(violation, report["guarantee"])
        tolerated = "" if breaking else " The declared guarantee tolerates this class."
        after = attribution(report["faults"], violation.value, count)
        accepted = acknowledged_share(report, violation.value, count)
        accepted = f" {accepted}" if accepted else ""
        said = f"{count:,} {violation_sentence(violation, count, report)}.{after}{accepted}{tolerated}"
        lines.append((not breaking, said))
    return [line for _, line in sorted(lines, key=lambda entry: entry[0])]


def why(report: Report) -> str:
    """Return the first reason of the declared guarantee's verdict, and the number of further reasons."""
    broken = what_broke(report)
    doubts: list[str] = report["reasons"][len(broken) :]
    reasons = {"fail": broken, "unknown": doubts}.get(report["outcome"], [])
    if not reasons:
        return "no violation of the guarantee is confirmed, and nothing makes the verdict unknown"
    more = len(reasons) - 1
    return reasons[0].rstrip(".") + (f" (and {more} more: see the report)" if more else "")


def verdict_line(report: Report) -> str:
    """Return the verdict in one line: the word, the sentence, the first reason if it is no pass, and the time."""
    reason = "" if report["outcome"] == "pass" else f" {why(report)[:1].upper()}{why(report)[1:]}."
    return f"{report['outcome']}: {headline(report)}{reason} As of {clock(report['time'])} UTC."


def acknowledged_share(report: Report, name: str, count: int) -> str:
    """Return a sentence: how many of the ``count`` violations of a class are acknowledged; empty if none is."""
    taken = count - report["violations"].get("unacknowledged", {}).get(name, count)
    if taken <= 0:
        return ""
    if taken < count:
        return f"Of these, {taken:,} {'is' if taken == 1 else 'are'} acknowledged."
    return "It is acknowledged." if count == 1 else "All are acknowledged."


def standing(record: Violation) -> str:
    """Return the state of a violation, and the reason for its acknowledgement, by whom and when."""
    if record.acknowledged is None:
        return record.state
    by = f" by {record.acknowledged_by}" if record.acknowledged_by else ""
    at = f" at {clock(rfc3339(record.acknowledged_at_us))} UTC" if record.acknowledged_at_us else ""
    return f"{record.state}, acknowledged{by}{at}: {record.acknowledged}"


def verified(report: Report) -> list[str]:
    """Return a sentence on how much the verdict covers; none if nothing was read."""
    events, cells = report["coverage"]["events"], report["cells"]
    if not events.get("read"):
        return []
    settled = f"{number(events.get('settled'))} of {plural(events['read'], 'event is', 'events are')} settled"
    unowed = events.get("in_no_cell") or 0
    beside = f", {number(unowed)} {'owes' if unowed == 1 else 'owe'} no result" if unowed else ""
    checked = f"{number(cells['verified'])} of {plural(cells['seen'] or 0, 'cell is', 'cells are')} verified"
    # A running aggregate has no windows: its cells are events, or keys if its results have no ids.
    cell = "an event or a key" if report["cell_noun"] == "time" else f"a {report['cell_noun']} of one key"
    return [f"{settled}{beside}, and {checked} (a cell is {cell})."]


def attribution(faults: list[FaultOfReport], name: str, count: int) -> str:
    """Return a sentence: how many of the ``count`` violations of a class are attributed to each fault. It is
    empty if there is no fault, or if no violation is attributed and the violations of some fault are not known."""
    shares = [(fault, (fault["violations"] or {}).get(name) or 0) for fault in faults]
    parts = [
        f"{'all' if share >= count else f'{share:,}'} after fault {fault['name'] or fault['kind']} on "
        f"{fault['target']} at {clock(fault['start'])}"
        for fault, share in shares
        if share
    ]
    if parts:
        said = ", ".join(parts)
        return f" {said[0].upper()}{said[1:]}."
    untold = not faults or any(fault["violations"] is None for fault in faults)
    return "" if untold else " None of them occurred after a fault."


def some_ids(record: Violation, most: int) -> str:
    """Return at most ``most`` ids of a violation, and how many more there are; empty if the record has no ids."""
    return some(record.ids, most, record.count)


def some(names: Sequence[str], most: int, count: int | None = None) -> str:
    """Return at most ``most`` names, and how many are left out. ``count``: their total (None: ``names`` has all)."""
    shown = names[:most]
    more = (len(names) if count is None else count) - len(shown)
    return ", ".join(shown) + (f" and {number(more)} more" if shown and more > 0 else "")


def listed(classes: list[str]) -> str:
    """Return the names of classes for people, such as `missing and unknown id`."""
    names = [name.replace("_", " ") for name in classes]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def outstanding(report: Report) -> list[str]:
    """Return a sentence for each kind of outstanding contribution that is not a violation."""
    found = [(report["contributions"].get(name), said) for name, said in OUTSTANDING.items()]
    lines = [f"{plural(count, 'event')} {'is' if count == 1 else 'are'} {said}." for count, said in found if count]
    # If a late event restarts the time of a cell, its missing contributions are outstanding again. Their confirmed
    # violations stand until a result answers the cell.
    confirmed, missing = report["violations"]["confirmed"].get("missing"), report["contributions"].get("missing")
    before = (confirmed or 0) - (missing or 0)
    if lines and before > 0:
        lines.append(
            f"Of these, {plural(before, 'event')} {'was' if before == 1 else 'were'} confirmed as missing before."
        )
    return lines


def not_judged(report: Report) -> list[str]:
    """Return a sentence on the inputs before the first record that was read, and on what is therefore not judged."""
    hidden = [one for one in report["coverage"]["partitions"] if one["role"] == "input" and one["first_offset"] > 0]
    if not hidden:
        return []
    before = ", ".join(
        f"{one['first_offset']:,} of {one['topic']}-{one['partition']}" for one in hidden[:_HIDDEN_SHOWN]
    )
    more = sum(one["first_offset"] for one in hidden[_HIDDEN_SHOWN:])
    events = report["contributions"].get("out_of_scope") or 0
    results = report["results"]
    left = (results["read"] or 0) - sum(count or 0 for name, count in results.items() if name != "read")
    others = f" and {more:,} of others" if more else ""
    why = "because their cells may have events among these"
    return [
        f"Offsets that were expired or skipped at the start: {before}{others}.",
        f"{plural(events, 'contribution')} and {plural(left, 'result')} are not judged, {why}.",
    ]


def fault_sentences(faults: Sequence[FaultOfReport]) -> list[str]:
    """Return a sentence for each fault: its time, its cost, and its violations."""
    lines = []
    concurrent = _concurrent_faults(faults)
    for fault in faults:
        until = f"healed {clock(fault['healed'])}" if fault["healed"] else "not healed"
        parts = [f"{fault['name'] or fault['kind']} ({fault['kind']} on {fault['target']})", f"{clock(fault['start'])}"]
        costs = [
            f"{words} {number(seconds)} s"
            for words, seconds in (
                ("raised the latency by", fault["failure_cost_seconds"]),
                ("stopped the output for", fault["downtime_seconds"]),
                ("the output rate recovered after", fault["recovery_seconds"]),
            )
            if seconds is not None
        ]
        costs += [
            f"{words} {number(factor)} times that of the control phase ({short}{_why_above_one(short, factor)})"
            for words, short, factor in (
                ("throughput", "TPF", fault["throughput_penalty_ratio"]),
                ("mean latency", "LPF", fault["latency_penalty_ratio"]),
            )
            if factor is not None
        ]
        costs += ["the output rate has not recovered"] if fault["recovered"] is False else []
        broken = [f"{count:,} {name.replace('_', ' ')}" for name, count in (fault["violations"] or {}).items() if count]
        outcome = f"violations after it: {', '.join(broken)}" if broken else "no violation after it"
        if fault["violations"] is None:
            outcome = "its violations cannot be separated from those of other faults"
        if fault["expects"]:
            outcome += f" (its plan expects {listed(fault['expects'])})"
        early = f" It ended early: {fault['over_because']}" if fault["over_because"] else ""
        reasons = [f" {reason[0].upper()}{reason[1:]}." for reason in fault["absent_because"]]
        others = concurrent.get(fault["id"], [])
        shared = (
            f" Its figures include the effects of {some(others, _CONCURRENT_SHOWN)}, which "
            f"{'was' if len(others) == 1 else 'were'} active at the same time."
            if others
            else ""
        )
        effects = "; ".join([*costs, outcome])
        measured = f"{resolution(fault)}{_baseline(fault)}"
        lines.append(f"{parts[0]}, from {parts[1]}, {until}; {effects}.{measured}{shared}{early}{''.join(reasons)}")
    return lines


def _baseline(fault: FaultOfReport) -> str:
    """Return a sentence on the control phase of the comparison, which may be a part of the phase before the fault.
    It is empty if nothing was compared."""
    start, end = fault["control_start"], fault["control_end"]
    return f" Compared with the control phase from {clock(start)} to {clock(end)}." if start and end else ""


def _concurrent_faults(faults: Sequence[FaultOfReport]) -> dict[str, list[str]]:
    """Return id of a fault -> names of the faults that were active at the same time. Times are RFC 3339 in UTC with one
    length, so they sort as text."""
    found: dict[str, list[str]] = {}
    injected = sorted(((fault["start"], fault) for fault in faults if fault["start"]), key=lambda entry: entry[0])
    for number_, (_, fault) in enumerate(injected):
        for start, later in islice(injected, number_ + 1, None):
            if fault["healed"] and start >= fault["healed"]:
                break
            found.setdefault(fault["id"], []).append(later["name"] or later["kind"])
            found.setdefault(later["id"], []).append(fault["name"] or fault["kind"])
    return found


def _why_above_one(factor: str, ratio: float) -> str:
    """Return the possible reasons if a fault seems to have raised the throughput; else an empty text.

    The phase can be too short, because results of windows come in bursts: a short phase may have one burst too many.
    """
    if factor != "TPF" or ratio < _RAISED_MIN:
        return ""
    return "; possible reasons: buffered output was drained, the input rate rose, or the phase was too short"


def phase_sentences(report: Report) -> list[str]:
    """Return a sentence for each of the newest phases: time, throughput, latency."""
    lines = []
    for phase in report["phases"][-PHASES_SHOWN:]:
        name = phase["phase"] + (f" ({phase['fault']})" if phase["fault"] else "")
        rate = phase["throughput_per_second"]
        measured = [] if rate is None else [f"{number(rate)} contributions a second"]
        measured += [
            f"latency from {kind.replace('_', ' ')} at most {number(latency['max'])} s"
            for kind, latency in phase["latency_seconds"].items()
            if latency["count"]
        ]
        until = f"to {clock(phase['end'])}" if phase["end"] else "on"
        lines.append(
            f"{name}, from {clock(phase['start'])} {until}: {', '.join(measured) or 'not measured'}.{resolution(phase)}"
        )
    return lines


def resolution(measured: FaultOfReport | PhaseOfReport) -> str:
    """Return a sentence on the precision of the instants behind the figures, if topics have CreateTime."""
    seconds = measured["resolution_seconds"]
    if seconds is None:
        return " The resolution of these figures is unknown: the sidecar read a backlog."
    return f" The resolution of these figures is {number(seconds)} s." if seconds else ""


def clock(time: str | None) -> str:
    """Return an RFC 3339 time for people, to the second."""
    return "-" if time is None else time[:19].replace("T", " ")


def settled_positions(report: Report) -> list[str]:
    """Return a sentence for each range of undecodable records that an operator or the pipeline itself settled."""
    said = []
    for one in report["settled_positions"]:
        first, last = one["first_offset"], one["last_offset"]
        offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
        records = plural(one["records"], "record")
        said.append(f"{one['topic']}-{one['partition']}, {offsets} ({records}), by {one['by']}: {one['reason']}")
    return said

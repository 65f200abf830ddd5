"""Confirmed violations for an operator on call: how many, since when, after which fault, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from validator.model.classes import ViolationClass
from validator.model.terminal import as_value
from validator.publish.history import History, first_seen
from validator.publish.sentences import BROKEN, blamed, breaks
from validator.publish.times import rfc3339

ADVICE: Final[dict[ViolationClass, str]] = {
    ViolationClass.MISSING: "Compare the engine's restarts with the time of the loss: committing offsets before "
    "writing results loses in-flight events.",
    ViolationClass.DUPLICATE: "Compare the engine's restarts with the time of the duplicates: an engine that restarts "
    "repeats uncommitted work. Check that its sink is transactional or idempotent.",
    ViolationClass.MISPLACED: "Compare the engine's window size, offset, time zone and key with `oracle` and "
    "`inputs[].fields` of the configuration.",
    ViolationClass.UNKNOWN_ID: "Look for another producer on the output topic, a wrong id field in the configuration, "
    "or a `start` that skipped inputs.",
    ViolationClass.INCONSISTENT: "The result contradicts its own ids: check the state that the engine restored last.",
    ViolationClass.UNDECODABLE: "Compare a record of the output topic with `outputs[].fields` of the configuration: "
    "was a new version of the engine deployed?",
    ViolationClass.WRONG_VALUE: "The events are correct and the value is not: check the aggregation of the engine.",
}
"""Class -> what to check first."""


@dataclass(frozen=True)
class Finding:
    """One class of confirmed violations. ``sentence`` continues after ``count``. ``since`` is RFC 3339 or None."""

    violation: str
    count: int
    sentence: str
    blamed: str
    tolerated: bool
    since: str | None
    advice: str
    command: str | None


def findings(report: Mapping[str, Any], violations: Mapping[str, Any] | None, history: History) -> list[Finding]:
    """Return a finding for each class with a confirmed violation, in the order of ``BROKEN``. Those that break the
    declared guarantee come first."""
    found = []
    for violation, (one, several) in BROKEN.items():
        count = report["violations"]["confirmed"].get(violation.value) or 0
        if not count:
            continue
        records = [
            record
            for record in (violations or {}).get("violations", ())
            if record["class"] == violation.value and record["state"] == "confirmed"
        ]
        found.append(
            Finding(
                violation=violation.value,
                count=count,
                sentence=one if count == 1 else several,
                blamed=blamed(report["faults"], violation.value, count).strip(),
                tolerated=not breaks(violation, report["guarantee"]),
                since=_since(report, records, history, violation.value),
                advice=ADVICE[violation],
                # An undecodable result has no id: the `ids` of its violations are positions.
                command=None if violation is ViolationClass.UNDECODABLE else _command(records),
            )
        )
    return sorted(found, key=lambda finding: finding.tolerated)


def _since(report: Mapping[str, Any], records: list[dict[str, Any]], history: History, violation: str) -> str | None:
    """Return when the first of the confirmed violations was confirmed; None if that was before the kept data.

    An earlier report does not contain it. Then it follows from the history, which is bounded, and without a history
    from the list of violations, which is even shorter.
    """
    told = report["violations"].get("first_confirmed", {}).get(violation)
    if told is not None:
        return str(told)
    seen = first_seen(history, violation)
    if history.points:
        return rfc3339(round(seen * 1e6)) if seen is not None else None
    return min((record["first"] for record in records if record["first"] is not None), default=None)


def _command(records: list[dict[str, Any]]) -> str | None:
    """Return the command that explains the first id of the newest violation with ids."""
    return next((f"streamproof explain STATE --id{as_value(r['ids'][0])}" for r in records if r["ids"]), None)

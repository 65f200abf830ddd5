"""Confirmed violations for an operator on call: how many, since when, after which fault, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from validator.model.classes import ViolationClass
from validator.model.violation import Violation
from validator.publish.next_steps import (
    STATE,
    acknowledge_all_command,
    acknowledge_command,
    acknowledged_scope,
    explain_command,
    extent,
)
from validator.publish.report_types import Report
from validator.publish.sentences import (
    VIOLATION_SENTENCES,
    acknowledged_share,
    attribution,
    breaks,
    violation_sentence,
)

ADVICE: Final[dict[ViolationClass, str]] = {
    ViolationClass.MISSING: "Compare the engine's restarts with the time of the loss: committing offsets before "
    "writing results loses in-flight events.",
    ViolationClass.DUPLICATE: "Compare the engine's restarts with the time of the duplicates: after a restart, "
    "an engine repeats uncommitted work. Check that its sink is transactional or idempotent.",
    ViolationClass.MISPLACED: "Compare the times and keys of the engine's results, and the size, offset and time zone "
    "of its windows, or the gap of its sessions, if it has any, with `oracle` and `inputs[].fields` of the "
    "configuration.",
    ViolationClass.UNKNOWN_ID: "Look for another producer on the output topic, a wrong id field in the configuration, "
    "or a `start` that skipped inputs.",
    ViolationClass.INCONSISTENT: "The result contradicts its own ids or the table: check the state that the engine "
    "restored last, or how it reads the table.",
    ViolationClass.UNDECODABLE: "Compare a record of the output topic with `outputs[].fields` of the configuration: "
    "was a new version of the engine deployed?",
    ViolationClass.WRONG_VALUE: "An event was lost and another one of the same cell was counted twice, or the engine "
    "computes the value in another way. 32-bit floating-point numbers need a `tolerance`.",
}
"""Class -> what to check first."""


@dataclass(frozen=True)
class Finding:
    """One class of confirmed violations.

    ``sentence`` follows the number ``count`` in texts. ``acknowledged``: a sentence on how many are acknowledged, or
    empty. ``since``: the first confirmation, RFC 3339 or None.
    ``where``: the extent. ``command`` explains one event. ``acknowledge`` and ``acknowledge_all`` are commands that
    remove one violation, or all, from the alert. ``acknowledge_reach`` says which ones ``acknowledge_all`` removes."""

    violation: str
    count: int
    sentence: str
    attributed: str
    acknowledged: str
    tolerated: bool
    since: str | None
    advice: str
    command: str | None
    where: str | None
    acknowledge: str | None
    acknowledge_all: str | None
    acknowledge_reach: str | None


def findings(
    report: Report,
    violations: Iterable[Violation] = (),
    state: str = STATE,
) -> list[Finding]:
    """Return a finding for each class with a confirmed violation, in the order of ``VIOLATION_SENTENCES``. Those that
    break the declared guarantee come first. ``state``: the folder that the commands name."""
    found = []
    violations = list(violations)
    for violation in VIOLATION_SENTENCES:
        count = report["violations"]["confirmed"].get(violation.value) or 0
        if not count:
            continue
        records = [record for record in violations if record.violation_class == violation.value]
        confirmed = [record for record in records if record.state == "confirmed"]
        whole = acknowledge_all_command(records, state)
        found.append(
            Finding(
                violation=violation.value,
                count=count,
                sentence=violation_sentence(violation, count, report),
                attributed=attribution(report["faults"], violation.value, count).strip(),
                acknowledged=acknowledged_share(report, violation.value, count),
                tolerated=not breaks(violation, report["guarantee"]),
                # Absent if the violation was confirmed after its cell was retired (SEMANTICS 7.6).
                since=report["violations"]["first_confirmed"].get(violation.value),
                advice=_advice(violation, count, violations, report["violations"]["loss_hint"])
                + _example(report, violation, confirmed),
                # An undecodable result has no id: the `ids` of its violations are positions.
                command=None if violation is ViolationClass.UNDECODABLE else explain_command(confirmed, state),
                where=extent(records, count, report["cell_noun"]),
                acknowledge=acknowledge_command(records, state),
                acknowledge_all=whole,
                acknowledge_reach=acknowledged_scope(whole) if whole else None,
            )
        )
    return sorted(found, key=lambda finding: finding.tolerated)


def _example(report: Report, violation: ViolationClass, confirmed: Sequence[Violation]) -> str:
    example = report["violations"]["examples"].get(violation.value)
    if violation in (ViolationClass.WRONG_VALUE, ViolationClass.INCONSISTENT) and confirmed:
        example = confirmed[0].explanation
    return f" For example, {example}." if example else ""


def _advice(violation: ViolationClass, count: int, violations: Iterable[Violation], loss_hint: str | None) -> str:
    """Return what to check first. If every id of the ``count`` missing contributions is known, and each is misplaced,
    too, no event was lost: the engine and the configuration put it in different cells. ``loss_hint``: what the lost
    events have in common."""
    ids: dict[str, list[str]] = {ViolationClass.MISSING.value: [], ViolationClass.MISPLACED.value: []}
    for record in violations:
        if record.state == "confirmed" and record.violation_class in ids:
            ids[record.violation_class].extend(record.ids)
    if violation is ViolationClass.MISSING and loss_hint is not None:
        return f"{loss_hint} Otherwise: {ADVICE[violation]}"
    missing, misplaced = ids.values()
    if violation is not ViolationClass.MISSING or len(missing) < count or not set(missing) <= set(misplaced):
        return ADVICE[violation]
    moved = "Each of these events is in a result for another time or key, or for a part of its session."
    return f"{ADVICE[ViolationClass.MISPLACED]} {moved} Otherwise: {ADVICE[violation]}"

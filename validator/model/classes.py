"""The classes of a contribution and of a result, and the classes that each guarantee tolerates.

Source: SEMANTICS 2.2, 2.15 and 4.1. The tolerance table here is the only copy: code, report and docs read it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Contribution(StrEnum):
    """Classes of the statement "event id belongs in cell c". The names are those of the report and the metrics."""

    EXPECTED = "expected"
    PROCESSED = "processed"
    LATE = "late"
    REJECTED = "rejected"
    DUPLICATE = "duplicate"
    MISPLACED = "misplaced"
    UNKNOWN_ID = "unknown_id"
    MISSING = "missing"
    DROPPED_LATE = "dropped_late"
    PENDING = "pending"
    OVERDUE = "overdue"
    BLOCKED = "blocked"
    UNCONSUMED = "unconsumed"
    UNRESOLVED = "unresolved"
    OUT_OF_SCOPE = "out_of_scope"


class Result(StrEnum):
    """Classes of a record on an output topic."""

    CORRECT = "correct"
    INCOMPLETE = "incomplete"
    EXCESS = "excess"
    MISPLACED = "misplaced"
    INCONSISTENT = "inconsistent"
    WRONG_VALUE = "wrong_value"
    UNDECODABLE = "undecodable"
    TOMBSTONE = "tombstone"


class Guarantee(StrEnum):
    """The processing guarantees. All three are always graded."""

    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class Verdict(StrEnum):
    """`UNKNOWN` means that the sidecar cannot vouch for a guarantee. A check that failed is never a pass."""

    PASS = "pass"  # noqa: S105  # a verdict, no secret
    FAIL = "fail"
    UNKNOWN = "unknown"


class ViolationClass(StrEnum):
    """Classes of violations: first those of contributions, then those of results."""

    MISSING = "missing"
    DUPLICATE = "duplicate"
    MISPLACED = "misplaced"
    UNKNOWN_ID = "unknown_id"
    INCONSISTENT = "inconsistent"
    UNDECODABLE = "undecodable"
    WRONG_VALUE = "wrong_value"


OUTSTANDING: Final = (
    Contribution.PENDING,
    Contribution.OVERDUE,
    Contribution.BLOCKED,
    Contribution.UNCONSUMED,
    Contribution.DROPPED_LATE,
    Contribution.MISSING,
)
"""The classes that `e - processed - late - rejected` is split into."""

EXPECTABLE: Final = ("missing", "duplicate", "misplaced", "unknown_id", "overdue")
"""The classes that the plan of a fault can expect: the violations that are attributed to faults, and `overdue`."""

PLANTED: Final = ("missing", "duplicate", "misplaced", "unknown_id")
"""The violation classes that a round of the canary contains, one contribution of each."""

VIOLATES: Final[dict[Guarantee, frozenset[ViolationClass]]] = {
    # At-most-once allows a loss, but nothing that adds or alters.
    Guarantee.AT_MOST_ONCE: frozenset(ViolationClass) - {ViolationClass.MISSING},
    # At-least-once allows a repeat.
    Guarantee.AT_LEAST_ONCE: frozenset(ViolationClass) - {ViolationClass.DUPLICATE},
    Guarantee.EXACTLY_ONCE: frozenset(ViolationClass),
}
"""Guarantee -> the violation classes that break it (SEMANTICS 4.1).

A `wrong_value` breaks all: the number of events is right, so an event was lost and another one repeated, or the value
was computed wrongly. Without that number it breaks exactly-once only (`validator.model.grading`)."""


def forbidding(violation: ViolationClass) -> frozenset[Guarantee]:
    """The guarantees that a violation of this class breaks."""
    return frozenset(guarantee for guarantee in Guarantee if violation in VIOLATES[guarantee])

"""The classes of a contribution and of a result, and what each guarantee tolerates.

Source: SEMANTICS sections 2 and 4. The tolerance table here is the only copy: code, report and docs read it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Contribution(StrEnum):
    """What became of "event id belongs in cell c"; the names are those of the report and the metrics."""

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
    """What a record on an output topic turned out to be."""

    CORRECT = "correct"
    INCOMPLETE = "incomplete"
    EXCESS = "excess"
    MISPLACED = "misplaced"
    INCONSISTENT = "inconsistent"
    WRONG_VALUE = "wrong_value"
    UNDECODABLE = "undecodable"
    TOMBSTONE = "tombstone"


class Guarantee(StrEnum):
    """The processing guarantees that are graded, always all three."""

    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


class Verdict(StrEnum):
    """`UNKNOWN` means that the validator cannot vouch; a check that failed is never a pass."""

    PASS = "pass"  # noqa: S105  # a verdict, no secret
    FAIL = "fail"
    UNKNOWN = "unknown"


class ViolationClass(StrEnum):
    """What a violation can be. Contributions first, then results."""

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
"""What the plan of a fault can expect: the classes that are told by fault, and answers that are late."""

PLANTED: Final = ("missing", "duplicate", "misplaced", "unknown_id")
"""The classes of violations that a round of the canary holds, one contribution of each."""

VIOLATES: Final[dict[Guarantee, frozenset[ViolationClass]]] = {
    # A loss is what at-most-once allows; everything that adds or alters is not.
    Guarantee.AT_MOST_ONCE: frozenset(ViolationClass) - {ViolationClass.MISSING, ViolationClass.WRONG_VALUE},
    # A repeat is what at-least-once allows.
    Guarantee.AT_LEAST_ONCE: frozenset(ViolationClass) - {ViolationClass.DUPLICATE, ViolationClass.WRONG_VALUE},
    Guarantee.EXACTLY_ONCE: frozenset(ViolationClass),
}
"""Guarantee -> the violation classes that break it (SEMANTICS section 4). A `wrong_value` is tolerated by the weaker
guarantees where tolerated duplicates or losses explain it; it is only judged where the cell's ids equal the oracle's,
so one that remains is recorded as `inconsistent` when nothing tolerated explains it."""

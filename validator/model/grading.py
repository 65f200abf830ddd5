"""Derives verdicts from confirmed violations and doubts, for all three guarantees at once (SEMANTICS 4.1, 4.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from validator.model.classes import VIOLATES, Guarantee, Verdict, ViolationClass, forbidding
from validator.model.wording import plural


@dataclass(frozen=True)
class Doubt:
    """The reason why the sidecar cannot vouch for some guarantees, as a sentence."""

    sentence: str
    concerns: frozenset[Guarantee] = frozenset(Guarantee)


FORBID_LOSS: Final = forbidding(ViolationClass.MISSING)
"""The guarantees that a loss breaks. A doubt about absence concerns only these
(SEMANTICS 4.11): at-most-once tolerates a loss."""


def grade(
    confirmed: Mapping[str, int], doubts: Sequence[Doubt], *, unclear: frozenset[ViolationClass] = frozenset()
) -> dict[Guarantee, Verdict]:
    """Return the verdict of each guarantee. ``confirmed``: violation class -> count. ``unclear``: classes that do not
    show whether a contribution was lost or repeated.

    A guarantee fails at one confirmed violation that it does not tolerate. A failure outranks any doubt.
    """
    is_unclear = any(confirmed.get(name, 0) > 0 for name in unclear)
    verdicts = {}
    for guarantee in Guarantee:
        # SEMANTICS 4.2: one confirmed violation is a proof, whatever else is in doubt. Without one, a doubt is never a
        # pass.
        broken = any(confirmed.get(name.value, 0) > 0 for name in VIOLATES[guarantee])
        doubted = any(guarantee in doubt.concerns for doubt in doubts)
        if is_unclear and guarantee is not Guarantee.EXACTLY_ONCE:
            # SEMANTICS 4.1: a tolerated loss or repeat may have caused it.
            others = VIOLATES[guarantee] - unclear
            broken, doubted = any(confirmed.get(name.value, 0) > 0 for name in others), True
        verdicts[guarantee] = Verdict.FAIL if broken else Verdict.UNKNOWN if doubted else Verdict.PASS
    return verdicts


def doubted(verdicts: Mapping[Guarantee, Verdict]) -> dict[Guarantee, Verdict]:
    """Return verdicts after a doubt that concerns every guarantee: a failure stays, and nothing passes."""
    return {name: verdict if verdict is Verdict.FAIL else Verdict.UNKNOWN for name, verdict in verdicts.items()}


_SENTENCES: Final = {
    ViolationClass.MISSING: (
        "expected contribution is missing: it is in no result and no late record",
        "expected contributions are missing: they are in no result and no late record",
    ),
    ViolationClass.DUPLICATE: (
        "contribution was counted more often than its event was sent",
        "contributions were counted more often than their events were sent",
    ),
    ViolationClass.MISPLACED: (
        "contribution is in a cell where its event does not belong",
        "contributions are in a cell where their event does not belong",
    ),
    ViolationClass.UNKNOWN_ID: (
        "contribution carries an id that no input had",
        "contributions carry an id that no input had",
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


def reasons(confirmed: Mapping[str, int], doubts: Sequence[Doubt]) -> tuple[str, ...]:
    """Return the reasons why a verdict is not pass, as sentences."""
    broken = [
        plural(confirmed[name.value], *_SENTENCES[name]) for name in ViolationClass if confirmed.get(name.value, 0) > 0
    ]
    return (*broken, *(doubt.sentence for doubt in doubts))

"""Confirmed violations and doubts to verdicts, for all three guarantees at once (SEMANTICS section 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from validator.model.classes import VIOLATES, Guarantee, Verdict, ViolationClass


def grade(confirmed: Mapping[str, int], doubts: Sequence[str]) -> dict[Guarantee, Verdict]:
    """Verdict per guarantee. ``confirmed``: violation class -> count; ``doubts``: why the validator cannot vouch.

    One confirmed violation that the guarantee does not tolerate fails it, and outranks any doubt.
    """
    verdicts = {}
    for guarantee in Guarantee:
        broken = any(confirmed.get(name.value, 0) > 0 for name in VIOLATES[guarantee])
        verdicts[guarantee] = Verdict.FAIL if broken else Verdict.UNKNOWN if doubts else Verdict.PASS
    return verdicts


_SENTENCES = {
    ViolationClass.MISSING: "{n} expected contributions are missing: they are in no result and no late record",
    ViolationClass.DUPLICATE: "{n} contributions were counted more often than their events were sent",
    ViolationClass.MISPLACED: "{n} contributions are in a cell where their event does not belong",
    ViolationClass.UNKNOWN_ID: "{n} contributions carry an id that no input had",
    ViolationClass.INCONSISTENT: "{n} results do not follow from the ids that they carry",
    ViolationClass.UNDECODABLE: "{n} results could not be decoded",
    ViolationClass.WRONG_VALUE: "{n} results have a value that differs from the oracle's",
}


def reasons(confirmed: Mapping[str, int], doubts: Sequence[str]) -> tuple[str, ...]:
    """Why a verdict is not pass, as sentences."""
    broken = [
        _SENTENCES[name].format(n=confirmed[name.value]) for name in ViolationClass if confirmed.get(name.value, 0) > 0
    ]
    return (*broken, *doubts)

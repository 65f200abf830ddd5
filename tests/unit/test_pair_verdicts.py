"""Pairs that a window of a join owes, against engines that use, set aside, drop or have not read each event."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from validator.model.arrays import Ints
from validator.model.pair_rules import LEFT, RIGHT, PairRule
from validator.oracles.counted_pairs import pair_verdicts
from validator.oracles.ids import Flags, IdCounts, IdVerdicts
from validator.oracles.two_sides import Join

EVENTS_MOST = 4
FATES = ("used", "late", "rejected", "dropped", "unread")


def verdicts(join: Join, fates: list[tuple[int, str]], stated: int, *, drops_late: bool) -> IdVerdicts:
    """Judge a window whose results state so many pairs. ``fates``: the side of each event, and what the engine did with
    it."""
    group = np.array([side for side, _ in fates], dtype=np.int64)
    late, unread = (np.array([fate == name for _, fate in fates], dtype=np.bool_) for name in ("dropped", "unread"))
    none = np.zeros(len(fates), dtype=np.bool_)

    def each(*wanted: str) -> Ints:
        return np.array([sum(at == side and fate in wanted for at, fate in fates) for side in (LEFT, RIGHT)])

    id_counts = IdCounts(
        cell=np.zeros(2, dtype=np.int64),
        is_text=np.zeros(2, dtype=np.int64),
        id=np.array([LEFT, RIGHT]),
        expected=each(*FATES),
        processed=np.array([stated, 0]),
        late=each("late"),
        rejected=each("rejected"),
        unowed=np.zeros(2, dtype=np.int64),
        group=group,
        from_input=~none,
        times=np.ones(len(fates), dtype=np.int64),
    )
    flags = Flags(late, none, none, unread, none, none)
    return pair_verdicts(id_counts, flags, PairRule(join, frozenset({"right"})), drops_late=drops_late)


def pairs(join: Join, lefts: int, rights: int) -> int:
    """How many pairs so many events make, one by one."""
    partners = range(rights or (1 if join == "left" else 0))
    return sum(1 for _ in range(lefts) for _ in (partners[:1] if join == "semi" else partners))


def total(found: IdVerdicts, *names: str) -> int:
    return int(sum(getattr(found, name).sum() for name in names))


@pytest.mark.parametrize("join", ["inner", "left", "semi"])
def test_a_correct_engine_is_never_accused_and_each_deviation_is(join: Join) -> None:
    chance, seen = Random(5), set[str]()
    for _ in range(1_500):
        fates = [(chance.choice((LEFT, RIGHT)), chance.choice(FATES)) for _ in range(chance.randrange(2 * EVENTS_MOST))]
        used = [sum(at == side and fate == "used" for at, fate in fates) for side in (LEFT, RIGHT)]
        stated = pairs(join, *used)
        found = verdicts(join, fates, stated, drops_late=True)
        excused = total(found, "unconsumed", "dropped_late")
        assert total(found, "duplicate", "foreign") == 0, (fates, stated)
        assert total(found, "outstanding") == excused, (fates, stated)
        settled = total(found, "processed", "late", "rejected", "outstanding")
        assert (
            total(found, "expected")
            == settled
            == pairs(join, *(sum(at == side for at, _ in fates) for side in (LEFT, RIGHT)))
        )
        if {fate for _, fate in fates} <= {"used", "late", "rejected"}:
            # Nothing is excused, so each pair too many or too few is counted.
            more = verdicts(join, fates, stated + 2, drops_late=True)
            assert total(more, "duplicate", "foreign") == 2
            seen.add("more")
            if stated:
                less = verdicts(join, fates, stated - 1, drops_late=True)
                assert (total(less, "outstanding"), total(less, "unconsumed", "dropped_late")) == (1, 0)
                seen |= {"less", *(fate for _, fate in fates)}
    assert seen == {"more", "less", "used", "late", "rejected"}

"""The windowed join: which ids a cell owes, which it allows, and how its observations are read.

Source: docs/decisions/0090-windowed-join.md, "What is allowed, what is owed"; the names are its names.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class WindowedJoin:
    """Two inputs joined per key within tumbling windows.

    ``right_prefix``: what the ids of the right input begin with. ``left_alone``: a left join, whose left events need no
    partner.
    """

    right_prefix: str
    left_alone: bool


@dataclass(frozen=True)
class Shares:
    """Per (cell, id): how its observations are read. ``owed_now``: owed, and not for waiting reasons only."""

    used: Ints
    aside: Ints
    surplus: Ints
    owed: Bools
    owed_now: Bools


def shared_out(
    join: WindowedJoin,
    *,
    cell: Ints,
    is_right: Bools,
    copies: Ints,
    sure: Ints,
    waiting: Ints,
    results: Ints,
    set_aside: Ints,
) -> Shares:
    """The rule of 0090, one entry per (cell, id).

    ``copies``: how many were read; ``sure``: of those; ``waiting``: sure or waiting; ``results``: how many results
    carry the id; ``set_aside``: how many late and rejected records do. ``cell``: numbers from 0 on.
    """
    given = copies > 0
    partner = _of_the_other(given, cell, is_right)
    sure_partner = _of_the_other(given & ((results > 0) | (sure > set_aside)), cell, is_right)
    waiting_partner = _of_the_other(given & ((results > 0) | (waiting > set_aside)), cell, is_right)
    alone = ~is_right if join.left_alone else np.zeros_like(is_right)
    used = np.where(given & (alone | partner), np.minimum(results, 1), 0)
    aside = np.minimum(set_aside, copies - used)
    return Shares(
        used=used,
        aside=aside,
        surplus=results + set_aside - used - aside,
        owed=given & (alone | waiting_partner),
        owed_now=given & (alone | sure_partner),
    )


def _of_the_other(fact: Bools, cell: Ints, is_right: Bools) -> Bools:
    """Whether ``fact`` holds for some id of the other side in the same cell."""
    size = int(cell.max()) + 1 if len(cell) else 0
    left, right = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
    left[cell[fact & ~is_right]] = True
    right[cell[fact & is_right]] = True
    return np.where(is_right, left[cell], right[cell])

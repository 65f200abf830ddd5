"""The numbers of a cell, each declared once: how facts and merged cells add up to it, and whether it is saved.

`validator.reconcile.cells` derives its columns from these declarations; `newest`, `by_key` and `key_values` declare
those of their kinds of cells. What the judged cells add to the totals is declared in `validator.core.totals`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from validator.model.arrays import ABSENT, NEVER
from validator.reconcile import splits
from validator.reconcile.facts import Side

SIDES: Final = {Side.INPUT: "expected", Side.OUTPUT: "processed", Side.LATE: "late", Side.REJECTED: "rejected"}
"""Side of a fact -> name of its contributions in a cell."""
NAMED_END: Final = "named_end_us"
"""Column of cells that one result answers: the latest end that a result names."""
RETIRED_BEFORE: Final = "retired_before"
"""Column of cells of one id: 1 if facts of the cell were retired before those that it has now."""
NO_WORD: Final = "no_word"
"""Column of cells of words: 1 for the empty word."""
NET: Final = "net"
"""Column of cells of keys whose events changes of a table add and remove: those that were added, less those that were
removed."""
SLOT_SEEN: Final = "slot_seen_us"
"""Column of cells that merge: ``first_seen_us`` of the cell's own slot, without the slots that joined it."""
BEGIN_SEEN: Final = "begin_seen_us"
"""Column of cells that merge: lookup instant of the first batch that read the earliest event of the cell's own slot."""


class Fold(Enum):
    """How the numbers of facts, and those of cells that merge, become one number."""

    SUM = "sum"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    OWN = "own"
    """Each cell keeps its number."""
    COMPARED = "compared"
    """A result of the last comparison of the cell's ids, unknown once cells have merged."""

    @property
    def of_two(self) -> np.ufunc:
        """The operation of a fold of facts: associative and commutative, so the order of facts does not matter."""
        return {Fold.SUM: np.add, Fold.MINIMUM: np.minimum, Fold.MAXIMUM: np.maximum}[self]


@dataclass(frozen=True)
class Quantity:
    """A column of cells. ``initial``: the number of a cell without facts, which is neutral to the fold.

    ``fact``: the column of facts that is folded; None if other code computes the number. ``sides``: only facts of these
    are folded; empty: all. ``is_saved``: a restart needs the number, since no comparison gives it.
    """

    name: str
    fold: Fold
    initial: int = ABSENT
    fact: str | None = None
    sides: tuple[Side, ...] = ()
    is_saved: bool = True


def kept(initial: int, *names: str) -> list[Quantity]:
    """Return quantities that each cell keeps, and that other code writes."""
    return [Quantity(name, Fold.OWN, initial) for name in names]


def _sum(name: str, fact: str | None = None, *sides: Side, is_saved: bool = True) -> Quantity:
    return Quantity(name, Fold.SUM, 0, fact, sides, is_saved)


def _first(name: str, fact: str, *sides: Side) -> Quantity:
    return Quantity(name, Fold.MINIMUM, NEVER, fact, sides)


def _last(name: str, fact: str | None = None, *sides: Side) -> Quantity:
    return Quantity(name, Fold.MAXIMUM, ABSENT, fact, sides)


_ANSWERS: Final = (Side.OUTPUT, Side.LATE, Side.REJECTED)
_PARTS: Final = {"count": "contributions", "a": "hash_a", "b": "hash_b", "records": "records"}

OF_CELL: Final = (
    *kept(ABSENT, "window_start_us", "last_event_us", "recorded_digest"),
    *kept(NEVER, "first_event_us"),
    *(_sum(f"{name}_{part}", fact, side) for side, name in SIDES.items() for part, fact in _PARTS.items()),
    _first("first_batch", "batch"),
    _first("first_epoch", "epoch"),
    _last("epoch", "epoch"),
    _first("first_seen_us", "lookup_us"),
    # SEMANTICS 3.12, 3.17: the last reading of an event (due base) and of an answer (excess is decided after it).
    _last("expected_us", "lookup_us", Side.INPUT),
    _last("observed_us", "lookup_us", *_ANSWERS),
    _first("first_input_time_us", "first_time_us", Side.INPUT),
    _first("first_result_time_us", "first_time_us", Side.OUTPUT),
    _last("last_input_time_us", "last_time_us", Side.INPUT),
    _last("last_answer_time_us", "last_time_us", *_ANSWERS),
    *map(_last, ("end_us", "closed_us", "rest_us")),
)
"""Quantities of every cell.

An *answer* is a result, a late or a rejected record. ``*_count``, ``*_a``, ``*_b``, ``*_records``: number of
contributions of a side, two additive hashes of them, and number of the records that the cell counts. ``first_batch``:
oldest batch with a fact of the cell. ``epoch``: newest epoch with its facts. ``expected_us``, ``observed_us``: lookup
instant of the last batch that read an input or an answer of the cell. ``*_time_us``: broker times. ``end_us``: the
first instant that is not in the cell. ``closed_us``: closing time. ``rest_us``: instant at which a run with `--once`
assumed the pipeline at rest. ``recorded_digest``: hash of the verdict in the derived tables."""

OF_INPUT: Final = (_sum("given"), _sum("matched", is_saved=False), _sum("lacking", is_saved=False))
"""Counts of each input topic in a cell. ``given``: its events. By the last comparison: ``matched``, those in results,
and ``lacking``, those that would be missing once due. If other inputs share an id, its results are first matched to the
events of those inputs. If repeats collapse, an event with such an id is in neither ``matched`` nor ``lacking``."""

OF_OUTPUT: Final = (_sum("carried"), _sum("landed", is_saved=False), _sum("claimed", is_saved=False))
"""Counts of each output topic in a cell, kept only if there are several. ``carried``: the contributions in its results;
with emission `cumulative`, the most that one of its results lists. By the last comparison: ``landed``, those of them
that match events after the results of the other outputs have been matched first, and ``claimed``, those that do not
match because other outputs carry their ids."""

EXCUSES: Final = ("dropped_late", "unconsumed", "unprovable", "doubtful", "elsewhere")
"""What may excuse outstanding contributions."""

COMPARED: Final = (
    "version",
    *("expected", "processed", "late", "rejected", "duplicate", "known", "unknown", "incorrect_ids", "outstanding"),
    *(*EXCUSES, "unconsumed_on_time"),
    *("late_expected", "rejected_expected", "correct", "incomplete", "excess", "misplaced", "wrong_value", "updates"),
    *splits.FIELDS,
)
"""Result of the last comparison of a cell's ids, in columns with the prefix ``x_``. ``version``: that of the cell at
the comparison (`Judged.version` in `validator.reconcile.judge`). ``known``, ``unknown``: observations of ids that the
cell does not expect; the known ones are of some input, the others of none. ``incorrect_ids``: number of different ids
among both. ``late_expected``, ``rejected_expected``: late and rejected contributions with the id of an event of the
cell. ``correct`` to ``wrong_value`` count the cell's results. ``updates``: as `Evidence.updates` returns them."""


def of_results(fact: str, named_end: str | None) -> list[Quantity]:
    """Return the number of results of a cell, and the latest end that they name. The arguments are columns of facts."""
    return [_sum("results", fact, Side.OUTPUT), _last(NAMED_END, named_end, Side.OUTPUT)]


def compared(initial: int) -> list[Quantity]:
    """Return the quantities of `COMPARED`."""
    return [Quantity(f"x_{name}", Fold.COMPARED, initial, is_saved=False) for name in COMPARED]


def of_violations(names: Iterable[str]) -> list[Quantity]:
    """Return what the derived tables hold of the violation of each class: contributions, how many of them are
    confirmed, and since when there are any."""
    counts = (f"{part}_{name}" for name in names for part in ("recorded", "confirmed"))
    return [*kept(0, *counts), *kept(ABSENT, *(f"began_{name}" for name in names))]

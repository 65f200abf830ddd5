"""Classes of the events of a key whose results state values, from the columns of its cell (SEMANTICS 2.30)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from validator.model.arrays import ABSENT, Bools, Ints, ints
from validator.model.frontier import Clock
from validator.reconcile.by_key import RECORDED_DUE, Due
from validator.reconcile.cells import STALE, Columns
from validator.reconcile.key_values import wrong_values
from validator.reconcile.quantities import COMPARED, NET


def compare(cells: Columns, clock: Clock, due: Due, resting: Bools) -> dict[int, str]:
    """Write the classes of the events and of the newest result of each of ``cells``, as a comparison of ids does.
    ``resting``: as in `Split.of`.

    Returns the cells of which a value is wrong, with what is wrong.
    """
    signed = cells.oracle.reads.signed
    states_count = cells.oracle.stated.count_name is not None
    expected, late, rejected = (cells[f"{name}_count"] for name in ("expected", "late", "rejected"))
    results, stated = cells["results"], cells["processed_count"]
    if not states_count:
        # SEMANTICS 2.29: such a result stands for all events that the engine has read and that are not set aside.
        left = np.maximum(expected - cells["unread"] - late - rejected, 0)
        stated = np.where((results > 0) & (stated > 0), np.where(expected > 0, left, 1), 0)
    events = expected
    # SEMANTICS 2.30: what comes after the last owed result is expected only if a result has it.
    expected = np.maximum(_with_result(cells, events), np.minimum(events, stated))
    processed = np.minimum(expected, stated)
    aside = {"late": np.minimum(expected - processed, late)}
    aside["rejected"] = np.minimum(expected - processed - aside["late"], rejected)
    outstanding = expected - processed - aside["late"] - aside["rejected"]
    surplus = stated + late + rejected - (expected - outstanding)
    known = owed = events > 0
    excess = (results > 0) & (stated > expected)
    if signed:
        # SEMANTICS 2.35: a contribution that the engine has not used makes a result state one more or one less.
        more = stated - cells[NET]
        surplus = np.maximum(more - _may_lack(cells, clock, due, resting), 0)
        outstanding = np.abs(more) - surplus
        processed, owed = expected - outstanding, cells[NET] > 0
        excess = (results > 0) & (surplus > 0)
    sound = results - excess
    judged = (
        owed
        & (results > 0)
        & (outstanding == 0)
        & (surplus == 0)
        & (late + rejected == 0)
        & (cells["unread"] == 0)
        & (expected == events)
    )
    if may_be_unread(clock):
        # SEMANTICS 2.30: in the number of all events another one may be repeated.
        judged[:] = False
    tolerances = dict(cells.oracle.reads.tolerances)
    clauses = {}
    if cells.oracle.stated.stated:
        # SEMANTICS 2.29: what doubles lose of rows that come and go has no bound by the rows that are there.
        clauses = wrong_values(cells, judged, cells.oracle.stated, tolerances, loses=not signed)
    wrong = np.where(judged | (surplus > 0), 0, STALE)
    wrong[list(clauses)] = 1
    found = {
        **dict.fromkeys(COMPARED, np.zeros_like(expected)),
        "expected": expected,
        "processed": processed,
        **aside,
        "duplicate": np.where(known, surplus, 0),
        "unknown": np.where(known, 0, surplus),
        "incorrect_ids": np.where(known, 0, surplus > 0),
        "outstanding": outstanding,
        "late_expected": np.where(known, late, 0),
        "rejected_expected": np.where(known, rejected, 0),
        "correct": np.where(outstanding > 0, 0, sound),
        "incomplete": np.where(outstanding > 0, sound, 0),
        "excess": excess,
        "wrong_value": wrong,
    }
    for name, values in found.items():
        cells[f"x_{name}"] = values.astype(np.int64)
    return clauses


@dataclass(frozen=True)
class Split:
    """The outstanding events of keys, by what is proven of each. The events that were due first count as used.

    ``overdue``: events past `overdue_after`, of which ``missing`` are past `missing_after`, less those that the engine
    has not consumed. ``unconsumed_missing``: the same part of ``unconsumed``. Of each, only as many as owe a result.
    """

    outstanding: Ints
    missing: Ints
    overdue: Ints
    blocked: Ints
    unconsumed: Ints
    unconsumed_missing: Ints

    @classmethod
    def of(
        cls, cells: Columns, clock: Clock, due: Due, outstanding: Ints, resting: Bools, *, counts_unconsumed: bool
    ) -> Split:
        """Split ``outstanding``. ``resting``: a run found the pipeline at rest, and nothing was read since.
        ``counts_unconsumed``: also events that are not due count as unconsumed."""
        used = cells["x_expected"] - outstanding
        holds = is_held(cells, clock)
        at_rest = resting & (not holds)

        def lacking(name: str, proof_us: int | None, after_us: int, unread: Ints) -> Ints:
            through_us = clock.due_through_us(proof_us, after_us)
            # SEMANTICS 3.12: what a result states that its predecessor did not lack is due from it on.
            is_past = cells["withdrawn_us"] <= (ABSENT if through_us is None else through_us)
            owed = np.where(is_past, cells["expected_count"] - cells[f"waiting_{name}"], 0)
            owed = np.where(at_rest, cells["expected_count"], owed)
            return np.maximum(_with_result(cells, owed - unread) - used, 0)

        missing_after_us, overdue_after_us = due.missing_after_us, due.overdue_after_us
        unread, nothing = cells["unread"], np.zeros_like(outstanding)
        of_missing = np.where(at_rest, unread, cells["unread_missing"])
        of_overdue = np.where(at_rest, unread, cells["unread_overdue"])
        would_miss = lacking("missing", clock.outputs_us, missing_after_us, nothing)
        would_delay = np.maximum(lacking("overdue", clock.outputs_us, overdue_after_us, nothing), would_miss)
        missing = lacking("missing", clock.outputs_us, missing_after_us, of_missing)
        overdue = np.maximum(lacking("overdue", clock.outputs_us, overdue_after_us, of_overdue), missing)
        would_block = lacking("held", clock.unheld_outputs_us, overdue_after_us, nothing)
        # SEMANTICS 3.28: at the end of a run, an open transaction may carry what is not proven to be missing.
        held_at_rest = resting & holds
        would_delay, overdue = (
            np.where(held_at_rest, some, all_of) for some, all_of in ((would_miss, would_delay), (missing, overdue))
        )
        would_block = np.where(held_at_rest, outstanding, would_block)
        lacks_unread = np.maximum(cells["x_expected"] - _with_result(cells, cells["expected_count"] - unread), 0)
        unconsumed = np.minimum(outstanding, lacks_unread) if counts_unconsumed else would_delay - overdue
        left = outstanding - unconsumed - overdue
        return cls(
            outstanding=outstanding,
            missing=missing,
            overdue=overdue - missing,
            blocked=np.clip(would_block - would_delay, 0, left),
            unconsumed=unconsumed,
            unconsumed_missing=would_miss - missing,
        )

    def by_state(self, unproven: Bools) -> dict[str, Ints]:
        """Return the counts of each state. ``unproven``: the cells of which nothing is missing yet."""
        missing = np.where(unproven, 0, self.missing)
        overdue = self.overdue + self.missing - missing
        pending = self.outstanding - self.unconsumed - missing - overdue - self.blocked
        return {"pending": pending, "overdue": overdue, "blocked": self.blocked, "missing": missing}


def _with_result(cells: Columns, events: Ints) -> Ints:
    """Return how many of so many events of each key a correct engine has a result with, whichever they are."""
    # SEMANTICS 2.30: the last result came after the last whole multiple.
    return events - events % cells.oracle.results_every


def is_held(cells: Columns, clock: Clock) -> bool:
    """Return whether an open transaction may change what is outstanding: one of answers, and of changes of a table."""
    return clock.outputs_held or (cells.oracle.reads.signed and clock.inputs_held)


def may_be_unread(clock: Clock) -> bool:
    """Return whether an answer to any event may have been in a gap."""
    return clock.unread_since_us is not None or clock.unprovable_offsets > 0


def due_of_rows(verdicts: pa.Table) -> Ints:
    """Return how many events of a key were past `missing_after`, at least, by rows of verdicts with missing ones."""
    found: Ints = np.sum([ints(verdicts[name], 0) for name in ("processed", "late", "rejected", "missing")], axis=0)
    return found


def still(cells: Columns, clock: Clock, due: Due, resting: Bools) -> dict[str, Ints]:
    """Return the classes of which a violation may stay on record, with how much of it: time retracts nothing."""
    if not cells.oracle.reads.signed:
        return {"missing": _still_lacking(cells)}
    # SEMANTICS 2.35: what the engine has not used may hide as much.
    more, hidden = cells["processed_count"] - cells[NET], _may_lack(cells, clock, due, resting)
    return {"missing": np.maximum(hidden - more, 0), "duplicate": np.maximum(hidden + more, 0)}


def _may_lack(cells: Columns, clock: Clock, due: Due, resting: Bools) -> Ints:
    """Return how many contributions of each key a correct engine need not have used in its newest result."""
    through_us = clock.due_through_us(clock.outputs_us, due.missing_after_us)
    every, waiting = cells["expected_count"], cells["waiting_missing"] + cells["unread_missing"]
    found = np.where(cells["withdrawn_us"] <= (ABSENT if through_us is None else through_us), waiting, every)
    found = np.where(resting & (not is_held(cells, clock)), cells["unread"], found)
    return np.where(may_be_unread(clock), every, found)


def _still_lacking(cells: Columns) -> Ints:
    """Return how many of the events that were missing before may still be: time retracts no loss."""
    never_rested = cells["rest_us"] == ABSENT
    # SEMANTICS 2.21: nor does a proof that is revoked.
    waiting = cells["waiting_missing"] - cells["waiting_again"]
    due = cells["expected_count"] - np.where(never_rested, waiting, 0)
    # SEMANTICS 2.21: nor does a restart, after which events wait again. What was due stays so.
    due = np.maximum(_with_result(cells, due), cells[RECORDED_DUE])
    return np.maximum(due - (cells["x_expected"] - cells["x_outstanding"]), 0)

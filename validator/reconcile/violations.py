"""Verdict changes to violation rows: suspected, confirmed, retracted (SEMANTICS section 2).

A violation is a cell and a class; its count moves as facts arrive. What adds to it is confirmed, what takes away is
retracted: the sums of both over all rows are the history, and retractions are the measured false-alarm rate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from validator.reconcile.arrays import ABSENT, present
from validator.reconcile.cells import Cells
from validator.reconcile.judge import VIOLATIONS, Judged, Rules

_SAID: Final = {
    "missing": "%d of %d expected contributions are in no result and no late record",
    "duplicate": "%d contributions beyond the %d expected ones were counted again",
    "misplaced": "%d ids are in this cell's results and do not belong there (it expects %d)",
    "unknown_id": "%d ids are in this cell's results and in no input (it expects %d)",
}


def violation_id(name: str, window_start_us: int, key: str | None) -> str:
    """A stable short name of the violation of class ``name`` at a cell."""
    parts = [name, str(window_start_us), *([] if key is None else [key])]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def moved(
    cells: Cells,
    judged: Judged,
    rules: Rules,
    evidence: Mapping[tuple[int, str], tuple[str, ...]],
    *,
    suspected: frozenset[str],
    has_broker_time: bool = False,
) -> list[dict[str, Any]]:
    """One row per (cell, class) whose violation count differs from what was recorded: columns of the violations table,
    but for batch, phase and fault, and ``at_us``, the instant that those two are told of.

    ``suspected``: classes that stay suspected, because input or answers that cannot be read may explain them.
    ``has_broker_time``: the topics' times are the broker's, and tell when something happened however late it is read.
    """
    found: list[dict[str, Any]] = []
    windows, closed, rest = cells["window_start_us"], cells["closed_us"], cells["rest_us"]
    for name in VIOLATIONS:
        now, before = judged.on_record[name], cells[f"told_{name}"]
        rows = np.flatnonzero(now != before)
        if name == "missing":
            provable = np.maximum(closed, cells["expected_us"]) + rules.missing_after_us
            at = closed
            if has_broker_time:
                # It was lost between its input and its closing, which is read as late as the rest.
                last_us = cells["last_input_time_us"]
                at = np.where(last_us == ABSENT, closed, np.minimum(closed, last_us + rules.window_us))
        else:
            provable = cells["observed_us"]
            at = np.where(cells["observed_us"] == ABSENT, closed, cells["observed_us"])
            if has_broker_time:
                last_us = cells["last_result_time_us"]
                at = np.where(last_us == ABSENT, at, np.minimum(at, last_us))
        # A run with --once proves at its end, not after a delay.
        provable = np.where((rest != ABSENT) & (closed != ABSENT) & (rest >= closed), rest, provable)
        for row in rows.tolist():
            count, told = int(now[row]), int(before[row])
            window, key, expected = int(windows[row]), cells.keys[row], int(cells["expected_count"][row])
            found.append(
                {
                    "violation": violation_id(name, window, key),
                    "class": name,
                    "window_start_us": window,
                    "key": key,
                    "state": "retracted" if count == 0 else "suspected" if name in suspected else "confirmed",
                    "count": count,
                    "confirmed": max(0, count - told),
                    "retracted": max(0, told - count),
                    "provable_us": present(provable[row]),
                    "at_us": present(at[row]),
                    "ids": list(evidence.get((row, name), ())),
                    "explanation": _SAID[name] % (count, expected) if count else "explained by what was read later",
                }
            )
    return found

"""Whether sessions in parts show that the configured gap is wrong, not the engine (SEMANTICS 2.27)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from validator.core.doubts import NEARLY_NONE
from validator.core.totals import CellTotals
from validator.model.arrays import ABSENT, NEVER, Bools, present
from validator.model.wording import plural
from validator.reconcile.cells import Cells
from validator.reconcile.judge import Rules, same_fingerprints
from validator.settings.durations import format_duration


def with_pauses(sums: CellTotals, cells: Cells, chosen: Bools, rules: Rules, *, are_needed: bool) -> CellTotals:
    """Return ``sums`` with the pauses at splits and within results of the ``chosen`` cells. ``are_needed``: a pause
    within a result counts although none of these cells was split."""
    if not rules.oracle.answers_once:
        return sums
    split = cells["x_split_us"][chosen]
    if not (are_needed or (split != ABSENT).any()):
        return sums
    # A session with one result was not compared: the pauses between its slots are known all the same.
    agrees = chosen & same_fingerprints(cells, rules) & (cells["results"] == 1)
    kept = max(int(cells["x_kept_us"][chosen].max(initial=ABSENT)), cells.longest_pause_us(agrees))
    return replace(
        sums,
        split_us=present(split[split != ABSENT].min(initial=NEVER)),
        kept_us=present(np.int64(kept)),
    )


def is_gap_in_doubt(sums: CellTotals) -> bool:
    """Return whether a shorter gap explains all sessions in parts: each pause at a split is longer than all pauses
    within results."""
    return sums.split_us is not None and sums.apart > 0 and (sums.kept_us or 0) < sums.split_us


def are_ends_in_doubt(sums: CellTotals) -> bool:
    """Return whether (nearly) no result with all events of a session names the session's end."""
    return sums.ends_right * NEARLY_NONE < sums.ends_wrong


def suspected(sums: CellTotals) -> frozenset[str]:
    """Return the violation classes that a wrong gap, or a wrong field of the ends, may explain."""
    if not (is_gap_in_doubt(sums) or are_ends_in_doubt(sums)):
        return frozenset()
    return frozenset(name for name in ("missing", "misplaced") if sums.on_record.get(name, 0) <= sums.apart)


def sentences(sums: CellTotals) -> Iterator[str]:
    """Yield the reasons for the doubt, with the gap that fits."""
    if are_ends_in_doubt(sums):
        yield (
            f"{plural(sums.ends_wrong, 'result')} with all events of a session, nearly all of them, name neither its "
            "last event nor its end: check outputs[].fields.window_end and oracle.gap"
        )
    if not is_gap_in_doubt(sums) or sums.split_us is None:
        return
    below = format_duration(sums.split_us)
    least = "" if sums.kept_us is None else f"of {format_duration(sums.kept_us)} or more, and "
    yield (
        f"all sessions that were answered in parts were parted at pauses of {below} or more, longer than every pause "
        f"within a result: check oracle.gap; a gap {least}below {below} fits all results"
    )

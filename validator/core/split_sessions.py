"""Whether sessions in parts, or sessions that were answered together, show that the configured gap is wrong, not the
engine (SEMANTICS 2.27)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from validator.core.doubts import NEARLY_NONE
from validator.core.totals import CellTotals
from validator.model.arrays import ABSENT, NEVER, Bools, present
from validator.model.wording import plural
from validator.reconcile.cells import Cells
from validator.reconcile.judge import Rules, same_fingerprints
from validator.settings.durations import format_duration


def with_pauses(sums: CellTotals, cells: Cells, chosen: Bools, rules: Rules, *, are_needed: bool) -> CellTotals:
    """Return ``sums`` with the pauses at splits, within results, and between the ``chosen`` cells. ``are_needed``: they
    count although none of these cells has a wrong result."""
    if not rules.oracle.answers_once:
        return sums
    split = cells["x_split_us"][chosen]
    if are_needed or (split != ABSENT).any():
        # A session with one result was not compared: the pauses between its slots are known all the same.
        agrees = chosen & same_fingerprints(cells, rules) & (cells["results"] == 1)
        kept = max(int(cells["x_kept_us"][chosen].max(initial=ABSENT)), cells.longest_pause_us(agrees))
        sums = replace(
            sums, split_us=present(split[split != ABSENT].min(initial=NEVER)), kept_us=present(np.int64(kept))
        )
    return _with_pauses_between(sums, cells, chosen) if are_needed or sums.counts["misplaced"] else sums


def _with_pauses_between(sums: CellTotals, cells: Cells, chosen: Bools) -> CellTotals:
    """Return ``sums`` with `CellTotals.joined`, ``joined_us`` and ``parted_us`` of the ``chosen`` sessions and their
    neighbours."""
    rows = np.flatnonzero(cells["first_event_us"] != NEVER)
    wholes, own = cells.merged_and_own_rows
    rows = rows[wholes[rows] == own[rows]]
    keys = np.asarray(pc.dictionary_encode(cells.keys(rows), null_encoding="encode").indices, dtype=np.int64)
    order = np.lexsort((cells["first_event_us"][rows], keys))
    rows, keys = rows[order], keys[order]
    names = ("expected_count", "processed_count", "results", "x_known")
    expected, carried, results, misplaced = (cells[name][rows] for name in names)
    answers = results + cells["late_count"][rows] + cells["rejected_count"][rows]
    foreign = carried - expected
    # SEMANTICS 2.27: results with as many further ids as the next sessions have, of which none has another answer.
    first, events, answered = np.arange(len(rows)), np.cumsum(expected), np.cumsum(answers > 0)
    last = np.minimum(np.searchsorted(events, events + foreign), max(len(rows) - 1, 0))
    mine = np.cumsum(chosen[rows])
    joins = (foreign > 0) & (misplaced >= foreign) & (events[last] == events + foreign)
    joins &= (keys[last] == keys) & (answered[last] == answered[first])
    steps = np.zeros(len(rows) + 1, dtype=np.int64)
    steps[first[joins]] += 1
    steps[last[joins]] -= 1
    inside = np.cumsum(steps)[: max(len(rows) - 1, 0)] > 0
    # What leaves memory takes its pauses along, those to its neighbours, too.
    concerned = joins & (mine[last] - mine + chosen[rows] > 0)
    beside = chosen[rows[1:]] | chosen[rows[:-1]]
    pauses = cells["first_event_us"][rows[1:]] - (cells["end_us"][rows[:-1]] - cells.oracle.span_us)
    parted = (keys[1:] == keys[:-1]) & (results[1:] > 0) & ~inside & beside
    return replace(
        sums,
        joined=int(misplaced[concerned].sum()),
        joined_us=present(pauses[inside].max(initial=ABSENT)),
        parted_us=present(pauses[parted].min(initial=NEVER)),
    )


def is_gap_in_doubt(sums: CellTotals) -> bool:
    """Return whether a shorter gap explains all sessions in parts: each pause at a split is longer than all pauses
    within results."""
    return sums.split_us is not None and sums.apart > 0 and (sums.kept_us or 0) < sums.split_us


def is_longer_gap_in_doubt(sums: CellTotals) -> bool:
    """Return whether a longer gap explains all results of several sessions: each pause that they span is shorter than
    all pauses before a session with a result of its own."""
    return (
        sums.joined_us is not None and sums.joined > 0 and (sums.parted_us is None or sums.joined_us < sums.parted_us)
    )


def are_ends_in_doubt(sums: CellTotals) -> bool:
    """Return whether (nearly) no result with all events of a session names the session's end."""
    return sums.ends_right * NEARLY_NONE < sums.ends_wrong


def suspected(sums: CellTotals) -> frozenset[str]:
    """Return the violation classes that a wrong gap, or a wrong field of the ends, may explain."""
    explained = sums.apart if is_gap_in_doubt(sums) or are_ends_in_doubt(sums) else 0
    explained += sums.joined if is_longer_gap_in_doubt(sums) else 0
    if not explained:
        return frozenset()
    return frozenset(name for name in ("missing", "misplaced") if sums.on_record.get(name, 0) <= explained)


def withdrawn(sums: CellTotals) -> frozenset[str]:
    """Return the violation classes whose confirmed violations a longer gap explains: the losses of a session may have
    been confirmed before the result of the session before it was read."""
    return suspected(sums) if is_longer_gap_in_doubt(sums) else frozenset()


def sentences(sums: CellTotals) -> Iterator[str]:
    """Yield the reasons for the doubt, with the gap that fits."""
    if are_ends_in_doubt(sums):
        yield (
            f"{plural(sums.ends_wrong, 'result')} with all events of a session, nearly all of them, name neither its "
            "last event nor its end: check outputs[].fields.window_end and oracle.gap"
        )
    if is_gap_in_doubt(sums) and sums.split_us is not None:
        below = format_duration(sums.split_us)
        least = "" if sums.kept_us is None else f"of {format_duration(sums.kept_us)} or more, and "
        yield (
            f"all sessions that were answered in parts were parted at pauses of {below} or more, longer than every "
            f"pause within a result: check oracle.gap; a gap {least}below {below} fits all results"
        )
    if is_longer_gap_in_doubt(sums) and sums.joined_us is not None:
        least = format_duration(sums.joined_us)
        below = "" if sums.parted_us is None else f", and below {format_duration(sums.parted_us)}"
        yield (
            f"all results of several sessions span pauses of {least} or less, shorter than every pause before a "
            f"session with a result of its own: check oracle.gap; a gap of {least} or more{below} fits all results"
        )

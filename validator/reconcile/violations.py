"""Turns verdict changes into violation rows: suspected, confirmed, retracted (SEMANTICS 2.20 to 2.22).

A violation is a cell and a class. Its count changes as facts arrive. While records that cannot be read may explain a
class, new violations of the class stay suspected. Confirmed violations stay confirmed, since all inputs that
could have explained them had been read. An increase of the confirmed part is confirmed, a decrease is retracted. The
sums of ``confirmed`` and ``retracted`` over all rows are the history; retractions are the measured false-alarm rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from validator.model.arrays import ABSENT, Bools, Ints, present
from validator.model.frontier import Outages
from validator.model.violation import Violation, state_of, violation_id
from validator.model.wording import plural
from validator.reconcile.cells import Cells, Columns
from validator.reconcile.evidence.kinds import evidence_of
from validator.reconcile.judge import VIOLATIONS, Judged, Rules, due_base

_EXPLANATIONS: Final = {
    "missing": (
        "{n:,} of {expected} is in no result and no late record",
        "{n:,} of {expected} are in no result and no late record",
    ),
    "duplicate": (
        "{n:,} contribution is repeated in results, late or rejected records (the cell has {expected})",
        "{n:,} contributions are repeated in results, late or rejected records (the cell has {expected})",
    ),
    "misplaced": (
        "{n:,} id is in this cell's results and does not belong there (the cell has {expected})",
        "{n:,} ids are in this cell's results and do not belong there (the cell has {expected})",
    ),
    "unknown_id": (
        "{n:,} id is in this cell's results and in no input (the cell has {expected})",
        "{n:,} ids are in this cell's results and in no input (the cell has {expected})",
    ),
    "wrong_value": (
        "{n:,} result states another value than the events give (the cell has {expected})",
        "{n:,} results state other values than the events give (the cell has {expected})",
    ),
    "inconsistent": (
        "{n:,} result states another value than its ids, or the table, give (the cell has {expected})",
        "{n:,} results state other values than their ids, or the table, give (the cell has {expected})",
    ),
}
"""Class -> explanation of a violation, for one contribution and for several."""

_INCORRECT: Final = {"misplaced": "unknown_id", "unknown_id": "misplaced"}
"""Class of an id that its cell does not expect -> the other such class."""


def changed_violations(
    cells: Cells,
    judged_rows: Ints,
    judged: Judged,
    rules: Rules,
    evidence: Mapping[tuple[int, str], tuple[str, ...]],
    *,
    suspected: frozenset[str],
    lookup_us: int,
    withdrawn: frozenset[str] = frozenset(),
    outages: Outages = (),
) -> list[Violation]:
    """Return the violations that differ, or the confirmed part of which differs, from the recorded ones.

    The cells are ``judged_rows``, and their verdicts ``judged``.

    ``suspected``: classes that stay suspected, because unreadable records or a wrong configuration may explain them.
    ``lookup_us``: instant of the batch. ``withdrawn``: classes of which nothing is confirmed any more. ``outages``:
    time that proves no loss.
    """
    found: list[Violation] = []
    some = cells.some(judged_rows)
    for name in VIOLATIONS:
        of_class = evidence_of(rules.oracle).class_of(name)
        now, before = judged.on_record[name], some[f"recorded_{name}"]
        sure = confirmed_of(some, judged, name, suspected, withdrawn)
        sure_before = some[f"confirmed_{name}"]
        differs = (now != before) | (sure != sure_before)
        if not differs.any():
            continue
        rows = judged_rows[differs]
        now, before, sure, sure_before = (column[differs] for column in (now, before, sure, sure_before))
        those = cells.some(rows)
        provable = _provable_us(those, name, rules, outages)
        # SEMANTICS 6.1: a violation could not be proven while an unreadable record might have explained it, so its
        # detection delay begins with this batch.
        provable = np.where(before > sure_before, lookup_us, provable)
        at = _happened_us(those, name)
        first = np.where(before > 0, those[f"began_{name}"], lookup_us)
        # SEMANTICS 2.12: where results state pairs, a cell counts events, and its verdict pairs.
        has_pairs = rules.oracle.pair_rule is not None
        counted = judged.counts["expected"][differs] if has_pairs else those["expected_count"]
        columns = (rows, those["window_start_us"], now, sure, sure - sure_before, counted, provable, at, first)
        for row, window_us, count, confirmed, grown, of_cell, provable_us, at_us, first_us, key in zip(
            *(column.tolist() for column in columns), cells.keys(rows).to_pylist(), strict=True
        ):
            expected = plural(of_cell, "expected contribution")
            explanation = _EXPLANATIONS[of_class][count != 1].format(n=count, expected=expected)
            shown = evidence.get((row, name), ())
            if name == "wrong_value":
                # The first is the value. Ids follow if they explain it.
                explanation, shown = ": ".join([explanation, *shown[:1]]), shown[1:]
            found.append(
                Violation(
                    id=violation_id(of_class, window_us, key),
                    violation_class=of_class,
                    state=state_of(count, confirmed),
                    window_start_us=present(window_us),
                    key=key,
                    count=count,
                    ids=tuple(shown),
                    first_us=first_us,
                    changed_us=lookup_us,
                    explanation=explanation if count else "explained by records that were read later",
                    confirmed=max(0, grown),
                    retracted=max(0, -grown),
                    confirmed_now=confirmed,
                    provable_us=present(provable_us),
                    at_us=present(at_us),
                )
            )
    return found


def note_recorded_violations(
    cells: Columns,
    judged: Judged,
    *,
    suspected: frozenset[str],
    lookup_us: int,
    withdrawn: frozenset[str] = frozenset(),
) -> Bools:
    """Note in the cells what `changed_violations` returns for the violations table.

    Returns which cells changed.
    """
    sure = {name: confirmed_of(cells, judged, name, suspected, withdrawn) for name in VIOLATIONS}
    changed = np.zeros(len(cells), dtype=np.bool_)
    for name in VIOLATIONS:
        now, recorded, confirmed = judged.on_record[name], cells[f"recorded_{name}"], cells[f"confirmed_{name}"]
        changed |= (now != recorded) | (sure[name] != confirmed)
        cells[f"began_{name}"] = np.where((now > 0) & (recorded == 0), lookup_us, cells[f"began_{name}"])
        cells[f"confirmed_{name}"] = sure[name]
        # SEMANTICS 2.21: an unchanged verdict is noted, too: a count that was only kept from earlier batches may have
        # fallen.
        cells[f"recorded_{name}"] = now
    return changed


def confirmed_of(
    cells: Columns, judged: Judged, name: str, suspected: frozenset[str], withdrawn: frozenset[str]
) -> Ints:
    """Return how much of each cell's violation of class ``name`` is confirmed.

    A suspected part is confirmed only as far as the counts of this batch prove it. A number kept from earlier batches
    is no proof. If a part of the violation was confirmed before, the engine's error in that cell is proven, and
    new contributions are confirmed as well. The same applies to contributions that were confirmed as incorrect and have
    changed to the other incorrect class because an input with their id was read.
    """
    before = cells[f"confirmed_{name}"]
    if name in withdrawn:
        # SEMANTICS 4.24: the configuration fits (nearly) nothing, so what was confirmed proves nothing about the
        # pipeline.
        return np.zeros_like(before)
    # SEMANTICS 2.22: confirmed stays confirmed, as far as it is still on record (the minimum below).
    proven = np.maximum(judged.counts[name], before)
    if name in suspected:
        # SEMANTICS 2.22: once a part was confirmed, the engine's error in this cell is proven. An id that was confirmed
        # as incorrect and is now of the other incorrect class is incorrect all the same. Nothing else of a suspected
        # class is.
        found_out = before > 0
        if name in _INCORRECT:
            other = _INCORRECT[name]
            found_out = found_out | (cells[f"confirmed_{other}"] > judged.on_record[other])
        proven = np.where(found_out, proven, 0)
    return np.minimum(judged.on_record[name], proven)


def _provable_us(cells: Columns, name: str, rules: Rules, outages: Outages) -> Ints:
    """Return the instant at which a violation of each of these cells could first be proven."""
    closed, rest = cells["closed_us"], cells["rest_us"]
    provable = cells["observed_us"]
    if name == "missing":
        # SEMANTICS 3.13 and 3.15: the deadline, put off by the outages after the due base.
        provable = due_base(cells) + rules.missing_after_us
        for before_us, since_us in outages:
            # The part of the outage after the due instant does not count.
            counted = np.maximum(due_base(cells), before_us)
            spans = (counted < since_us) & (provable > before_us)
            provable = np.where(spans, provable + since_us - counted, provable)
    # SEMANTICS 3.27: a run with `--once` proves at its end and waits for no delay.
    return np.where((rest != ABSENT) & (closed != ABSENT) & (rest >= closed), rest, provable)


def _happened_us(cells: Columns, name: str) -> Ints:
    """Return the instant at which a violation of each of these cells happened, as far as is known."""
    closed = cells["closed_us"]
    if name == "missing":
        # SEMANTICS 6.3: the loss happened between the cell's last input and its closing. A sidecar that is behind
        # closes it late.
        known, last_us = closed, cells["last_input_time_us"]
        after_us = cells["end_us"] - cells.begins_us
    else:
        observed = cells["observed_us"]
        # Late records count, too: an engine that reads an answered event again may set it aside as late.
        known, last_us = np.where(observed == ABSENT, closed, observed), cells["last_answer_time_us"]
        after_us = np.zeros_like(known)
    return np.where(last_us == ABSENT, known, np.minimum(known, last_us + after_us))

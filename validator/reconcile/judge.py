"""Verdicts of cells at a clock: the rules of SEMANTICS sections 2 and 3, as arithmetic on columns.

A verdict is a function of the cell's totals, of the comparison of its ids (`COMPARED`, for the few cells whose
fingerprints disagree) and of the clock. If a cell disagrees and was not compared yet, its counts are provisional: they
are the counts of a correct engine, with the surplus as unresolved. Provisional counts never raise an alarm. Open
transactions of inputs can stay open for long. If only they may explain a cell's excess, its ids are compared, and its
counts are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from validator.model.arrays import ABSENT, Bools, Ints, ints
from validator.model.frontier import Clock, RunEnd, counted_back_us
from validator.model.lateness_scope import LatenessScope
from validator.oracles.seam import Oracle
from validator.reconcile import key_verdicts
from validator.reconcile.cells import STALE, Columns
from validator.reconcile.evidence.kinds import evidence_of
from validator.reconcile.quantities import COMPARED, EXCUSES, NAMED_END, NO_WORD, RETIRED_BEFORE

CONTRIBUTIONS: Final = (
    "expected",
    "processed",
    "late",
    "rejected",
    "duplicate",
    "misplaced",
    "unknown_id",
    "unresolved",
    "pending",
    "overdue",
    "blocked",
    "unconsumed",
    "dropped_late",
    "missing",
    "out_of_scope",
)
"""Columns of a verdict that count contributions, named as in the report."""

RESULTS: Final = ("correct", "incomplete", "excess", "misplaced_results", "wrong_value")
"""Columns of a verdict that count result records."""

INCORRECT: Final = ("misplaced", "unknown_id")
"""Observations of ids that the cell does not expect."""

EXCESS: Final = ("duplicate", *INCORRECT)
"""The violations that a further input record would explain."""

VIOLATIONS: Final = ("missing", *EXCESS, "wrong_value")
"""Classes that are violations (of one guarantee or another): of contributions, and of results whose cell is judged."""

SAMPLED_OF: Final = 1_024
"""One in this many cells whose fingerprints agree is compared id by id, as a standing check."""

PENDING, OVERDUE, BLOCKED, MISSING = range(4)
STATES: Final = ("pending", "overdue", "blocked", "missing")
"""The state of a cell's outstanding contributions, by number."""


@dataclass(frozen=True)
class Rules:
    """The configuration of judging. Times are in microseconds.

    ``collapse``: repeated ids of an input count once. ``drops_late``: late policy `drop`. ``lateness_scope``: None if
    it is not declared. ``reports_unconsumed``: the engine's consumer group is configured. ``several_inputs``: results
    name events of more than one input topic. ``sampled_of``: one in this many cells whose fingerprints agree is
    compared id by id; a power of two.
    """

    oracle: Oracle
    overdue_after_us: int
    missing_after_us: int
    max_disorder_us: int = 0
    allowed_lateness_us: int = 0
    collapse: bool = False
    drops_late: bool = False
    lateness_scope: LatenessScope | None = None
    reports_unconsumed: bool = False
    several_inputs: bool = False
    sampled_of: int = SAMPLED_OF

    @property
    def asks_lateness(self) -> bool:
        """Whether a verdict may depend on which events were late."""
        return self.drops_late or self.oracle.asks_lateness

    @property
    def looks_elsewhere(self) -> bool:
        """Whether records of other partitions may make an event late."""
        # SEMANTICS 2.26: what a join owes depends on other partitions only if that is declared, or late events are
        # dropped.
        wide = self.lateness_scope != "partition" and (self.drops_late or self.lateness_scope is not None)
        return wide and self.asks_lateness and self.oracle.merging_gap_us is None

    @property
    def follows_pauses(self) -> bool:
        """Whether records of other partitions make an event late only after a pause of its own partition."""
        # SEMANTICS 2.31: sessions and joins, whose answers depend on when the engine read an event, do not follow them.
        return self.lateness_scope == "idle" and self.drops_late and self.oracle.excuses_pauses

    @property
    def collapses_ids(self) -> bool:
        """Whether ids of results count once. Results without ids state how many different ids there are."""
        return self.collapse and self.oracle.reads.names_ids

    @property
    def compares_all(self) -> bool:
        """Whether fingerprints decide nothing: every cell that has an answer or is overdue is compared id by id."""
        by_rows = self.oracle.owes_by_rows
        return self.collapse or self.oracle.compares_all or by_rows or not evidence_of(self.oracle).fingerprints_decide


@dataclass(frozen=True)
class Judged:
    """Verdicts, one entry per cell.

    - ``counts``: `CONTRIBUTIONS` and `RESULTS`.
    - ``on_record``: `VIOLATIONS`, as the derived tables must hold them. ``incorrect_ids``: number of different ids
      that are misplaced or unknown (0: the newest ids are not compared).
    - ``matched``: contributions in results that a comparison of ids or fingerprints has proven to match events of the
      cell.
    - ``doubtful``: overdue contributions. They would be missing, but hidden records may have made their events late.
      ``elsewhere``: the same with records of other partitions. ``apart``, ``unproven_splits``: as in `splits.FIELDS`.
      ``ends_right``, ``ends_wrong``: whether one result with all events of a session names the session's end.
    - ``unconsumed_overdue``, ``blocked_overdue``: as in `CellTotals`.
    - ``held_long``: unresolved contributions that only an open transaction of an input has kept unresolved for
      `missing_after`.
    - ``refuted``: fingerprints agree, but a comparison found that the ids differ.
    - ``sampled``: fingerprints agree, and the ids are to be compared nevertheless, as a check.
    - ``held``: only open transactions of inputs may explain the excess, or the run ends before the inputs are read far
      enough.
    - ``provisional``: the counts are those of a correct engine, until ids are compared.
    - ``settled``: only new facts can change the verdict.
    - ``changed``: the derived tables must record the new verdict.
    - ``outstanding``: outstanding contributions of every class.
    - ``carried``: contributions in results of cells in scope or without an event. A wrong time may have put a cell
      without an event out of scope. ``outside``: contributions in results that ``carried`` lacks: those of cells out of
      scope that have events, and those of results that newer ones have replaced.
    - ``scattered``: results of the cell's key are on several partitions, so none is known to be the newest.
    - ``estimated``: the counts include answers that were not compared.
    - ``by_input``: topic -> the fields of `TopicCounts`. Only for several inputs.
    - ``by_output``: topic -> the fields of `TopicCounts` but ``outstanding``. Only for several outputs.
    - ``by_set_aside``: side (late, rejected) -> ``read``, ``matched`` and ``undecided`` of `TopicCounts`.
    - ``several``: the cell has several events and several results, whose numbers were compared and show whether they
      are updates. ``updates``: as `Evidence.updates` returns them; negative only until the events that the last result
      lacks would be missing.
    - ``may_change``: a value is wrong, but further results of the cell may still correct it.
    - ``state``: number in `STATES`.
    - ``version``: the extent of the facts on which a comparison of the cell's ids would be based.
    """

    counts: dict[str, Ints]
    on_record: dict[str, Ints]
    incorrect_ids: Ints
    matched: Ints
    doubtful: Ints
    elsewhere: Ints
    apart: Ints
    ends_right: Bools
    ends_wrong: Bools
    unproven_splits: Ints
    unconsumed_overdue: Ints
    blocked_overdue: Ints
    held_long: Ints
    agrees: Bools
    refuted: Bools
    sampled: Bools
    compared: Bools
    resolved: Bools
    held: Bools
    provisional: Bools
    in_scope: Bools
    settled: Bools
    wants_expansion: Bools
    wants_evidence: Bools
    violated: Bools
    changed: Bools
    closed: Bools
    outstanding: Ints
    carried: Ints
    outside: Ints
    scattered: Bools
    estimated: Bools
    by_input: dict[str, dict[str, Ints]]
    by_output: dict[str, dict[str, Ints]]
    by_set_aside: dict[str, dict[str, Ints]]
    several: Bools
    updates: Ints
    may_change: Bools
    state: Ints
    version: Ints
    digest: Ints

    def of(self, chosen: Ints | Bools) -> Judged:
        """Return the chosen cells."""
        return _each(lambda columns: columns[0][chosen], [self])


def joined(parts: Sequence[Judged]) -> Judged:
    """Return the cells of all ``parts``, one part after the other."""
    return _each(np.concatenate, parts) if len(parts) > 1 else parts[0]


def _each(value: Callable[[Sequence[Any]], Any], parts: Sequence[Judged]) -> Judged:
    """Apply ``value`` to the columns of the same name of all parts."""

    def of(columns: Sequence[Any]) -> Any:
        if isinstance(columns[0], dict):
            return {name: of([column[name] for column in columns]) for name in columns[0]}
        return value(columns)

    return Judged(**{it.name: of([getattr(part, it.name) for part in parts]) for it in fields(Judged)})


def close(cells: Columns, clock: Clock) -> None:
    """Set the closing time of the cells that the watermark has passed, and the instant at which a run found the
    pipeline at rest."""
    if cells.newest is not None:
        cells.newest.settle()
    closed = cells["closed_us"].copy()
    # SEMANTICS 3.27: the end of a run at rest closes every cell.
    if clock.run_end.closes_all:
        closed[closed == ABSENT] = clock.lookup_us
    else:
        watermark_us = ABSENT if clock.watermark_us is None else clock.watermark_us
        # SEMANTICS 3.11: a watermark at exactly the end is enough, since an event there belongs to a later window. The
        # closing time is T, which is at or after the append of every record that was read.
        passed = (cells["end_us"] <= watermark_us) & (clock.watermark_us is not None)
        # SEMANTICS 3.32: facts that are read after the end of a run closed a cell reopen it, since the pipeline was not
        # at rest. An event that puts off the end of a closed cell reopens it, too (3.11).
        closed[~passed & ~is_resting(cells)] = ABSENT
        closed[passed & (closed == ABSENT)] = clock.lookup_us
    if clock.run_end.is_due:
        cells["rest_us"] = np.full(len(cells), clock.lookup_us)
    cells["closed_us"] = closed_with_its_events(cells, closed)


def closed_with_its_events(cells: Columns, closed: Ints) -> Ints:
    """Return the closing times. If events can put off a cell's end, no cell closes before the lookup at which its last
    event was read.

    The last event of a cell may have put off its end. After a restart, the instant at which the watermark passed the
    earlier end is not known. The due instant does not depend on it (`due_base`).
    """
    return np.where(closed == ABSENT, closed, np.maximum(closed, cells["expected_us"])) if cells.ends_move else closed


def due_base(cells: Columns) -> Ints:
    """Return the instant since which the outstanding contributions of each closed cell are due.

    It is the latest of these instants: the cell closed, its last event was read, and a result that listed the
    contribution was withdrawn, if one was.
    """
    # SEMANTICS 3.12: an event that is read after closing, and an id that a later result withdrew, has the whole time
    # from then on. A slow engine is not accused.
    due = np.maximum(cells["closed_us"], cells["expected_us"])
    return np.maximum(due, cells["withdrawn_us"]) if cells.are_withdrawn else due


def judge(cells: Columns, clock: Clock, rules: Rules) -> Judged:
    """Return the verdicts of cells, after `close`."""
    observed = cells["processed_count"] + cells["late_count"] + cells["rejected_count"]
    # SEMANTICS 7.2: a comparison of ids depends on the cell's facts, on the events whose answers may have expired, and
    # on the hidden records that are known to have made no event late. Each term only grows, so an equal sum means that
    # nothing has changed.
    version = cells.facts_version + clock.unprovable_offsets + clock.accepted_records
    resolved = is_resolved(cells, clock)
    if rules.oracle.answers_once:
        # SEMANTICS 2.25: results are judged together once no unread input can explain them. A new answer, by which a
        # cell is no longer resolved, adds more than that takes away.
        version = 2 * version + resolved
    # SEMANTICS 2.30: the columns of a key say as much as its facts (`key_verdicts.compare`).
    compared = np.full(len(version), True) if cells.oracle.by_key else cells["x_version"] == version
    state = _outstanding_state(cells, clock, rules)
    if rules.oracle.having:
        # SEMANTICS 2.33: a cell without results owes nothing only once it is due. A later run may let it wait again.
        compared = compared & ((observed > 0) | _is_due(state, clock, rules))
    if rules.oracle.owes_by_rows:
        # SEMANTICS 2.37: likewise, but what a run decided stays so.
        compared = compared & ((observed > 0) | _is_due(state, clock, rules) | is_at_rest(cells))
    same = same_fingerprints(cells, rules)
    refuted = same & compared & _differ(cells)
    agrees = same & ~refuted
    observed_us = cells["observed_us"]
    # SEMANTICS 3.18: only open transactions may still explain the excess. Its ids are compared, so that everything else
    # in the cell is counted by id; the excess itself stays unresolved.
    held = np.zeros_like(resolved)
    if clock.inputs_held and clock.unheld_inputs_us is not None:
        held = ~resolved & (observed_us <= clock.unheld_inputs_us)
    lagging = np.zeros_like(resolved)
    if rules.reports_unconsumed and clock.run_end is RunEnd.OPEN:
        # SEMANTICS 3.31: the end of a run compares ids although the inputs may not be read far enough, to count what
        # the engine has not consumed. No contribution becomes missing by this.
        lagging = ~resolved & ~held
        held = held | lagging
    # SEMANTICS 2.18: counts are an estimate until ids are compared. A cell without an observed id has nothing that an
    # input could explain later, so its comparison is final at once.
    provisional = ~agrees & ~(compared & (resolved | held | (observed == 0)))
    if cells.oracle.by_key:
        # SEMANTICS 2.30: only an excess waits for inputs: more events make no loss smaller.
        provisional &= cells["x_duplicate"] + cells["x_unknown"] > 0
    in_scope = _in_scope(cells, clock, rules.oracle.scope_margin_us)
    found = _counts(cells, observed, agrees, provisional, resolved)
    return _scoped(
        cells,
        clock,
        rules,
        found,
        _Decisions(observed, version, agrees, refuted, compared, resolved, held, lagging, provisional, in_scope, state),
    )


def is_resting(cells: Columns) -> Bools:
    """Return the cells that a run found at rest when it ended, and that have no later event or observation."""
    # SEMANTICS 3.32: a record of the cell that was read later shows that the pipeline was not at rest.
    found: Bools = cells["rest_us"] >= np.maximum(np.maximum(cells["expected_us"], cells["observed_us"]), ABSENT + 1)
    return found


def is_at_rest(cells: Columns) -> Bools:
    """As `is_resting`, of cells that had closed by then."""
    # SEMANTICS 3.30: the end of a run proves nothing about a cell that it left open (`--leave-open`).
    found: Bools = is_resting(cells) & (cells["closed_us"] <= cells["rest_us"]) & (cells["closed_us"] != ABSENT)
    return found


def is_read_through(cells: Columns, clock: Clock) -> Bools:
    """Return the cells for which every input was read through the instant of the last answer. Inputs read later cannot
    explain their answers."""
    # SEMANTICS 3.17: every input that can have caused an answer was appended before the lookup of the batch that read
    # the answer. One instant per cell, that of its last answer, only delays a decision.
    observed_us = cells["observed_us"]
    found: Bools = observed_us <= (ABSENT if clock.inputs_us is None else clock.inputs_us)
    return found


def is_resolved(cells: Columns, clock: Clock) -> Bools:
    """As `is_read_through`, or the cell is at rest and no open transaction holds back an input."""
    found = is_read_through(cells, clock)
    # SEMANTICS 3.28: at rest nothing else is to come, except from an open transaction.
    return found if clock.inputs_held else found | is_resting(cells)


@dataclass(frozen=True)
class _Decisions:
    observed: Ints
    version: Ints
    agrees: Bools
    refuted: Bools
    compared: Bools
    resolved: Bools
    held: Bools
    lagging: Bools
    provisional: Bools
    in_scope: Bools
    state: Ints


def _differ(cells: Columns) -> Bools:
    """Return the cells in whose ids a comparison found a difference."""
    answered = cells["x_processed"] + cells["x_late"] + cells["x_rejected"]
    excess = cells["x_duplicate"] + cells["x_known"] + cells["x_unknown"]
    found: Bools = (answered != cells["x_expected"]) | (excess != 0)
    return found


def same_fingerprints(cells: Columns, rules: Rules) -> Bools:
    """Return the cells whose fingerprints show that the expected ids were answered."""
    # SEMANTICS 2.17 and 7.3: equal counts and sums mean equal ids, except where an id may be owed less often than sent.
    same = np.full(len(cells), not rules.compares_all)
    for part, modulus in zip(("count", "a", "b"), evidence_of(rules.oracle).moduli, strict=True):
        total = cells[f"processed_{part}"] + cells[f"late_{part}"] + cells[f"rejected_{part}"]
        more = cells[f"expected_{part}"] - total
        same &= (more % modulus if modulus else more) == 0
    if rules.oracle.answers_once:
        # SEMANTICS 2.25, 2.28: fingerprints do not show which of several results names an id, nor its named end.
        same &= (cells["results"] <= 1) & ~contradicts_its_end(cells)
    return same


def contradicts_its_end(cells: Columns) -> Bools:
    """Return the cells whose one result names another end than theirs."""
    known = _names_its_end(cells)
    found: Bools = known & cells.oracle.contradicts(np.where(known, cells[NAMED_END], 0), cells["end_us"])
    return found


def _names_its_end(cells: Columns) -> Bools:
    found: Bools = (cells[NAMED_END] != ABSENT) & (cells["results"] == 1) & ~_has_no_event(cells)
    return found


def _in_scope(cells: Columns, clock: Clock, margin_us: int) -> Bools:
    windows = cells.begins_us - margin_us
    # SEMANTICS 2.16: offsets of two partitions have no order, so no result of such a key is known to be the newest.
    scope = ~cells.scattered
    if not cells.oracle.has_windows:
        # SEMANTICS 7.6: an earlier verdict shows that earlier facts of the cell were dropped.
        scope &= cells[RETIRED_BEFORE] != 1
    if cells.oracle.reads.explodes:
        # SEMANTICS 2.30: whether the empty word is one depends on the engine.
        scope &= cells[NO_WORD] == 0
    if clock.horizon_us is not None:
        # SEMANTICS 3.19: hidden events may belong to cells that start before the horizon, so a correct result there
        # could look wrong. `horizon_us` is an instant past the last one that is out of scope.
        scope &= windows >= clock.horizon_us
    seen_us = cells.begin_seen_us if clock.retired else windows
    # SEMANTICS 2.30: a key is out of scope only if it has been retired itself.
    for at_us, horizon_us in () if cells.oracle.by_key else clock.retired:
        # SEMANTICS 7.6: other facts of the cell may have been dropped, and the remaining ones alone would look like a
        # loss. A session that an event moved near the horizon after the drop may be part of a dropped one.
        scope &= ~is_retired_by(seen_us, windows, at_us, horizon_us)
    return scope


def is_retired_by(seen_us: Ints, begins_us: Ints, at_us: int, horizon_us: int) -> Bools:
    """Return which cells a retirement puts out of scope: they begin before its horizon, and were first seen later."""
    retired: Bools = (seen_us > at_us) & (begins_us < horizon_us)
    return retired


def _outstanding_state(cells: Columns, clock: Clock, rules: Rules) -> Ints:
    """Return the state of each cell's outstanding contributions: pending, overdue, blocked or missing (SEMANTICS
    section 3)."""
    due = due_base(cells)

    def past(proof: int | None, after_us: int) -> Bools:
        through_us = clock.due_through_us(proof, after_us)
        return np.full(len(cells), False) if through_us is None else due <= through_us

    # SEMANTICS 3.13: the proof needs every answer partition, since the answer may be in any of them. `past` does not
    # count outages (3.15).
    overdue = past(clock.outputs_us, rules.overdue_after_us)
    missing = past(clock.outputs_us, rules.missing_after_us)
    # SEMANTICS 3.14: overdue, if it were not for an open transaction that may carry the answer.
    held = past(clock.unheld_outputs_us, rules.overdue_after_us) & clock.outputs_held
    # SEMANTICS 3.28: also at the end of a run, an open transaction may carry the answer.
    at_rest = BLOCKED if key_verdicts.is_held(cells, clock) else MISSING
    return np.select(
        [cells["closed_us"] == ABSENT, missing, is_at_rest(cells), overdue, held],
        [PENDING, MISSING, at_rest, OVERDUE, BLOCKED],
        PENDING,
    ).astype(np.int64)


def _counts(cells: Columns, observed: Ints, agrees: Bools, provisional: Bools, resolved: Bools) -> dict[str, Ints]:
    """Return the counts before time and scope apply. They come from fingerprints that agree, else from the comparison
    of ids, else they are provisional."""
    expected, processed = cells["expected_count"], cells["processed_count"]
    late, rejected, results = cells["late_count"], cells["rejected_count"], cells["results"]
    x = {name: cells[f"x_{name}"] for name in COMPARED}
    # SEMANTICS 2.35: of a key with removed events, only the excess is an estimate.
    exact = ~provisional | cells.oracle.reads.signed
    zero = np.zeros(len(cells), dtype=np.int64)

    # SEMANTICS 2.18: the estimate is the count of a correct engine, by the order of 2.2: results, then late, then
    # rejected records. Its surplus is unresolved, which is not a violation.
    guess_processed = np.minimum(expected, processed)
    guess_late = np.minimum(expected - guess_processed, late)
    guess_rejected = np.minimum(expected - guess_processed - guess_late, rejected)
    guess_answered = guess_processed + guess_late + guess_rejected

    # SEMANTICS 2.15: results that carry no id claim nothing, so they need no comparison.
    empty_right = np.where((observed == 0) & (expected == 0), results, 0)
    empty_wrong = np.where((observed == 0) & (expected > 0), results, 0)

    def pick(when_agrees: Ints, when_exact: Ints, otherwise: Ints) -> Ints:
        return np.where(agrees, when_agrees, np.where(exact, when_exact, otherwise))

    def pick_excess(name: str) -> Ints:
        # SEMANTICS 3.17: before that, excess is unresolved.
        return pick(zero, np.where(resolved, x[name], zero), zero)

    def pick_results(when_agrees: Ints, when_exact: Ints, otherwise: Ints) -> Ints:
        # SEMANTICS 2.15: before the cell is resolved its results have no class, since an input may still explain them.
        return np.where(resolved, pick(when_agrees, when_exact, otherwise), 0)

    return {
        "expected": pick(expected, x["expected"], expected),
        "processed": pick(processed, x["processed"], guess_processed),
        "late": pick(late, x["late"], guess_late),
        "rejected": pick(rejected, x["rejected"], guess_rejected),
        "duplicate": pick_excess("duplicate"),
        "misplaced": pick_excess("known"),
        "unknown_id": pick_excess("unknown"),
        "unresolved": pick(
            zero, np.where(resolved, zero, x["duplicate"] + x["known"] + x["unknown"]), observed - guess_answered
        ),
        "outstanding": pick(zero, x["outstanding"], expected - guess_answered),
        **{name: pick(zero, x[name], zero) for name in EXCUSES},
        **{name: pick(zero, np.maximum(x[name], 0), zero) for name in ("apart", "unproven_splits")},
        # SEMANTICS 2.15: if a cell lacks nothing and has no excess, its results are correct, however many there are: an
        # engine may answer a cell twice with disjoint ids.
        "correct": pick_results(results, x["correct"], empty_right),
        "incomplete": pick_results(zero, x["incomplete"], empty_wrong),
        "excess": pick_results(zero, x["excess"], zero),
        "misplaced_results": pick_results(zero, x["misplaced"], zero),
        "wrong_value": pick_results(zero, np.maximum(x["wrong_value"], 0), zero),
    }


def _is_due(state: Ints, clock: Clock, rules: Rules) -> Bools:
    # SEMANTICS 3.31: at the end of a run unconsumed contributions are counted in every cell, due or not: no run may
    # pass while the engine has input to read.
    at_end = rules.reports_unconsumed and clock.run_end.is_end
    return np.full(len(state), True) if at_end else (state == MISSING) | (state == OVERDUE)


def _scoped(cells: Columns, clock: Clock, rules: Rules, found: dict[str, Ints], it: _Decisions) -> Judged:
    """Apply scope, and classify outstanding contributions by the state of their cell."""
    outstanding = found["outstanding"]
    is_missing = it.state == MISSING
    # SEMANTICS 2.3: excuses apply once the cell is overdue or missing; pending and blocked contributions stay so.
    late_enough = is_missing | (it.state == OVERDUE)
    is_due = _is_due(it.state, clock, rules)
    nothing = np.zeros(len(cells), dtype=np.int64)
    # SEMANTICS 2.9: under policy `drop` an engine rightly drops what came after its window could close. Under `report`
    # such a contribution stays missing.
    dropped = np.where(late_enough, found["dropped_late"], 0) if rules.drops_late else nothing
    # SEMANTICS 2.8: what the engine has not read is not lost.
    unconsumed = np.where(is_due, found["unconsumed"], 0) if rules.reports_unconsumed else nothing
    # SEMANTICS 3.26: a hidden record may have moved the engine's time, so that it rightly dropped the event as late.
    doubtful = np.where(is_missing & it.in_scope, found["doubtful"], 0) if rules.drops_late else nothing
    # SEMANTICS 2.26: so may a record of another partition, since the order of reading is not known.
    elsewhere = np.where(is_missing & it.in_scope, found["elsewhere"], 0) if rules.drops_late else nothing
    unprovable = doubtful + elsewhere
    # SEMANTICS 3.24: an answer may have been among those that were never read. A loss that was proven before the gap
    # began stays proven: all answers had been read through to its deadline.
    if clock.unread_since_us is not None:
        proven_us = counted_back_us(clock.unread_since_us, rules.missing_after_us, clock.outages)
        unproven = is_missing & (due_base(cells) > proven_us)
        unprovable = unprovable + np.where(unproven, found["unprovable"], 0)
    rest = outstanding - dropped - unconsumed - unprovable
    # SEMANTICS 2.18: a comparison may still excuse a contribution (late, unconsumed, repeated), so before it none is
    # missing.
    unproven_yet = it.provisional | it.lagging
    shown = np.where(is_missing & unproven_yet, OVERDUE, it.state)
    counts = {name: found[name] for name in _AS_FOUND}
    values_may_change = evidence_of(cells.oracle).values_may_change
    may_change = (counts["wrong_value"] > 0) & ~is_missing & values_may_change
    counts["wrong_value"] = np.where(may_change, 0, counts["wrong_value"])
    # SEMANTICS 2.29: all sound results of a cell are wrong together; beside ids each one is judged by itself (2.32).
    for name in ("correct", "incomplete") if values_may_change else ():
        counts[name] = np.where(counts["wrong_value"] > 0, 0, counts[name])
    if cells.oracle.owes_by_rows:
        # SEMANTICS 2.37: rows that are not read yet may change which events owe a result.
        is_due = is_due | is_at_rest(cells)
        may_change |= it.compared & ~is_missing & ~is_at_rest(cells) & (counts["expected"] != cells["expected_count"])
    counts |= {"dropped_late": dropped, "unconsumed": unconsumed}
    of_states = {name: np.where(shown == number, rest, 0) for number, name in enumerate(STATES)}
    unconsumed_overdue = np.where(is_missing & it.in_scope, unconsumed, 0)
    still: dict[str, Ints] = {}
    if cells.oracle.by_key:
        resting = is_at_rest(cells)
        still = key_verdicts.still(cells, clock, rules, resting)
        split = key_verdicts.Split.of(
            cells,
            clock,
            rules,
            outstanding,
            resting,
            counts_unconsumed=bool(rules.reports_unconsumed and clock.run_end.is_end),
        )
        of_states = split.by_state(unproven_yet | key_verdicts.may_be_unread(clock))
        counts["unconsumed"], unconsumed_overdue = split.unconsumed, np.where(it.in_scope, split.unconsumed_missing, 0)
    counts |= of_states
    # SEMANTICS 2.3: contributions whose loss cannot be proven stay overdue, and the verdict says why.
    counts["overdue"] = counts["overdue"] + unprovable
    # SEMANTICS 2.2: out of scope everything is counted as such, and nothing is judged.
    counts = {name: np.where(it.in_scope, counts[name], 0) for name in (*CONTRIBUTIONS, *RESULTS) if name in counts}
    counts["out_of_scope"] = np.where(it.in_scope, 0, cells["expected_count"])
    # SEMANTICS 4.11: blocked for so long that it would be missing: at-least-once and exactly-once are unknown.
    blocked_us = clock.due_through_us(clock.unheld_outputs_us, rules.missing_after_us)
    blocked_long = nothing if blocked_us is None else due_base(cells) <= blocked_us
    # SEMANTICS 3.18: unresolved for `missing_after` only because of an open transaction: the verdict is unknown.
    held_us = clock.due_through_us(clock.unheld_inputs_us, rules.missing_after_us)
    held_long = np.zeros_like(it.held) if held_us is None else it.held & ~it.lagging & (cells["observed_us"] <= held_us)
    unjudged = counts["unresolved"]
    if cells.oracle.tables:
        # SEMANTICS 2.37: what results state is not judged, either, and a run that ends waits no longer.
        unjudged = np.maximum(unjudged, np.where(it.in_scope, cells["results"], 0))
        held_long |= it.held & ~it.lagging & clock.run_end.is_due

    seen = it.observed > 0
    # SEMANTICS 2.17: ids are compared once the excess can be judged. Without answers there is no excess: such a cell is
    # compared once an excuse may apply, or its ids are needed as evidence of a loss.
    clear = ~it.agrees & (it.resolved | it.held | ~seen)
    # SEMANTICS 2.33: a cell without results may owe none.
    excuses = rules.drops_late or rules.reports_unconsumed or rules.compares_all or bool(rules.oracle.having)
    needs_ids = is_due if excuses else np.zeros_like(seen)
    disagrees = clear & (seen | needs_ids)
    # SEMANTICS 2.8: the committed offset moves without new facts of the cell.
    consumed_may_move = it.compared & ((cells["x_unconsumed"] > 0) | (cells["x_wrong_value"] == STALE))
    # A cell without any answer is compared once its contributions are missing: its ids are the evidence.
    lost = clear & is_missing & (outstanding > 0)
    # SEMANTICS 4.23: fingerprints do not show whose events were set aside, and a doubt about one input depends on it.
    unclear = it.resolved & _unclear_inputs(cells, rules, it)
    # SEMANTICS 2.19: an earlier comparison, no longer in memory, found other ids than the fingerprints state.
    contradicted = it.agrees & it.resolved & np.logical_or.reduce([cells[f"recorded_{name}"] > 0 for name in EXCESS])
    wants_expansion = (
        (not cells.oracle.by_key)
        & it.in_scope
        & (disagrees | lost | unclear | contradicted)
        & (~it.compared | consumed_may_move)
    )
    # If a cell was compared before it had the violation, it is compared again, so that the violation names its ids.
    new = lost & (counts["missing"] > cells["recorded_missing"])
    for name in (*EXCESS, "wrong_value"):
        new |= clear & (counts[name] > cells[f"recorded_{name}"])
    wants_evidence = new & it.compared
    several, updates = _updates(cells, counts["duplicate"], outstanding, it)
    closed = cells["closed_us"] != ABSENT
    non_cells = cells.non_cells
    # SEMANTICS 7.8: a cell is settled once its answers are judged, and nothing is outstanding or all of it has been due
    # for `missing_after`.
    answered = it.agrees | ((outstanding == 0) & ~may_change) | is_missing
    settled = ~it.in_scope | (closed & it.resolved & answered & ~wants_expansion)
    violated = np.full(len(cells), False)
    for name in VIOLATIONS:
        violated |= counts[name] > 0
    digests = digest(counts)
    recorded = cells["recorded_digest"] != ABSENT
    # SEMANTICS 2.19: the standing check on fingerprints; the fingerprint itself draws the sample.
    sampled = it.agrees & ~it.compared & settled & it.in_scope & seen & (cells["expected_a"] % rules.sampled_of == 0)
    if rules.oracle.by_id or not rules.oracle.reads.names_ids:
        # The fingerprint of a cell with one id, or of events without ids, proves as much as a comparison.
        sampled[:] = False
    # A verdict is recorded once it is settled, violated or no longer pending, and after that at every change.
    changed = (recorded | settled | (it.state != PENDING) | violated) & (digests != cells["recorded_digest"])
    if non_cells is not None:
        changed &= recorded | ~non_cells
    apart = np.where(it.in_scope & it.resolved, found["apart"], 0)
    # SEMANTICS 4.21: a wrong unit may have put results out of scope, into cells without an event. They count for the
    # doubt about the configuration; ``outside`` keeps the rest, for 4.22.
    carried = np.where(it.in_scope | _has_no_event(cells), cells["processed_count"], 0)
    listed = cells["listed_count" if cells.are_withdrawn else "processed_count"]
    return Judged(
        counts=counts,
        on_record=_on_record(cells, counts, it, still),
        incorrect_ids=np.where(it.compared & it.resolved, cells["x_incorrect_ids"], 0),
        matched=np.where(it.in_scope, _matched(cells, it), 0),
        doubtful=doubtful,
        elsewhere=elsewhere,
        apart=apart,
        ends_right=_names_its_end(cells) & it.agrees & it.in_scope,
        ends_wrong=contradicts_its_end(cells) & (apart > 0),
        unproven_splits=np.where(it.in_scope & it.resolved, found["unproven_splits"], 0),
        unconsumed_overdue=unconsumed_overdue,
        blocked_overdue=np.where(blocked_long, counts["blocked"], 0),
        held_long=np.where(held_long, unjudged, 0),
        agrees=it.agrees,
        refuted=it.refuted,
        sampled=sampled,
        compared=it.compared,
        resolved=it.resolved,
        held=it.held,
        provisional=it.provisional,
        in_scope=it.in_scope,
        settled=settled,
        wants_expansion=wants_expansion,
        wants_evidence=wants_evidence,
        violated=violated,
        changed=changed,
        closed=closed,
        outstanding=outstanding,
        carried=carried,
        outside=listed - carried,
        scattered=cells.scattered,
        estimated=it.provisional & seen & it.in_scope,
        by_input=_by_input(cells, rules, it),
        by_output=_by_output(cells, it, settled),
        by_set_aside=_by_set_aside(cells, it),
        several=several,
        updates=updates,
        may_change=may_change,
        state=it.state,
        version=it.version,
        digest=digests,
    )


def _updates(cells: Columns, duplicate: Ints, outstanding: Ints, it: _Decisions) -> tuple[Bools, Ints]:
    """Return `Judged.several` and `Judged.updates`."""
    oracle = cells.oracle
    if oracle.reads.names_ids or not oracle.has_windows or oracle.answers_events:
        return np.zeros(len(cells), dtype=np.bool_), np.zeros(len(cells), dtype=np.int64)
    are_several = it.in_scope & (cells["results"] > 1) & (cells["expected_count"] > 1)
    compared = it.resolved & ~it.provisional & (it.compared | it.agrees)
    # SEMANTICS 4.29: while the numbers of a cell are not too large together, they show nothing before it is due.
    shows = compared & ((duplicate > 0) | (outstanding == 0) | (it.state == MISSING))
    # A newer result keeps what the last comparison has shown, until the next one: else every batch that reads results
    # before the inputs would end the doubt.
    known = (shows & ~it.agrees) | (it.provisional & (cells["x_version"] != ABSENT))
    updates = np.where(are_several & known, cells["x_updates"], 0)
    # SEMANTICS 4.29: while it may still be answered, the last result of a cell need not have all of its events.
    updates = np.where(it.state == MISSING, np.maximum(updates, 0), updates)
    return are_several & (shows | (updates != 0)), updates


def _matched(cells: Columns, it: _Decisions) -> Ints:
    """Return the matched contributions in results. Facts only grow, so the matches of an older comparison stay
    proven."""
    # SEMANTICS 4.21: only proven matches count. A cell that was never compared proves nothing.
    compared = np.where(cells["x_version"] == ABSENT, 0, cells["x_processed"])
    return np.where(it.agrees, cells["processed_count"], compared)


def _by_set_aside(cells: Columns, it: _Decisions) -> dict[str, dict[str, Ints]]:
    """As `_matched`, for late and for rejected records."""
    found = {}
    for side in ("late", "rejected"):
        given = np.where(it.in_scope, cells[f"{side}_count"], 0)
        compared = np.where(it.in_scope & (cells["x_version"] != ABSENT), cells[f"x_{side}_expected"], 0)
        matched = np.where(it.agrees, given, compared)
        is_exact = it.agrees | (it.compared & it.resolved)
        # SEMANTICS 4.23: a wrong time may have put these records out of scope.
        outside = np.where(~it.in_scope & _has_no_event(cells), cells[f"{side}_count"], 0)
        undecided = np.where(is_exact, 0, given - matched)
        found[side] = {"read": given, "matched": matched, "undecided": undecided, "outside": outside}
    return found


def _has_no_event(cells: Columns) -> Bools:
    found: Bools = cells["expected_count"] == 0
    return found


def _unclear_inputs(cells: Columns, rules: Rules, it: _Decisions) -> Bools:
    """Return the agreeing cells that have an unclear input: counts do not show whether its events are in results or
    were set aside as late or rejected."""
    set_aside = cells["late_count"] + cells["rejected_count"]
    unclear = np.full(len(cells), False)
    for topic in cells.inputs if rules.several_inputs else ():
        given = cells[f"given/{topic}"]
        unclear |= (given > 0) & (given <= 2 * set_aside)
    return unclear & it.agrees & (cells["processed_count"] > 0)


def _by_input(cells: Columns, rules: Rules, it: _Decisions) -> dict[str, dict[str, Ints]]:
    """Return `Judged.by_input`.

    No event counts as matched before every input is read through the cell's last answer, since another input may have
    the same id. Events out of scope are counted as read: a wrong time field may have put them out of scope.
    """
    set_aside = cells["late_count"] + cells["rejected_count"]
    # The sampled comparison of an agreeing cell does not count here: a cell that returns to memory has lost it, and its
    # counts must stay the same.
    counted = ~it.agrees | _unclear_inputs(cells, rules, it)
    compared, zero = it.compared & it.in_scope & counted, np.zeros(len(cells), dtype=np.int64)
    found = {}
    for topic in cells.inputs if rules.several_inputs else ():
        given = cells[f"given/{topic}"]
        at_least = np.where(it.agrees, np.maximum(given - set_aside, 0), 0)
        matched = np.where(it.resolved & it.in_scope, np.where(compared, cells[f"matched/{topic}"], at_least), 0)
        is_exact = it.resolved & (compared | (it.in_scope & it.agrees & (set_aside == 0)))
        found[topic] = {
            "read": given,
            "matched": matched,
            "outstanding": np.where(compared, cells[f"lacking/{topic}"], zero),
            "undecided": np.where(is_exact, 0, given - matched),
        }
    return found


def _by_output(cells: Columns, it: _Decisions, settled: Bools) -> dict[str, dict[str, Ints]]:
    """Return `Judged.by_output`: as ``carried`` and ``matched``, for each output topic.

    If the fingerprints of a cell agree, all of its results match, whichever topic has them. If results replace each
    other, the cell has a single id, and its results match if the cell has an event. Whether these results are the
    newest of their key is not considered, since it does not depend on the fields of the topic. Matches are lasting once
    the cell is settled, once a comparison found nothing outstanding in it, or once its outstanding contributions would
    be missing. Until then a result of another topic may claim the ids.
    """
    found = {}
    lasts = settled | (it.state == MISSING) | (it.compared & (cells["x_outstanding"] == 0))
    for topic in cells.outputs:
        carried = np.where(it.in_scope | _has_no_event(cells), cells[f"carried/{topic}"], 0)
        claimed = np.zeros_like(carried)
        if cells.are_withdrawn:
            matched = np.where(it.in_scope & ~_has_no_event(cells), carried, 0)
        else:
            is_compared = (cells["x_version"] != ABSENT) & it.in_scope & ~it.agrees
            matched = np.where(it.in_scope & it.agrees, carried, np.where(is_compared, cells[f"landed/{topic}"], 0))
            claimed = np.where(is_compared, cells[f"claimed/{topic}"], 0)
        is_exact = it.resolved & (it.agrees | it.compared | ~it.in_scope)
        found[topic] = {
            "read": carried,
            "matched": matched,
            "lasting": np.where(lasts, matched, 0),
            "claimed": claimed,
            "undecided": np.where(is_exact, 0, carried - matched),
            "outside": cells[f"carried/{topic}"] - carried,
        }
    return found


_AS_FOUND: Final = (
    *("expected", "processed", "late", "rejected", "duplicate", "misplaced", "unknown_id", "unresolved"),
    *RESULTS,
)


def digest(counts: dict[str, Ints]) -> Ints:
    """Return a hash of each verdict, which shows whether the derived tables hold the same verdict."""
    mixed = np.zeros(len(counts["expected"]), dtype=np.uint64)
    for name in (*CONTRIBUTIONS, *RESULTS):
        mixed = (mixed ^ counts[name].astype(np.uint64)) * _ODD
        mixed ^= mixed >> np.uint64(29)
    found = mixed.astype(np.int64)
    # ABSENT means that no verdict was recorded.
    found[found == ABSENT] = 0
    return found


_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


def digest_of_rows(verdicts: pa.Table) -> Ints:
    """Return the `digest` of rows of the verdicts table."""
    return digest({name: ints(verdicts[name], 0) for name in (*CONTRIBUTIONS, *RESULTS)})


def _on_record(cells: Columns, counts: dict[str, Ints], it: _Decisions, lasting: dict[str, Ints]) -> dict[str, Ints]:
    """Return, for each violation class, the contributions of each cell that are on record after this batch.
    ``lasting``: of keys, as `key_verdicts.still` returns it.

    Only a comparison of ids retracts a violation. Provisional counts do not: a newer answer may or may not explain the
    violation. Time does not, either: a contribution that was missing and is still outstanding stays missing, even if
    a run with `--once` found it missing and the pipeline continued after that run, or if the engine will consume its
    event again because its group was reset. Contributions that the engine may drop as late do not count here.
    """
    found = {}
    for name in VIOLATIONS:
        recorded = cells[f"recorded_{name}"]
        if name == "missing":
            # SEMANTICS 2.21: a loss stays on record while as much is outstanding, without what the engine may drop as
            # late.
            excused = cells["x_dropped_late"] + cells["x_unconsumed"] - cells["x_unconsumed_on_time"]
            outstanding = np.where(it.agrees, 0, cells["x_outstanding"] - excused)
            if cells.oracle.by_key:
                # SEMANTICS 2.30: a key may get events without end, so a later one does not keep a loss on record.
                outstanding = np.where(it.agrees, 0, lasting[name])
            held = np.where(it.provisional, recorded, np.minimum(recorded, outstanding))
        elif name == "wrong_value":
            # SEMANTICS 2.21: time does not retract, nor does a cell that is no longer due.
            wrong = cells["x_wrong_value"]
            still = np.where(it.agrees, 0, np.minimum(recorded, np.maximum(wrong, 0)))
            if cells.oracle.by_key:
                still = np.where(~it.agrees & (wrong == STALE), recorded, still)
            held = np.where(it.provisional | (it.held & ~it.agrees), recorded, still)
        else:
            # SEMANTICS 2.21: an estimate retracts nothing, and neither does excess that is unresolved again.
            left = np.minimum(recorded, lasting[name]) if name in lasting else np.zeros_like(recorded)
            held = np.where(it.provisional | (it.held & ~it.agrees), recorded, left)
        found[name] = np.where(it.in_scope, np.maximum(counts[name], held), counts[name])
    return found

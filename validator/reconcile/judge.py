"""Cells and a clock to verdicts: the rules of SEMANTICS section 2, as arithmetic on columns.

A judged cell is a function of its totals, of what comparing its ids gave (`expansion`, for the few cells whose
fingerprints disagree) and of the clock. Counts of a cell that disagrees and was not compared yet are provisional:
the counts that a correct engine would have, with the surplus as unresolved. They never raise an alarm. While only open
transactions of inputs may explain a cell's excess, which can last, its ids are compared, and its counts are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from validator.model.arrays import ABSENT, Bools, Ints, ints
from validator.model.frontier import Clock, Rest, counted_back_us
from validator.oracles.seam import Oracle
from validator.reconcile.cells import EXPANSION_FIELDS, Columns

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

RESULTS: Final = ("correct", "incomplete", "excess", "misplaced_results")
"""Columns of a verdict that count result records."""

EXCESS: Final = ("duplicate", "misplaced", "unknown_id")
"""The violations that one more input record would explain."""

VIOLATIONS: Final = ("missing", *EXCESS)
"""Classes of contributions that are violations (of one guarantee or another)."""

SAMPLED_OF: Final = 1_024
"""Of so many cells whose fingerprints agree one is compared id by id all the same: a standing check."""

PENDING, OVERDUE, BLOCKED, MISSING = range(4)
STATES: Final = ("pending", "overdue", "blocked", "missing")
"""What the outstanding contributions of a cell are, by number."""


@dataclass(frozen=True)
class Rules:
    """What the configuration says about judging. Microseconds.

    ``collapse``: an input's repeated ids count once. ``drops_late``: late policy `drop`. ``tells_unconsumed``: the
    engine's consumer group is configured. ``several_inputs``: more than one input topic is configured. ``sampled_of``:
    of so many cells whose fingerprints agree the ids of one are compared; a power of two.
    """

    oracle: Oracle
    overdue_after_us: int
    missing_after_us: int
    collapse: bool = False
    drops_late: bool = False
    tells_unconsumed: bool = False
    several_inputs: bool = False
    sampled_of: int = SAMPLED_OF

    @property
    def asks_lateness(self) -> bool:
        """Whether a verdict may depend on which events were late."""
        return self.drops_late or self.oracle.asks_lateness

    @property
    def compares_all(self) -> bool:
        """Whether fingerprints decide nothing: every cell with an answer, or overdue, is compared id by id."""
        return self.collapse or self.oracle.compares_all


@dataclass(frozen=True)
class Judged:
    """Verdicts, one entry per cell. ``counts``: `CONTRIBUTIONS` and `RESULTS`. ``settled``: only new facts can change
    the verdict. ``held``: only open transactions of inputs may explain its excess.
    ``matched``: contributions in results that are proven to be those of its events, as far as ids or fingerprints were
    compared. ``state``: number in `STATES`. ``changed``: the derived tables must be told of the cell.
    ``version``: how much of the cell a comparison of its ids would rest on. ``provisional``: the counts are those of a
    correct engine, until ids are compared. ``on_record``: `VIOLATIONS`, as the derived tables must have them.
    ``refuted``: fingerprints agree, and a comparison found that the ids differ. ``sampled``: fingerprints agree, and
    the ids are to be compared all the same.
    ``doubtful``: how many are overdue, and would be missing but for what may have made them late.
    ``unconsumed_overdue``, ``blocked_overdue``: how many are unconsumed, blocked, and would be missing but for that.
    ``outstanding``: all that is, whatever it is called. ``carried``: contributions in results, in scope.
    ``scattered``: the results of its key are on several partitions, so that none is known to be the newest.
    ``estimated``: the counts say something of answers that were not compared.
    ``of_inputs``: topic -> `OF_INPUT` and "open", how many of its events may yet turn out to match; of several inputs.
    ``of_asides``: side (late, rejected) -> ``given``, ``matched`` and ``open`` of `InputCounts`.
    """

    counts: dict[str, Ints]
    on_record: dict[str, Ints]
    matched: Ints
    doubtful: Ints
    unconsumed_overdue: Ints
    blocked_overdue: Ints
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
    scattered: Bools
    estimated: Bools
    of_inputs: dict[str, dict[str, Ints]]
    of_asides: dict[str, dict[str, Ints]]
    state: Ints
    version: Ints
    digest: Ints

    def of(self, chosen: Ints | Bools) -> Judged:
        """Some of them."""
        return _each(lambda columns: columns[0][chosen], [self])


def joined(parts: Sequence[Judged]) -> Judged:
    """Those of all ``parts``, one after the other."""
    return _each(np.concatenate, parts) if len(parts) > 1 else parts[0]


def _each(value: Callable[[Sequence[Any]], Any], parts: Sequence[Judged]) -> Judged:
    """The value of the columns of the same name of all parts, for each column."""

    def of(columns: Sequence[Any]) -> Any:
        if isinstance(columns[0], dict):
            return {name: of([column[name] for column in columns]) for name in columns[0]}
        return value(columns)

    return Judged(**{it.name: of([getattr(part, it.name) for part in parts]) for it in fields(Judged)})


def close(cells: Columns, clock: Clock) -> None:
    """Give the cells that the watermark has passed their closing time, and rest its instant."""
    if cells.newest is not None:
        cells.newest.settle()
    closed = cells["closed_us"].copy()
    if clock.rest.closes_all:
        closed[closed == ABSENT] = clock.lookup_us
    elif clock.watermark_us is not None:
        passed = cells["end_us"] <= clock.watermark_us
        if cells.ends_move:
            # An event may put off the end of a cell that had closed, unless the end of a run had closed it.
            closed[~passed & (closed != cells["rest_us"])] = ABSENT
        closed[passed & (closed == ABSENT)] = clock.lookup_us
    if clock.rest.is_due:
        cells["rest_us"] = np.full(len(cells), clock.lookup_us)
    cells["closed_us"] = closed_with_its_events(cells, closed)


def closed_with_its_events(cells: Columns, closed: Ints) -> Ints:
    """Where events put off ends, when the watermark passed the end that a cell had before its last event is not known
    after a restart; nothing that is due rests on it (`due_base`)."""
    return np.where(closed == ABSENT, closed, np.maximum(closed, cells["expected_us"])) if cells.ends_move else closed


def due_base(cells: Columns) -> Ints:
    """Since when the outstanding contributions of each closed cell are due: its events were read, and it closed; and
    where a result that had them is withdrawn, since then."""
    due = np.maximum(cells["closed_us"], cells["expected_us"])
    return np.maximum(due, cells["withdrawn_us"]) if cells.are_withdrawn else due


def judge(cells: Columns, clock: Clock, rules: Rules) -> Judged:
    """The closed cells (`close`) with their verdicts."""
    observed = cells["processed_count"] + cells["late_count"] + cells["rejected_count"]
    # What a comparison of ids rests on, each term growing only: facts of the cell, which answers may be gone, and which
    # hidden records made nothing late.
    version = cells.counted + clock.unprovable_offsets + clock.settled
    compared = cells["x_version"] == version
    same = _same_fingerprints(cells, rules)
    refuted = same & compared & _differ(cells)
    agrees = same & ~refuted
    observed_us = cells["observed_us"]
    resting = is_resting(cells)
    resolved = is_resolved(cells, clock)
    held = np.zeros_like(resolved)
    if clock.inputs_held and clock.unheld_inputs_us is not None:
        held = ~resolved & (observed_us <= clock.unheld_inputs_us)
    lagging = np.zeros_like(resolved)
    if rules.tells_unconsumed and clock.rest is Rest.OPEN:
        # The end of a run asks for ids, though its reader may be behind. Nothing becomes missing by that.
        lagging = ~resolved & ~held
        held = held | lagging
    # A cell without an observed id has nothing that an input could still explain.
    provisional = ~agrees & ~(compared & (resolved | held | (observed == 0)))
    in_scope = _in_scope(cells, clock, rules.oracle.scope_margin_us)
    state = _outstanding_state(cells, clock, rules, resting)
    found = _counts(cells, observed, agrees, provisional, resolved)
    return _scoped(
        cells,
        clock,
        rules,
        found,
        _Decisions(observed, version, agrees, refuted, compared, resolved, held, lagging, provisional, in_scope, state),
    )


def is_resting(cells: Columns) -> Bools:
    """Which cells the end of a run found at rest, with all that is known of them."""
    found: Bools = cells["rest_us"] >= np.maximum(np.maximum(cells["expected_us"], cells["observed_us"]), ABSENT + 1)
    return found


def is_read_through(cells: Columns, clock: Clock) -> Bools:
    """The cells whose answers are explained by what was read: inputs were read through their instants."""
    observed_us = cells["observed_us"]
    found: Bools = observed_us <= (ABSENT if clock.inputs_us is None else clock.inputs_us)
    return found


def is_resolved(cells: Columns, clock: Clock) -> Bools:
    """As `is_read_through`, or no more comes."""
    found = is_read_through(cells, clock)
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
    """The cells in whose ids a comparison found any difference."""
    answered = cells["x_processed"] + cells["x_late"] + cells["x_rejected"]
    excess = cells["x_duplicate"] + cells["x_known"] + cells["x_unknown"]
    found: Bools = (answered != cells["x_expected"]) | (excess != 0)
    return found


def _same_fingerprints(cells: Columns, rules: Rules) -> Bools:
    same = np.full(len(cells), not rules.compares_all)
    for part in ("count", "a", "b"):
        total = cells[f"processed_{part}"] + cells[f"late_{part}"] + cells[f"rejected_{part}"]
        same &= cells[f"expected_{part}"] == total
    return same


def _in_scope(cells: Columns, clock: Clock, margin_us: int) -> Bools:
    windows = cells.begins_us - margin_us
    # Which result of a key is the newest is not known where it has some on several partitions.
    scope = np.full(len(cells), True) if cells.newest is None else ~cells.newest.scattered
    if clock.horizon_us is not None:
        scope &= windows >= clock.horizon_us
    for at_us, horizon_us in clock.retired:
        # Other facts of the cell may have been dropped: what is left of it cannot be judged. A session in memory whose
        # begin moves there since may be one with a session that was dropped.
        scope &= ~((cells.begin_seen_us > at_us) & (windows < horizon_us))
    return scope


def _outstanding_state(cells: Columns, clock: Clock, rules: Rules, resting: Bools) -> Ints:
    """pending, overdue, blocked or missing: what outstanding contributions of the cell are (SEMANTICS section 3)."""
    due = due_base(cells)

    def past(proof: int | None, after_us: int) -> Bools:
        through_us = clock.due_through_us(proof, after_us)
        return np.full(len(cells), False) if through_us is None else due <= through_us

    overdue = past(clock.outputs_us, rules.overdue_after_us)
    missing = past(clock.outputs_us, rules.missing_after_us)
    held = past(clock.unheld_outputs_us, rules.overdue_after_us) & clock.outputs_held
    at_rest = BLOCKED if clock.outputs_held else MISSING
    return np.select(
        [cells["closed_us"] == ABSENT, missing, resting, overdue, held],
        [PENDING, MISSING, at_rest, OVERDUE, BLOCKED],
        PENDING,
    ).astype(np.int64)


def _counts(cells: Columns, observed: Ints, agrees: Bools, provisional: Bools, resolved: Bools) -> dict[str, Ints]:
    """Counts before time and scope are looked at: from agreement, from the expansion, or provisional."""
    expected, processed = cells["expected_count"], cells["processed_count"]
    late, rejected, results = cells["late_count"], cells["rejected_count"], cells["results"]
    x = {name: cells[f"x_{name}"] for name in EXPANSION_FIELDS}
    exact = ~provisional
    zero = np.zeros(len(cells), dtype=np.int64)

    guess_processed = np.minimum(expected, processed)
    guess_late = np.minimum(expected - guess_processed, late)
    guess_rejected = np.minimum(expected - guess_processed - guess_late, rejected)
    guess_answered = guess_processed + guess_late + guess_rejected

    # Results that carry no id at all need no comparison.
    empty_right = np.where((observed == 0) & (expected == 0), results, 0)
    empty_wrong = np.where((observed == 0) & (expected > 0), results, 0)

    def pick(when_agrees: Ints, when_exact: Ints, otherwise: Ints) -> Ints:
        return np.where(agrees, when_agrees, np.where(exact, when_exact, otherwise))

    def pick_excess(name: str) -> Ints:
        return pick(zero, np.where(resolved, x[name], zero), zero)

    def pick_results(when_agrees: Ints, when_exact: Ints, otherwise: Ints) -> Ints:
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
        "dropped_late": pick(zero, x["dropped_late"], zero),
        "unconsumed": pick(zero, x["unconsumed"], zero),
        "unprovable": pick(zero, x["unprovable"], zero),
        "doubtful": pick(zero, x["doubtful"], zero),
        # Results of a cell that lacks nothing and has nothing in excess are right, in however many parts they came.
        "correct": pick_results(results, x["correct"], empty_right),
        "incomplete": pick_results(zero, x["incomplete"], empty_wrong),
        "excess": pick_results(zero, x["excess"], zero),
        "misplaced_results": pick_results(zero, x["misplaced"], zero),
    }


def _scoped(cells: Columns, clock: Clock, rules: Rules, found: dict[str, Ints], it: _Decisions) -> Judged:
    """Scope, and outstanding contributions by the state of their cell."""
    outstanding = found["outstanding"]
    is_missing = it.state == MISSING
    late_enough = is_missing | (it.state == OVERDUE)
    # At the end of a run nothing that is unconsumed passes for pending.
    asked = np.full(len(cells), True) if rules.tells_unconsumed and clock.rest.is_end else late_enough
    nothing = np.zeros(len(cells), dtype=np.int64)
    dropped = np.where(late_enough, found["dropped_late"], 0) if rules.drops_late else nothing
    unconsumed = np.where(asked, found["unconsumed"], 0) if rules.tells_unconsumed else nothing
    # What hidden records may have made late, or answered before they were gone, is never called missing.
    doubtful = np.where(is_missing & it.in_scope, found["doubtful"], 0) if rules.drops_late else nothing
    unprovable = doubtful
    if clock.gone_us is not None:
        proven_us = counted_back_us(clock.gone_us, rules.missing_after_us, clock.outages)
        gone = is_missing & (due_base(cells) > proven_us)
        unprovable = unprovable + np.where(gone, found["unprovable"], 0)
    rest = outstanding - dropped - unconsumed - unprovable
    # What was not compared may be excused by what comparing shows (late, unconsumed, repeated): not missing yet.
    shown = np.where(is_missing & (it.provisional | it.lagging), OVERDUE, it.state)
    counts = {name: found[name] for name in _AS_FOUND}
    counts |= {"dropped_late": dropped, "unconsumed": unconsumed}
    for number, name in enumerate(STATES):
        counts[name] = np.where(shown == number, rest, 0)
    counts["overdue"] = counts["overdue"] + unprovable
    counts = {name: np.where(it.in_scope, counts[name], 0) for name in (*CONTRIBUTIONS, *RESULTS) if name in counts}
    counts["out_of_scope"] = np.where(it.in_scope, 0, cells["expected_count"])
    blocked_us = clock.due_through_us(clock.unheld_outputs_us, rules.missing_after_us)
    blocked_long = nothing if blocked_us is None else due_base(cells) <= blocked_us

    seen = it.observed > 0
    clear = ~it.agrees & (it.resolved | it.held | ~seen)
    needs_ids = asked if rules.drops_late or rules.tells_unconsumed or rules.compares_all else np.zeros_like(seen)
    disagrees = clear & (seen | needs_ids)
    consumed_may_move = it.compared & (cells["x_unconsumed"] > 0)
    # Whole cells without an answer are compared too once they are lost: their ids are the evidence.
    lost = clear & is_missing & (outstanding > 0)
    unclear = it.resolved & _of_unclear_inputs(cells, rules, it)
    # A comparison may have found that fingerprints agree wrongly, and not be known any more.
    contradicted = it.agrees & it.resolved & np.logical_or.reduce([cells[f"told_{name}"] > 0 for name in EXCESS])
    wants_expansion = it.in_scope & (disagrees | lost | unclear | contradicted) & (~it.compared | consumed_may_move)
    # A violation in a cell that was compared before it was one is compared once more, so that it names its ids.
    new = lost & (counts["missing"] > cells["told_missing"])
    for name in EXCESS:
        new |= clear & (counts[name] > cells[f"told_{name}"])
    wants_evidence = new & it.compared
    closed = cells["closed_us"] != ABSENT
    parts = cells.parts
    settled = ~it.in_scope | (closed & it.resolved & (it.agrees | (outstanding == 0) | is_missing) & ~wants_expansion)
    violated = np.full(len(cells), False)
    for name in VIOLATIONS:
        violated |= counts[name] > 0
    said = digest(counts)
    told = cells["told_digest"] != ABSENT
    # Worth saying is what is decided or late; and what was said before.
    sampled = it.agrees & ~it.compared & settled & it.in_scope & seen & (cells["expected_a"] % rules.sampled_of == 0)
    if rules.oracle.by_id:
        # A cell of one id is its fingerprint.
        sampled[:] = False
    changed = (told | settled | (it.state != PENDING) | violated) & (said != cells["told_digest"])
    if parts is not None:
        changed &= told | ~parts
    return Judged(
        counts=counts,
        on_record=_on_record(cells, counts, it),
        matched=np.where(it.in_scope, _matched(cells, it), 0),
        doubtful=doubtful,
        unconsumed_overdue=np.where(is_missing & it.in_scope, unconsumed, 0),
        blocked_overdue=np.where(blocked_long, counts["blocked"], 0),
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
        carried=np.where(it.in_scope, cells["processed_count"], 0),
        scattered=np.zeros_like(seen) if cells.newest is None else cells.newest.scattered,
        estimated=it.provisional & seen & it.in_scope,
        of_inputs=_of_inputs(cells, rules, it),
        of_asides=_of_asides(cells, it),
        state=it.state,
        version=it.version,
        digest=said,
    )


def _matched(cells: Columns, it: _Decisions) -> Ints:
    """Facts only grow, and so does what matches: an older comparison still proves what it found."""
    compared = np.where(cells["x_version"] == ABSENT, 0, cells["x_processed"])
    return np.where(it.agrees, cells["processed_count"], compared)


def _of_asides(cells: Columns, it: _Decisions) -> dict[str, dict[str, Ints]]:
    """As `_matched`, of late and of rejected records."""
    found = {}
    for side in ("late", "rejected"):
        given = np.where(it.in_scope, cells[f"{side}_count"], 0)
        compared = np.where(it.in_scope & (cells["x_version"] != ABSENT), cells[f"x_{side}_expected"], 0)
        matched = np.where(it.agrees, given, compared)
        is_exact = it.agrees | (it.compared & it.resolved)
        found[side] = {"given": given, "matched": matched, "open": np.where(is_exact, 0, given - matched)}
    return found


def _of_unclear_inputs(cells: Columns, rules: Rules, it: _Decisions) -> Bools:
    """Which cells agree, though numbers do not tell of an input whether results or late records have its events."""
    set_aside = cells["late_count"] + cells["rejected_count"]
    unclear = np.full(len(cells), False)
    for topic in cells.inputs if rules.several_inputs else ():
        given = cells[f"given/{topic}"]
        unclear |= (given > 0) & (given <= 2 * set_aside)
    return unclear & it.agrees & (cells["processed_count"] > 0)


def _of_inputs(cells: Columns, rules: Rules, it: _Decisions) -> dict[str, dict[str, Ints]]:
    """Nothing matches before all inputs are read as far as an answer may be of them: another one may have the same id.

    Events out of scope are given, too: a wrong time may be what puts them there."""
    set_aside = cells["late_count"] + cells["rejected_count"]
    compared, zero = it.compared & it.in_scope, np.zeros(len(cells), dtype=np.int64)
    found = {}
    for topic in cells.inputs if rules.several_inputs else ():
        given = cells[f"given/{topic}"]
        at_least = np.where(it.agrees, np.maximum(given - set_aside, 0), 0)
        matched = np.where(it.resolved & it.in_scope, np.where(compared, cells[f"matched/{topic}"], at_least), 0)
        is_exact = it.resolved & (compared | (it.in_scope & it.agrees & (set_aside == 0)))
        found[topic] = {
            "given": given,
            "matched": matched,
            "lacking": np.where(compared, cells[f"lacking/{topic}"], zero),
            "open": np.where(is_exact, 0, given - matched),
        }
    return found


_AS_FOUND: Final = (
    *("expected", "processed", "late", "rejected", "duplicate", "misplaced", "unknown_id", "unresolved"),
    *RESULTS,
)


def digest(counts: dict[str, Ints]) -> Ints:
    """A hash of each verdict, by which it is known whether the derived tables say the same."""
    mixed = np.zeros(len(counts["expected"]), dtype=np.uint64)
    for name in (*CONTRIBUTIONS, *RESULTS):
        mixed = (mixed ^ counts[name].astype(np.uint64)) * _ODD
        mixed ^= mixed >> np.uint64(29)
    found = mixed.astype(np.int64)
    # The one value that means "never told".
    found[found == ABSENT] = 0
    return found


_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


def digest_of_rows(verdicts: pa.Table) -> Ints:
    """`digest` of rows of the verdicts table."""
    return digest({name: ints(verdicts[name], 0) for name in (*CONTRIBUTIONS, *RESULTS)})


def _on_record(cells: Columns, counts: dict[str, Ints], it: _Decisions) -> dict[str, Ints]:
    """How large each cell's violation of each class is on record after this batch.

    Only ids take a violation back. Provisional counts do not: whether an answer that came since explains it is not
    known yet. Nor does time: what was missing and is still outstanding stays so, though the end of a run with `--once`
    that had called it missing was no end.
    """
    found = {}
    for name in VIOLATIONS:
        told = cells[f"told_{name}"]
        if name == "missing":
            # Also what the engine will consume once more, since its group was reset.
            outstanding = sum((counts[state] for state in (*STATES, "unconsumed")), start=np.zeros_like(told))
            held = np.where(it.provisional, told, np.minimum(told, outstanding))
        else:
            held = np.where(it.provisional | (it.held & ~it.agrees), told, 0)
        found[name] = np.where(it.in_scope, np.maximum(counts[name], held), counts[name])
    return found


def tell_verdicts(cells: Columns, judged: Judged) -> None:
    """Note in the cells which verdicts the derived tables were told of them."""
    cells["told_digest"] = np.where(judged.changed, judged.digest, cells["told_digest"])

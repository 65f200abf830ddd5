"""Cells and a clock to verdicts: the rules of SEMANTICS section 2, as columns.

A judged cell is a function of its totals, of what comparing its ids gave (`expansion`, for the few cells whose
fingerprints disagree) and of the clock. Counts of a cell that disagrees and was not compared yet are provisional:
the counts that a correct engine would have, with the surplus as unresolved. They never raise an alarm.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructField, StructType

from validator.model.frontier import Clock, Rest
from validator.oracles.windowed_join import WindowedJoin
from validator.reconcile.built_once import built_once
from validator.reconcile.cells import CELLS_TYPE, EXPANSION_TYPE, PUBLISHED_TYPE

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

VIOLATIONS: Final = ("missing", "duplicate", "misplaced", "unknown_id")
"""Classes of contributions that are violations (of one guarantee or another)."""


@dataclass(frozen=True)
class ClockColumns:
    """`validator.model.frontier.Clock` as columns beside the cells."""

    lookup_us: Column
    watermark_us: Column
    inputs_us: Column
    outputs_us: Column
    unheld_outputs_us: Column
    horizon_us: Column
    gone_us: Column
    unprovable_offsets: Column
    outputs_held: Column
    inputs_held: Column
    rest_closed: Column
    rest_all: Column
    retired: tuple[tuple[int, int], ...] = ()

    @classmethod
    def beside(cls, retired: tuple[tuple[int, int], ...] = ()) -> ClockColumns:
        """The columns of the clock that `Judgement.timed` puts beside cells."""
        names = [field.name for field in fields(cls) if field.name != "retired"]
        return cls(**{name: F.col(f"clock.{name}") for name in names}, retired=retired)


def _clock_value(clock: Clock) -> Column:
    """One literal that holds all that `ClockColumns` asks for."""
    value = {name: getattr(clock, name) for name in _INSTANTS if getattr(clock, name) is not None} | {
        "outputs_held": clock.outputs_held,
        "inputs_held": clock.inputs_held,
        "rest_closed": clock.rest is not Rest.NONE,
        "rest_all": clock.rest is Rest.ALL,
    }
    return F.from_json(F.lit(json.dumps(value)), _CLOCK_TYPE)


_INSTANTS: Final = (
    "lookup_us",
    "watermark_us",
    "inputs_us",
    "outputs_us",
    "unheld_outputs_us",
    "horizon_us",
    "gone_us",
    "unprovable_offsets",
)
_CLOCK_TYPE: Final = StructType(
    [
        *[StructField(name, LongType()) for name in _INSTANTS],
        *[StructField(name, BooleanType()) for name in ("outputs_held", "inputs_held", "rest_closed", "rest_all")],
    ]
)


@dataclass(frozen=True)
class Rules:
    """What the configuration says about judging. Microseconds.

    ``collapse``: an input's repeated ids count once. ``drops_late``: late policy `drop`. ``tells_unconsumed``: the
    engine's consumer group is configured. ``join``: the oracle is one.
    """

    window_us: int
    overdue_after_us: int
    missing_after_us: int
    collapse: bool = False
    drops_late: bool = False
    tells_unconsumed: bool = False
    join: WindowedJoin | None = None

    @property
    def compares_all(self) -> bool:
        """Whether fingerprints decide nothing: every cell with an answer, or overdue, is compared id by id."""
        return self.collapse or self.join is not None


class Judgement:
    """The rules of one run as columns, built once for all batches: building them costs as much as Spark's planning."""

    def __init__(self, clock: ClockColumns, rules: Rules) -> None:
        self.retired = clock.retired
        self._closing = _closing(clock, rules)
        self._first = _first(clock, rules)
        self._counts = _counts()
        scoped = _scoped(clock, rules)
        self._kept = [F.col(field.name) for field in CELLS_TYPE.fields]
        shown = [F.col(name) for name in ("agrees", "state", "version", "resolved", "in_scope")]
        judged = [scoped[name].alias(name) for name in (*CONTRIBUTIONS, *RESULTS, *_DECISIONS)]
        self._judged = [*self._kept, *shown, *judged]
        self._digest = F.xxhash64(*CONTRIBUTIONS, *RESULTS)

    def timed(self, cells: DataFrame, clock: Clock) -> DataFrame:
        """The cells with the clock beside them."""
        return cells.withColumn("clock", _clock_value(clock))

    def close(self, cells: DataFrame, clock: Clock) -> DataFrame:
        """The cells with the closing time of those that the clock's watermark has passed."""
        return self.timed(cells, clock).withColumns(self._closing).select(*self._kept)

    def judge(self, cells: DataFrame, clock: Clock) -> DataFrame:
        """The closed cells (`close`) with their verdicts: every column of `CONTRIBUTIONS` and `RESULTS`, ``agrees``
        (the fingerprints do), ``settled`` (only new facts can change the verdict), ``wants_expansion`` and ``state``,
        which says what the cell's outstanding contributions are."""
        rows = self.timed(cells, clock).withColumns(self._first).withColumns(self._counts)
        return rows.select(*self._judged).withColumn("digest", self._digest)


def _closing(clock: ClockColumns, rules: Rules) -> dict[str, Column]:
    end = F.col("window_start_us") + F.lit(rules.window_us)
    passed = F.coalesce(end <= clock.watermark_us, F.lit(False)) | clock.rest_all
    return {
        "closed_us": F.coalesce("closed_us", F.when(passed, clock.lookup_us)),
        "rest_us": F.when(clock.rest_closed, clock.lookup_us).otherwise(F.col("rest_us")),
    }


def _first(clock: ClockColumns, rules: Rules) -> dict[str, Column]:
    observed = F.col("processed_count") + F.col("late_count") + F.col("rejected_count")
    # What a comparison of ids rests on, each term growing only: facts of the cell, and which answers may be gone.
    version = F.col("expected_count") + observed + F.col("results") + clock.unprovable_offsets
    same = F.lit(True)
    for part in ("count", "a", "b"):
        total = F.col(f"processed_{part}") + F.col(f"late_{part}") + F.col(f"rejected_{part}")
        same = same & (F.col(f"expected_{part}") == total)
    agrees = same & F.lit(not rules.compares_all)
    compared = F.coalesce(F.col("expansion.version") == version, F.lit(False))

    resting = F.coalesce(F.col("rest_us") >= F.greatest("expected_us", "observed_us"), F.lit(False))
    resolved = (
        F.col("observed_us").isNull()
        | F.coalesce(clock.inputs_us >= F.col("observed_us"), F.lit(False))
        | (resting & ~clock.inputs_held)
    )
    out_of_scope = F.coalesce(F.col("window_start_us") < clock.horizon_us, F.lit(False))
    for at_us, horizon_us in clock.retired:
        # Other facts of the cell may have been dropped: what is left of it cannot be judged.
        came_after = F.col("first_seen_us") > F.lit(at_us)
        out_of_scope = out_of_scope | (came_after & (F.col("window_start_us") < F.lit(horizon_us)))
    return {
        "observed": observed,
        "version": version,
        "agrees": agrees,
        "compared": compared,
        "resolved": resolved,
        # A cell without an observed id has nothing that an input could still explain.
        "provisional": ~agrees & ~(compared & (resolved | (observed == 0))),
        "in_scope": ~out_of_scope,
        "state": _outstanding_state(clock, rules, resting),
    }


def _outstanding_state(clock: ClockColumns, rules: Rules, resting: Column) -> Column:
    """pending, overdue, blocked or missing: what outstanding contributions of the cell are (SEMANTICS section 3)."""
    due = F.greatest("closed_us", "expected_us")

    def past(proof: Column, after_us: int) -> Column:
        return F.coalesce(proof >= due + F.lit(after_us), F.lit(False))

    overdue = past(clock.outputs_us, rules.overdue_after_us)
    missing = past(clock.outputs_us, rules.missing_after_us)
    held = clock.outputs_held & past(clock.unheld_outputs_us, rules.overdue_after_us)
    return (
        F.when(F.col("closed_us").isNull(), F.lit("pending"))
        .when(missing, F.lit("missing"))
        .when(resting, F.when(clock.outputs_held, F.lit("blocked")).otherwise(F.lit("missing")))
        .when(overdue, F.lit("overdue"))
        .when(held, F.lit("blocked"))
        .otherwise(F.lit("pending"))
    )


def _counts() -> dict[str, Column]:
    """Counts before time and scope are looked at: from agreement, from the expansion, or provisional."""
    expected, processed = F.col("expected_count"), F.col("processed_count")
    late, rejected, observed = F.col("late_count"), F.col("rejected_count"), F.col("observed")
    x = {name: F.col(f"expansion.{name}") for name in EXPANSION_TYPE.fieldNames()}
    exact = ~F.col("provisional")
    agrees = F.col("agrees")
    zero = F.lit(0).cast("bigint")

    guess_processed = F.least(expected, processed)
    guess_late = F.least(expected - guess_processed, late)
    guess_rejected = F.least(expected - guess_processed - guess_late, rejected)
    guess_answered = guess_processed + guess_late + guess_rejected

    # Results that carry no id at all need no comparison.
    empty_right = F.when((observed == 0) & (expected == 0), F.col("results")).otherwise(zero)
    empty_wrong = F.when((observed == 0) & (expected > 0), F.col("results")).otherwise(zero)

    def pick(when_agrees: Column, when_exact: Column, otherwise: Column) -> Column:
        return F.when(agrees, when_agrees).when(exact, when_exact).otherwise(otherwise)

    def pick_results(when_agrees: Column, when_exact: Column, otherwise: Column) -> Column:
        return F.when(F.col("resolved"), pick(when_agrees, when_exact, otherwise)).otherwise(zero)

    return {
        "n_expected": pick(expected, x["expected"], expected),
        "n_processed": pick(processed, x["processed"], guess_processed),
        "n_late": pick(late, x["late"], guess_late),
        "n_rejected": pick(rejected, x["rejected"], guess_rejected),
        "n_duplicate": pick(zero, x["duplicate"], zero),
        "n_misplaced": pick(zero, x["known"], zero),
        "n_unknown": pick(zero, x["unknown"], zero),
        "n_unresolved": pick(zero, zero, observed - guess_answered),
        "n_outstanding": pick(zero, x["outstanding"], expected - guess_answered),
        "n_dropped": pick(zero, x["dropped_late"], zero),
        "n_unconsumed": pick(zero, x["unconsumed"], zero),
        "n_unprovable": pick(zero, x["unprovable"], zero),
        # Results of a cell that lacks nothing and has nothing in excess are right, in however many parts they came.
        "correct": pick_results(F.col("results"), x["correct"], empty_right),
        "incomplete": pick_results(zero, x["incomplete"], empty_wrong),
        "excess": pick_results(zero, x["excess"], zero),
        "misplaced_results": pick_results(zero, x["misplaced"], zero),
    }


def _scoped(clock: ClockColumns, rules: Rules) -> dict[str, Column]:
    """Scope, and outstanding contributions by the state of their cell."""
    state, scope = F.col("state"), F.col("in_scope")
    late_enough = state.isin("overdue", "missing")
    dropped = F.when(late_enough & F.lit(rules.drops_late), F.col("n_dropped")).otherwise(F.lit(0))
    unconsumed = F.when(late_enough & F.lit(rules.tells_unconsumed), F.col("n_unconsumed")).otherwise(F.lit(0))
    # Where answers were gone before they could be read, what they may have answered is never called missing.
    due = F.greatest("closed_us", "expected_us")
    gap = clock.gone_us.isNotNull() & F.coalesce(clock.gone_us < due + F.lit(rules.missing_after_us), F.lit(False))
    unprovable = F.when((state == "missing") & gap, F.col("n_unprovable")).otherwise(F.lit(0))
    rest = F.col("n_outstanding") - dropped - unconsumed - unprovable
    columns = {
        "expected": F.col("n_expected"),
        "processed": F.col("n_processed"),
        "late": F.col("n_late"),
        "rejected": F.col("n_rejected"),
        "duplicate": F.col("n_duplicate"),
        "misplaced": F.col("n_misplaced"),
        "unknown_id": F.col("n_unknown"),
        "unresolved": F.col("n_unresolved"),
        "dropped_late": dropped,
        "unconsumed": unconsumed,
    }
    # What was not compared may be excused by what comparing shows (late, unconsumed, repeated): not missing yet.
    shown = F.when((state == "missing") & F.col("provisional"), F.lit("overdue")).otherwise(state)
    for name in ("pending", "overdue", "blocked", "missing"):
        columns[name] = F.when(shown == name, rest).otherwise(F.lit(0))
    columns["overdue"] = columns["overdue"] + unprovable
    scoped = {name: F.when(scope, column).otherwise(F.lit(0)).cast("bigint") for name, column in columns.items()}
    scoped["out_of_scope"] = F.when(scope, F.lit(0)).otherwise(F.col("expected_count")).cast("bigint")
    for name in RESULTS:
        scoped[name] = F.when(scope, F.col(name)).otherwise(F.lit(0)).cast("bigint")

    needs_ids = F.lit(rules.drops_late or rules.tells_unconsumed or rules.compares_all) & late_enough
    seen = F.col("observed") > 0
    clear = ~F.col("agrees") & (F.col("resolved") | ~seen)
    disagrees = clear & (seen | needs_ids)
    consumed_may_move = F.col("compared") & (F.col("expansion.unconsumed") > 0)
    # Whole cells without an answer are compared too once they are lost: their ids are the evidence.
    lost = clear & (state == "missing") & (F.col("n_outstanding") > 0)
    scoped["wants_expansion"] = scope & (disagrees | lost) & (~F.col("compared") | consumed_may_move)
    # A loss in a cell that was compared before it was due is compared once more: the violation names its ids.
    found = F.coalesce(F.col("published.missing"), F.lit(0))
    scoped["wants_evidence"] = lost & F.col("compared") & (scoped["missing"] > found)
    scoped["settled"] = ~scope | (
        F.col("closed_us").isNotNull()
        & F.col("resolved")
        & (F.col("agrees") | (F.col("n_outstanding") == 0) | (state == "missing"))
        & ~scoped["wants_expansion"]
    )
    return scoped


_DECISIONS: Final = ("wants_expansion", "wants_evidence", "settled")


@built_once
def changed() -> Column:
    """Whether the derived tables must be told of the cell: its verdict differs from what they say, and is worth saying
    (something is decided or late) or was said before."""
    told = F.col("published").isNotNull()
    worth = F.col("settled") | (F.col("state") != "pending")
    for name in VIOLATIONS:
        worth = worth | (F.col(name) > 0)
    return (told | worth) & ~F.col("digest").eqNullSafe(F.col("published.digest"))


def told(judged: DataFrame) -> DataFrame:
    """The cells, with what the derived tables say of them once the changed ones were appended."""
    return judged.select(*_told())


@built_once
def _told() -> list[Column]:
    now = F.struct(F.col("digest"), *[F.col(name) for name in VIOLATIONS])
    published = F.when(changed(), now.cast(PUBLISHED_TYPE)).otherwise(F.col("published")).alias("published")
    return [published if field.name == "published" else F.col(field.name) for field in CELLS_TYPE.fields]

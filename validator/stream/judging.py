"""The cells in memory: folded batch by batch, judged against the clock, the disagreeing ones compared id by id.

Everything here can be dropped and rebuilt from the facts table (`rebuild`). Spark jobs per batch: one that folds,
judges
and sums; two more and a second sum when cells must be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from validator.model.frontier import Clock
from validator.reconcile import cells as cell_rows
from validator.reconcile import expand, joined
from validator.reconcile.built_once import built_once
from validator.reconcile.facts import Side
from validator.reconcile.judge import (
    CONTRIBUTIONS,
    RESULTS,
    VIOLATIONS,
    ClockColumns,
    Judgement,
    Rules,
    changed,
    told,
)
from validator.state.tables import Table, read
from validator.stream.rows import literal_frame

PLACES_TYPE: Final = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", LongType()),
        StructField("committed_offset", LongType()),
        StructField("unprovable_below", LongType()),
    ]
)
"""Per input partition: the engine's committed offset, and below which offset answers may have been gone."""


@dataclass(frozen=True)
class Sums:
    """Totals over all cells after a batch."""

    counts: dict[str, int]
    results: dict[str, int]
    cells_seen: int = 0
    cells_closed: int = 0
    cells_verified: int = 0
    cells_violated: int = 0
    cells_settled: int = 0
    changed: int = 0
    violations_changed: int = 0
    wanting: int = 0
    oldest_wanting_batch: int | None = None
    oldest_wanting_window_us: int | None = None
    newest_wanting_window_us: int | None = None
    settled_expected: int = 0
    settled_handled: int = 0
    settled_exact: int = 0

    def plus(self, other: Sums) -> Sums:
        """The totals over both; what concerns one batch only is this one's."""
        whole = ("cells_seen", "cells_closed", "cells_verified", "cells_violated", "cells_settled")
        settled = ("settled_expected", "settled_handled", "settled_exact")
        return replace(
            self,
            counts={name: count + other.counts.get(name, 0) for name, count in self.counts.items()},
            results={name: count + other.results.get(name, 0) for name, count in self.results.items()},
            **{name: getattr(self, name) + getattr(other, name) for name in (*whole, *settled)},
        )

    def to_json(self) -> dict[str, object]:
        """Plain values for a mark in the facts table."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Sums:
        """The value that `to_json` gave."""
        return cls(**kept)

    @classmethod
    def empty(cls) -> Sums:
        """Of no cells."""
        return cls(dict.fromkeys(CONTRIBUTIONS, 0), dict.fromkeys(RESULTS, 0))


@dataclass
class Judging:
    """The cells of one state and their verdicts after the last batch."""

    spark: SparkSession
    state: Path
    rules: Rules
    cells: DataFrame | None = None
    judged: DataFrame | None = None
    compared: DataFrame | None = None
    sums: Sums = field(default_factory=Sums.empty)
    retired: Sums = field(default_factory=Sums.empty)
    _held: list[DataFrame] = field(default_factory=list)
    _judgement: Judgement | None = None

    def absorb(self, facts: DataFrame | None, clock: Clock, places: Sequence[Mapping[str, object]]) -> Sums:
        """Fold ``facts`` of one batch into the cells and judge all of them by ``clock``.

        ``places``: rows of `PLACES_TYPE`, of the input partitions for which either offset is known.
        """
        before, self._held = self._held, []
        parts = [] if self.cells is None else [self.cells]
        if facts is not None:
            parts.append(cell_rows.fold(facts))
        if not parts:
            return self.sums
        # What the last batch held feeds this one's cells, and is free once they are there.
        if self._judgement is None or self._judgement.retired != clock.retired:
            self._judgement = Judgement(ClockColumns.beside(clock.retired), self.rules)
        judgement = self._judgement
        merged = cell_rows.merge(*parts) if len(parts) > 1 else parts[0]
        kept = self._keep(judgement.close(merged, clock))
        self.judged, self.compared = judgement.judge(kept, clock), None
        sums = self._sum(self.judged)
        if sums.wanting:
            expansions = self._expand(self.judged, sums, places)
            again = self._keep(cell_rows.compared_anew(kept, expansions))
            self.judged = judgement.judge(again, clock)
            sums = self._sum(self.judged)
        self.cells = told(self.judged)
        for frame in before:
            release(frame)
        self.sums = sums.plus(self.retired)
        return self.sums

    def retire(self, goes: Column, retired: Sums) -> None:
        """Let the cells for which ``goes`` holds leave memory; ``retired`` are the totals of all that ever left."""
        assert self.judged is not None, "cells were judged before they are retired"
        self.cells = told(self.judged.where(~F.coalesce(goes, F.lit(False))))
        self.retired = retired

    def sum_of(self, judged: DataFrame) -> Sums:
        """Totals over some judged cells; one job."""
        return self._sum(judged)

    def _sum(self, judged: DataFrame) -> Sums:
        row = judged.agg(*_totals()).collect()[0]
        found = row.asDict()
        counts = {name: int(found.pop(f"c_{name}")) for name in CONTRIBUTIONS}
        results = {name: int(found.pop(f"r_{name}")) for name in RESULTS}
        return Sums(counts, results, **found)

    def _expand(self, judged: DataFrame, sums: Sums, places: Sequence[Mapping[str, object]]) -> DataFrame:
        """Expansions of the cells that want one: two jobs, a third where an observed id is unknown to its cell."""
        wants = judged.where("wants_expansion OR wants_evidence")
        wanted = self._keep(wants.select(*cell_rows.KEYS, "version", "results"))
        facts = read(self.spark, self.state, Table.FACTS)
        near = facts.where(
            (F.col("batch") >= F.lit(sums.oldest_wanting_batch))
            & F.col("window_start_us").between(
                F.lit(sums.oldest_wanting_window_us), F.lit(sums.newest_wanting_window_us)
            )
        ).join(F.broadcast(wanted.select(*cell_rows.KEYS)), list(cell_rows.KEYS), "left_semi")
        contributed = self._keep(expand.contributions(near))
        classified = self._classified(contributed, literal_frame(self.spark, places, PLACES_TYPE) if places else None)
        foreign = classified.where(F.col("foreign") > 0).select(*expand.ID).distinct()
        self.compared = classified
        known = self._known(foreign)
        results = expand.classify_results(contributed, classified, known)
        return expand.per_cell(classified, results, known, wanted)

    def _classified(self, contributed: DataFrame, places: DataFrame | None) -> DataFrame:
        """Classes per (cell, id), by the oracle's rule."""
        rules = self.rules
        if rules.join is not None:
            ids = joined.by_id(
                contributed,
                rules.join,
                window_us=rules.window_us,
                drops_late=rules.drops_late,
                reaches=self._reaches(),
                places=places,
            )
            return joined.classify(self._keep(ids))
        ids = expand.by_id(
            contributed,
            window_us=rules.window_us,
            collapse=rules.collapse,
            reaches=self._reaches() if rules.drops_late else None,
            places=places,
        )
        return expand.classify(self._keep(ids))

    def _known(self, foreign: DataFrame) -> DataFrame:
        """Those of the foreign ids that some input has, within what the facts table still holds."""
        asked = self._keep(foreign)
        bounds = asked.agg(F.count(F.lit(1)).alias("n"), F.min("id").alias("low"), F.max("id").alias("high")).collect()[
            0
        ]
        if bounds["n"] == 0:
            return asked
        facts = read(self.spark, self.state, Table.FACTS)
        inputs = facts.where(F.col("side") == Side.INPUT.value)
        if bounds["low"] is not None:
            overlaps = (F.col("max_id") >= bounds["low"]) & (F.col("min_id") <= bounds["high"])
            inputs = inputs.where(overlaps | (F.size("text_ids") > 0))
        events = expand.contributions(inputs).select(*expand.ID)
        same = F.lit(True)
        for name in expand.ID:
            same = same & F.col(f"a.{name}").eqNullSafe(F.col(f"e.{name}"))
        return asked.alias("a").join(events.alias("e"), same, "left_semi")

    def _reaches(self) -> DataFrame:
        return expand.reaches_of(read(self.spark, self.state, Table.FACTS))

    def _keep(self, frame: DataFrame) -> DataFrame:
        """The frame held in memory (on disk beyond that) with its lineage cut, filled by the first job that reads
        it."""
        held = frame.localCheckpoint(eager=False)
        self._held.append(held)
        return held


def release(frame: DataFrame) -> None:
    """Free the blocks of a frame made by `localCheckpoint`."""
    frame._jdf.logicalPlan().rdd().unpersist(False)


@built_once
def _totals() -> list[Column]:
    """What `Judging` sums over judged cells."""
    wants = F.col("wants_expansion") | F.col("wants_evidence")
    violated = F.lit(False)
    moved = F.lit(False)
    for name in VIOLATIONS:
        violated = violated | (F.col(name) > 0)
        moved = moved | (F.col(name) != F.coalesce(F.col(f"published.{name}"), F.lit(0)))
    settled = F.col("settled") & F.col("in_scope")

    def count(condition: Column) -> Column:
        return F.count(F.when(condition, F.lit(1)))

    def total(name: str, condition: Column) -> Column:
        return F.coalesce(F.sum(F.when(condition, F.col(name))), F.lit(0))

    return [
        *[F.coalesce(F.sum(name), F.lit(0)).alias(f"c_{name}") for name in CONTRIBUTIONS],
        *[F.coalesce(F.sum(name), F.lit(0)).alias(f"r_{name}") for name in RESULTS],
        F.count(F.lit(1)).alias("cells_seen"),
        count(F.col("closed_us").isNotNull()).alias("cells_closed"),
        count(settled & F.col("closed_us").isNotNull() & ~violated).alias("cells_verified"),
        count(violated).alias("cells_violated"),
        count(F.col("settled")).alias("cells_settled"),
        count(changed()).alias("changed"),
        count(moved).alias("violations_changed"),
        count(wants).alias("wanting"),
        F.min(F.when(wants, F.col("first_batch"))).alias("oldest_wanting_batch"),
        F.min(F.when(wants, F.col("window_start_us"))).alias("oldest_wanting_window_us"),
        F.max(F.when(wants, F.col("window_start_us"))).alias("newest_wanting_window_us"),
        total("expected", settled).alias("settled_expected"),
        (total("processed", settled) + total("late", settled)).alias("settled_handled"),
        F.coalesce(
            F.sum(F.when(settled, F.greatest(F.col("processed") - F.col("duplicate"), F.lit(0)))), F.lit(0)
        ).alias("settled_exact"),
    ]

"""The Spark core over many histories at once, with the sidecar's own `Judging`.

Either every step of every history is a world of its own, and all are judged at once from all of their facts, as after a
restart; or the histories are judged batch after batch, as live. Only the clock is put in: `Judging` has one for all
cells, here each world has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.property import spark_frames as frames
from tests.property.spark_frames import World
from tests.property.spark_histories import Case, Instant, instants
from validator.model.frontier import Clock
from validator.reconcile import cells as cell_rows
from validator.reconcile.judge import CONTRIBUTIONS, RESULTS, VIOLATIONS, ClockColumns, Judgement, Rules
from validator.stream import judging as judging_module
from validator.stream.judging import Judging

Row = dict[str, Any]

_CELL: Final = tuple(field.name for field in cell_rows.CELLS_TYPE.fields)
_SHOWN: Final = (
    "window_start_us",
    "agrees",
    "resolved",
    "in_scope",
    "state",
    "settled",
    "expected_count",
    "processed_count",
    "late_count",
    "rejected_count",
    "version",
    "observed_us",
    "closed_us",
    "rest_us",
    "results",
    *CONTRIBUTIONS,
    *RESULTS,
)


class Judged:
    """Cases that share what cannot be a column (whether ids repeat, whether lateness or consumption is told)."""

    def __init__(self, spark: SparkSession, cases: Sequence[Case], worlds: Sequence[World], folder: Path) -> None:
        self.spark = spark
        self.cases = cases
        self.worlds = worlds
        self.folder = folder
        self._clocks: DataFrame | None = None
        self.facts = frames.facts(spark, cases, worlds, folder).localCheckpoint()
        summaries = frames.summaries_by_case(self.facts, worlds, cases)
        self.instants: list[list[Instant]] = [
            instants(case, summary) for case, summary in zip(cases, summaries, strict=True)
        ]

    @property
    def rules(self) -> Rules:
        """The rules of all cases: times are columns beside a cell, or follow from its key."""
        rules = [case.rules for case in self.cases]
        assert len({rule.collapse for rule in rules}) == 1
        return Rules(
            window_us=frames.as_number(frames.window_us()),
            overdue_after_us=frames.as_number(F.col("overdue_after_us")),
            missing_after_us=frames.as_number(F.col("missing_after_us")),
            collapse=rules[0].collapse,
            # Told for all where one asks: the others have no late events, and their groups no offsets.
            drops_late=any(rule.drops_late for rule in rules),
            tells_unconsumed=any(rule.tells_unconsumed for rule in rules),
        )

    def at_once(self) -> dict[World, list[Row]]:
        """Fold all facts of each world, as after a restart, and judge it by its clock."""
        judging = Judging(self.spark, self.folder, self.rules)
        with self._told(self.worlds, self.facts, "at-once") as worlds:
            known = frames.with_closings(cell_rows.fold(self.facts), worlds)
            judging.cells = known.select(*_CELL).localCheckpoint()
            judging.absorb(None, _none_for_all(), [{}])
            return self._collected(judging, self.worlds)

    def batch_by_batch(self) -> Iterator[dict[World, list[Row]]]:
        """Judge step after step, as the sidecar judges batch after batch. The worlds are whole."""
        judging = Judging(self.spark, self.folder, self.rules)
        for step in range(max(world.step for world in self.worlds) + 1):
            now = [World(world.case, min(step, world.step)) for world in self.worlds]
            read = self.facts.where(F.col("batch") <= step)
            with self._told(now, read, f"step-{step}"):
                judging.absorb(self.facts.where(F.col("batch") == step), _none_for_all(), [{}])
                rows = self._collected(judging, now)
            yield {world: found for world, found in rows.items() if world.step == step}

    @contextmanager
    def _told(self, worlds: Sequence[World], read: DataFrame, name: str) -> Iterator[DataFrame]:
        """Within, the sidecar's judging reads `read` for the facts table and has each world's own clock and places."""
        clocks = frames.worlds_frame(self.spark, self.cases, worlds, self.instants, self.folder / f"{name}.parquet")
        places = frames.places_frame(self.spark, worlds, self.instants, self.folder / f"{name}-places.parquet")

        self._clocks, judged = clocks, self

        class OwnClocks(Judgement):
            def __init__(self, _: ClockColumns, rules: Rules) -> None:
                super().__init__(frames.own_clock(), rules)

            def timed(self, cells: DataFrame, _: Clock) -> DataFrame:
                # A judgement is kept from step to step, the clocks are not.
                assert judged._clocks is not None
                return frames.timed(cells, judged._clocks)

        with patch.multiple(
            judging_module,
            read=lambda *_: read,
            literal_frame=lambda *_: places,
            Judgement=OwnClocks,
        ):
            yield clocks

    def _collected(self, judging: Judging, worlds: Sequence[World]) -> dict[World, list[Row]]:
        assert judging.judged is not None
        compared = F.coalesce(F.col("expansion.version") == F.col("version"), F.lit(False)).alias("compared")
        told = [F.col(f"published.{name}").alias(f"told_{name}") for name in VIOLATIONS]
        names = [frames.world_of().alias("world"), F.substring_index("key", "/", -1).alias("key")]
        table = judging.judged.select(*names, *_SHOWN, compared, *told).toArrow()
        rows: dict[World, list[Row]] = {world: [] for world in worlds}
        for row in table.to_pylist():
            rows[worlds[row.pop("world")]].append(row)
        return rows


def _none_for_all() -> Clock:
    """No clock that says anything: each world has its own."""
    return Clock(0, None, None, None, None, None, None, 0, outputs_held=False, inputs_held=False)

"""The Spark core over many histories at once, step by step, with the sidecar's own `Judging`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.property import spark_frames
from tests.property.spark_histories import Case, Instant, instants
from validator.model.frontier import Clock, Rest
from validator.reconcile import cells as cell_rows
from validator.reconcile.judge import CONTRIBUTIONS, RESULTS, VIOLATIONS, ClockColumns, Rules
from validator.stream import judging as judging_module
from validator.stream.judging import Judging
from validator.stream.rows import literal_frame

Row = dict[str, Any]

_SHOWN: Final = (
    "window_start_us",
    "key",
    "agrees",
    "resolved",
    "in_scope",
    "state",
    "version",
    "observed_us",
    "results",
    *CONTRIBUTIONS,
    *RESULTS,
)
_CLOCK_TYPE: Final = StructType(
    [
        StructField("case", LongType()),
        StructField("at_us", LongType()),
        StructField("reached_us", LongType()),
        StructField("rest", StringType()),
    ]
)


@dataclass(frozen=True)
class Batch:
    """What the core says after step `step`: the cells of every case that has such a step."""

    step: int
    rows: dict[int, list[Row]]


@dataclass
class Run:
    """Cases that share what cannot be a column (whether ids repeat, whether lateness or consumption is told)."""

    spark: SparkSession
    cases: Sequence[Case]
    folder: Path

    def __post_init__(self) -> None:
        self.facts = spark_frames.facts(self.spark, self.cases, self.folder).localCheckpoint()
        summaries = spark_frames.summaries_by_case(self.facts)
        self.instants: list[list[Instant]] = [
            instants(case, summaries.get(number, {})) for number, case in enumerate(self.cases)
        ]
        self.steps = max(map(len, self.instants))

    @property
    def rules(self) -> Rules:
        """The rules of all cases: times follow from a cell's key."""
        rules = [case.rules for case in self.cases]
        assert len({rule.collapse for rule in rules}) == 1

        def column(name: str) -> Any:
            return spark_frames.of_case([getattr(rule, name) for rule in rules])

        return Rules(
            window_us=column("window_us"),
            overdue_after_us=column("overdue_after_us"),
            missing_after_us=column("missing_after_us"),
            collapse=rules[0].collapse,
            # Told for all where one asks: the others have no late events, and their groups no offsets.
            drops_late=any(rule.drops_late for rule in rules),
            tells_unconsumed=any(rule.tells_unconsumed for rule in rules),
        )

    def instants_of(self, step: int) -> list[Instant]:
        """Each case's instant of a step; the last one where it has no such step."""
        return [known[min(step, len(known) - 1)] for known in self.instants]

    def clock(self, step: int) -> ClockColumns:
        """The clocks of a step."""
        return spark_frames.clock_columns([instant.clock for instant in self.instants_of(step)])

    def places(self, step: int) -> list[dict[str, object]]:
        """Rows of `PLACES_TYPE` of all cases."""
        return [
            {**place, "partition": number * spark_frames.PARTITIONS + int(str(place["partition"]))}
            for number, instant in enumerate(self.instants_of(step))
            for place in instant.places
        ]

    def batches(self) -> Iterator[Batch]:
        """Judge step after step, as the sidecar judges batch after batch."""
        judging = Judging(self.spark, self.folder, self.rules)
        for step in range(self.steps):
            with self._facts_upto(step):
                new = self.facts.where(F.col("batch") == step)
                judging.absorb(new, _as_clock(self.clock(step)), self.places(step))
                yield self._collected(judging, step)

    def at_once(self) -> Batch:
        """Fold all facts at once, as after a restart, and judge by the last clocks."""
        judging = Judging(self.spark, self.folder, self.rules)
        last = self.steps - 1
        with self._facts_upto(last):
            judging.cells = self._refolded()
            judging.absorb(None, _as_clock(self.clock(last)), self.places(last))
            return self._collected(judging, last, everything=True)

    def _refolded(self) -> DataFrame:
        """The cells from all facts, closing times as each case's watermarks decided them."""
        ends = [
            (number, instant.clock.lookup_us, instant.clock.watermark_us, instant.clock.rest.value)
            for number, known in enumerate(self.instants)
            for instant in known
        ]
        clocks = literal_frame(
            self.spark,
            [dict(zip(_CLOCK_TYPE.fieldNames(), end, strict=True)) for end in ends],
            _CLOCK_TYPE,
        )
        folded = cell_rows.fold(self.facts).drop("closed_us", "rest_us")
        at_end = F.col("window_start_us") + self.rules.window_us
        seen = F.col("at_us") >= F.col("first_seen_us")
        closes = (F.col("reached_us") >= at_end) | (F.col("rest") == Rest.ALL.value)
        times = (
            folded.withColumn("case", spark_frames.case_number())
            .join(F.broadcast(clocks), "case")
            .groupBy(*cell_rows.KEYS)
            .agg(
                F.min(F.when(closes & seen, F.col("at_us"))).alias("closed_us"),
                F.max(F.when((F.col("rest") != Rest.NONE.value) & seen, F.col("at_us"))).alias("rest_us"),
            )
        )
        whole = folded.join(times, list(cell_rows.KEYS))
        return whole.select(*[field.name for field in cell_rows.CELLS_TYPE.fields]).localCheckpoint()

    @contextmanager
    def _facts_upto(self, step: int) -> Iterator[None]:
        """Within, the sidecar's judging reads the facts up to a step, and takes clocks that are columns already."""
        read = self.facts.where(F.col("batch") <= step)
        with (
            patch.object(judging_module, "read", lambda *_: read),
            patch.object(judging_module, "ClockColumns", SimpleNamespace(of=lambda clock: clock)),
        ):
            yield

    def _collected(self, judging: Judging, step: int, *, everything: bool = False) -> Batch:
        assert judging.judged is not None
        there = [int(everything or step < len(known)) for known in self.instants]
        compared = F.coalesce(F.col("expansion.version") == F.col("version"), F.lit(False))
        told = [F.col(f"published.{name}").alias(f"told_{name}") for name in VIOLATIONS]
        shown = judging.judged.where(spark_frames.of_case(there) == 1).select(*_SHOWN, compared.alias("compared"), *told)
        rows: dict[int, list[Row]] = {number: [] for number, at in enumerate(there) if at}
        for row in shown.toArrow().to_pylist():
            number, _, row["key"] = row["key"].partition("/")
            rows[int(number)].append(row)
        return Batch(step, rows)


def _as_clock(columns: ClockColumns) -> Clock:
    """Columns where the core's type says literals; see `Run._facts_upto`."""
    return cast(Clock, columns)

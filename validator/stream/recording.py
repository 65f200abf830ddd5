"""Appends to the derived tables, each idempotent, and only when something changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from validator.measure.attribution import phase_columns
from validator.model.snapshot import FaultWindow
from validator.reconcile import violations
from validator.reconcile.judge import Rules, changed
from validator.state.tables import Table, append
from validator.stream.judging import release

LATEST_KEPT: Final = 50
"""Violations shown per batch; all of them are in the table."""


@dataclass(frozen=True)
class Recorded:
    """What an append to the violations table added: sums by (class, phase, fault, state, provable_us), and the largest
    rows."""

    sums: tuple[Row, ...]
    latest: tuple[Row, ...]


@dataclass(frozen=True)
class Moment:
    """Which commit a derived row belongs to."""

    state: Path
    writer: str
    batch: int
    lookup_us: int


def record_verdicts(judged: DataFrame, moment: Moment) -> None:
    """Append the verdicts that changed."""
    rows = judged.where(changed()).withColumns(
        {"batch": F.lit(moment.batch).cast("bigint"), "lookup_us": F.lit(moment.lookup_us).cast("bigint")}
    )
    append(rows, moment.state, Table.VERDICTS, writer=moment.writer, version=moment.batch)


def record_violations(
    judged: DataFrame,
    compared: DataFrame | None,
    rules: Rules,
    faults: Sequence[FaultWindow],
    moment: Moment,
    *,
    suspected: frozenset[str],
) -> Recorded:
    """Append the violations that moved."""
    rows = violations.moved(judged, rules, suspected=suspected)
    if compared is not None:
        rows = rows.join(violations.evidence(compared), ["window_start_us", "key", "class"], "left")
    else:
        rows = rows.withColumn("ids", F.lit(None).cast("array<string>"))
    phase, fault = phase_columns(F.col("at_us"), faults)
    rows = rows.withColumns(
        {
            "batch": F.lit(moment.batch).cast("bigint"),
            "lookup_us": F.lit(moment.lookup_us).cast("bigint"),
            "phase": phase,
            "fault": fault,
            "explanation": violations.explain(),
            "ids": F.coalesce("ids", F.array().cast("array<string>")),
        }
    ).localCheckpoint(eager=False)
    append(rows, moment.state, Table.VIOLATIONS, writer=moment.writer, version=moment.batch)
    summed = rows.groupBy("class", "phase", "fault", "state", "provable_us").agg(
        F.sum("confirmed").alias("confirmed"), F.sum("retracted").alias("retracted"), F.count(F.lit(1)).alias("rows")
    )
    found = tuple(summed.collect())
    largest = rows.orderBy(F.col("count").desc(), "class", "window_start_us", "key").limit(LATEST_KEPT)
    latest = tuple(largest.collect())
    release(rows)
    return Recorded(found, latest)

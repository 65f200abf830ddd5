"""Retention: cells that have not changed for `state.retention` leave memory, and their epochs leave the facts table.

The decision is one commit to the facts table: a mark with the totals of what is retired, and again the rows of dropped
epochs whose cells stay. Killed before it, nothing happened; killed after it, the next start finds the mark, and drops
the folders that are left.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from validator.model.books import Books, Retirement
from validator.reconcile.cells import KEYS, contributions_of
from validator.reconcile.facts import Kind
from validator.state.tables import Table, path_of, read
from validator.stream.committing import epoch_length_us, epoch_of
from validator.stream.judging import Judging, Sums

_PREFIX: Final = "retired "
MARKS_KEPT: Final = 50
"""Retirements remembered; older ones concern cells that are themselves retired by now."""


@dataclass(frozen=True)
class Retired:
    """What retention has dropped so far: totals, the newest epoch dropped, and the horizons."""

    sums: Sums = field(default_factory=Sums.empty)
    through_epoch: int = -1
    retirements: tuple[Retirement, ...] = ()

    def to_mark(self) -> str:
        """Text for a mark row."""
        kept = {
            "sums": self.sums.to_json(),
            "through_epoch": self.through_epoch,
            "retirements": [[r.at_us, r.horizon_us] for r in self.retirements],
        }
        return _PREFIX + json.dumps(kept, sort_keys=True)

    @classmethod
    def from_mark(cls, text: str) -> Retired:
        """The value that `to_mark` wrote."""
        kept = json.loads(text.removeprefix(_PREFIX))
        return cls(
            Sums.from_json(kept["sums"]),
            int(kept["through_epoch"]),
            tuple(Retirement(at, horizon) for at, horizon in kept["retirements"]),
        )


def retired_so_far(facts: DataFrame) -> Retired:
    """The newest mark of retention in the facts table."""
    marks = facts.where((F.col("kind") == Kind.MARK.value) & F.col("mark").startswith(_PREFIX))
    newest = marks.orderBy(F.col("batch").desc()).limit(1).collect()
    return Retired.from_mark(newest[0]["mark"]) if newest else Retired()


def is_due(books: Books, retired: Retired, retention_us: int) -> bool:
    """Whether an epoch that was not dropped yet ended more than ``retention_us`` ago."""
    return last_droppable(books, retention_us) > retired.through_epoch


def oldest_epoch(state: Path) -> int | None:
    """The oldest epoch that has a folder."""
    names = [folder.name.removeprefix("epoch=") for folder in (state / Table.FACTS.value).glob("epoch=*")]
    return min((int(name) for name in names if name.isdigit()), default=None)


def last_droppable(books: Books, retention_us: int) -> int:
    """The newest epoch (its start in seconds) all of whose facts are older than ``retention_us``."""
    length_us = epoch_length_us(retention_us)
    return epoch_of(books.lookup_us - retention_us - length_us, retention_us)


def plan(
    spark: SparkSession, state: Path, judging: Judging, books: Books, retired: Retired, retention_us: int
) -> tuple[Retired, DataFrame, Column]:
    """What retirement would do now: its mark, the rows to append again, and which of the judged cells leave."""
    assert judging.judged is not None, "cells were judged before they are retired"
    cutoff = F.lit(books.lookup_us - retention_us)
    goes = F.greatest("expected_us", "observed_us") < cutoff
    leaving = judging.judged.where(goes)
    bounds = leaving.agg(F.max("window_start_us")).collect()[0][0]
    sums = judging.sum_of(leaving)
    through = last_droppable(books, retention_us)
    retirements = retired.retirements
    if bounds is not None:
        retirements = (*retirements, Retirement(books.lookup_us, bounds + 1))[-MARKS_KEPT:]
    new = Retired(retired.sums.plus(sums), through, retirements)
    staying = judging.judged.where(
        ~goes & (F.col("first_seen_us") < F.lit(through * 1_000_000 + epoch_length_us(retention_us)))
    )
    old = contributions_of(read(spark, state, Table.FACTS)).where(F.col("epoch") <= through)
    carried = old.join(staying.select(*KEYS), list(KEYS), "left_semi")
    return new, carried.withColumn("epoch", F.lit(epoch_of(books.lookup_us, retention_us)).cast("bigint")), goes


def drop_folders(spark: SparkSession, state: Path, through_epoch: int) -> None:
    """Take dropped epochs out of the table, then their folders off the disk; again and again does no harm."""
    from delta.tables import DeltaTable

    folders = [
        folder
        for folder in (state / Table.FACTS.value).glob("epoch=*")
        if folder.name.removeprefix("epoch=").isdigit() and int(folder.name.removeprefix("epoch=")) <= through_epoch
    ]
    if not folders:
        return
    DeltaTable.forPath(spark, path_of(state, Table.FACTS)).delete(F.col("epoch") <= F.lit(through_epoch))
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def trim_logs(state: Path, keep: int = 20) -> None:
    """Remove log entries that a checkpoint has made superfluous. Delta itself removes whole days only (LAYOUT, 2), and
    lists what is left at every commit."""
    for table in Table:
        log = state / table.value / "_delta_log"
        pointer = log / "_last_checkpoint"
        if not pointer.exists():
            continue
        version = int(json.loads(pointer.read_text())["version"])
        for entry in log.iterdir():
            number = entry.name.split(".", 1)[0]
            if number.isdigit() and int(number) < version - keep:
                entry.unlink(missing_ok=True)

"""Histories as frames: decoded records, facts, and clocks as columns that follow from a cell's key.

Many histories share a frame. The key of a cell begins with its history's number (`17/a`), ids carry it too, and
partition p of history h is h * `PARTITIONS` + p; topics stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.property.history import InputEvent, LateRecord, Record, ResultRecord, role_of
from tests.property.spark_histories import SOURCES, Case
from validator.codecs import scalars
from validator.codecs.columns import DECODED, DECODED_TYPE, RESULT_TYPE, UNDECODABLE
from validator.model.books import PartitionSummary
from validator.model.frontier import Clock, PartitionId, Rest
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.facts import FACTS_TYPE, Side, aggregate
from validator.reconcile.judge import ClockColumns
from validator.stream.committing import summaries

PARTITIONS: Final = 8
"""More partitions than a history has."""
STEPS: Final = 64
"""More steps than a history has."""
_SOURCE_OF: Final = {side.value: number for number, (side, _) in enumerate(SOURCES)}

_RECORDS_TYPE: Final = pa.schema(
    [
        ("case", pa.int64()),
        ("step", pa.int64()),
        ("lookup_us", pa.int64()),
        ("source", pa.int32()),
        ("status", pa.int32()),
        ("code", pa.int32()),
        ("offset", pa.int64()),
        ("time_us", pa.int64()),
        ("event_time_us", pa.int64()),
        ("given_window_us", pa.int64()),
        ("key", pa.string()),
        ("id_text", pa.string()),
        ("result_texts", pa.list_(pa.string())),
        ("window_us", pa.int64()),
        ("offset_us", pa.int64()),
        ("slack_us", pa.int64()),
        ("sane_us", pa.int64()),
        ("drops_late", pa.bool_()),
    ]
)


def key_of(number: int, key: str) -> str:
    """A cell's key among those of other histories."""
    return f"{number}/{key}"


def id_of(number: int, id_: str) -> str:
    """An id among those of other histories: an integer, or for some of each history a text."""
    plain = id_.isdigit() and (int(id_) + number) % 3 > 0
    return str(number * 1000 + int(id_)) if plain else f"{number}/{id_}"


def _row(number: int, case: Case, step: int, record: Record) -> dict[str, object]:
    timing, lookup_us = case.history.timing, case.history.steps[step].lookup_us
    row: dict[str, object] = {
        "case": number,
        "step": step,
        "lookup_us": lookup_us,
        "source": _SOURCE_OF[role_of(record)],
        "status": DECODED,
        "code": (number * STEPS + step) * PARTITIONS + record.partition,
        "offset": record.offset,
        "time_us": record.broker_time_us,
        "window_us": timing.window_us,
        "offset_us": timing.window_offset_us,
        "slack_us": timing.max_disorder_us + timing.allowed_lateness_us,
        "sane_us": lookup_us + timing.max_ahead_us,
        "drops_late": timing.late_policy == "drop",
    }
    match record:
        case InputEvent() | LateRecord():
            return row | {
                "key": key_of(number, record.key),
                "id_text": id_of(number, record.id),
                "event_time_us": record.event_time_us,
            }
        case ResultRecord():
            return row | {
                "key": key_of(number, record.key),
                "given_window_us": record.window_start_us,
                "result_texts": [id_of(number, id_) for id_ in record.ids],
            }
        case _:
            return row | {"status": UNDECODABLE}


def decoded(spark: SparkSession, cases: Sequence[Case], folder: Path) -> DataFrame:
    """Every record of the cases as `validator.stream.decode` would hand it over: `DECODED_TYPE`, the `partition` telling
    case and step as well, and beside it `sane_us`, the latest event time that moves the watermark."""
    rows = [
        _row(number, case, at, record)
        for number, case in enumerate(cases)
        for at, step in enumerate(case.history.steps)
        for record in step.records
    ]
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, _RECORDS_TYPE), folder / "records.parquet")
    records = spark.read.parquet(str(folder / "records.parquet"))
    # The oracle takes its parameters from each record's history.
    window = TumblingWindow(size_us=_any(F.col("window_us")), offset_us=_any(F.col("offset_us")))
    time, number = F.col("event_time_us"), scalars.integer_id(F.col("id_text"))
    texts = F.coalesce("result_texts", F.array().cast("array<string>"))
    numbered = records.withColumns(
        {
            "id": number,
            "text_id": scalars.text_id(F.col("id_text")),
            "ids": F.filter(F.transform(texts, scalars.integer_id), lambda id_: id_.isNotNull()),
            "text_ids": F.filter(texts, lambda text: scalars.integer_id(text).isNull()),
            # Without the policy `drop` nobody asks which events were late.
            "reach_us": F.when(
                F.col("drops_late") & (F.col("source") == 0), window.reach_us(time, _any(F.col("slack_us")))
            ),
            "window_start_us": F.coalesce("given_window_us", window.window_start_us(time)),
            "partition": F.col("code"),
        }
    )

    def fingerprint(term: Callable[[Column], Column]) -> Column:
        one = term(F.coalesce("id", scalars.text_number(F.col("text_id"))))
        many = _sum_of(F.col("ids"), term) + _sum_of(F.transform("text_ids", scalars.text_number), term)
        return F.coalesce(one, many)

    shaped = numbered.withColumns(
        {
            "result": F.when(
                F.col("result_texts").isNotNull(), F.struct("offset", "time_us", "ids", "text_ids").cast(RESULT_TYPE)
            ),
            "contributions": F.when(F.col("id_text").isNotNull(), F.lit(1)).otherwise(
                F.size("ids") + F.size("text_ids")
            ),
            "hash_a": fingerprint(scalars.hash_a),
            "hash_b": fingerprint(scalars.hash_b),
        }
    )
    return shaped.select(*[F.col(field.name).cast(field.dataType) for field in DECODED_TYPE.fields], "sane_us")


def _sum_of(items: Column, term: Callable[[Column], Column]) -> Column:
    return F.aggregate(items, F.lit(0).cast("bigint"), lambda total, item: total + term(item))


def _any(column: Column) -> Any:
    """A column where the core takes a number: all that it does with it is to make a column of it."""
    return column


def facts(spark: SparkSession, cases: Sequence[Case], folder: Path) -> DataFrame:
    """The fact rows of all steps of the cases, `batch` being the step."""
    coded = aggregate(
        decoded(spark, cases, folder),
        SOURCES,
        batch=0,
        lookup_us=0,
        epoch=0,
        max_ahead_us=_any(F.col("sane_us")),
        with_first_event=True,
    )
    lookups = pa.table(
        {
            "at": [n * STEPS + at for n, case in enumerate(cases) for at in range(len(case.history.steps))],
            "looked_up_us": [step.lookup_us for case in cases for step in case.history.steps],
        }
    )
    pq.write_table(lookups, folder / "lookups.parquet")
    at, place = F.floor(F.col("partition") / PARTITIONS), F.col("partition") % PARTITIONS
    moved = coded.withColumn("at", at).join(F.broadcast(spark.read.parquet(str(folder / "lookups.parquet"))), ["at"])
    return moved.withColumns(
        {
            "batch": F.col("at") % STEPS,
            "lookup_us": F.col("looked_up_us"),
            "partition": F.floor(F.col("at") / STEPS) * PARTITIONS + place,
        }
    ).select(*[F.col(field.name).cast(field.dataType) for field in FACTS_TYPE.fields])


def summaries_by_case(facts_of_all: DataFrame) -> dict[int, dict[tuple[int, PartitionId], PartitionSummary]]:
    """Case -> (step, partition) -> what the facts say of it; one job for all."""
    coded = facts_of_all.withColumn("partition", F.col("partition") * STEPS + F.col("batch").cast("int"))
    found: dict[int, dict[tuple[int, PartitionId], PartitionSummary]] = {}
    for summary in summaries(coded):
        rest, step = divmod(summary.place.partition, STEPS)
        number, partition = divmod(rest, PARTITIONS)
        place = PartitionId(summary.place.topic, partition)
        found.setdefault(number, {})[step, place] = PartitionSummary(
            place,
            summary.records,
            summary.undecodable,
            summary.tombstones,
            summary.newest_event_time_us,
            summary.first_event_time_us,
            summary.first_time_us,
            summary.last_time_us,
        )
    return found


# Values of a history beside its cells


def case_number() -> Column:
    """The number of the case that a cell belongs to."""
    return F.substring_index("key", "/", 1).cast("int")


def of_case(values: Sequence[int | None]) -> Column:
    """A value per case, as a column of any frame that has cells' keys."""
    texts = F.lit(",".join("" if value is None else str(value) for value in values))
    return F.get(F.split(texts, ",").cast("array<bigint>"), case_number())


def clock_columns(clocks: Sequence[Clock]) -> ClockColumns:
    """Each case's own clock."""

    def instant(name: str) -> Column:
        return of_case([getattr(clock, name) for clock in clocks])

    def flag(values: list[bool]) -> Column:
        return of_case([int(value) for value in values]) == 1

    return ClockColumns(
        lookup_us=instant("lookup_us"),
        watermark_us=instant("watermark_us"),
        inputs_us=instant("inputs_us"),
        outputs_us=instant("outputs_us"),
        unheld_outputs_us=instant("unheld_outputs_us"),
        horizon_us=instant("horizon_us"),
        gone_us=instant("gone_us"),
        outputs_held=flag([clock.outputs_held for clock in clocks]),
        inputs_held=flag([clock.inputs_held for clock in clocks]),
        rest_closed=flag([clock.rest is not Rest.NONE for clock in clocks]),
        rest_all=flag([clock.rest is Rest.ALL for clock in clocks]),
    )


SIDES: Final = tuple(Side)

"""Histories as frames: decoded records, facts, and clocks as columns beside the cells.

A *world* is a history read up to some step. Many worlds share a frame: the key of a cell begins with its world's number
and window (`17/160/a`), ids carry the number too, and partition p of world w is w * `PARTITIONS` + p. Topics stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.property.history import InputEvent, LateRecord, Record, ResultRecord
from tests.property.join_reference import RIGHT
from tests.property.spark_histories import SOURCES, Case, Instant
from validator.codecs import scalars
from validator.codecs.columns import DECODED, DECODED_TYPE, RESULT_TYPE, UNDECODABLE
from validator.model.books import PartitionSummary
from validator.model.frontier import PartitionId, Rest
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.facts import FACTS_TYPE, Side, aggregate
from validator.reconcile.judge import ClockColumns
from validator.stream.committing import summaries

PARTITIONS: Final = 8
"""More partitions than a history has."""
STEPS: Final = 32
"""More steps than a history has."""
IDS: Final = 1000
"""More integer ids than a history has."""
_SOURCE_OF: Final = {topic: number for number, (_, topic) in enumerate(SOURCES)}
_INPUTS: Final = [number for number, (side, _) in enumerate(SOURCES) if side is Side.INPUT]

_RECORDS_TYPE: Final = pa.schema(
    [
        ("first_world", pa.int64()),
        ("last_world", pa.int64()),
        ("step", pa.int64()),
        ("lookup_us", pa.int64()),
        ("source", pa.int32()),
        ("status", pa.int32()),
        ("place", pa.int64()),
        ("offset", pa.int64()),
        ("time_us", pa.int64()),
        ("event_time_us", pa.int64()),
        ("given_window_us", pa.int64()),
        ("plain_key", pa.string()),
        ("plain_id", pa.string()),
        ("plain_ids", pa.list_(pa.string())),
        ("window_us", pa.int64()),
        ("offset_us", pa.int64()),
        ("slack_us", pa.int64()),
        ("sane_us", pa.int64()),
        ("tells_late", pa.bool_()),
    ]
)
_LOOKUPS_TYPE: Final = pa.schema([("at", pa.int64()), ("looked_up_us", pa.int64())])
_STEP_TYPE: Final = pa.struct(
    [("at_us", pa.int64()), ("reached_us", pa.int64()), ("rests", pa.bool_()), ("rests_all", pa.bool_())]
)
_CLOCK_NAMES: Final = tuple(field.name for field in fields(ClockColumns) if field.name != "retired")
"""What a clock is made of; nothing is ever retired here."""
_CLOCK_FLAGS: Final = {"outputs_held", "inputs_held", "rest_closed", "rest_all"}
_WORLDS_TYPE: Final = pa.schema(
    [
        ("world", pa.int64()),
        *[(f"clock_{name}", pa.bool_() if name in _CLOCK_FLAGS else pa.int64()) for name in _CLOCK_NAMES],
        ("overdue_after_us", pa.int64()),
        ("missing_after_us", pa.int64()),
        ("steps", pa.list_(_STEP_TYPE)),
    ]
)
_PLACES_TYPE: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int64()),
        ("committed_offset", pa.int64()),
        ("unprovable_below", pa.int64()),
    ]
)


@dataclass(frozen=True)
class World:
    """A case (by its number among others) as it is known after a step."""

    case: int
    step: int


def every_step(cases: Sequence[Case]) -> list[World]:
    """A world for each step of each case."""
    return [World(number, step) for number, case in enumerate(cases) for step in range(len(case.history.steps))]


def whole(cases: Sequence[Case]) -> list[World]:
    """A world for each case."""
    return [World(number, len(case.history.steps) - 1) for number, case in enumerate(cases)]


def written(spark: SparkSession, rows: list[dict[str, Any]], schema: pa.Schema, path: Path) -> DataFrame:
    """Rows of the driver as a frame: no Python process is started for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return spark.read.parquet(str(path))


# From records to facts


def facts(spark: SparkSession, cases: Sequence[Case], worlds: Sequence[World], folder: Path) -> DataFrame:
    """The fact rows of every world, `batch` being the step."""
    coded = aggregate(
        decoded(spark, cases, worlds, folder),
        SOURCES,
        batch=0,
        lookup_us=0,
        epoch=0,
        max_ahead_us=as_number(F.col("sane_us")),
        with_first_event=True,
    )
    looked_up = [
        {"at": number * STEPS + step, "looked_up_us": cases[world.case].history.steps[step].lookup_us}
        for number, world in enumerate(worlds)
        for step in range(world.step + 1)
    ]
    lookups = written(spark, looked_up, _LOOKUPS_TYPE, folder / "lookups.parquet")
    at, place = F.floor(F.col("partition") / PARTITIONS), F.col("partition") % PARTITIONS
    moved = coded.withColumn("at", at).join(F.broadcast(lookups), ["at"])
    return moved.withColumns(
        {
            "batch": F.col("at") % STEPS,
            "lookup_us": F.col("looked_up_us"),
            "partition": F.floor(F.col("at") / STEPS) * PARTITIONS + place,
        }
    ).select(*[F.col(field.name).cast(field.dataType) for field in FACTS_TYPE.fields])


def decoded(spark: SparkSession, cases: Sequence[Case], worlds: Sequence[World], folder: Path) -> DataFrame:
    """Every record of every world as `validator.stream.decode` would hand it over: `DECODED_TYPE`, its `partition`
    telling world and step as well, and beside it `sane_us`, the latest event time that moves the watermark."""
    known: dict[int, list[tuple[int, int]]] = {}
    for number, world in enumerate(worlds):
        known.setdefault(world.case, []).append((number, world.step))
    rows = []
    for number, case in enumerate(cases):
        for at, step in enumerate(case.history.steps):
            in_worlds = [world for world, upto in known[number] if upto >= at]
            span = {"first_world": min(in_worlds), "last_world": max(in_worlds)}
            rows += [span | _row(case, at, record) for record in step.records]
    records = written(spark, rows, _RECORDS_TYPE, folder / "records.parquet")
    copied = records.withColumn("world", F.explode(F.sequence("first_world", "last_world")))
    # The oracle takes its parameters from each record's history.
    window = TumblingWindow(size_us=as_number(F.col("window_us")), offset_us=as_number(F.col("offset_us")))
    time, source, no_text = F.col("event_time_us"), F.col("source"), F.array().cast("array<string>")
    named = copied.withColumns(
        {
            "key": F.concat_ws("/", "world", "window_us", "plain_key"),
            "id_text": _id_text(F.col("plain_id")),
            "id_texts": F.coalesce(F.transform("plain_ids", _id_text), no_text),
            # Nobody asks which events were late but the policy `drop` and joins.
            "reach_us": F.when(
                F.col("tells_late") & source.isin(_INPUTS), window.reach_us(time, as_number(F.col("slack_us")))
            ),
            "window_start_us": F.coalesce("given_window_us", window.window_start_us(time)),
            "partition": (F.col("world") * STEPS + F.col("step")) * PARTITIONS + F.col("place"),
        }
    )
    numbered = named.withColumns(
        {
            "id": scalars.integer_id(F.col("id_text")),
            "text_id": F.when(scalars.integer_id(F.col("id_text")).isNull(), F.col("id_text")),
            "ids": F.filter(F.transform("id_texts", scalars.integer_id), lambda id_: id_.isNotNull()),
            "text_ids": F.filter("id_texts", lambda text: scalars.integer_id(text).isNull()),
        }
    )
    shaped = numbered.withColumns(
        {
            "key": F.when(F.col("status") == DECODED, F.col("key")),
            "result": F.when(
                F.col("plain_ids").isNotNull(), F.struct("offset", "time_us", "ids", "text_ids").cast(RESULT_TYPE)
            ),
            "contributions": F.when(F.col("id_text").isNotNull(), 1).otherwise(F.size("ids") + F.size("text_ids")),
            "hash_a": _fingerprint(scalars.hash_a),
            "hash_b": _fingerprint(scalars.hash_b),
        }
    )
    return shaped.select(*[F.col(field.name).cast(field.dataType) for field in DECODED_TYPE.fields], "sane_us")


def _row(case: Case, step: int, record: Record) -> dict[str, Any]:
    timing, lookup_us = case.history.timing, case.history.steps[step].lookup_us
    row: dict[str, Any] = {
        "step": step,
        "lookup_us": lookup_us,
        "source": _SOURCE_OF[record.topic],
        "status": DECODED,
        "place": record.partition,
        "offset": record.offset,
        "time_us": record.broker_time_us,
        "window_us": timing.window_us,
        "offset_us": timing.window_offset_us,
        "slack_us": timing.max_disorder_us + timing.allowed_lateness_us,
        "sane_us": lookup_us + timing.max_ahead_us,
        "tells_late": case.rules.drops_late or case.rules.join is not None,
    }
    match record:
        case InputEvent() | LateRecord():
            return row | {"plain_key": record.key, "plain_id": record.id, "event_time_us": record.event_time_us}
        case ResultRecord():
            return row | {
                "plain_key": record.key,
                "given_window_us": record.window_start_us,
                "plain_ids": list(record.ids),
            }
        case _:
            return row | {"status": UNDECODABLE}


def _id_text(plain: Column) -> Column:
    """An id among those of other worlds: an integer, or a third of them a text."""
    number = plain.try_cast("bigint")
    as_integer = (F.col("world") * IDS + number).cast("string")
    as_text = F.concat_ws("/", "world", plain)
    # Of a join's right input, whose ids say so first.
    as_right = F.concat_ws("/", F.lit(RIGHT), "world", plain)
    named = F.when(number % 3 > 0, as_integer).when(plain.startswith(RIGHT), as_right).otherwise(as_text)
    return F.when(plain.isNotNull(), named)


def _fingerprint(term: Callable[[Column], Column]) -> Column:
    one = term(F.coalesce("id", scalars.text_number(F.col("text_id"))))
    return F.coalesce(one, _sum_of(F.col("ids"), term) + _sum_of(F.transform("text_ids", scalars.text_number), term))


def _sum_of(items: Column, term: Callable[[Column], Column]) -> Column:
    return F.aggregate(items, F.lit(0).cast("bigint"), lambda total, item: total + term(item))


def as_number(column: Column) -> Any:
    """A column where the core takes a number: all that it does with it is to make a column of it."""
    return column


def summaries_by_case(
    facts_of_all: DataFrame, worlds: Sequence[World], cases: Sequence[Case]
) -> list[dict[tuple[int, PartitionId], PartitionSummary]]:
    """Per case: (step, partition) -> what the facts say of it; one job for all."""
    last = {number: world.case for number, world in enumerate(worlds) if world in set(whole(cases))}
    wholes = F.array(*[F.lit(number) for number in last])
    of_whole = facts_of_all.where(F.array_contains(wholes, F.floor(F.col("partition") / PARTITIONS)))
    found: list[dict[tuple[int, PartitionId], PartitionSummary]] = [{} for _ in cases]
    for summary in summaries(of_whole.withColumn("partition", F.col("partition") * STEPS + F.col("batch"))):
        rest, step = divmod(summary.place.partition, STEPS)
        world, partition = divmod(rest, PARTITIONS)
        place = PartitionId(summary.place.topic, partition)
        values = {name: getattr(summary, name) for name in PartitionSummary.__dataclass_fields__}
        found[last[world]][step, place] = PartitionSummary(**(values | {"place": place}))
    return found


# Beside the cells


def world_of() -> Column:
    """The number of the world that a cell belongs to."""
    return F.substring_index("key", "/", 1).cast("bigint")


def window_us() -> Column:
    """The window of a cell's world."""
    return F.split_part("key", F.lit("/"), F.lit(2)).cast("bigint")


def worlds_frame(
    spark: SparkSession,
    cases: Sequence[Case],
    worlds: Sequence[World],
    instants: Sequence[Sequence[Instant]],
    path: Path,
) -> DataFrame:
    """One row per world: its clock, its timing, and the steps that led there."""
    rows = []
    for number, world in enumerate(worlds):
        clock, rules = instants[world.case][world.step].clock, cases[world.case].rules
        flags = {"rest_closed": clock.rest is not Rest.NONE, "rest_all": clock.rest is Rest.ALL}
        values = {name: getattr(clock, name) for name in _CLOCK_NAMES if name not in flags}
        rows.append(
            {
                "world": number,
                **{f"clock_{name}": value for name, value in (values | flags).items()},
                "overdue_after_us": rules.overdue_after_us,
                "missing_after_us": rules.missing_after_us,
                "steps": [
                    {
                        "at_us": known.clock.lookup_us,
                        "reached_us": known.clock.watermark_us,
                        "rests": known.clock.rest is not Rest.NONE,
                        "rests_all": known.clock.rest is Rest.ALL,
                    }
                    for known in instants[world.case][: world.step + 1]
                ],
            }
        )
    return written(spark, rows, _WORLDS_TYPE, path)


def places_frame(
    spark: SparkSession, worlds: Sequence[World], instants: Sequence[Sequence[Instant]], path: Path
) -> DataFrame:
    """Rows of `validator.stream.judging.PLACES_TYPE` for all worlds."""
    rows = [
        {**place, "partition": number * PARTITIONS + int(str(place["partition"]))}
        for number, world in enumerate(worlds)
        for place in instants[world.case][world.step].places
    ]
    return written(spark, rows, _PLACES_TYPE, path)


def own_clock() -> ClockColumns:
    """Each world's own clock: columns that `timed` puts beside cells."""
    return ClockColumns(**{name: F.col(f"clock_{name}") for name in _CLOCK_NAMES})


def timed(cells: DataFrame, worlds: DataFrame) -> DataFrame:
    """The cells with the columns of their world beside them."""
    return cells.withColumn("world", world_of()).join(F.broadcast(worlds), "world")


def with_closings(folded: DataFrame, worlds: DataFrame) -> DataFrame:
    """Cells as a restart finds them: the fold of all facts, and the closing times that the steps decided on the way."""
    end = F.col("window_start_us") + window_us()

    def instants(chosen: Callable[[Column], Column]) -> Column:
        since = F.filter("steps", lambda step: (step["at_us"] >= F.col("first_seen_us")) & chosen(step))
        return F.transform(since, lambda step: step["at_us"])

    closed = instants(lambda step: F.coalesce(step["reached_us"] >= end, F.lit(False)) | step["rests_all"])
    return timed(folded, worlds).withColumns(
        {"closed_us": F.array_min(closed), "rest_us": F.array_max(instants(lambda step: step["rests"]))}
    )

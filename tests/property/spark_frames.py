"""Histories as frames: decoded records, and the facts that Spark makes of them.

All histories share a frame: the key of a cell begins with its history's number (`17/a`), ids carry the number too, and
partition p of step s of history h is (h * `STEPS` + s) * `PARTITIONS` + p. Topics stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.property.history import InputEvent, LateRecord, Record, ResultRecord
from tests.property.join_reference import RIGHT
from tests.property.spark_histories import SOURCES, Case
from validator.codecs import scalars
from validator.codecs.columns import DECODED, DECODED_TYPE, RESULT_TYPE, UNDECODABLE
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.arrays import Ints, ints
from validator.reconcile.facts import Side, aggregate, completed
from validator.reconcile.lateness import doubting

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
        ("world", pa.int64()),
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


def integer_id(text: Column) -> Column:
    """The id as an integer where ``text`` is a canonical 64-bit integer, else null."""
    number = text.try_cast("bigint")
    return F.when(number.cast("string") == text, number)


def written(spark: SparkSession, rows: list[dict[str, Any]], schema: pa.Schema, path: Path) -> DataFrame:
    """Rows of the driver as a frame: no Python process is started for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return spark.read.parquet(str(path))


# From records to facts


def facts(spark: SparkSession, cases: Sequence[Case], folder: Path) -> list[list[pa.Table]]:
    """The fact rows of every history, step by step, `batch` being the step. One Spark job for all."""
    coded = aggregate(
        decoded(spark, cases, folder),
        len(SOURCES),
        lookup_us=0,
        max_ahead_us=as_number(F.col("sane_us")),
        with_first_event=True,
    )
    table = completed(coded.toArrow(), SOURCES, batch=0, lookup_us=0, epoch=0)
    table = table.set_column(
        table.schema.get_field_index("key"), "key", pc.replace_substring_regex(table["key"], "^[0-9]+/", "")
    )
    places = ints(table["partition"])
    at = places // PARTITIONS
    found = []
    for number, case in enumerate(cases):
        steps = []
        for step, known in enumerate(case.history.steps):
            mine = np.flatnonzero(at == number * STEPS + step)
            facts = _of_step(table.take(pa.array(mine)), step, known.lookup_us)
            steps.append(doubting(facts, reach_at(case, step), partial(latest_reach_at, case)))
        found.append(steps)
    return found


def reach_at(case: Case, step: int) -> int:
    """The largest window end that an event as new as can be in a step would prove past."""
    timing = case.history.timing
    newest_us = case.history.steps[step].lookup_us + timing.max_ahead_us
    return _window(case).reach_at(newest_us, timing.max_disorder_us + timing.allowed_lateness_us)


def latest_reach_at(case: Case, starts: Ints) -> Ints:
    """What the latest events of windows would prove past."""
    timing = case.history.timing
    return _window(case).latest_reach_at(starts, timing.max_disorder_us + timing.allowed_lateness_us)


def _window(case: Case) -> TumblingWindow:
    return TumblingWindow(case.history.timing.window_us, case.history.timing.window_offset_us)


def _of_step(rows: pa.Table, step: int, lookup_us: int) -> pa.Table:
    values = {
        "batch": np.full(rows.num_rows, step),
        "lookup_us": np.full(rows.num_rows, lookup_us),
        "partition": ints(rows["partition"]) % PARTITIONS,
    }
    for name, column in values.items():
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, rows.schema.field(at), pa.array(column).cast(rows.schema.field(at).type))
    return rows


def decoded(spark: SparkSession, cases: Sequence[Case], folder: Path) -> DataFrame:
    """Every record of every history as `validator.stream.decode` would hand it over: `DECODED_TYPE`, its `partition`
    telling history and step as well, and beside it `sane_us`, the latest event time that moves the watermark."""
    rows = [
        {"world": number, **_row(case, at, record)}
        for number, case in enumerate(cases)
        for at, step in enumerate(case.history.steps)
        for record in step.records
    ]
    records = written(spark, rows, _RECORDS_TYPE, folder / "records.parquet")
    # The oracle takes its parameters from each record's history.
    window = TumblingWindow(size_us=as_number(F.col("window_us")), offset_us=as_number(F.col("offset_us")))
    time, source, no_text = F.col("event_time_us"), F.col("source"), F.array().cast("array<string>")
    named = records.withColumns(
        {
            "key": F.concat_ws("/", "world", "plain_key"),
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
            "id": integer_id(F.col("id_text")),
            "text_id": F.when(integer_id(F.col("id_text")).isNull(), F.col("id_text")),
            "ids": F.filter(F.transform("id_texts", integer_id), lambda id_: id_.isNotNull()),
            "text_ids": F.filter("id_texts", lambda text: integer_id(text).isNull()),
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
    shaped = shaped.withColumn("run", F.lit(None))
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
    """An id among those of other histories: an integer, or a third of them a text."""
    number = plain.try_cast("bigint")
    as_integer = (F.col("world") * IDS + number).cast("string")
    as_text = F.concat_ws("/", "world", plain)
    # Of a join's right input, whose ids say so first.
    as_right = F.concat_ws("/", F.lit(RIGHT), "world", plain)
    named = F.when(number % 3 > 0, as_integer).when(plain.startswith(RIGHT), as_right).otherwise(as_text)
    return F.when(plain.isNotNull(), named)


def _fingerprint(term: Callable[[Column], Column]) -> Column:
    """Of an event; of a result what Spark sums, its texts."""
    one = term(F.coalesce("id", scalars.text_number(F.col("text_id"))))
    return F.coalesce(one, _sum_of(F.transform("text_ids", scalars.text_number), term))


def _sum_of(items: Column, term: Callable[[Column], Column]) -> Column:
    return F.aggregate(items, F.lit(0).cast("bigint"), lambda total, item: total + term(item))


def as_number(column: Column) -> Any:
    """A column where the core takes a number: all that it does with it is to make a column of it."""
    return column

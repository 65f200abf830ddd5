"""Output per second of broker time and its latency under three definitions (SEMANTICS section 6), as one aggregation.

`last_input`: result less its cell's last input; `first_input`: less the first; `window_close`: less the first input,
of any key, whose event time is past the window's end (the instant at which an engine could first close it).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from validator.measure.histogram import LATENCY_BOUNDS
from validator.measure.output import Output, Spread

DEFINITIONS: Final = ("last_input", "window_close", "first_input")
EVERY_RESULT: Final = "every_result"
"""Beside the definitions: rows that count all results, also those of which no latency is known."""


def latency_buckets(facts: DataFrame, cells: DataFrame, window_us: int) -> DataFrame:
    """(batch, second, definition, bucket, results, contributions, first_us, last_us, sum_us, max_us) of the results
    among ``facts`` (fact rows of side output), by the second of their broker time (since the epoch).

    ``cells``: (window_start_us, key, first_input_time_us, last_input_time_us). A result whose cell has no input yet has
    no latency; bucket i counts values up to ``LATENCY_BOUNDS[i]``. Rows of `EVERY_RESULT` have no bucket, and 0 for
    their sum and maximum. ``contributions``: ids in the results; ``first_us``, ``last_us``: broker times.
    """
    # Time and length only: the lists of ids themselves must not travel through the joins.
    small = F.transform(
        "results",
        lambda r: F.struct(r.time_us.alias("result_us"), (_size(r.ids) + _size(r.text_ids)).alias("ids")),
    )
    results = facts.select("batch", "window_start_us", "key", F.explode(small).alias("r"))
    results = results.select("batch", "window_start_us", "key", "r.result_us", "r.ids")
    opened = cells.groupBy("window_start_us").agg(F.min("first_input_time_us").alias("opened_us"))
    later = Window.orderBy(F.col("window_start_us").desc()).rowsBetween(Window.unboundedPreceding, 0)
    # The first input at or after each window's start: that of the next window is what closes this one.
    running = opened.select(
        (F.col("window_start_us") - F.lit(window_us)).alias("window_start_us"),
        F.min("opened_us").over(later).alias("closing_us"),
    )
    nearest = results.select("window_start_us").distinct()
    closing = (
        nearest.alias("n")
        .join(F.broadcast(running).alias("r"), F.col("r.window_start_us") >= F.col("n.window_start_us"))
        .groupBy(F.col("n.window_start_us").alias("window_start_us"))
        .agg(F.min("r.closing_us").alias("closing_us"))
    )
    joined = results.join(cells, ["window_start_us", "key"], "left").join(closing, ["window_start_us"], "left")
    since = {"last_input": "last_input_time_us", "window_close": "closing_us", "first_input": "first_input_time_us"}
    values = [
        F.struct(F.lit(name).alias("definition"), _span(F.col("result_us") - F.col(since[name])).alias("value_us"))
        for name in DEFINITIONS
    ]
    every = F.struct(F.lit(EVERY_RESULT).alias("definition"), F.lit(None).cast("bigint").alias("value_us"))
    flat = joined.select("batch", "result_us", "ids", F.explode(F.array(*values, every)).alias("v"))
    flat = flat.select("batch", "result_us", "ids", "v.definition", "v.value_us").where(
        (F.col("definition") == EVERY_RESULT) | F.col("value_us").isNotNull()
    )
    return (
        flat.withColumn("second", F.floor(F.col("result_us") / F.lit(1_000_000)).cast("bigint"))
        .withColumn("bucket", F.when(F.col("value_us").isNotNull(), _bucket(F.col("value_us"))))
        .groupBy("batch", "second", "definition", "bucket")
        .agg(
            F.count(F.lit(1)).alias("results"),
            F.sum("ids").alias("contributions"),
            F.min("result_us").alias("first_us"),
            F.max("result_us").alias("last_us"),
            F.coalesce(F.sum("value_us"), F.lit(0)).alias("sum_us"),
            F.coalesce(F.max("value_us"), F.lit(0)).alias("max_us"),
        )
    )


def outputs(rows: Iterable[Row]) -> list[Output]:
    """Rows of `latency_buckets` as one value a second, without order; batches are added up."""
    found: dict[int, Output] = {}
    latency: dict[int, dict[str, Spread]] = {}
    for row in rows:
        second = row["second"]
        if row["definition"] == EVERY_RESULT:
            part = Output(second, second + 1, row["results"], row["contributions"], row["first_us"], row["last_us"])
            found[second] = found[second].plus(part) if second in found else part
        else:
            spreads = latency.setdefault(second, {})
            spread = Spread({row["bucket"]: row["results"]}, row["sum_us"], row["max_us"])
            known = spreads.get(row["definition"])
            spreads[row["definition"]] = spread if known is None else known.plus(spread)
    return [replace(output, latency=latency.get(second, {})) for second, output in found.items()]


def _size(ids: Column) -> Column:
    """Length of an array, 0 of none (Spark says -1)."""
    return F.when(ids.isNotNull(), F.size(ids)).otherwise(F.lit(0))


def _span(difference_us: Column) -> Column:
    """Null stays null; brokers' clocks differ, so that a small negative span is none."""
    return F.when(difference_us.isNotNull(), F.greatest(difference_us, F.lit(0)))


def _bucket(value_us: Column) -> Column:
    bounds = F.lit(json.dumps([int(bound * 1_000_000) for bound in LATENCY_BOUNDS]))
    below = F.filter(F.from_json(bounds, "array<bigint>"), lambda bound: value_us > bound)
    return F.size(below)

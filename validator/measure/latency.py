"""Latency of results under three definitions (SEMANTICS section 6), from broker times, as one small aggregation.

`last_input`: result less its cell's last input; `first_input`: less the first; `window_close`: less the first input,
of any key, whose event time is past the window's end (the instant at which an engine could first close it).
"""

from __future__ import annotations

import json
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from validator.measure.histogram import LATENCY_BOUNDS

DEFINITIONS: Final = ("last_input", "window_close", "first_input")


def latency_buckets(facts: DataFrame, cells: DataFrame, window_us: int) -> DataFrame:
    """(definition, bucket, results, sum_us, max_us) of the results among ``facts`` (fact rows of side output).

    ``cells``: (window_start_us, key, first_input_time_us, last_input_time_us). A result whose cell has no input yet is
    left out; bucket i counts values up to ``LATENCY_BOUNDS[i]``.
    """
    results = facts.select("window_start_us", "key", F.explode("results.time_us").alias("result_us"))
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
    joined = results.join(cells, ["window_start_us", "key"]).join(closing, ["window_start_us"], "left")
    since = {"last_input": "last_input_time_us", "window_close": "closing_us", "first_input": "first_input_time_us"}
    values = F.explode(
        F.array(
            *[
                F.struct(
                    F.lit(name).alias("definition"),
                    _span(F.col("result_us") - F.col(since[name])).alias("value_us"),
                )
                for name in DEFINITIONS
            ]
        )
    )
    flat = joined.select(values.alias("v")).select("v.definition", "v.value_us").where("value_us IS NOT NULL")
    return (
        flat.withColumn("bucket", _bucket(F.col("value_us")))
        .groupBy("definition", "bucket")
        .agg(
            F.count(F.lit(1)).alias("results"),
            F.sum("value_us").alias("sum_us"),
            F.max("value_us").alias("max_us"),
        )
    )


def _span(difference_us: Column) -> Column:
    """Null stays null; brokers' clocks differ, so that a small negative span is none."""
    return F.when(difference_us.isNotNull(), F.greatest(difference_us, F.lit(0)))


def _bucket(value_us: Column) -> Column:
    bounds = F.lit(json.dumps([int(bound * 1_000_000) for bound in LATENCY_BOUNDS]))
    below = F.filter(F.from_json(bounds, "array<bigint>"), lambda bound: value_us > bound)
    return F.size(below)

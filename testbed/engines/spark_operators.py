"""The operators of the workloads on Spark's DataFrames, with the fields of events and results from the workload.

Keys and ids are kept as JSON, so that results have numbers and texts as the events have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from generator.workloads.seam import Stream, Workload
from testbed.engines.real import operator_of
from testbed.engines.spark_settings import SparkSettings

_TIME: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS"
_FIRST_TIME: Final = "0001-01-01"
_ENTITY: Final = ("key", "id", "time")
_WITHOUT_WINDOWS: Final = ("passthrough", "running_aggregate", "interval")


def results(records: Sequence[DataFrame], settings: SparkSettings) -> DataFrame:
    """Return (key, value) of the results, from the Kafka records of each input. Undecodable records are left out."""
    of = settings.configured
    operator = of.operator(settings.window_ms)
    filters = (operator.get("where"), operator.get("where_right"))
    inputs = [_events(one, side, of, filters[side], settings) for side, one in enumerate(records)]
    events = reduce(DataFrame.unionByName, inputs)
    kind = operator_of(of)
    if kind == "passthrough":
        stream = of.streams[0]
        at = _member(stream.fields["event_time"], _quoted_time("time"))
        members = [_member(of.key, F.col("key")), _member(stream.fields["id"], F.col("id")), at]
        kept = [_member(name, F.col(_value(name))) for name in of.kept]
        return _keyed(events, [*members, *kept])
    if kind == "interval":
        return _pairs(inputs, of, operator)
    evidence = _evidence(of, once=len(inputs) > 1 or kind == "distinct")
    if kind == "running_aggregate":
        return _keyed(events.groupBy("key").agg(*evidence), [_member(of.key, F.col("key")), *_stated(of)])
    window = _window(kind, operator, settings.window_ms).alias("window")
    grouped = events.groupBy("key", window).agg(*evidence)
    if len(inputs) > 1:
        # An inner join has no result without events of both inputs, a left join none without some of the first.
        for name in of.id_lists if settings.join == "inner" else of.id_lists[:1]:
            grouped = grouped.where(F.size(name) > 0)
    times = (("windowStart", "window.start"), ("windowEnd", "window.end"))
    members = [_member(name, _quoted_time(path)) for name, path in times]
    return _keyed(grouped, [_member(of.key, F.col("key")), *members, *_stated(of)])


def _events(
    records: DataFrame, side: int, of: Workload, where: Mapping[str, Any] | None, settings: SparkSettings
) -> DataFrame:
    """Return key, id and time of the events of one input, and what their results need beside these."""
    stream = of.streams[side]
    needed = {name: _number(stream, what.partition("(")[2].rstrip(")")) for name, what in of.aggregates.items()}
    if operator_of(of) == "passthrough":
        needed = {name: _kept(stream, name, of.factors.get(name)) for name in of.kept}
    records = records.select(_fields(stream).alias("fields"))
    key = _json(stream, stream.fields["key"])
    if stream.is_split:
        # A row for each word. One that does not decode has a row, too, and is treated below.
        words = F.split(F.trim(_text(stream, stream.fields["key"])), r"\s+")
        records, key = records.select("fields", F.explode_outer(words).alias("word")), _quoted(F.col("word"))
    events = records.select(
        F.lit(side).alias("side"),
        key.alias("key"),
        _id(stream).alias("id"),
        _time(stream).alias("time"),
        _passes(stream, where or {}).alias("passes"),
        *(column.alias(_value(name)) for name, column in needed.items()),
    )
    if settings.poison == "fail":
        decodes = reduce(lambda one, other: one & other, [F.col(name).isNotNull() for name in _ENTITY])
        poisoned = F.raise_error(F.lit("poison: a record does not decode"))
        events = events.withColumn("key", F.when(decodes, F.col("key")).otherwise(poisoned))
    events = events.dropna(subset=list(_ENTITY))
    if operator_of(of) not in _WITHOUT_WINDOWS:
        events = events.withWatermark("time", f"{settings.watermark_delay_ms} milliseconds")
    if not where:
        return events
    # The condition uses the time, else Spark would move it before the watermark, which then would lack the events that
    # do not pass.
    return events.where(F.when(F.col("time") >= F.lit(_FIRST_TIME).cast("timestamp"), F.col("passes")))


def _fields(stream: Stream) -> Column:
    text = F.col("value").cast("string")
    if not stream.columns:
        return F.try_parse_json(text)
    parts = F.split(text, "\t")
    return F.when(F.size(parts) == len(stream.columns), parts)


def _text(stream: Stream, name: str) -> Column:
    if stream.columns:
        return F.get("fields", F.lit(stream.columns.index(name)))
    return F.try_variant_get("fields", f"$.{name}", "string")


def _json(stream: Stream, name: str) -> Column:
    if stream.columns:
        return _quoted(_text(stream, name))
    return F.to_json(F.try_variant_get("fields", f"$.{name}", "variant"))


def _quoted(text: Column) -> Column:
    # to_json does not accept a bare string, so the array's brackets are removed.
    listed = F.to_json(F.array(text))
    return F.substr(listed, F.lit(2), F.length(listed) - 2)


def _id(stream: Stream) -> Column:
    """The id of a line is a number."""
    path = stream.fields["id"]
    return _number(stream, path).cast("string") if stream.columns else _json(stream, path)


def _number(stream: Stream, name: str) -> Column:
    return _text(stream, name).try_cast("long") if name else F.lit(1)


def _time(stream: Stream) -> Column:
    path = stream.fields["event_time"]
    if stream.time_unit is None:
        return _text(stream, path).try_cast("timestamp")
    return F.timestamp_millis(_number(stream, path))


def _passes(stream: Stream, where: Mapping[str, Any]) -> Column:
    """The condition of a workload's filter: a field has one of some values, contains a text, or is below a number."""
    if not where:
        return F.lit(True)
    value = _text(stream, where["field"])
    if "contains" in where:
        return value.contains(where["contains"])
    if "below" in where:
        return F.lit(where["below"]) > value.try_cast("double")
    return value.isin([str(one) for one in where["one_of"]])


def _kept(stream: Stream, name: str, factor: str | None) -> Column:
    if factor is None:
        return F.coalesce(_json(stream, name), F.lit("null"))
    product = (_number(stream, name) * F.lit(Decimal(factor))).cast("string")
    return F.concat(F.lit('"'), product, F.lit('"'))


def _value(name: str) -> str:
    """The column of an event with what its result needs, apart from columns with other purposes."""
    return f"of {name}"


def _evidence(of: Workload, *, once: bool) -> list[Column]:
    if of.aggregates:
        functions = {"count": F.count, "sum": F.sum, "min": F.min, "max": F.max, "avg": F.avg, "distinct": _distinct}
        return [functions[what.partition("(")[0]](_value(name)).alias(name) for name, what in of.aggregates.items()]
    collect = F.collect_set if once else F.collect_list
    return [collect(F.when(F.col("side") == side, F.col("id"))).alias(name) for side, name in enumerate(of.id_lists)]


def _distinct(values: Column | str) -> Column:
    """The number of different values. Streams have no exact function of Spark's for it."""
    return F.size(F.collect_set(values))


def _stated(of: Workload) -> list[Column]:
    if of.aggregates:
        return [_member(name, F.coalesce(F.col(name).cast("string"), F.lit("null"))) for name in of.aggregates]
    return [_member(name, F.concat(F.lit("["), F.array_join(name, ","), F.lit("]"))) for name in of.id_lists]


def _window(kind: str, operator: Mapping[str, Any], window_ms: int) -> Column:
    if kind == "session":
        return F.session_window("time", f"{operator['gap_ms']} milliseconds")
    slide_ms = operator["slide_ms"] if kind == "sliding" else window_ms
    return F.window("time", f"{window_ms} milliseconds", f"{slide_ms} milliseconds")


def _pairs(inputs: Sequence[DataFrame], of: Workload, operator: Mapping[str, Any]) -> DataFrame:
    """The pairs of an interval join. It has no watermarks: it keeps all events, and none is late."""
    left, right = (
        one.select("key", *(F.col(name).alias(f"{name} {side}") for name in ("id", "time")))
        for side, one in enumerate(inputs)
    )
    first, last = (
        F.col("time 0") + F.expr(f"interval {shift_ms} milliseconds")
        for shift_ms in (-operator.get("before_ms", 0), operator.get("after_ms", 0))
    )
    joined = left.join(right, "key").where(F.col("time 1").between(first, last))
    times = [_member(name, _quoted_time("time 0")) for name in ("windowStart", "windowEnd")]
    ids = [
        _member(name, F.concat(F.lit("["), F.col(f"id {side}"), F.lit("]"))) for side, name in enumerate(of.id_lists)
    ]
    return _keyed(joined, [_member(of.key, F.col("key")), *times, *ids])


def _quoted_time(name: str) -> Column:
    return F.concat(F.lit('"'), F.date_format(name, _TIME), F.lit('"'))


def _member(name: str, value: Column) -> Column:
    return F.concat(F.lit(f'"{name}":'), value)


def _keyed(rows: DataFrame, members: Sequence[Column]) -> DataFrame:
    return rows.select("key", F.concat(F.lit("{"), F.concat_ws(",", *members), F.lit("}")).alias("value"))

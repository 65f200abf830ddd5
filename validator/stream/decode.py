"""Kafka rows to decoded rows: one function per role, composed of codec, oracle and configured paths.

Shape in: Spark's Kafka source (key, value, topic, partition, offset, timestamp, headers).
Shape out: `validator.codecs.columns.DECODED_TYPE`. Nothing here reads or writes. Records are decoded in Spark's Python
workers (`validator.codecs.batches`); what follows from ids, keys and times is columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from validator.codecs import plain_events, scalars, times
from validator.codecs.batches import EVENTS, RESULTS, EventBatches, ResultBatches, columns_of
from validator.codecs.columns import DECODED, DECODED_TYPE, RESULT_TYPE, UNDECODABLE
from validator.codecs.id_spaces import IdSpace
from validator.codecs.one_record import RecordDecoder
from validator.config.model import Input, Late, Limits, Output
from validator.oracles.tumbling_window import TumblingWindow

_OF_A_RUN: Final = ("window_start_us", "key", "reach_us", "event_time_us", "hash_a", "hash_b")
"""Columns that a run has as a record has them."""
_DEFAULT: Final = Limits()


def decode_events(
    frame: DataFrame,
    source: int,
    topic: Input | Late,
    oracle: TumblingWindow,
    slack_us: int,
    id_type: str,
    space: IdSpace | None = None,
    *,
    in_runs: bool = True,
    limits: Limits = _DEFAULT,
) -> DataFrame:
    """Input events, late records and rejected records: each carries one id and its own event time.

    ``slack_us`` is disorder plus allowed lateness, for ``reach_us``. ``id_type`` is ``auto``, ``integer`` or
    ``string``. ``space``: the id space of these events, where inputs have their own. ``in_runs``: plain events are
    decoded and grouped by Arrow where they can be, which changes nothing but the time it takes.
    """
    decoder = RecordDecoder(topic, id_type, limits=limits, rounding=oracle.rounding)
    plain = plain_events_of(topic, oracle, slack_us, id_type, space, limits) if in_runs else None
    events = _mapped(frame, decoder, EventBatches(decoder, plain, space), EVENTS, limits.value_bytes)
    hashed = F.coalesce(F.col("id"), scalars.text_number(F.col("text_id")))
    marked = events.withColumns({"decoded": F.col("event_time_us").isNotNull(), "hashed": hashed})
    time, run = F.col("event_time_us"), F.col("run")
    return _shape(
        marked,
        source,
        status=F.when(run.isNotNull() | F.col("decoded"), F.lit(DECODED)).otherwise(F.lit(UNDECODABLE)),
        run=run,
        given={"text_id": F.col("text_id")},
        decoded={
            "event_time_us": time,
            "window_start_us": oracle.window_start_us(time),
            "reach_us": oracle.reach_us(time, slack_us),
            "id": F.col("id"),
            "contributions": F.lit(1),
            "hash_a": scalars.hash_a(F.col("hashed")),
            "hash_b": scalars.hash_b(F.col("hashed")),
        },
    )


def decode_results(
    frame: DataFrame,
    source: int,
    topic: Output,
    oracle: TumblingWindow,
    id_type: str,
    spaces: Mapping[str, IdSpace] = {},
    *,
    limits: Limits = _DEFAULT,
) -> DataFrame:
    """Results: each names its cell and carries the list of ids (or, with evidence ``id``, the one id) that it used.

    ``spaces``: input topic -> its id space, where inputs have their own; the lists say whose they are.
    """
    decoder = RecordDecoder(topic, id_type, oracle.size_us, limits)
    of_lists = [spaces[path.input] for path in topic.fields.ids or () if path.input is not None]
    results = _mapped(frame, decoder, ResultBatches(decoder, of_lists), RESULTS, limits.value_bytes)
    text_hashes = F.transform("text_ids", scalars.text_number)
    empty = F.size("text_ids") == 0
    columns = results.withColumns(
        {
            "decoded": F.col("status") == DECODED,
            # Of the texts only: integers are summed where they are arrays (`validator.reconcile.facts.completed`).
            "sum_a": F.when(empty, F.lit(0)).otherwise(_fold(text_hashes, scalars.hash_a)),
            "sum_b": F.when(empty, F.lit(0)).otherwise(_fold(text_hashes, scalars.hash_b)),
        }
    )
    return _shape(
        columns,
        source,
        status=F.col("status"),
        decoded={
            "window_start_us": F.col("window_start_us"),
            "result": F.struct("offset", "time_us", "ids", "text_ids").cast(RESULT_TYPE),
            "contributions": F.size("ids") + F.size("text_ids"),
            "hash_a": F.col("sum_a"),
            "hash_b": F.col("sum_b"),
        },
    )


def _mapped(
    frame: DataFrame,
    decoder: RecordDecoder,
    body: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    value_bytes: int,
) -> DataFrame:
    return cut(frame, decoder, value_bytes).mapInArrow(body, from_arrow_schema(schema))


def cut(frame: DataFrame, decoder: RecordDecoder, value_bytes: int) -> DataFrame:
    """What goes to Python of Kafka's records: what is longer than the limits stays in the JVM."""
    columns = {"time_us": F.unix_micros("timestamp"), "value": scalars.within(F.col("value"), value_bytes)}
    if decoder.most_of_key is not None:
        columns |= {"key": scalars.no_longer(F.col("key"), decoder.most_of_key), "key_size": F.octet_length("key")}
    if decoder.most_of_header:
        read = [scalars.last_header(F.col("headers"), *item) for item in decoder.most_of_header.items()]
        columns["headers"] = F.array_compact(F.array(*read))
    return frame.withColumns(columns).select(*columns_of(decoder))


def plain_events_of(
    topic: Input | Late,
    oracle: TumblingWindow,
    slack_us: int,
    id_type: str,
    space: IdSpace | None,
    limits: Limits = _DEFAULT,
) -> plain_events.PlainEvents:
    """How Arrow decodes the events of a topic."""
    fields = topic.fields
    unit = fields.event_time.unit
    return plain_events.PlainEvents(
        id=_place(fields.id.path),
        key=tuple(_place(path.path) for path in fields.key),
        event_time=_place(fields.event_time.path),
        factor=None if unit is None else times.MICROSECONDS.get(unit, 1),
        divisor=1_000 if unit == "ns" else 1,
        size_us=oracle.size_us,
        offset_us=oracle.offset_us,
        closed_right=oracle.closed_right,
        slack_us=slack_us,
        key_bytes=limits.key_bytes,
        id_bytes=limits.id_bytes,
        value_bytes=limits.value_bytes,
        id_type=id_type,
        space=space,
    )


def _place(path: str) -> tuple[str, ...]:
    return (path,) if path.startswith("$") else tuple(path.split("."))


def _fold(items: Column, term: scalars.Term) -> Column:
    return F.aggregate(items, F.lit(0).cast("bigint"), lambda total, item: total + term(item))


def _shape(
    frame: DataFrame,
    source: int,
    *,
    status: Column,
    decoded: dict[str, Column],
    given: Mapping[str, Column] = MappingProxyType({}),
    run: Column | None = None,
) -> DataFrame:
    """The decoded schema in its order. The columns of ``decoded`` are null where the record did not decode, those of
    ``given`` are not; the key of one that was not examined says why.

    ``run``: where it is not null, the row is a run, and what it says counts.
    """
    values: dict[str, Column] = {"source": F.lit(source), "status": status, **given}
    zero = {"contributions", "hash_a", "hash_b"}
    for column in DECODED_TYPE.fields:
        if column.name in values:
            continue
        if column.name in decoded:
            value = F.when(F.col("decoded"), decoded[column.name])
            values[column.name] = value.otherwise(F.lit(0)) if column.name in zero else value
        elif column.name in ("partition", "offset", "time_us", "key"):
            values[column.name] = F.col(column.name)
        else:
            values[column.name] = F.lit(0) if column.name in zero else F.lit(None)
    if run is not None:
        of_runs = {**{name: run[name] for name in _OF_A_RUN}, "contributions": run["records"]}
        for name, of_run in of_runs.items():
            values[name] = F.when(run.isNotNull(), of_run).otherwise(values[name])
        values["run"] = run
    return frame.select(*[values[f.name].cast(f.dataType).alias(f.name) for f in DECODED_TYPE.fields])

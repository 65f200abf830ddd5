"""Kafka rows to decoded rows: one function per role, composed of codec, oracle and configured paths.

Shape in: Spark's Kafka source (key, value, topic, partition, offset, timestamp, headers).
Shape out: `validator.codecs.columns.DECODED_TYPE`. Nothing here reads or writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, LongType, StringType

from validator.codecs import json_paths, plain_events, scalars
from validator.codecs.columns import DECODED, DECODED_TYPE, RESULT_TYPE, RUN_TYPE, TOMBSTONE, UNDECODABLE
from validator.codecs.id_spaces import IdSpace
from validator.config.model import FieldPath, Input, Late, Output
from validator.oracles.tumbling_window import TumblingWindow

_RUNS_TYPE: Final = from_arrow_schema(plain_events.RUNS)
"""`plain_events.RUNS` for Spark."""
_OF_A_RUN: Final = ("window_start_us", "key", "reach_us", "event_time_us", "hash_a", "hash_b")
"""Columns that a run has as a record has them."""


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
) -> DataFrame:
    """Input events, late records and rejected records: each carries one id and its own event time.

    ``slack_us`` is disorder plus allowed lateness, for ``reach_us``. ``id_type`` is ``auto``, ``integer`` or
    ``string``. ``space``: the id space of these events, where inputs have their own. ``in_runs``: plain events are
    decoded and grouped by Arrow where they can be, which changes nothing but the time it takes.
    """
    plain = plain_events_of(topic, oracle, slack_us, id_type, space) if in_runs else None
    frame = frame.withColumn("time_us", F.unix_micros("timestamp"))
    if plain is not None:
        frame = frame.select(*plain_events.TAKEN.names).mapInArrow(plain, _RUNS_TYPE)
    else:
        frame = frame.withColumn("run", F.lit(None).cast(RUN_TYPE))
    reader = _Reader(frame, [topic.fields.id, *topic.fields.key, topic.fields.event_time])
    columns = reader.frame.select(
        *_position(),
        reader.text(topic.fields.id).alias("id_text"),
        scalars.key_text([reader.text(path) for path in topic.fields.key]).alias("key"),
        reader.instant(topic.fields.event_time).alias("event_time_us"),
        reader.whole.alias("whole"),
        "run",
    )
    ids = _with_ids(columns, id_type)
    if space is not None:
        number, text = space.named(F.col("number"), F.col("text"))
        ids = ids.withColumns({"number": number, "text": text})
    known = F.col("number").isNotNull() | F.col("text").isNotNull()
    decoded = F.col("whole") & known & F.col("key").isNotNull() & F.col("event_time_us").isNotNull()
    hashed = F.coalesce(F.col("number"), scalars.text_number(F.col("text")))
    marked = ids.withColumns({"decoded": F.coalesce(decoded, F.lit(False)), "hashed": hashed})
    time, run = F.col("event_time_us"), F.col("run")
    return _shape(
        marked,
        source,
        status=F.when(run.isNotNull() | F.col("decoded"), F.lit(DECODED)).otherwise(F.lit(UNDECODABLE)),
        run=run,
        decoded={
            "event_time_us": time,
            "window_start_us": oracle.window_start_us(time),
            "key": F.col("key"),
            "reach_us": oracle.reach_us(time, slack_us),
            "id": F.col("number"),
            "text_id": F.col("text"),
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
) -> DataFrame:
    """Results: each names its cell and carries the list of ids (or, with evidence ``id``, the one id) that it used.

    ``spaces``: input topic -> its id space, where inputs have their own; the lists say whose they are.
    """
    start = topic.fields.window_start
    assert start is not None, "config refuses a windowed oracle without window_start"
    lists = [path.path for path in topic.fields.ids or ()]
    one = topic.fields.id
    end = topic.fields.window_end
    single = [*topic.fields.key, start, *[path for path in (end, one) if path is not None]]
    if id_type == "string":
        reader = _Reader(frame, single, {path: ArrayType(StringType()) for path in lists})
        number_ids = None
    else:
        reader = _Reader(frame, single, {path: ArrayType(LongType()) for path in lists})
        number_ids = [json_paths.at(F.col("parsed"), path) for path in lists]
    columns = reader.frame.withColumn("time_us", F.unix_micros("timestamp"))
    text_ids: list[Column]
    if one is not None:
        text_ids = [F.array(reader.text(one))]
        number_ids = None
    elif id_type == "auto":
        # Only a record that does not hold integers alone is parsed a second time, as texts.
        schema = json_paths.nested_schema(
            {**{path.path: StringType() for path in single}, **{path: ArrayType(StringType()) for path in lists}}
        )
        columns = columns.withColumn("parsed_text", F.when(~reader.whole, json_paths.parse(_value(), schema)))
        text_ids = [json_paths.at(F.col("parsed_text"), path) for path in lists]
    else:
        text_ids = [json_paths.at(F.col("parsed"), path) for path in lists] if id_type == "string" else []

    def field(path: FieldPath) -> Column:
        if "parsed_text" in columns.columns and not path.path.startswith("$"):
            return F.coalesce(reader.text(path), json_paths.at(F.col("parsed_text"), path.path))
        return reader.text(path)

    whole = reader.whole
    if "parsed_text" in columns.columns:
        whole = whole | json_paths.is_whole(F.col("parsed_text"))
    inputs = [path.input for path in topic.fields.ids or ()]
    groups = {name: [i for i, of in enumerate(inputs) if of == name] for name in dict.fromkeys(inputs)} or {None: [0]}

    def listed(lists: list[Column] | None, chosen: list[int], kind: DataType) -> Column:
        return _concatenated([lists[i] for i in chosen]) if lists else F.lit(None).cast(ArrayType(kind))

    given: dict[str, Column] = {}
    for at, chosen in enumerate(groups.values()):
        numbers = listed(number_ids, chosen, LongType())
        given[f"numbers_{at}"] = F.when(reader.whole, numbers) if number_ids else numbers
        # What is no scalar becomes a null id, so that the record is undecodable.
        given[f"texts_{at}"] = F.transform(listed(text_ids, chosen, StringType()), scalars.scalar)
    columns = columns.select(
        *_position(),
        F.col("value").isNull().alias("tombstone"),
        scalars.key_text([field(path) for path in topic.fields.key]).alias("key"),
        scalars.instant_us(field(start), start.unit).alias("window"),
        (scalars.instant_us(field(end), end.unit) if end is not None else F.lit(None)).alias("window_end"),
        whole.alias("whole"),
        *[column.alias(name) for name, column in given.items()],
    )
    parts = []
    for at, name in enumerate(groups):
        part = _split(F.col(f"numbers_{at}"), F.col(f"texts_{at}"), id_type)
        parts.append(spaces[name].named_lists(*part) if name is not None else part)
    columns = columns.withColumns(
        {
            "ids": _concatenated([numbers for numbers, _ in parts]),
            "text_ids": _concatenated([texts for _, texts in parts]),
        }
    )
    text_hashes = F.transform("text_ids", scalars.text_number)
    empty = F.size("text_ids") == 0
    columns = columns.withColumns(
        {
            # Of the texts only: integers are summed where they are arrays (`validator.reconcile.facts.completed`).
            "sum_a": F.when(empty, F.lit(0)).otherwise(_fold(text_hashes, scalars.hash_a)),
            "sum_b": F.when(empty, F.lit(0)).otherwise(_fold(text_hashes, scalars.hash_b)),
        }
    )
    decoded = (
        F.col("whole")
        & F.col("key").isNotNull()
        & F.col("window").isNotNull()
        & F.col("sum_b").isNotNull()
        & _without_null("ids")
    )
    if end is not None:
        # A result that contradicts itself names no cell.
        decoded = decoded & (F.col("window_end") == oracle.end_us(F.col("window")))
    marked = columns.withColumn("decoded", F.coalesce(decoded, F.lit(False)))
    status = (
        F.when(F.col("tombstone"), F.lit(TOMBSTONE))
        .when(F.col("decoded"), F.lit(DECODED))
        .otherwise(F.lit(UNDECODABLE))
    )
    return _shape(
        marked,
        source,
        status=status,
        decoded={
            "window_start_us": F.col("window"),
            "key": F.col("key"),
            "result": F.struct("offset", "time_us", "ids", "text_ids").cast(RESULT_TYPE),
            "contributions": F.size("ids") + F.size("text_ids"),
            "hash_a": F.col("sum_a"),
            "hash_b": F.col("sum_b"),
        },
    )


def _split(numbers: Column, texts: Column, id_type: str) -> tuple[Column, Column]:
    """A result's ids, integers and texts apart; ``texts`` counts where ``numbers`` is null."""
    if id_type == "string":
        return F.array().cast(ArrayType(LongType())), texts
    from_texts = numbers.isNull() & texts.isNotNull()
    as_numbers = F.filter(F.transform(texts, scalars.integer_id), lambda number: number.isNotNull())
    # Not `is null`: a null id must stay, so that the fold is null and the record undecodable.
    kept = F.filter(texts, lambda text: text.isNull() | scalars.integer_id(text).isNull())
    no_texts = F.array().cast(ArrayType(StringType()))
    return F.when(from_texts, as_numbers).otherwise(numbers), F.when(from_texts, kept).otherwise(no_texts)


class _Reader:
    """One parse of the value for all paths of a topic, and access to them."""

    def __init__(self, frame: DataFrame, paths: list[FieldPath], extra: dict[str, ArrayType] | None = None) -> None:
        leaves: dict[str, DataType] = {path.path: StringType() for path in paths if not path.path.startswith("$")}
        leaves.update(extra or {})
        self._parsed = bool(leaves)
        if self._parsed:
            frame = frame.withColumn("parsed", json_paths.parse(_value(), json_paths.nested_schema(leaves)))
        self.frame = frame

    @property
    def whole(self) -> Column:
        """Whether the record is what the paths ask for; a null value never is."""
        if not self._parsed:
            return F.col("value").isNotNull()
        return F.coalesce(json_paths.is_whole(F.col("parsed")), F.lit(False))

    def text(self, path: FieldPath) -> Column:
        """The field as text; `$` paths come from the Kafka record itself."""
        name = path.path
        if name == "$key":
            return _text(F.col("key"))
        if name == "$timestamp":
            return F.unix_micros("timestamp").cast("string")
        if name in ("$offset", "$partition"):
            return F.col(name[1:]).cast("string")
        if name.startswith("$header."):
            wanted = F.filter("headers", lambda header: header["key"] == name.removeprefix("$header."))
            return _text(F.try_element_at(wanted, F.lit(1))["value"])
        return json_paths.at(F.col("parsed"), name)

    def instant(self, path: FieldPath) -> Column:
        """The field as microseconds since the epoch."""
        if path.path == "$timestamp":
            return F.unix_micros("timestamp")
        return scalars.instant_us(self.text(path), path.unit)


def plain_events_of(
    topic: Input | Late, oracle: TumblingWindow, slack_us: int, id_type: str, space: IdSpace | None
) -> plain_events.PlainEvents | None:
    """How Arrow decodes the events of a topic; None where it must not."""
    fields = topic.fields
    paths = [fields.id, *fields.key, fields.event_time]
    beside = any(path.path.startswith("$") for path in paths)
    if beside or id_type == "string" or fields.event_time.unit == "ns" or (space and not space.keeps_integers):
        return None
    id_path, *keys, time_path = (tuple(path.path.split(".")) for path in paths)
    return plain_events.PlainEvents(
        id=id_path,
        key=tuple(keys),
        event_time=time_path,
        factor=scalars.MICROSECONDS[fields.event_time.unit] if fields.event_time.unit else None,
        size_us=oracle.size_us,
        offset_us=oracle.offset_us,
        closed_right=oracle.closed_right,
        slack_us=slack_us,
    )


def _value() -> Column:
    return F.col("value").cast("string")


def _text(raw: Column) -> Column:
    """Bytes as text; null where they are none, so that the record is undecodable, as one that is no JSON is."""
    return F.try_validate_utf8(raw.cast("string"))


def _position() -> list[Column]:
    return [F.col("partition"), F.col("offset"), F.col("time_us")]


def _with_ids(frame: DataFrame, id_type: str) -> DataFrame:
    """``frame`` with the columns ``number`` and ``text``: of ``id_text``, the id as an integer or else as a text."""
    no_number, no_text = F.lit(None).cast("bigint"), F.lit(None).cast("string")
    if id_type == "string":
        return frame.withColumns({"number": no_number, "text": scalars.scalar(F.col("id_text"))})
    numbered = frame.withColumn("number", scalars.integer_id(F.col("id_text")))
    if id_type == "integer":
        return numbered.withColumn("text", no_text)
    return numbered.withColumn("text", F.when(F.col("number").isNull(), scalars.scalar(F.col("id_text"))))


def _concatenated(lists: list[Column]) -> Column:
    return lists[0] if len(lists) == 1 else F.concat(*lists)


def _without_null(integers: str) -> Column:
    """Whether a list is there and no item of it is null.

    Looking for a number is compiled, and its answer is null where it is not found but a null is. Only a list that holds
    that very number is looked at item by item.
    """
    found = F.array_contains(integers, F.lit(-(2**63)))
    return F.when(found, ~F.exists(integers, lambda item: item.isNull())).otherwise(found.isNotNull())


def _fold(items: Column, term: scalars.Term) -> Column:
    return F.aggregate(items, F.lit(0).cast("bigint"), lambda total, item: total + term(item))


def _shape(
    frame: DataFrame, source: int, *, status: Column, decoded: dict[str, Column], run: Column | None = None
) -> DataFrame:
    """The decoded schema in its order; the columns of ``decoded`` are null where the record did not decode.

    ``run``: where it is not null, the row is a run, and what it says counts.
    """
    values: dict[str, Column] = {"source": F.lit(source), "status": status}
    zero = {"contributions", "hash_a", "hash_b"}
    for column in DECODED_TYPE.fields:
        if column.name in values:
            continue
        if column.name in decoded:
            value = F.when(F.col("decoded"), decoded[column.name])
            values[column.name] = value.otherwise(F.lit(0)) if column.name in zero else value
        elif column.name in ("partition", "offset", "time_us"):
            values[column.name] = F.col(column.name)
        else:
            values[column.name] = F.lit(0) if column.name in zero else F.lit(None)
    if run is not None:
        given = {**{name: run[name] for name in _OF_A_RUN}, "contributions": run["records"]}
        for name, of_run in given.items():
            values[name] = F.when(run.isNotNull(), of_run).otherwise(values[name])
        values["run"] = run
    return frame.select(*[values[f.name].cast(f.dataType).alias(f.name) for f in DECODED_TYPE.fields])

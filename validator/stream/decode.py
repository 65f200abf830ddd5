"""How the records of each source are read: what of them leaves the JVM, and how it is decoded.

Shape in: Spark's Kafka source (key, value, topic, partition, offset, timestamp, headers). Nothing here reads or writes.
Records are decoded in Spark's Python workers (`validator.stream.stage`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructField, StructType

from validator.codecs import scalars, times
from validator.codecs.batches import EventBatches, ResultBatches
from validator.codecs.conditions import Condition
from validator.codecs.one_record import RecordDecoder
from validator.codecs.plain_events import PlainEvents
from validator.config.model import Input, Late, Limits, Output
from validator.model.id_spaces import IdSpace
from validator.oracles.seam import Oracle

_DEFAULT: Final = Limits()

RECORD_TYPE: Final = StructType(
    [
        StructField("source", IntegerType()),
        StructField("value", BinaryType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("time_us", LongType()),
        StructField("key", BinaryType()),
        StructField("key_size", IntegerType()),
        StructField(
            "headers",
            ArrayType(
                StructType(
                    [
                        StructField("key", StringType()),
                        StructField("value", BinaryType()),
                        StructField("size", IntegerType()),
                    ]
                )
            ),
        ),
    ]
)
"""What of Kafka's records leaves the JVM. ``source``: index of the configured topic. ``key``, and ``value`` of each of
the ``headers``, is null where it is too long; ``key_size`` and ``size`` say so. The columns after ``time_us`` are left
out where no source needs them."""


@dataclass(frozen=True)
class Reader:
    """How the records of one source become decoded columns, and in which cells. ``slack_us``: disorder plus allowed
    lateness."""

    batches: EventBatches | ResultBatches
    oracle: Oracle
    slack_us: int
    value_bytes: int

    @property
    def decoder(self) -> RecordDecoder:
        """The rule by which its records decode."""
        return self.batches.decoder

    @property
    def columns(self) -> frozenset[str]:
        """The columns of `RECORD_TYPE` that only some sources need."""
        key = () if self.decoder.most_of_key is None else ("key", "key_size")
        return frozenset((*key, *(("headers",) if self.decoder.most_of_header else ())))


def event_reader(
    topic: Input | Late,
    oracle: Oracle,
    slack_us: int,
    id_type: str,
    space: IdSpace | None = None,
    *,
    limits: Limits = _DEFAULT,
) -> Reader:
    """Input events, late records and rejected records: each carries one id and its own event time.

    ``id_type`` is ``auto``, ``integer`` or ``string``. ``space``: the id space of these events, where inputs have their
    own.
    """
    decoder = RecordDecoder(
        topic, id_type, limits=limits, rounding=oracle.rounding, condition=_condition(topic, oracle)
    )
    plain = plain_events_of(topic, oracle, id_type, space, limits)
    return Reader(EventBatches(decoder, plain, space), oracle, slack_us, limits.value_bytes)


def result_reader(
    topic: Output,
    oracle: Oracle,
    id_type: str,
    spaces: Mapping[str, IdSpace] = {},
    *,
    limits: Limits = _DEFAULT,
) -> Reader:
    """Results: each names its cell and carries the list of ids (or, with evidence ``id``, the one id) that it used.

    ``spaces``: input topic -> its id space, where inputs have their own; the lists say whose they are.
    """
    decoder = RecordDecoder(topic, id_type, oracle.result_span_us, limits)
    of_lists = [spaces[path.input] for path in topic.fields.ids or () if path.input is not None]
    return Reader(ResultBatches(decoder, of_lists), oracle, 0, limits.value_bytes)


def cut(frame: DataFrame, source: int, reader: Reader, columns: Collection[str]) -> DataFrame:
    """Kafka's records as `RECORD_TYPE`, with those of its ``columns`` that some source needs: what is longer than the
    limits stays in the JVM."""
    decoder = reader.decoder
    given = {
        "source": F.lit(source),
        "time_us": F.unix_micros("timestamp"),
        "value": scalars.within(F.col("value"), reader.value_bytes),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
    }
    if decoder.most_of_key is not None:
        given |= {"key": scalars.no_longer(F.col("key"), decoder.most_of_key), "key_size": F.octet_length("key")}
    if decoder.most_of_header:
        read = [scalars.last_header(F.col("headers"), *item) for item in decoder.most_of_header.items()]
        given["headers"] = F.array_compact(F.array(*read))
    return frame.select(
        *[
            given.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name)
            for field in RECORD_TYPE.fields
            if field.name in columns or field.name in _ALWAYS
        ]
    )


_ALWAYS: Final = ("source", "value", "partition", "offset", "time_us")


def plain_events_of(
    topic: Input | Late, oracle: Oracle, id_type: str, space: IdSpace | None, limits: Limits = _DEFAULT
) -> PlainEvents:
    """How Arrow decodes the events of a topic."""
    fields = topic.fields
    unit, condition = fields.event_time.unit, _condition(topic, oracle)
    return PlainEvents(
        id=_place(fields.id.path),
        key=tuple(_place(path.path) for path in fields.key),
        event_time=_place(fields.event_time.path),
        factor=None if unit is None else times.MICROSECONDS.get(unit, 1),
        divisor=1_000 if unit == "ns" else 1,
        rounding=oracle.rounding,
        key_bytes=limits.key_bytes,
        id_bytes=limits.id_bytes,
        value_bytes=limits.value_bytes,
        id_type=id_type,
        space=space,
        condition=condition,
        where=() if condition is None else _place(condition.path),
    )


def _condition(topic: Input | Late, oracle: Oracle) -> Condition | None:
    """Of set-aside records nobody asks for it: they need not have the field."""
    return oracle.condition if isinstance(topic, Input) else None


def _place(path: str) -> tuple[str, ...]:
    return (path,) if path.startswith("$") else tuple(path.split("."))

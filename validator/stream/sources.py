"""The streaming plan: one Kafka source per configured topic, results first, united; and the tick. How each is read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.readwriter import DataFrameReader
from pyspark.sql.streaming.readwriter import DataStreamReader

from validator.config.model import Config, Input, Late, Output
from validator.model.frontier import PartitionId
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.facts import Side
from validator.stream.clients import for_java
from validator.stream.decode import Reader, cut, event_reader, result_reader

SparkReader = TypeVar("SparkReader", DataFrameReader, DataStreamReader)

READING: Final = {
    # A drained partition must not make the others wait: 500 ms is the client's default (LAYOUT, measured).
    "kafka.fetch.max.wait.ms": "5",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.fetch.max.bytes": "67108864",
    "kafka.max.poll.records": "20000",
    "kafka.receive.buffer.bytes": "1048576",
    # A hole is an error of the query, which the sidecar catches, records as expired, and passes.
    "failOnDataLoss": "true",
}


_READING_THE_CANARY: Final = {**READING, "failOnDataLoss": "false"}
"""What happens to the canary's topics is no failure of the pipeline's query; the canary shows it."""
_FEW_RECORDS: Final = 100
"""Most records that the client holds at once where memory is short."""
_CANARY_SHARE: Final = 1_000
"""Most records a batch of each of the canary's topics: some fifty rounds."""


_RESULTS_PER_TASK: Final = 8_192
"""A task hands its records to Python in batches that are not limited in bytes, and a result may have many ids. Each
task costs tens of milliseconds."""


def reading_of(share: int) -> dict[str, str]:
    """Options of a reader of ``share`` records. Its client decompresses as many as it may hand over at once: what a
    batch does not read takes no memory."""
    polled = "kafka.max.poll.records"
    return {**READING, polled: str(min(int(READING[polled]), share))}


@dataclass(frozen=True)
class Source:
    """One configured topic and its part in the comparison."""

    side: Side
    topic: str
    configured: Input | Output | Late


def sources_of(config: Config) -> list[Source]:
    """All topics of a configuration in the order in which they are fetched: results before the inputs that explain
    them, so that a result is seldom read before its causes. Correctness does not rest on this order."""
    return [
        *[Source(Side.OUTPUT, output.topic, output) for output in config.outputs],
        *[Source(Side.LATE, late.topic, late) for late in config.late],
        *[Source(Side.REJECTED, rejected.topic, rejected) for rejected in config.rejected],
        *[Source(Side.INPUT, entry.topic, entry) for entry in config.inputs],
    ]


def id_type_of(config: Config) -> str:
    """One id space: integers or texts only where every input says so."""
    kinds = {entry.id_type for entry in config.inputs}
    return kinds.pop() if len(kinds) == 1 else "auto"


def readers_of(config: Config, sources: Sequence[Source], canary: Sequence[Source] = ()) -> list[Reader]:
    """How the records of the ``sources`` are read, then those of the ``canary``: by index of the source."""
    id_type = id_type_of(config)
    return [
        *[_reader(source, config, id_type) for source in sources],
        *[_reader_of_canary(source.configured, config, id_type) for source in canary],
    ]


def united(
    spark: SparkSession,
    config: Config,
    sources: list[Source],
    starts: Mapping[PartitionId, int],
    *,
    shares: Mapping[str, int],
    cores: int,
    ticking: bool,
    sparing: bool = False,
    canary: Sequence[Source] = (),
) -> DataFrame:
    """The streaming frame of records of all ``sources``, then of those of the ``canary``.

    ``starts``: next offset of every partition that exists now. ``shares``: most records a batch of each topic.
    With ``ticking`` a rate source makes a batch each tick, also when no topic moves. ``sparing``: memory was short.
    """
    frames = []
    readers = readers_of(config, sources, canary)
    columns = frozenset().union(*(reader.columns for reader in readers))
    for index, source in enumerate(sources):
        reading = reading_of(_FEW_RECORDS if sparing else shares[source.topic])
        raw = _kafka(
            spark,
            config,
            source.topic,
            starts,
            shares[source.topic],
            least_partitions=2 * cores,
            most_per_task=_RESULTS_PER_TASK if isinstance(source.configured, Output) else None,
            reading=reading,
        )
        frames.append(cut(raw, index, readers[index], columns))
    for index, source in enumerate(canary, len(sources)):
        raw = _kafka(spark, config, source.topic, starts, _CANARY_SHARE, reading=_READING_THE_CANARY)
        frames.append(cut(raw, index, readers[index], columns))
    if ticking:
        frames.append(_tick(spark, frames[0]))
    return reduce(DataFrame.union, frames)


def part(
    spark: SparkSession, config: Config, sources: Sequence[Source], place: PartitionId, start: int, end: int
) -> DataFrame:
    """The records of one partition from ``start`` on, up to and without ``end``."""
    index, source = next((i, source) for i, source in enumerate(sources) if source.topic == place.topic)
    reading = reading_of(min(_FEW_RECORDS, end - start))
    number = str(place.partition)
    reader = _options(spark.read.format("kafka").options(**reading), config, spark)
    raw = (
        reader.option("assign", json.dumps({place.topic: [place.partition]}))
        .option("startingOffsets", json.dumps({place.topic: {number: start}}))
        .option("endingOffsets", json.dumps({place.topic: {number: end}}))
        .load()
    )
    how = _reader(source, config, id_type_of(config))
    return cut(raw, index, how, how.columns)


def _reader(source: Source, config: Config, id_type: str) -> Reader:
    slack = config.timing.max_disorder + config.timing.allowed_lateness
    oracle, spaces = config.oracle, config.oracle.spaces(config.inputs)
    entry = source.configured
    if isinstance(entry, Output):
        return result_reader(entry, oracle, id_type, spaces, limits=config.limits)
    owner = entry.input if isinstance(entry, Late) else entry.topic
    return event_reader(entry, oracle, slack, id_type, spaces.get(owner or ""), limits=config.limits)


def _reader_of_canary(entry: Input | Output | Late, config: Config, id_type: str) -> Reader:
    """As the pipeline's own, in windows of the canary's rounds."""
    assert config.canary is not None, "only a canary that is configured has sources"
    oracle = TumblingWindow.of(config.canary.every)
    if isinstance(entry, Output):
        return result_reader(entry, oracle, id_type)
    return event_reader(entry, oracle, 0, id_type)


def _kafka(
    spark: SparkSession,
    config: Config,
    topic: str,
    starts: Mapping[PartitionId, int],
    share: int,
    *,
    least_partitions: int = 1,
    most_per_task: int | None = None,
    reading: Mapping[str, str],
) -> DataFrame:
    """Kafka's records of one topic. ``least_partitions``: few or uneven ones would leave cores without work; a range
    can be read by several tasks."""
    offsets = {str(place.partition): offset for place, offset in starts.items() if place.topic == topic}
    reader = (
        _options(spark.readStream.format("kafka").options(**reading), config, spark)
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: offsets}))
        .option("maxOffsetsPerTrigger", str(share))
    )
    if most_per_task is not None:
        reader = reader.option("maxRecordsPerPartition", str(most_per_task))
    if len(offsets) < least_partitions:
        reader = reader.option("minPartitions", str(least_partitions))
    return reader.load()


def _options(reader: SparkReader, config: Config, spark: SparkSession) -> SparkReader:
    options = {f"kafka.{name}": value for name, value in for_java(config, spark._jvm).items()}
    return reader.options(**options).options(
        **{
            "kafka.isolation.level": config.kafka.isolation_level,
            "includeHeaders": str(_reads_headers(config)).lower(),
        }
    )


def _reads_headers(config: Config) -> bool:
    return "$header." in json.dumps(
        config.model_dump(mode="json", include={"inputs", "outputs", "late", "rejected", "oracle"})
    )


def _tick(spark: SparkSession, like: DataFrame) -> DataFrame:
    """A second makes a row, which is left out; one partition, since each starts a task."""
    rate = spark.readStream.format("rate").option("rowsPerSecond", "1").option("numPartitions", "1").load()
    nothing = rate.where(F.lit(False))
    return nothing.select(*[F.lit(None).cast(field.dataType).alias(field.name) for field in like.schema.fields])

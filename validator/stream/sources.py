"""The streaming plan: one Kafka source per configured topic, results first, decoded and united; and the tick."""

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

from validator.codecs.columns import DECODED_TYPE
from validator.codecs.id_spaces import IdSpace
from validator.config.model import Config, Input, Late, Output
from validator.model.frontier import PartitionId
from validator.oracles.tumbling_window import TumblingWindow
from validator.oracles.windowed_join import WindowedJoin
from validator.reconcile.facts import Side
from validator.stream.clients import for_java
from validator.stream.decode import decode_events, decode_results

Reader = TypeVar("Reader", DataFrameReader, DataStreamReader)

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


_RESULTS_PER_TASK: Final = 2_048
"""A task hands its records to Python in batches that are not limited in bytes, and a result may have many ids."""


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


def oracle_of(config: Config) -> TumblingWindow:
    """The oracle's window as the core knows it."""
    oracle = config.oracle
    return TumblingWindow(oracle.size, oracle.offset, closed_right=oracle.closed == "right")


def join_of(config: Config) -> WindowedJoin | None:
    """The oracle's join as the core knows it; None where the oracle is none."""
    oracle = config.oracle
    if oracle.kind != "windowed_join":
        return None
    return WindowedJoin(spaces_of(config)[str(oracle.right)].prefix, left_alone=oracle.join == "left")


def spaces_of(config: Config) -> dict[str, IdSpace]:
    """Input topic -> its id space; empty where all inputs share one."""
    oracle = config.oracle
    if oracle.kind != "windowed_join":
        return {}
    return {entry.topic: IdSpace(entry.topic, keeps_integers=entry.topic == oracle.left) for entry in config.inputs}


def id_type_of(config: Config) -> str:
    """One id space: integers or texts only where every input says so."""
    kinds = {entry.id_type for entry in config.inputs}
    return kinds.pop() if len(kinds) == 1 else "auto"


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
    """The streaming frame of decoded rows of all ``sources``, then of those of the ``canary``.

    ``starts``: next offset of every partition that exists now. ``shares``: most records a batch of each topic.
    With ``ticking`` a rate source makes a batch each tick, also when no topic moves. ``sparing``: memory was short.
    """
    frames = []
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
        frames.append(_decoded(raw, index, source, config))
    for index, source in enumerate(canary, len(sources)):
        raw = _kafka(spark, config, source.topic, starts, _CANARY_SHARE, reading=_READING_THE_CANARY)
        frames.append(_of_canary(raw, index, source.configured, config, id_type_of(config)))
    if ticking:
        frames.append(_tick(spark))
    return reduce(DataFrame.union, frames)


def part(
    spark: SparkSession, config: Config, sources: Sequence[Source], place: PartitionId, start: int, end: int
) -> DataFrame:
    """The decoded rows of the records of one partition from ``start`` on, up to and without ``end``."""
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
    return _decoded(raw, index, source, config)


def _decoded(raw: DataFrame, index: int, source: Source, config: Config) -> DataFrame:
    slack = config.timing.max_disorder + config.timing.allowed_lateness
    oracle, id_type, spaces = oracle_of(config), id_type_of(config), spaces_of(config)
    entry = source.configured
    if isinstance(entry, Output):
        return decode_results(raw, index, entry, oracle, id_type, spaces, limits=config.limits)
    owner = entry.input if isinstance(entry, Late) else entry.topic
    space = spaces.get(owner or "")
    return decode_events(raw, index, entry, oracle, slack, id_type, space, limits=config.limits)


def _of_canary(raw: DataFrame, index: int, entry: Input | Output | Late, config: Config, id_type: str) -> DataFrame:
    """Decoded as the pipeline's own, in windows of the canary's rounds."""
    assert config.canary is not None, "only a canary that is configured has sources"
    oracle = TumblingWindow(config.canary.every, 0)
    if isinstance(entry, Output):
        return decode_results(raw, index, entry, oracle, id_type)
    return decode_events(raw, index, entry, oracle, 0, id_type)


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


def _options(reader: Reader, config: Config, spark: SparkSession) -> Reader:
    options = {f"kafka.{name}": value for name, value in for_java(config, spark._jvm).items()}
    return reader.options(**options).options(
        **{
            "kafka.isolation.level": config.kafka.isolation_level,
            "includeHeaders": str(_reads_headers(config)).lower(),
        }
    )


def _reads_headers(config: Config) -> bool:
    return "$header." in json.dumps(config.model_dump(mode="json", include={"inputs", "outputs", "late", "rejected"}))


def _tick(spark: SparkSession) -> DataFrame:
    rate = spark.readStream.format("rate").option("rowsPerSecond", "1").load()
    nothing = rate.where(F.lit(False))
    return nothing.select(*[F.lit(None).cast(f.dataType).alias(f.name) for f in DECODED_TYPE.fields])

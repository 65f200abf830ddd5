"""The streaming plan: one Kafka source per configured topic, results first, decoded and united; and the tick."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from validator.codecs.columns import DECODED_TYPE
from validator.codecs.id_spaces import IdSpace
from validator.config.model import Config, Input, Late, Output
from validator.model.frontier import PartitionId
from validator.oracles.tumbling_window import TumblingWindow
from validator.oracles.windowed_join import WindowedJoin
from validator.reconcile.facts import Side
from validator.stream.decode import decode_events, decode_results

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
_CANARY_SHARE: Final = 1_000
"""Most records a batch of each of the canary's topics: some fifty rounds."""


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
    canary: Sequence[Source] = (),
) -> DataFrame:
    """The streaming frame of decoded rows of all ``sources``, then of those of the ``canary``.

    ``starts``: next offset of every partition that exists now. ``shares``: most records a batch of each topic.
    With ``ticking`` a rate source makes a batch each tick, also when no topic moves.
    """
    slack = config.timing.max_disorder + config.timing.allowed_lateness
    oracle, id_type, spaces = oracle_of(config), id_type_of(config), spaces_of(config)
    frames = []
    for index, source in enumerate(sources):
        raw = _kafka(spark, config, source.topic, starts, shares[source.topic], least_partitions=2 * cores)
        entry = source.configured
        if isinstance(entry, Output):
            frames.append(decode_results(raw, index, entry, oracle, id_type, spaces))
        else:
            owner = entry.input if isinstance(entry, Late) else entry.topic
            frames.append(decode_events(raw, index, entry, oracle, slack, id_type, spaces.get(owner or "")))
    for index, source in enumerate(canary, len(sources)):
        raw = _kafka(spark, config, source.topic, starts, _CANARY_SHARE, reading=_READING_THE_CANARY)
        frames.append(_of_canary(raw, index, source.configured, config, id_type))
    if ticking:
        frames.append(_tick(spark))
    return reduce(DataFrame.union, frames)


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
    reading: Mapping[str, str] = READING,
) -> DataFrame:
    """Kafka's records of one topic. ``least_partitions``: few or uneven ones would leave cores without work; a range
    can be read by several tasks."""
    offsets = {str(place.partition): offset for place, offset in starts.items() if place.topic == topic}
    reader = spark.readStream.format("kafka").options(**reading)
    reader = reader.options(**{f"kafka.{name}": str(value) for name, value in config.kafka.options.items()})
    reader = (
        reader.option("kafka.bootstrap.servers", config.kafka.bootstrap_servers)
        .option("kafka.isolation.level", config.kafka.isolation_level)
        .option("subscribe", topic)
        .option("startingOffsets", json.dumps({topic: offsets}))
        .option("maxOffsetsPerTrigger", str(share))
        .option("includeHeaders", str(_reads_headers(config)).lower())
    )
    if len(offsets) < least_partitions:
        reader = reader.option("minPartitions", str(least_partitions))
    return reader.load()


def _reads_headers(config: Config) -> bool:
    return "$header." in json.dumps(config.model_dump(mode="json", include={"inputs", "outputs", "late", "rejected"}))


def _tick(spark: SparkSession) -> DataFrame:
    rate = spark.readStream.format("rate").option("rowsPerSecond", "1").load()
    nothing = rate.where(F.lit(False))
    return nothing.select(*[F.lit(None).cast(f.dataType).alias(f.name) for f in DECODED_TYPE.fields])

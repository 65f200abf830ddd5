"""The configured topics as sources, their readers, and the streaming plan over them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from validator.config.model import Config, Input, Late, Output
from validator.model.frontier import PartitionId
from validator.model.schemas import NO_SCHEMAS, Schemas
from validator.oracles.kinds import canary_oracle
from validator.reconcile.facts import Side
from validator.settings.topics import TableTopic, missing_key_of
from validator.stream.clients import for_java, for_librdkafka
from validator.stream.decode import Reader, event_reader, result_reader
from validator.stream.kafka_reading import Reading

_CANARY_SHARE: Final = 1_000
"""Limit of records per batch for each of the canary's topics: some ninety rounds."""


@dataclass(frozen=True)
class Source:
    """One configured topic and its side in the comparison."""

    side: Side
    topic: str
    configured: Input | Output | Late | TableTopic


def sources_of(config: Config) -> list[Source]:
    """All topics of a configuration, in the order in which a batch plans and reads them: results before inputs.

    This order makes it rare that a result is read before the inputs that explain it. Correctness does not depend on it.
    """
    return [
        *[Source(Side.OUTPUT, output.topic, output) for output in config.outputs],
        *[Source(Side.LATE, late.topic, late) for late in config.late],
        *[Source(Side.REJECTED, rejected.topic, rejected) for rejected in config.rejected],
        *[Source(Side.INPUT, entry.topic, entry) for entry in config.inputs],
        *[Source(Side.TABLE, table.topic, table) for table in config.oracle.tables],
    ]


def id_type_of(config: Config) -> str:
    """The id type of the pipeline: that of its inputs if they agree, else ``auto``."""
    kinds = {entry.id_type for entry in config.inputs}
    return kinds.pop() if len(kinds) == 1 else "auto"


def readers_of(
    config: Config, sources: Sequence[Source], canary: Sequence[Source] = (), schemas: Schemas = NO_SCHEMAS
) -> list[Reader]:
    """The readers of the ``sources``, then those of the ``canary``. A reader has the index of its source. ``schemas``:
    those of the registry that are known."""
    id_type = id_type_of(config)
    return [
        *[_reader(source, config, id_type, schemas) for source in sources],
        *[_reader_of_canary(source.configured, config, id_type) for source in canary],
    ]


def reading_of(config: Config, canary: Sequence[Source] = ()) -> Reading:
    """How the workers read. Absent records of the ``canary``'s topics do not fail a batch: the canary reports them."""
    return Reading(
        for_librdkafka(config, {"isolation.level": config.kafka.isolation_level}),
        may_miss=frozenset(source.topic for source in canary),
        memory_bytes=config.limits.worker_bytes,
    )


def planning_frame(
    spark: SparkSession,
    config: Config,
    sources: Sequence[Source],
    starts: Mapping[PartitionId, int],
    *,
    shares: Mapping[str, int],
    canary: Sequence[Source] = (),
) -> DataFrame:
    """The streaming frame with which Spark plans batches and finds new partitions.

    Only the planned offsets are used: `validator.stream.workers` reads the records.

    ``starts``: next offset of every existing partition. ``shares``: topic -> most records per batch.
    """
    frames = [_kafka(spark, config, source.topic, starts, shares[source.topic]) for source in sources]
    frames += [_kafka(spark, config, source.topic, starts, _CANARY_SHARE, may_miss=True) for source in canary]
    return reduce(DataFrame.union, frames)


def _reader(source: Source, config: Config, id_type: str, schemas: Schemas) -> Reader:
    slack = config.timing.max_disorder_us + config.timing.allowed_lateness_us
    oracle, spaces = config.oracle, config.oracle.spaces(config.inputs)
    entry = source.configured
    missing_key = missing_key_of(entry, config.inputs)
    if isinstance(entry, Output):
        spaces = {one.topic: spaces[one.topic] for one in oracle.named_inputs(config.inputs) if spaces}
        return result_reader(
            entry, oracle, id_type, spaces, limits=config.limits, missing_key=missing_key, schemas=schemas
        )
    owner = entry.input if isinstance(entry, Late) else entry.topic
    space = spaces.get(owner or "")
    return event_reader(
        entry,
        oracle.seen_from(owner),
        slack,
        id_type,
        space,
        limits=config.limits,
        missing_key=missing_key,
        schemas=schemas,
    )


def _reader_of_canary(entry: Input | Output | Late | TableTopic, config: Config, id_type: str) -> Reader:
    """A reader like the pipeline's, with the windows of the canary's rounds."""
    assert config.canary is not None, "only a canary that is configured has sources"
    oracle = canary_oracle(config.canary.every_us)
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
    may_miss: bool = False,
) -> DataFrame:
    """A streaming frame over one topic, with the offsets only."""
    offsets = {str(partition.partition): offset for partition, offset in starts.items() if partition.topic == topic}
    options = {f"kafka.{name}": value for name, value in for_java(config, spark._jvm).items()}
    reader = spark.readStream.format("kafka").options(**options)
    reader = reader.options(
        **{
            "kafka.isolation.level": config.kafka.isolation_level,
            "subscribe": topic,
            "startingOffsets": json.dumps({topic: offsets}),
            "maxOffsetsPerTrigger": str(share),
            # Expired offsets fail the query. The sidecar counts the records as expired and starts a new generation.
            "failOnDataLoss": str(not may_miss).lower(),
        }
    )
    return reader.load().select("offset")

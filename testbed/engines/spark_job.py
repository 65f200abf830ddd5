"""The Spark driver of the engine: ``python -m testbed.engines.spark_job CONFIG.json --instance 0``.

One Structured Streaming query: clicks, grouped by key and tumbling event-time window, one result with the ids in append
mode. Killed and started again it goes on from its checkpoint, which lies beside the configuration. Exit status: 0 when
stopped, 1 when the query failed, 2 for a configuration that cannot be used.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from testbed.engines.job import READY, log
from testbed.engines.spark_settings import STATE_STORES, SparkSettings
from validator.stream.jars import SIDECAR_LOCK, resolve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

CHECKPOINT: Final = "checkpoint"
"""Folder beside the configuration."""
EFFECTIVE: Final = "effective.json"
"""File beside the configuration: what the running query says of itself."""
_WAITING: Final = "Waiting for data to arrive"
"""What Spark says of a query that looked for input, found none, and has nothing left to do."""
_TIME: Final = "yyyy-MM-dd'T'HH:mm:ss.SSS"
_POLL_SECONDS: Final = 0.05
_BATCH_END_SECONDS_MAX: Final = 10.0
_SIDECAR_ONLY: Final = ("io.delta",)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m testbed.engines.spark_job")
    parser.add_argument("config", type=Path, help="JSON file of testbed.engines.spark_settings.SparkSettings")
    parser.add_argument("--instance", type=int, choices=[0], default=0, help="there is one driver")
    config: Path = parser.parse_args(arguments).config
    try:
        settings = SparkSettings.model_validate_json(config.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        log(f"{config}: {' '.join(str(error).split())}")
        return 2
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return run(settings, config.parent, stopping)


def run(settings: SparkSettings, folder: Path, stopping: threading.Event) -> int:
    """Run the query until ``stopping`` is set or it fails; the exit status."""
    from pyspark.errors import StreamingQueryException

    session = start_session(settings, folder)
    query = start_query(session, settings, folder / CHECKPOINT)
    ready = False
    try:
        while not (stopping.is_set() or query.awaitTermination(_POLL_SECONDS)):
            if not ready and has_run(query):
                ready = True
                write_effective(session, query, settings, folder)
                log(f"{READY} {settings.group}-0 batch {query.lastProgress['batchId'] if query.lastProgress else None}")
    except StreamingQueryException as error:
        log(f"failed: {error}")
        return 1
    # A batch that is cut would only be repeated; one that is done need not.
    deadline = threading.Event()
    timer = threading.Timer(_BATCH_END_SECONDS_MAX, deadline.set)
    timer.start()
    while query.status["isTriggerActive"] and not deadline.wait(_POLL_SECONDS):
        pass
    timer.cancel()
    query.stop()
    session.stop()
    log("stopped")
    return 0


def start_session(settings: SparkSettings, folder: Path) -> SparkSession:
    """Spark in this process and its JVM, with no file outside of ``folder``."""
    from pyspark.sql import SparkSession

    scratch = folder / "tmp"
    scratch.mkdir(exist_ok=True)
    tempfile.tempdir = str(scratch)
    # Options of ours only: a collector chosen elsewhere, besides this one, would keep the JVM from starting.
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={scratch}"
    os.environ["JDK_JAVA_OPTIONS"] = " ".join(JAVA_OPTIONS)
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    jars = [jar for jar in resolve(SIDECAR_LOCK) if jar.parent.name not in _SIDECAR_ONLY]
    builder = SparkSession.builder.master(f"local[{settings.parallelism}]").appName(settings.group)
    for name, value in spark_options(settings, jars, scratch).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


JAVA_OPTIONS: Final = (
    "-XX:+UseSerialGC",
    # A run of minutes ends before the second compiler pays.
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=256m",
    "-Xss4m",
    "-XX:-UsePerfData",
)


def spark_options(settings: SparkSettings, jars: Sequence[Path], scratch: Path) -> dict[str, str]:
    """The options of the session."""
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": f"{settings.driver_memory_mb}m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.parallelism),
        "spark.sql.streaming.stateStore.providerClass": STATE_STORES[settings.state_store],
        # Without it a window would answer only when the event after the one that closed it comes.
        "spark.sql.streaming.noDataMicroBatches.enabled": "true",
    }


def start_query(session: SparkSession, settings: SparkSettings, checkpoint: Path) -> StreamingQuery:
    """The query from the input topics to the output topic."""
    source = {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": ",".join(settings.inputs),
        "groupIdPrefix": settings.group,
        "startingOffsets": "earliest",
        # A start outside the log means lost input: fail, never skip.
        "failOnDataLoss": "true",
        **{f"kafka.{name}": str(value) for name, value in settings.consumer_options.items()},
    }
    if settings.batch_records_max is not None:
        source["maxOffsetsPerTrigger"] = str(settings.batch_records_max)
    sink = {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "kafka.compression.type": "lz4",
        "kafka.max.request.size": str(settings.message_bytes_max),
        "topic": settings.output,
        "checkpointLocation": str(checkpoint),
        **{f"kafka.{name}": str(value) for name, value in settings.producer_options.items()},
    }
    records = session.readStream.format("kafka").options(**source).load()
    writer = results(records, settings).writeStream.format("kafka").options(**sink).outputMode("append")
    return writer.trigger(processingTime=f"{int(settings.commit_interval_seconds * 1000)} milliseconds").start()


def results(records: DataFrame, settings: SparkSettings) -> DataFrame:
    """Kafka records -> (key, value) of the results, in PGVal's format. What cannot be decoded is left out."""
    from pyspark.sql import functions as F

    names = settings.key_fields
    schema = ", ".join(["`id` long", "`timestamp` timestamp", *[f"`{name}` string" for name in names]])
    decoded = records.select(F.from_json(F.col("value").cast("string"), schema).alias("click"))
    clicks = decoded.select("click.*").dropna()
    grouped = (
        clicks.withWatermark("timestamp", f"{settings.watermark_delay_ms} milliseconds")
        .groupBy(*names, F.window("timestamp", f"{settings.window_ms} milliseconds").alias("window"))
        .agg(F.collect_list("id").alias("clickIds"))
    )
    fields = F.to_json(F.array(*names))
    value = F.struct(
        *names,
        F.date_format("window.start", _TIME).alias("windowStart"),
        F.date_format("window.end", _TIME).alias("windowEnd"),
        "clickIds",
        F.array().cast("array<bigint>").alias("updateIds"),
    )
    # The key of one field is its JSON; to_json takes no bare string, so the brackets of the array go.
    key = F.substr(fields, F.lit(2), F.length(fields) - 2) if len(names) == 1 else fields
    return grouped.select(key.alias("key"), F.to_json(value).alias("value"))


def has_run(query: StreamingQuery) -> bool:
    """Whether a trigger has done its work: a batch is committed, or there was no input for one."""
    return query.lastProgress is not None or query.status["message"] == _WAITING


def write_effective(session: SparkSession, query: StreamingQuery, settings: SparkSettings, folder: Path) -> None:
    """Ask the running session and query what they run with, and write it to `EFFECTIVE`, whole or not at all."""
    said = {
        "query": str(query.id),
        "sink": query._jsq.streamingQuery().sink().getClass().getName(),  # noqa: SLF001 - PySpark has no public way
        "checkpoint": str(folder / CHECKPOINT),
    }
    temporary = folder / f".{EFFECTIVE}"
    temporary.write_text(json.dumps(said, indent=1), encoding="utf-8")
    temporary.replace(folder / EFFECTIVE)


if __name__ == "__main__":
    sys.exit(main())

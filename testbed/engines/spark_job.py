"""The driver of the Spark engine: ``python -m testbed.engines.spark_job spark.json``.

One Structured Streaming query with the operator of the workload (`spark_operators`). After a kill and a restart it
continues from its checkpoint, which is beside the configuration. Exit status: 0 after a stop, 1 if the query failed, 2
for an invalid configuration.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ValidationError

from testbed.engines.job import READY, log
from testbed.engines.real import COUNTERS
from testbed.engines.settings import Guarantee
from testbed.engines.spark import EFFECTIVE
from testbed.engines.spark_cluster import MASTER, driver_options, host_of, is_standalone
from testbed.engines.spark_driver import CHECKPOINT, RunningQuery, kafka_jars
from testbed.engines.spark_jvm import java_options
from testbed.engines.spark_settings import STATE_STORES, SparkSettings
from validator.model.signals import set_from_handler

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

_WAITING: Final = "Waiting for data to arrive"
"""Spark's status of a query that found no input and has nothing left to do."""
_POLL_SECONDS: Final = 0.05
_BATCH_END_SECONDS_MAX: Final = 10.0
MESSAGE_BYTES_MAX: Final = 8_000_000
OF_SESSION: Final = "spark."
"""Prefix of options of the session. The others, such as `maxOffsetsPerTrigger`, are those of the source."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m testbed.engines.spark_job")
    parser.add_argument("config", type=Path, help="JSON file of testbed.engines.spark_settings.SparkSettings")
    parser.add_argument("--master", required=True, help="address of the cluster, or local[THREADS]")
    given = parser.parse_args(arguments)
    config: Path = given.config
    try:
        settings = SparkSettings.model_validate_json(config.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        log(f"{config}: {' '.join(str(error).split())}")
        return 2
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: set_from_handler(stopping))
    return run(settings, config.parent, given.master, stopping)


def run(settings: SparkSettings, folder: Path, master: str, stopping: threading.Event) -> int:
    """Run the query until ``stopping`` is set or it fails; return the exit status."""
    session = start_session(settings, folder, master)
    query = start_query(session, settings, folder / CHECKPOINT, forget(settings, folder / CHECKPOINT))
    ready, batch = False, -1
    while query.isActive and not stopping.wait(_POLL_SECONDS):
        if (progress := query.lastProgress) is not None and progress["batchId"] != batch:
            batch = progress["batchId"]
            log(counters(progress))
        if not ready and has_run(query):
            ready = True
            write_effective(query, folder, settings.guarantee)
            log(f"{READY} {settings.group} {query.id}")
    if not query.isActive:
        log(f"failed: {query.exception()}")
        return 1
    # A batch that is interrupted would only be repeated, so wait for its end.
    deadline = time.monotonic() + _BATCH_END_SECONDS_MAX
    while query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    query.stop()
    session.stop()
    log("stopped")
    return 0


def start_session(settings: SparkSettings, folder: Path, master: str) -> SparkSession:
    """Start Spark in this process and its JVM, without files outside of ``folder``."""
    from pyspark.sql import SparkSession

    scratch = folder / "tmp"
    tempfile.tempdir = str(scratch)
    # Only the options set here: a second garbage collector in the environment would prevent the JVM's start. The agent
    # for the JVM's clock is kept.
    given = shlex.split(os.environ.pop("JAVA_TOOL_OPTIONS", ""))
    agents = [option for option in given if option.startswith("-javaagent:")]
    os.environ["JDK_JAVA_OPTIONS"] = shlex.join([*agents, *java_options(folder)])
    os.environ["SPARK_LOCAL_IP"] = host_of(settings)
    builder = SparkSession.builder.master(master).appName(settings.group)
    for name, value in spark_options(settings, kafka_jars(), scratch).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def spark_options(settings: SparkSettings, jars: Sequence[Path], scratch: Path) -> dict[str, str]:
    """Return the session's options."""
    return {
        "spark.jars": ",".join(map(str, jars)),
        "spark.driver.memory": f"{settings.driver_memory_mb}m",
        "spark.driver.host": host_of(settings),
        "spark.driver.bindAddress": host_of(settings),
        "spark.local.dir": str(scratch),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(settings.parallelism),
        "spark.sql.streaming.stateStore.providerClass": STATE_STORES[settings.state_store],
        # A join's windows stay open until both inputs have passed them.
        "spark.sql.streaming.multipleWatermarkPolicy": "min",
        # Otherwise a window would produce its result only at the event after the one that closed it.
        "spark.sql.streaming.noDataMicroBatches.enabled": "true",
        **(driver_options(settings) if is_standalone(settings.options) else {}),
        **{n: text for n, text in settings.options.items() if n.startswith(OF_SESSION) and n != MASTER},
    }


def forget(settings: SparkSettings, checkpoint: Path) -> Literal["earliest", "latest"]:
    """Return where a start without a checkpoint begins. At most once removes the checkpoint of an earlier start: what
    its batches had read is not read again, and what came since is lost (OSPBench)."""
    if settings.guarantee != "at_most_once" or not checkpoint.exists():
        return "earliest"
    shutil.rmtree(checkpoint)
    return "latest"


def start_query(
    session: SparkSession, settings: SparkSettings, checkpoint: Path, begin: Literal["earliest", "latest"] = "earliest"
) -> StreamingQuery:
    """Start the query from the input topics, at ``begin`` without a checkpoint, to the output topic."""
    from testbed.engines.spark_operators import results

    source = {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "kafka.isolation.level": "read_committed",
        "groupIdPrefix": settings.group,
        "startingOffsets": begin,
        # A start outside the log means lost input: fail instead of skipping it.
        "failOnDataLoss": "true",
        **{name: text for name, text in settings.options.items() if not name.startswith(OF_SESSION)},
    }
    sink = {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        "kafka.compression.type": "lz4",
        "kafka.max.request.size": str(MESSAGE_BYTES_MAX),
        "topic": settings.output,
        "checkpointLocation": str(checkpoint),
    }
    records = [session.readStream.format("kafka").options(**source, subscribe=i).load() for i in settings.inputs]
    writer = results(records, settings).writeStream.format("kafka").options(**sink).outputMode(settings.mode)
    trigger_ms = round(settings.timeouts.commit_interval_seconds * 1000)
    return writer.trigger(processingTime=f"{trigger_ms} milliseconds").start()


def counters(progress: Mapping[str, Any]) -> str:
    """Return the line of the log with the counters of a batch."""
    state = progress["stateOperators"]
    found = {
        "batch": progress["batchId"],
        "input-rows": progress["numInputRows"],
        "trigger-ms": progress["durationMs"].get("triggerExecution", 0),
        "state-rows": sum(one["numRowsTotal"] for one in state),
        "state-bytes": sum(one["memoryUsedBytes"] for one in state),
    }
    return COUNTERS + " ".join(f"{name}={value}" for name, value in found.items())


def has_run(query: StreamingQuery) -> bool:
    """Return whether a trigger has completed: a batch is committed, or there was no input."""
    return query.lastProgress is not None or query.status["message"] == _WAITING


def write_effective(query: StreamingQuery, folder: Path, guarantee: Guarantee) -> None:
    """Read the running query's settings, and write them atomically to `EFFECTIVE`."""
    execution = query._jsq.streamingQuery()  # noqa: SLF001 - PySpark has no public way to the sink and the trigger
    said = RunningQuery(
        sink=execution.sink().getClass().getName(),
        trigger_seconds=execution.trigger().intervalMs() / 1000,
        checkpoint=execution.resolvedCheckpointRoot(),
        resumes=guarantee != "at_most_once",
    )
    temporary = folder / f".{EFFECTIVE}"
    temporary.write_text(json.dumps(asdict(said), indent=1), encoding="utf-8")
    temporary.replace(folder / EFFECTIVE)


if __name__ == "__main__":
    sys.exit(main())

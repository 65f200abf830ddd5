"""The Spark session of the sidecar, with the settings that its correctness or its speed rests on."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

NEEDED: Final[dict[str, str]] = {
    # Fingerprints are sums that wrap; with ANSI on they would throw (LAYOUT, pitfall 10).
    "spark.sql.ansi.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # `validator.codecs.plain_events` looks at the bytes of records, which would lie otherwise in memory.
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
}
"""Settings that options must not change."""

TUNED: Final[dict[str, str]] = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.history.metricsEnabled": "false",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.driver.memory": "4g",
    # Facts come to the driver; a limit of its own would end a large batch again and again, at every start.
    "spark.driver.maxResultSize": "0",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "20000",
    # One batch generates some 150 classes: with the default of 100 every batch would compile all of them again.
    "spark.sql.codegen.cache.maxEntries": "2000",
    "spark.sql.debug.maxToStringFields": "5",
    "spark.sql.autoBroadcastJoinThreshold": "10485760",
    "spark.cleaner.periodicGC.interval": "5min",
    # So many records go to Python at once. With a limit of bytes Spark asks for the size of the batch at each record, a
    # fifth of all that its tasks do; this value switches that off. Topics whose events have more than 200 kB on the
    # average need another one.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "16384",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    # Its Kafka client waits a minute for brokers that do not answer, and a sidecar must end within half of that.
    "spark.sql.streaming.stopTimeout": "4s",
}
"""Settings for one small machine; `spark.options` of the configuration may change them."""


_JAVA_VARIABLES: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC\b")
"""A JVM that is told of two collectors does not start."""


class SessionUnfit(Exception):
    """A Spark option takes away what correctness rests on."""


def start(
    name: str,
    master: str,
    jars: Sequence[Path],
    options: Mapping[str, str],
    *,
    inherit: Sequence[int] = (),
) -> SparkSession:
    """Start Spark; the JVM inherits the file descriptors ``inherit`` (the state's lock).

    Raises `SessionUnfit` where ``options`` contradict `NEEDED`.
    """
    for key, value in NEEDED.items():
        if key in options and options[key] != value:
            raise SessionUnfit(f"spark.options sets {key} to {options[key]!r}, streamproof needs {value!r}: remove it")
    settings = {**TUNED, **options, **NEEDED}
    if master.startswith("local"):
        settings.setdefault("spark.driver.bindAddress", "127.0.0.1")
        settings.setdefault("spark.driver.host", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf().setMaster(master).setAppName(f"streamproof-{name}")
    conf.set("spark.jars", ",".join(str(jar) for jar in jars))
    log_settings = Path(__file__).with_name("log4j2.properties")
    java_options = settings.pop("spark.driver.extraJavaOptions", "")
    elsewhere = [
        settings.get("spark.driver.defaultJavaOptions", ""),
        *[os.environ.get(name, "") for name in _JAVA_VARIABLES],
    ]
    java_options = with_collector(java_options, elsewhere)
    conf.set("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log_settings} {java_options}".strip())
    for key, value in settings.items():
        conf.set(key, value)
    if inherit and SparkContext._gateway is None:
        from pyspark.java_gateway import launch_gateway

        passed = {"pass_fds": tuple(inherit)}
        gateway = launch_gateway(conf=conf, popen_kwargs=passed)
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)  # noqa: SLF001  # the only door to popen_kwargs
    session = SparkSession.builder.config(conf=conf).getOrCreate()
    for key, value in NEEDED.items():
        if session.conf.get(key) != value:
            raise SessionUnfit(f"Spark runs with {key} = {session.conf.get(key)!r}, streamproof needs {value!r}")
    return session


def with_collector(java_options: str, elsewhere: Iterable[str]) -> str:
    """The options, with the parallel collector where neither they nor the options ``elsewhere`` choose one.

    A batch is throughput, and the pauses of a collector that stops the world are far below a tick. On two cores it took
    a tenth less time than G1.
    """
    if any(_COLLECTOR.search(given) for given in (java_options, *elsewhere)):
        return java_options
    return f"-XX:+UseParallelGC {java_options}".strip()

"""Starts Spark once, to write the archive of `stream.class_archive`: run as a module, in a process of its own."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import DataFrame

from validator.stream import session

_END_SECONDS_MAX: Final = 120


def train(made: str, jars: Sequence[Path]) -> None:
    """Load what a sidecar loads until its first batch, without a broker; at its end the JVM writes the archive."""
    # Without `-Xlog:disable` the JVM names each class that it leaves out.
    options = shlex.join([f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable"])
    spark = session.start("classes", "local[2]", jars, {"spark.driver.extraJavaOptions": options})

    def batch(rows: DataFrame, number: int) -> None:
        del number
        rows.rdd.mapPartitions(lambda _: [1]).collect()

    # Neither the source nor the client connects to a broker.
    nowhere = "127.0.0.1:9"
    spark.readStream.format("kafka").options(**{"kafka.bootstrap.servers": nowhere, "subscribe": "none"}).load()
    jvm: Any = SparkContext._jvm
    client = jvm.java.util.Properties()
    client.put("bootstrap.servers", nowhere)
    jvm.org.apache.kafka.clients.admin.Admin.create(client).close(jvm.java.time.Duration.ZERO)
    with tempfile.TemporaryDirectory() as checkpoint:
        rate = spark.readStream.format("rate").load().writeStream.foreachBatch(batch)
        rate.option("checkpointLocation", checkpoint).trigger(once=True).start().awaitTermination()
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    if gateway.proc.wait(_END_SECONDS_MAX):
        raise SystemExit("the JVM wrote no archive")


if __name__ == "__main__":
    train(sys.argv[1], [Path(jar) for jar in sys.argv[2:]])

"""The plain read for comparison: Spark's own Kafka source reads the same topics and only sums value lengths.

``python -m bench.plain_read SERVERS TOPIC...`` prints one JSON line.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Final

from pyspark.sql import functions as F

from validator.stream import jars
from validator.stream.session import start

READING: Final = {
    # A fetch from a drained partition delays the other partitions for this long; the client's default is 500 ms.
    "kafka.fetch.max.wait.ms": "5",
    "kafka.max.partition.fetch.bytes": "8388608",
    "kafka.fetch.max.bytes": "67108864",
    "kafka.max.poll.records": "20000",
    "kafka.receive.buffer.bytes": "1048576",
}
JVM: Final = {
    "spark.driver.memory": "4g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4 -XX:+UseParallelGC",
}
"""A JVM that reads records needs the second JIT compiler; the sidecar's JVM runs without it."""

if __name__ == "__main__":
    servers, *topics = sys.argv[1:]
    spark = start("plain-read", "local[*]", jars.resolve(Path(jars.__file__).with_name("jars.lock")), JVM)
    seconds = []
    for _ in range(2):
        began = time.monotonic()
        frame = spark.read.format("kafka").options(**READING).option("kafka.bootstrap.servers", servers)
        frame = frame.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest")
        frame = frame.option("minPartitions", str(2 * spark.sparkContext.defaultParallelism))
        total = frame.load().agg(F.sum(F.length("value"))).collect()[0][0]
        seconds.append(time.monotonic() - began)
    # The first read warms up the JVM.
    print(json.dumps({"seconds": seconds[-1], "first_seconds": seconds[0], "bytes": total}), flush=True)
    spark.stop()

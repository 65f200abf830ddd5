"""Checks that Kafka's Java client, which Spark uses, can read the newest record of every topic.

The client runs in a small JVM without Spark. `validator.cli.samples` checks librdkafka in the same way.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from validator.cli.check_result import CheckResult, note, ok, problem
from validator.config.model import Config
from validator.model.kafka_options import OptionsRefused, librdkafka_options
from validator.model.kafka_refusals import Refusal, refusal
from validator.stream import jars
from validator.stream.clients import for_java, refined
from validator.stream.jvm_output import without_noise
from validator.stream.sampling import no_answer

_SECONDS_MAX: Final = 8.0
_FIRST_SECONDS_MAX: Final = 30.0
"""Limit of the first request: meanwhile the new JVM loads the classes of the client."""
_SLOW: Final = "slow"
"""The kind of a refusal for a request that timed out."""
_TIMED_OUT: Final = "kafka.common.errors.TimeoutException"
_POLL_MS: Final = 300
_JAVA_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
Partitions = Mapping[str, tuple[int, ...]]
"""Topic -> its partitions."""


def check(config: Config, topics: Partitions, read: Collection[str] = ()) -> CheckResult:
    """A finding that is ok, or a problem with the first topic that the Java client cannot read.

    ``read``: topics that librdkafka has just read. A timeout of the Java client is then only a note.
    """
    subject = "java client"
    try:
        found = _read_by_java(config, topics)
    except OptionsRefused as error:
        return problem(subject, f"kafka.options: {error.problem}", error.fix)
    except jars.PrerequisiteError as error:
        # The error's sentence already says how to fix it.
        return CheckResult("problem", subject, f"{error}")
    if found is not None and found.kind == _SLOW and topics.keys() <= {*read}:
        slow = f"too slow: {found.problem}, although librdkafka has just read all topics; run doctor again"
        return note(subject, slow)
    if found is not None:
        return problem(subject, found.problem, found.fix)
    return ok(subject, f"reads {', '.join(topics)}" if topics else "there is no topic to read yet")


def _read_by_java(config: Config, topics: Partitions) -> Refusal | None:
    with running_jvm() as java:
        return read_by_java(java, config, topics)


def read_by_java(java: Any, config: Config, topics: Partitions) -> Refusal | None:
    """Why the Java client cannot read one of the topics; None if it reads all. ``java``: a JVM of `running_jvm`."""
    timeout_ms = str(round(_SECONDS_MAX * 1000))
    options = for_java(config, java) | {
        "key.deserializer": _JAVA_BYTES,
        "value.deserializer": _JAVA_BYTES,
        "isolation.level": config.kafka.isolation_level,
        "default.api.timeout.ms": timeout_ms,
        "request.timeout.ms": timeout_ms,
        "allow.auto.create.topics": "false",
        "max.poll.records": "1",
    }
    consumer = None
    topic, seconds = "", _FIRST_SECONDS_MAX
    try:
        given = java.java.util.HashMap()
        for name, value in options.items():
            given.put(name, value)
        consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(given)
        for topic, numbers in topics.items():
            try:
                _read_one(java, consumer, topic, numbers, seconds)
            except Py4JJavaError as error:
                # A record that does not fit into this small JVM was fetched, so the client may read the topic.
                if "OutOfMemoryError" not in _chain(error):
                    raise
            seconds = _SECONDS_MAX
    except Py4JJavaError as error:
        given_names, text = librdkafka_options(config.kafka.options), _chain(error)
        none = no_answer(topic, seconds)
        return refined(refusal([text], given_names), given_names) or (
            replace(none, kind=_SLOW) if _TIMED_OUT in text else none
        )
    finally:
        if consumer is not None:
            consumer.close(java.java.time.Duration.ofMillis(0))
    return None


def _read_one(java: Any, consumer: Any, topic: str, numbers: tuple[int, ...], seconds: float) -> None:
    """Try to fetch the newest record of each partition. Raises Py4JJavaError if the client fails.

    ``seconds``: limit of the first request.
    """
    partitions = java.java.util.ArrayList()
    for number in numbers:
        partitions.add(java.org.apache.kafka.common.TopicPartition(topic, number))
    consumer.assign(partitions)
    limit = java.java.time.Duration.ofMillis(round(seconds * 1000))
    first, ends = consumer.beginningOffsets(partitions, limit), consumer.endOffsets(partitions)
    for partition in partitions:
        consumer.seek(partition, max(first[partition], ends[partition] - 1))
    deadline = time.monotonic() + _SECONDS_MAX
    while time.monotonic() < deadline:
        records = consumer.poll(java.java.time.Duration.ofMillis(_POLL_MS))
        # An empty topic, or one that ends with transaction markers, gives no record. An error would have been raised.
        if records.count() or all(consumer.position(p) >= ends[p] for p in partitions):
            return


def _chain(error: Py4JJavaError) -> str:
    """A Java exception and its causes, as one text."""
    texts: list[str] = []
    cause = error.java_exception
    while cause is not None and len(texts) < 10:
        texts.append(str(cause.toString()))
        cause = cause.getCause()
    return "; ".join(texts)


@contextmanager
def running_jvm() -> Iterator[Any]:
    """The py4j view of a JVM with the Kafka client of the lock file. Raises `jars.PrerequisiteError`."""
    spark_jars = Path(pyspark.__file__).parent / "jars"
    kafka = [jar for jar in jars.resolve(jars.SIDECAR_LOCK) if jar.name.startswith("kafka-clients")]
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        try:
            port, token, process = launch_gateway(
                jarpath=str(next(spark_jars.glob("py4j-*.jar"))),
                classpath=os.pathsep.join(map(str, [*kafka, spark_jars / "*"])),
                javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
                java_path=str(jars.find_java().executable),
                die_on_exit=True,
                enable_auth=True,
                return_proc=True,
                redirect_stderr=said,
            )
        except (OSError, ValueError, Py4JError) as error:
            said.seek(0)
            why = without_noise(said.read()) or str(error)
            raise jars.PrerequisiteError(f"no JVM could be started ({why}): see the line `java` above.") from error
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        _quietly(gateway.close)
        process.stdin.close()
        try:
            process.wait(_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _quietly(close: Callable[[], None]) -> None:
    try:
        close()
    except (Py4JError, OSError):
        return

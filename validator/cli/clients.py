"""Whether both of Kafka's clients read every topic: librdkafka, and the Java client that Spark reads with.

Each reads the newest record of every topic. The Java client runs in a small JVM of its own, without Spark.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyspark
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as Error
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError

from validator.cli.diagnosis import Finding, ok, problem
from validator.config.model import Config
from validator.model.kafka_options import OptionsRefused, librdkafka_options
from validator.model.kafka_refusals import Heard, Refusal, of_kind, refusal
from validator.stream import jars
from validator.stream.clients import for_java, for_librdkafka, made, refined, why_refused

_SECONDS_MAX: Final = 8.0
_POLL_MS: Final = 300
_NEWEST: Final = -2001
"""librdkafka's offset of the last record."""
_JAVA_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
Partitions = Mapping[str, tuple[int, ...]]
"""Topic -> its partitions."""


def check(config: Config, topics: Partitions) -> Iterator[Finding]:
    """A finding for each client: ok, or the first topic that it cannot read, and why."""
    for name, read in (("python", read_by_librdkafka), ("java", _read_by_java)):
        subject = f"{name} client"
        try:
            found = read(config, topics)
        except OptionsRefused as error:
            yield problem(subject, f"kafka.options: {error.problem}", error.mend)
        except jars.PrerequisiteError as error:
            # Its sentence holds the mend already.
            yield Finding("problem", subject, f"{error}")
        else:
            if found is None:
                yield ok(subject, f"reads {', '.join(topics)}" if topics else "there is no topic to read yet")
            else:
                yield problem(subject, found.said, found.mend)


def read_by_librdkafka(config: Config, topics: Partitions) -> Refusal | None:
    """Why librdkafka cannot read one of the topics; None where it reads all."""
    heard = Heard()
    ours = {"group.id": "streamproof-doctor", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = made(Consumer, for_librdkafka(config, ours) | heard.options())
    try:
        left = {(topic, number) for topic, numbers in topics.items() for number in numbers}
        consumer.assign([TopicPartition(topic, number, _NEWEST) for topic, number in left])
        deadline = time.monotonic() + _SECONDS_MAX
        while left and time.monotonic() < deadline:
            for message in consumer.consume(100, timeout=0.1):
                error = message.error()
                if error is not None and error.code() == Error.TOPIC_AUTHORIZATION_FAILED:
                    options = librdkafka_options(config.kafka.options)
                    return of_kind("topic", options, names=str(message.topic()))
                if error is None or error.code() == Error._PARTITION_EOF:  # noqa: SLF001 - its public name
                    left.discard((str(message.topic()), int(message.partition() or 0)))
        if not left:
            return None
        return why_refused(config, heard) or _no_answer(min(left)[0])
    except KafkaException as error:
        return why_refused(config, heard) or Refusal("", error.args[0].str(), "check the brokers")
    finally:
        consumer.close()


def _read_by_java(config: Config, topics: Partitions) -> Refusal | None:
    with a_jvm() as java:
        return read_by_java(java, config, topics)


def read_by_java(java: Any, config: Config, topics: Partitions) -> Refusal | None:
    """As `read_by_librdkafka`, by Java's client in a JVM of `a_jvm`."""
    timeout_ms = str(round(_SECONDS_MAX * 1000))
    options = for_java(config, java) | {
        "key.deserializer": _JAVA_BYTES,
        "value.deserializer": _JAVA_BYTES,
        "isolation.level": config.kafka.isolation_level,
        "default.api.timeout.ms": timeout_ms,
        "request.timeout.ms": timeout_ms,
        "allow.auto.create.topics": "false",
    }
    consumer = None
    topic = ""
    try:
        given = java.java.util.HashMap()
        for name, value in options.items():
            given.put(name, value)
        consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(given)
        for topic, numbers in topics.items():
            _read_one(java, consumer, topic, numbers)
    except Py4JJavaError as error:
        given_names = librdkafka_options(config.kafka.options)
        return refined(refusal([_chain(error)], given_names), given_names) or _no_answer(topic)
    finally:
        if consumer is not None:
            consumer.close(java.java.time.Duration.ofMillis(0))
    return None


def _read_one(java: Any, consumer: Any, topic: str, numbers: tuple[int, ...]) -> None:
    """Fetch the newest record of each partition. Raises Py4JJavaError."""
    partitions = java.java.util.ArrayList()
    for number in numbers:
        partitions.add(java.org.apache.kafka.common.TopicPartition(topic, number))
    consumer.assign(partitions)
    first, ends = consumer.beginningOffsets(partitions), consumer.endOffsets(partitions)
    for partition in partitions:
        consumer.seek(partition, max(first[partition], ends[partition] - 1))
    deadline = time.monotonic() + _SECONDS_MAX
    while time.monotonic() < deadline:
        records = consumer.poll(java.java.time.Duration.ofMillis(_POLL_MS))
        # Of an empty topic, and of markers of transactions, there is nothing to see; an error would have been raised.
        if records.count() or all(consumer.position(p) >= ends[p] for p in partitions):
            return


def _chain(error: Py4JJavaError) -> str:
    """All causes of an exception in Java, in one text."""
    texts: list[str] = []
    cause = error.java_exception
    while cause is not None and len(texts) < 10:
        texts.append(str(cause.toString()))
        cause = cause.getCause()
    return "; ".join(texts)


def _no_answer(topic: str) -> Refusal:
    return Refusal("", f"no record of {topic} within {_SECONDS_MAX:g} s", "check the brokers that lead its partitions")


@contextmanager
def a_jvm() -> Iterator[Any]:
    """A JVM with Kafka's client of the lock file, as py4j shows it. Raises `jars.PrerequisiteError`."""
    spark_jars = Path(pyspark.__file__).parent / "jars"
    kafka = [jar for jar in jars.resolve(jars.SIDECAR_LOCK) if jar.name.startswith("kafka-clients")]
    try:
        port, token, process = launch_gateway(
            jarpath=str(next(spark_jars.glob("py4j-*.jar"))),
            classpath=os.pathsep.join(map(str, [*kafka, spark_jars / "*"])),
            javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            java_path=str(jars.find_java().executable),
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
        )
    except (OSError, ValueError, Py4JError) as error:
        raise jars.PrerequisiteError(f"no JVM could be started ({error}): see the finding on Java.") from error
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

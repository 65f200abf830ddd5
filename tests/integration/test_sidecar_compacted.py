"""Compacted topics: a missing record's content is unknown. If every record is still there, verdicts are decided."""

from __future__ import annotations

import itertools
import time
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.integration.sidecar_fixtures import Pipeline, answer, aside_topic, click, set_aside

pytestmark = pytest.mark.timeout(900)

COMPACTED: Final = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.001",
    "segment.ms": "1",
}

_milliseconds = itertools.count(int(time.time() * 1_000) - 60_000, 10)


@pytest.mark.full
def test_records_removed_by_compaction_confirm_neither_loss_nor_unknown_id(pipeline: Pipeline) -> None:
    clean_often(pipeline)
    pipeline.create(config=COMPACTED)
    for second in (1, 11, 21):
        put_in_a_new_segment(pipeline, pipeline.input, click(second, second), "a")
    # Compaction keeps each key's newest record. Key a keeps event 21 and the result of its window.
    for second in (31, 41):
        put_in_a_new_segment(pipeline, pipeline.input, click(second, second, "b"), "b")
    for window in (0, 1, 2):
        put_in_a_new_segment(pipeline, pipeline.output, answer([10 * window + 1], window), "a")
    for number in range(2):
        put_in_a_new_segment(pipeline, pipeline.output, answer([], 9, "c"), f"filler-{number}")
        put_in_a_new_segment(pipeline, pipeline.input, click(100 + number, 41, "b"), f"filler-{number}")
    await_compaction(pipeline, pipeline.input)
    await_compaction(pipeline, pipeline.output)

    run = pipeline.once()
    counts = run.counts()
    assert counts["processed"] == 1, counts
    assert "missing" not in counts
    assert counts["overdue"] == counts["expected"] - 1
    assert run.report["violations"]["confirmed"]["unknown_id"] == 0
    assert (run.verdicts, run.status) == (("unknown",) * 3, 3)
    for topic in (pipeline.input, pipeline.output):
        assert any(said.startswith(f"topic {topic}: ") and "cleanup.policy=compact" in said for said in run.said)
        assert any(
            reason.startswith(f"topic {topic} has ") and reason.endswith("(cleanup.policy=compact)")
            for reason in run.report["reasons"]
        )
    again = pipeline.once()
    assert (again.counts(), again.report["reasons"]) == (counts, run.report["reasons"])


@pytest.mark.full
@pytest.mark.parametrize("role", ["late", "rejected"])
def test_a_record_that_compaction_removed_from_a_late_topic_may_explain_a_loss(pipeline: Pipeline, role: str) -> None:
    clean_often(pipeline)
    pipeline.create()
    topic = f"{pipeline.name}-aside"
    pipeline.broker.create_topics({topic: 1}, {**COMPACTED, "cleanup.policy": "compact,delete"})
    pipeline.clicks(*(click(number, number) for number in range(1, 6)), click(6, 11))
    pipeline.answers(answer([5]), answer([6], 1))
    # The engine set 1, 2, 3 and 4 aside. Compaction removes 1, whose key record 2 has, too.
    for number in (1, 2):
        put_in_a_new_segment(pipeline, topic, set_aside(number, number), "a")
    for number in (3, 4):
        put_in_a_new_segment(pipeline, topic, set_aside(number, number), f"filler-{number}")
    await_compaction(pipeline, topic)

    run = pipeline.once("late=[]", aside_topic(role, topic))
    assert run.counts() == {"expected": 6, "processed": 2, role: 3, "overdue": 1}
    assert (run.verdicts, run.status) == (("unknown",) * 3, 3)
    assert any(said.startswith(f"topic {topic}: ") and "cleanup.policy=compact,delete" in said for said in run.said)
    assert any(reason.startswith(f"topic {topic} has ") for reason in run.report["reasons"])


def test_a_compacted_topic_that_still_has_every_record_proves_a_loss(pipeline: Pipeline) -> None:
    pipeline.create(config={"cleanup.policy": "compact"})
    for second in (1, 11):
        pipeline.put(pipeline.input, click(second, second), key=str(second))
    pipeline.put(pipeline.output, answer([1]), key="1")
    run = pipeline.once()
    assert run.counts() == {"expected": 2, "processed": 1, "missing": 1}
    assert (run.verdicts, run.status) == (("pass", "fail", "fail"), 1)


def put_in_a_new_segment(pipeline: Pipeline, topic: str, value: str, key: str) -> None:
    """Append a record that begins a new segment, because the log cleaner skips the newest segment.

    Its timestamp is 10 ms after that of the previous record. The broker begins a segment if a record's timestamp is
    more than ``segment.ms`` after that of the segment's first record. With the test broker's LogAppendTime, several
    records can fall into one millisecond.
    """
    pipeline.put(topic, value, key=key, timestamp_ms=next(_milliseconds))


def clean_often(pipeline: Pipeline) -> None:
    """Let the broker's log cleaner look for work ten times a second."""
    often = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    admin = pipeline.admin()
    [broker] = admin.list_topics(timeout=30).brokers
    cleaner = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[often])
    for done in admin.incremental_alter_configs([cleaner]).values():
        done.result(30)


def await_compaction(pipeline: Pipeline, topic: str) -> None:
    """Wait until the topic has fewer records than offsets."""
    consumer = Consumer(
        {"bootstrap.servers": pipeline.servers, "group.id": f"look-{topic}", "enable.partition.eof": True}
    )
    try:
        for _ in range(600):
            consumer.assign([TopicPartition(topic, 0, 0)])
            records = 0
            while (message := consumer.poll(10)) is not None and message.error() is None:
                records += 1
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
            if records < end:
                return
    finally:
        consumer.close()
    raise AssertionError(f"{topic} was not compacted")

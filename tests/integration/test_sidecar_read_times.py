"""Topics with CreateTime, whose timestamps come from producers: measures use the instants of reading."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer

from tests.integration.sidecar_fixtures import Pipeline, answer, click, instant

pytestmark = pytest.mark.integration

NONSENSE_MS = 7
"""The timestamp that the producer writes into every record."""


def write(pipeline: Pipeline, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": pipeline.servers})
    for value in values:
        producer.produce(topic, value, timestamp=NONSENSE_MS)
    assert producer.flush(30) == 0


@pytest.mark.full
def test_latency_is_known_to_within_the_stated_resolution(pipeline: Pipeline) -> None:
    pipeline.create(config={"message.timestamp.type": "CreateTime", "retention.ms": "-1"})
    write(pipeline, pipeline.input, click(1, 1), click(2, 11))
    write(pipeline, pipeline.output, answer([1]))
    with pipeline.live("timing.tick=500ms") as live:
        behind = live.until(lambda report: report["results"]["correct"] == 1)
        assert behind["latency_seconds"]["last_input"]["count"] == 0
        assert behind["latency_absent_because"].startswith("CreateTime on ")
        live.batches(3)
        write(pipeline, pipeline.input, click(3, 21))
        asked = time.time()
        live.until(lambda report: report["inputs"]["read"] == 3)
        later = instant(live.batches(3))
        write(pipeline, pipeline.output, answer([3], window=2))
        took = time.time() - asked
        report = live.until(lambda report: report["latency_seconds"]["last_input"]["count"] == 1)
    assert later > asked
    within = report["latency_resolution_seconds"]
    assert 0 < within < 10
    assert report["latency_absent_because"] is None
    for definition in ("last_input", "first_input"):
        assert report["latency_seconds"][definition]["max"] == pytest.approx(took, abs=within)

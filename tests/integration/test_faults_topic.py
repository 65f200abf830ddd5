"""Every poll reads the faults topic to its end, including the first."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from validator.config.load import loads
from validator.stream.faults_topic import FaultsTopicReader
from validator.stream.sources import reading_of

if TYPE_CHECKING:
    from testbed.broker import EmbeddedBroker

_CONFIG = """\
pipeline: p
guarantee: exactly_once
kafka: {{bootstrap_servers: "{servers}"}}
inputs: [{{topic: in, fields: {{id: id, key: page, event_time: timestamp}}}}]
outputs: [{{topic: out, fields: {{key: page, window_start: windowStart, ids: [clickIds]}}}}]
faults: {{topic: {topic}}}
oracle: {{kind: tumbling_window, size: 10s}}
state: {{path: ./state}}
"""


def test_each_poll_returns_all_available_records(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_names("faults")
    config = loads(_CONFIG.format(servers=broker.bootstrap_servers, topic=topic), tmp_path, (), {})
    # The test process acts as the worker.
    faults, reading = FaultsTopicReader(config, print), replace(reading_of(config), memory_bytes=None)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    def publish(state: str, second: int) -> None:
        record = {"id": "1", "kind": "process_kill", "target": "e", "state": state}
        producer.produce(topic, json.dumps({**record, "time": f"2026-01-01T00:00:{second:02}Z"}), key="1")
        assert producer.flush(10) == 0

    assert faults.poll(reading) == []
    broker.create_topics({topic: 2})
    publish("injected", 1)
    publish("verified", 2)
    assert [row["state"] for row in faults.poll(reading)] == ["injected", "verified"]
    assert faults.poll(reading) == []
    publish("healed", 3)
    assert [row["state"] for row in faults.poll(reading)] == ["healed"]
    broker.delete_topic(topic)
    broker.create_topics({topic: 2})
    publish("healed", 4)
    assert [int(str(row["time_us"])) % 60_000_000 for row in faults.poll(reading)] == [4_000_000]

"""The generator against a real broker: the journal matches the topic."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from generator import config, journal, run
from generator.sends import FLUSH, KIND_NAMES
from testbed.broker import EmbeddedBroker
from tests.tiers import full

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def topic(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> str:
    name = f"click-{abs(hash(request.node.name))}"
    broker.create_topics({name: 3})
    return name


def read_all(broker: EmbeddedBroker, topic: str) -> list[Message]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "reader", "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(3)])
    found: list[Message] = []
    ended: set[Any] = set()
    while len(ended) < 3:
        for message in consumer.consume(10_000, 0.2):
            error = message.error()
            if error is None:
                found.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                ended.add(message.partition())
    consumer.close()
    return found


def configured(broker: EmbeddedBroker, topic: str, folder: Path, **more: object) -> config.GeneratorConfig:
    return config.parse(
        {"kafka": {"bootstrap_servers": broker.bootstrap_servers}, "topic": topic, "journal": folder / "j", **more}
    )


@pytest.mark.parametrize("processes", [full(1), 2])
def test_the_journal_equals_the_records_of_the_topic(
    broker: EmbeddedBroker, topic: str, tmp_path: Path, processes: int
) -> None:
    c = configured(
        broker, topic, tmp_path, producers=2, processes=processes, limit={"events": 5000}, flush_windows=True,
        disorder={"share": 0.2, "within": "100ms"}, lateness={"share": 0.01, "beyond": "1s"},
        duplicates={"share": 0.05},
    )  # fmt: skip
    summary = run.generate(c)
    sends = list(journal.read(tmp_path / "j"))
    records = {(m.partition(), m.offset()): m for m in read_all(broker, topic)}
    assert {(s.partition, s.offset) for s in sends} == records.keys()
    for s in sends:
        message = records[s.partition, s.offset]
        value = json.loads(message.value() or b"")
        assert (value["id"], value["page"]) == (s.id, s.key[0])
        assert message.key() == json.dumps(s.key[0]).encode()
    kinds = Counter(KIND_NAMES[s.kind] for s in sends)
    assert summary.kinds == {name: kinds[name] for name in KIND_NAMES}
    assert set(kinds) == set(KIND_NAMES)
    assert {s.id for s in sends if s.kind != FLUSH} == set(range(1, 5001))
    assert (summary.events, summary.acknowledged, summary.sends) == (5006, len(sends), len(sends))
    assert json.loads((tmp_path / "j" / "summary.json").read_text())["acknowledged"] == len(sends)


def test_librdkafkas_partitioner_agrees_with_ours(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    from confluent_kafka import Producer

    from generator import wire
    from generator.partitioning import partition_of

    keys = [k.kafka_key() for k in (*wire.keys(40, 0), *wire.keys(10, 3))]
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(topic, b"{}", key)
    assert producer.flush(30) == 0
    assert {m.key(): m.partition() for m in read_all(broker, topic)} == {k: partition_of(k, 3) for k in keys}


@pytest.mark.full
def test_the_rate_is_kept_and_a_stop_ends_the_load(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    stop, seen = threading.Event(), []

    def on_progress(progress: run.GenerationProgress) -> None:
        seen.append(progress)
        if progress.seconds >= 2:
            stop.set()

    c = configured(broker, topic, tmp_path, rate={"shape": "constant", "events_per_second": 1000})
    summary = run.generate(c, stop=stop, on_progress=on_progress)
    assert seen
    assert 0.8 * 1000 * seen[-1].seconds <= summary.events <= 1.2 * 1000 * seen[-1].seconds + 50
    assert summary.acknowledged == summary.sends == len(read_all(broker, topic))


@pytest.mark.full
def test_the_same_seed_sends_the_same_bytes(broker: EmbeddedBroker, tmp_path: Path) -> None:
    broker.create_topics({"same-1": 3, "same-2": 3})
    logs = []
    for name in ("same-1", "same-2"):
        c = configured(broker, name, tmp_path, limit={"windows": 2}, events_per_window=100, seed=5,
                       creation_timestamp="event_time", disorder={"share": 0.5, "within": "2s"},
                       duplicates={"share": 0.1})  # fmt: skip
        run.generate(c)
        logs.append(sorted((m.partition(), m.offset(), m.value()) for m in read_all(broker, name)))
    assert logs[0] == logs[1]
    assert len(logs[0]) > 1200


@pytest.mark.full
def test_text_ids_and_composite_keys(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    c = configured(broker, topic, tmp_path, keys={"pages": 2, "regions": 2}, id={"kind": "string", "prefix": "e-"},
                   limit={"events": 8})  # fmt: skip
    run.generate(c)
    values = [json.loads(m.value() or b"") for m in read_all(broker, topic)]
    assert {v["id"] for v in values} == {f"e-{i}" for i in range(1, 9)}
    assert {(s.id, s.key) for s in journal.read(tmp_path / "j")} == {
        (v["id"], (v["page"], v["region"])) for v in values
    }


def test_a_record_that_the_broker_refuses_is_rejected(broker: EmbeddedBroker, tmp_path: Path) -> None:
    broker.create_topics({"tight": 3}, {"max.message.bytes": "100"})
    summary = run.generate(configured(broker, "tight", tmp_path, limit={"events": 10}))
    assert (summary.rejected, summary.acknowledged, summary.indeterminate) == (10, 0, 0)
    assert summary.errors == {"MSG_SIZE_TOO_LARGE": 10}


@pytest.mark.full
def test_sends_to_an_absent_broker_are_never_acknowledged(tmp_path: Path) -> None:
    with EmbeddedBroker() as doomed:
        doomed.create_topics({"click": 3})
        stop = threading.Event()

        def on_progress(progress: run.GenerationProgress) -> None:
            if progress.acknowledged and doomed.process.is_running:
                doomed.process.kill()
            if not doomed.process.is_running:
                stop.set()

        c = configured(doomed, "click", tmp_path, rate={"shape": "constant", "events_per_second": 2000},
                       delivery={"flush_deadline": "1s"})  # fmt: skip
        summary = run.generate(c, stop=stop, on_progress=on_progress)
        doomed.restart()
        sends = list(journal.read(tmp_path / "j"))
        present = {json.loads(m.value() or b"")["id"] for m in read_all(doomed, "click")}
    assert summary.rejected + summary.indeterminate > 0
    assert summary.sends == len(sends) == summary.acknowledged + summary.rejected + summary.indeterminate
    # The broker does not sync to disk, but the page cache outlives its process: acknowledged records survive.
    assert {s.id for s in sends if s.outcome == "acknowledged"} <= present
    assert not {s.id for s in sends if s.outcome == "rejected"} & present


def test_a_missing_topic_is_one_sentence(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with pytest.raises(run.GeneratorRunError, match="Topic nowhere "):
        run.generate(configured(broker, "nowhere", tmp_path))


@pytest.mark.full
def test_producer_processes_end_with_their_parent(broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    """A run that is killed by SIGKILL leaves journals that are marked incomplete, and no process."""
    script = (
        "import sys; from pathlib import Path; from generator import config, run\n"
        "if __name__ == '__main__':\n"
        "    run.generate(config.load(sys.argv[1]), on_progress=lambda p: p.sent and print('sending', flush=True))\n"
    )
    (tmp_path / "load.py").write_text(script)
    (tmp_path / "load.yaml").write_text(
        f"kafka: {{bootstrap_servers: '{broker.bootstrap_servers}'}}\ntopic: {topic}\njournal: j\n"
        "producers: 2\nprocesses: 2\nrate: {shape: constant, events_per_second: 1000}\n"
    )
    command = [sys.executable, str(tmp_path / "load.py"), str(tmp_path / "load.yaml")]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(root)}) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"sending\n"
        parent.kill()
        # The pipe closes when the last process that holds it ends, children included.
        parent.stdout.read()
    producers = journal.journals(tmp_path / "j")
    assert len(producers) == 2
    assert not (tmp_path / "j" / "summary.json").exists()
    sends = [s for j in producers for s in j.sends() if s.outcome == "acknowledged"]
    assert {(s.partition, s.offset) for s in sends} <= {(m.partition(), m.offset()) for m in read_all(broker, topic)}

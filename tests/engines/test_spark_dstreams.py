"""A batch of DStreams whose output fails: its offsets are not committed, and a start runs it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from testbed.broker import EmbeddedBroker
from testbed.engines.real import RealEngine
from tests.engines.killed_run import READY_SECONDS_MAX, SETTLE_SECONDS_MAX
from tests.engines.reading import messages
from tests.engines.test_generic_job import WorkloadRun

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

POISON = b'{"id": '


def test_a_failed_batch_is_not_committed_and_runs_again(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    run = WorkloadRun(broker, topic_names, "spark_dstreams", "running_aggregate")
    with run.engine(run.name, tmp_path / "engine", guarantee=run.guarantee, poison="fail") as engine:
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        run.start_load()
        run.await_half_way()
        run.await_answers(uncommitted=False)
        producer = Producer({"bootstrap.servers": run.bootstrap_servers})
        producer.produce(run.input, POISON, partition=0)
        assert producer.flush(30) == 0
        failed(engine, run)
        engine.restart()
        failed(engine, run)
    run.end_load()


def failed(engine: RealEngine, run: WorkloadRun) -> None:
    """Wait until the job has failed at the poison, and assert that nothing behind it is committed."""
    assert engine.process(0).wait(SETTLE_SECONDS_MAX) == 1
    assert "poison: a record" in engine._log_since_start(0)
    [at] = [one.offset() for one in messages(run.bootstrap_servers, run.input) if one.value() == POISON]
    assert 0 < committed(run) <= at


def committed(run: WorkloadRun) -> int:
    """Return what the engine's group has committed of the first partition."""
    consumer = Consumer({"bootstrap.servers": run.bootstrap_servers, "group.id": run.input})
    [found] = consumer.committed([TopicPartition(run.input, 0)], timeout=30)
    consumer.close()
    return int(found.offset)

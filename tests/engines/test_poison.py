"""A record that no engine can decode, in the middle of the load: a job skips it and loses nothing, or fails on it, and
then its engine gives no more results.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from testbed.broker import EmbeddedBroker
from testbed.engines.real import Poison, RealEngine
from tests.engines.killed_run import READY_SECONDS_MAX, SETTLE_SECONDS_MAX, WINDOW_MS, KilledRun
from tests.engines.offline_count import Count, count, records
from tests.engines.reading import messages

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

POISON = b'{"id": '
FAILED = "poison: a record"
"""What every job says when it fails."""


class PoisonedRun(KilledRun):
    """A run whose count leaves the poison out."""

    def poison(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap_servers})
        producer.produce(self.input, POISON, partition=0)
        assert producer.flush(30) == 0

    def count(self) -> Count:
        clicks = [one.value() for one in messages(self.bootstrap_servers, self.input) if one.value() != POISON]
        results, late = (records(self.bootstrap_servers, topic) for topic in (self.output, self.late))
        return count([json.loads(value or b"") for value in clicks], results, late, WINDOW_MS)


def said(engine: RealEngine) -> str:
    logs = engine.log_path.rglob("*.log")
    return "\n".join(log.read_text(encoding="utf-8", errors="replace") for log in logs)


@pytest.mark.parametrize("policy", ["skip", "fail"])
@pytest.mark.parametrize("name", ["kafka_streams", "flink", "spark", "storm"])
def test_a_job_skips_poison_or_stops_at_it(
    name: str, policy: Poison, broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    run = PoisonedRun(broker, topic_names)
    with run.engine(name, tmp_path, guarantee="at_least_once", poison=policy) as engine:
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        run.start_load()
        run.await_half_way()
        run.poison()
        if policy == "skip":
            run.finish()
            assert FAILED not in said(engine)
            assert not run.count().missing
            return
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while FAILED not in said(engine):
            assert time.monotonic() < deadline, "the job passed the record"
            time.sleep(0.2)
        if name == "kafka_streams":
            assert all(one.alive for one in engine.instances), "the process of a dead client lives on"
        run.end_load()
        run.finish(settle=False)
        assert run.count().missing

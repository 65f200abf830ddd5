"""Faults other than the death of a worker, under exactly once. The expectations were written before the first run:

- of two JobManagers with ZooKeeper the leading one is SIGKILLed and stays dead: the other one continues from the newest
  checkpoint, with the same result;
- the JobManager is SIGKILLed and continues from its newest checkpoint: nothing is missing, no id occurs twice;
- a worker is stopped (SIGSTOP) until it is considered dead and replaced, then continues: its further writes belong to
  fenced and aborted transactions, so nothing is missing and no id occurs twice;
- a worker is SIGKILLed and not restarted, and a standby, or a standby replica of its state on the other worker, exists:
  that one takes over its tasks, nothing is missing, no id occurs twice;
- a worker is SIGKILLed and not restarted, and the scheduler is adaptive: the job goes on with the other worker, nothing
  is missing, no id occurs twice;
- the sidecar counts the same, and its verdict is pass.
"""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from testbed.broker import EmbeddedBroker
from testbed.campaign.counters import CounterSampler
from testbed.campaign.stages import Span, _noticed, _restarted
from testbed.engines.effective import Effective
from testbed.engines.flink import FlinkEngine
from testbed.engines.real import RealEngine
from tests.engines.killed_run import FLUSHING_EVENTS, READY_SECONDS_MAX, SETTLE_SECONDS_MAX, KilledRun

pytestmark = [pytest.mark.full, pytest.mark.timeout(700)]


@pytest.fixture
def run(broker: EmbeddedBroker, topic_names: Callable[[str], str]) -> KilledRun:
    return KilledRun(broker, topic_names)


def assert_exactly_once(run: KilledRun, folder: Path, effective: Effective) -> None:
    counted = run.agreed(folder, "exactly_once", effective)
    assert counted.events == run.sent() - FLUSHING_EVENTS
    assert (counted.missing, counted.duplicates, counted.misplaced) == (0, 0, 0), counted


def test_a_killed_jobmanager_loses_and_repeats_nothing(run: KilledRun, tmp_path: Path) -> None:
    with run.engine("flink", tmp_path / "engine") as engine:
        assert isinstance(engine, FlinkEngine)
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective = engine.effective()
        run.start_load()
        run.await_half_way()
        run.await_answers(uncommitted=True)
        engine.kill(engine.jobmanager)
        engine.restart(engine.jobmanager)
        engine.ready(READY_SECONDS_MAX)
        run.finish()
        engine.stop()
    assert_exactly_once(run, tmp_path / "sidecar", effective)


def test_a_standby_takes_over_from_a_jobmanager_that_stays_dead(run: KilledRun, tmp_path: Path) -> None:
    options = {"high-availability.type": "zookeeper"}
    with run.engine("flink", tmp_path / "engine", options=options) as engine:
        assert isinstance(engine, FlinkEngine)
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective, victim = engine.effective(), engine.leader
        run.start_load()
        run.await_half_way()
        run.await_answers(uncommitted=True)
        engine.kill(victim)
        run.finish()
        assert [one.alive for one in engine.instances if one.number == victim] == [False]
        assert engine.leader == engine.jobmanager + (victim == engine.jobmanager)
        engine.restart(victim)
        engine.ready(READY_SECONDS_MAX)
        assert engine.leader != victim, "the restarted one stands by"
        engine.stop()
    assert_exactly_once(run, tmp_path / "sidecar", effective)


def test_the_counters_show_when_a_killed_worker_was_noticed_and_when_all_tasks_run_again(
    run: KilledRun, tmp_path: Path
) -> None:
    with run.engine("flink", tmp_path / "engine") as engine:
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective = engine.effective()
        with CounterSampler(engine.counters) as sampler:
            run.start_load()
            run.await_half_way()
            run.await_answers(uncommitted=True)
            killed = time.time()
            engine.kill(0)
            engine.restart(0)
            engine.ready(READY_SECONDS_MAX)
            deadline = time.monotonic() + SETTLE_SECONDS_MAX
            while (restarted := _restarted(sampler.rows, Span(killed, time.time()))) is None:
                assert time.monotonic() < deadline, "the counters do not show the restart"
                time.sleep(0.2)
        noticed = _noticed(sampler.rows, Span(killed, time.time()))
        run.finish()
        engine.stop()
    assert noticed is not None
    assert 0 < noticed < restarted
    assert_exactly_once(run, tmp_path / "sidecar", effective)


def test_a_standby_takes_over_from_a_worker_that_stays_dead(run: KilledRun, tmp_path: Path) -> None:
    with run.engine("flink", tmp_path / "engine", parallelism=1, standby=1) as engine:
        assert isinstance(engine, FlinkEngine)
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective, (victim,) = engine.effective(), engine.working()
        run.start_load()
        run.await_half_way()
        run.await_answers(uncommitted=True)
        engine.kill(victim)
        run.finish()
        assert not engine.instances[victim].alive
        assert engine.working() == [1 - victim]
        engine.stop()
    assert_exactly_once(run, tmp_path / "sidecar", effective)


def test_an_instance_with_a_standby_replica_goes_on_for_one_that_stays_dead(run: KilledRun, tmp_path: Path) -> None:
    with run.engine("kafka_streams", tmp_path / "engine", standby=1) as engine:
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective = engine.effective()
        run.start_load()
        run.await_half_way()
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while not copies(engine, "worker-1"):
            assert time.monotonic() < deadline, "worker 1 has no replica of the state of worker 0"
            time.sleep(0.2)
        run.await_answers(uncommitted=True)
        engine.kill(0)
        run.finish()
        assert [one.alive for one in engine.instances] == [False, True]
        engine.stop()
    assert_exactly_once(run, tmp_path / "sidecar", effective)


def copies(engine: RealEngine, worker: str) -> bool:
    """Return whether an instance of Kafka Streams has read far more than it has processed: a changelog."""
    of = engine.counters().get(worker, {})
    return of.get("records-consumed-total", 0.0) > 1.3 * of.get("process-total", 0.0) > 0


def test_the_adaptive_scheduler_goes_on_without_a_worker_that_stays_dead(run: KilledRun, tmp_path: Path) -> None:
    options = {"jobmanager.scheduler": "Adaptive"}
    with run.engine("flink", tmp_path / "engine", options=options) as engine:
        assert isinstance(engine, FlinkEngine)
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective = engine.effective()
        assert engine.working() == [0, 1]
        run.start_load()
        run.await_half_way()
        run.await_answers(uncommitted=True)
        engine.kill(1)
        run.finish()
        assert engine.working() == [0]
        engine.stop()
    assert_exactly_once(run, tmp_path / "sidecar", effective)


@pytest.mark.parametrize("name", ["kafka_streams", "flink"])
def test_a_worker_that_sleeps_past_its_heartbeat_loses_and_repeats_nothing(
    run: KilledRun, tmp_path: Path, name: str
) -> None:
    with run.engine(name, tmp_path / "engine", **({"standby": 1} if name == "flink" else {})) as engine:
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        workers, effective = workers_known(engine), engine.effective()
        run.start_load()
        run.await_half_way()
        run.await_answers(uncommitted=True)
        engine.process(0).send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while workers_known(engine) >= workers:
            assert time.monotonic() < deadline, "the stopped worker was never declared dead"
        engine.process(0).send_signal(signal.SIGCONT)
        run.finish()
        engine.ready(READY_SECONDS_MAX)
        engine.stop()
    assert_exactly_once(run, tmp_path / "sidecar", effective)


def workers_known(engine: RealEngine) -> int:
    """Return how many workers the engine considers alive."""
    if isinstance(engine, FlinkEngine):
        with urllib.request.urlopen(engine.rest_url + "/taskmanagers", timeout=10) as answer:
            return len(json.load(answer)["taskmanagers"])
    group = engine.settings.group
    admin = AdminClient({"bootstrap.servers": engine.settings.bootstrap_servers})
    return len(admin.describe_consumer_groups([group])[group].result(10).members)

"""Spark Structured Streaming against a real broker, SIGKILLed between a batch's results and its commit.

The expectations were written before any run. Nothing is missing at any instant of the kill, since an uncommitted batch
is read and processed again. An id occurs twice if and only if its result was in the topic when the driver died, and
its batch was not in the checkpoint. The sink has no transactions, so the engine does not provide
exactly once. The sidecar counts the same: at least once passes, exactly once fails if and only if ids occur twice.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from testbed.broker import EmbeddedBroker
from testbed.engines.effective import Effective
from testbed.engines.real import RealEngineSettings, Timeouts
from testbed.engines.spark import SparkEngine
from testbed.engines.spark_driver import DriverEngine
from tests.engines.judged import assert_sidecar_agrees
from tests.engines.test_generic_job import WorkloadRun, agreed
from tests.engines.topics import PacedLoad, Topics, now_ms, until

pytestmark = pytest.mark.timeout(400)

WINDOW_MS = 2_000


def test_a_kill_before_the_commit_repeats_exactly_the_written_results(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topics = Topics(broker, "spark")
    settings = RealEngineSettings(
        bootstrap_servers=broker.bootstrap_servers,
        input=topics.input,
        output=topics.output,
        late=topics.late,
        window_ms=WINDOW_MS,
        max_disorder_ms=1_000,
        group="spark-test",
        timeouts=Timeouts(commit_interval_seconds=0.5),
    )
    with SparkEngine(settings, tmp_path / "engine") as engine:
        engine.start()
        engine.ready(180)
        load = PacedLoad(topics.load(window=f"{WINDOW_MS}ms"))

        until(lambda: topics.results_end() >= 12, 120, engine.process(0).last_lines)  # two windows are committed
        seen = topics.results_end()
        until(lambda: topics.results_end() > seen, 60, engine.process(0).last_lines)
        engine.kill()
        repeated = Counter[int]()
        for result in topics.results():
            if result.appended_ms > 1000 * last_commit_seconds(tmp_path / "engine" / "checkpoint"):
                repeated.update(result.ids)
        engine.restart()
        engine.ready(180)
        back_ms = now_ms()
        # Finish only when the engine has read the backlog, so that it reads the last events after all older ones.
        until(lambda: topics.newest_answer_ms() > back_ms, 90, engine.process(0).last_lines)
        load.finish()

        expected = topics.expected(WINDOW_MS)
        until(lambda: len(topics.answered()) >= len(expected), 90, engine.process(0).last_lines)
        effective = engine.effective()
        engine.stop()
        assert engine.process(0).returncode == 0, engine.process(0).last_lines()

    answered = topics.answered()
    assert set(answered) == set(expected)  # each id is in its own cell, none is missing or invented
    assert {i for (_, _, i), count in answered.items() if count > 1} == set(repeated)
    assert max(answered.values()) <= 2
    print("ids that came twice:", len(repeated))
    assert effective.guarantee == "at_least_once", effective
    assert "transactional.id not set in the producers, acks all" in effective.evidence
    assert effective.commit_interval_seconds == 0.5
    assert "runs at-least-once" in (effective.mismatch("exactly_once") or "")

    counted, _ = assert_sidecar_agrees(
        tmp_path / "sidecar", broker.bootstrap_servers, effective, input_topic=topics.input, output=topics.output,
        late=topics.late, guarantee="at_least_once", window_ms=WINDOW_MS,
    )  # fmt: skip
    assert (counted.missing, counted.duplicates) == (0, len(repeated))


@pytest.mark.full
def test_without_a_checkpoint_a_kill_loses_events_and_repeats_none(broker: EmbeddedBroker, tmp_path: Path) -> None:
    """The windows that were open at the kill, and what came until the start, have no complete result."""
    topics = Topics(broker, "spark-once")
    settings = RealEngineSettings(
        bootstrap_servers=broker.bootstrap_servers, input=topics.input, output=topics.output, late=topics.late,
        guarantee="at_most_once", window_ms=WINDOW_MS, max_disorder_ms=1_000, group="spark-once",
        timeouts=Timeouts(commit_interval_seconds=0.5),
    )  # fmt: skip
    with SparkEngine(settings, tmp_path / "engine") as engine:
        engine.start()
        engine.ready(180)
        load = PacedLoad(topics.load(window=f"{WINDOW_MS}ms"))
        until(lambda: topics.results_end() >= 12, 120, engine.process(0).last_lines)
        engine.kill()
        before = set(topics.answered())
        engine.restart()
        engine.ready(180)
        back_ms = now_ms()
        until(lambda: topics.newest_answer_ms() > back_ms, 90, engine.process(0).last_lines)
        load.finish()
        expected = topics.expected(WINDOW_MS)
        newest = max(start for _, start, _ in expected)
        until(lambda: topics.newest_answer_ms() >= newest, 90, engine.process(0).last_lines)
        effective = engine.effective()
        engine.stop()
    answered = topics.answered()
    assert set(answered) <= set(expected)
    assert max(answered.values()) == 1
    lost = set(expected) - set(answered)
    assert lost
    assert before < set(answered), "the windows after the start have results"
    assert effective.guarantee == "at_most_once", effective


class ClusterRun(WorkloadRun):
    """A run in a standalone cluster, with a SIGKILL of a worker, and then of the driver."""

    def __init__(self, broker: EmbeddedBroker, topic_names: Callable[[str], str], name: str, kind: str) -> None:
        super().__init__(broker, topic_names, name, kind)
        self._load_seconds = 40

    def killed(self, folder: Path) -> Effective:
        """Run the load, with both kills. Return the engine's effective guarantee."""
        # A closed connection shows a death at once. The time-outs only end executors that a busy machine starves.
        times = Timeouts(session_timeout_seconds=30)
        options = {"spark.master": "standalone"}
        with self.engine(self.name, folder, guarantee=self.guarantee, options=options, timeouts=times) as engine:
            assert isinstance(engine, DriverEngine)
            engine.start()
            engine.ready(200)
            assert [one.role for one in engine.instances] == ["worker", "worker", "driver", "master"]
            driver = engine.instances[engine.leader].pid
            self.start_load()
            self.await_half_way()
            self.await_answers(uncommitted=False)
            effective = engine.effective()
            assert executors(engine, 0), "the worker's process group has its executor"
            engine.kill(0)
            assert not executors(engine, 0)
            self.await_answers(uncommitted=False)  # the other worker goes on
            engine.restart(0)
            engine.ready(200)
            until(lambda: bool(executors(engine, 0)), 60, engine.process(0).last_lines)
            assert engine.instances[engine.leader].pid == driver
            self.await_answers(uncommitted=False)
            engine.kill(engine.leader)
            engine.restart(engine.leader)
            engine.ready(200)
            self.finish()
            engine.stop()
        assert "transactional.id not set in the producers, acks all" in effective.evidence, "the executors' clients"
        return effective


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "kind"), [("spark", "nexmark_q12"), ("spark_dstreams", "wordcount")])
def test_a_killed_worker_and_a_killed_driver_of_a_cluster_lose_nothing(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path, name: str, kind: str
) -> None:
    run = ClusterRun(broker, topic_names, name, kind)
    agreed(run, tmp_path)
    assert run.sent() > 30_000


def executors(engine: DriverEngine, worker: int) -> list[int]:
    """Return the live executors in the process group of a worker."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getpgid(int(process.name)) == engine.instances[worker].pid:
                found += [int(process.name)] if b"ExecutorBackend" in (process / "cmdline").read_bytes() else []
    return found


def last_commit_seconds(checkpoint: Path) -> float:
    """Return when the newest batch was committed, in seconds since the epoch."""
    return max(path.stat().st_mtime for path in (checkpoint / "commits").iterdir() if path.name.isdigit())

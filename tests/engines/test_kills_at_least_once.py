"""Five SIGKILLs of Spark and of Storm at instants spread over the commit cycle.

The expectations were written before any run. Nothing is missing, no id is in another cell, and the repeated ids are
exactly those that each kill predicts. Spark repeats a batch that is not in its checkpoint: its ids are in results
that the killed driver appended after its newest commit. Storm reads again from its committed offsets, and repeats the
later ids that are in the killed worker's results. The sidecar counts the same: at least once passes, exactly once
fails if and only if ids are repeated.

The input is one partition in order. Therefore nothing is late, however slow the machine is, and Storm loses nothing by
reading one partition behind another (docs/engines.md).
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from testbed.broker import EmbeddedBroker
from testbed.engines.real import RealEngine, RealEngineSettings, Timeouts
from testbed.engines.spark import SparkEngine
from testbed.engines.storm import StormEngine
from tests.engines.expected_repeats import Death, expected_repeats
from tests.engines.judged import assert_sidecar_agrees
from tests.engines.test_spark_engine import last_commit_seconds
from tests.engines.topics import Answer, PacedLoad, Topics, now_ms, until

pytestmark = [pytest.mark.full, pytest.mark.timeout(1100)]
KILLS = 5
WINDOW_MS = 2_000
COMMIT_SECONDS = 1.0
READY_SECONDS_MAX = 180.0
ANSWER_SECONDS_MAX = 120.0
UNDER_WAY_SECONDS = 1.0
"""After this time, the broker has everything that a killed process sent, and no successor has written a result."""


@pytest.mark.parametrize("name", ["spark", "storm"])
def test_each_kill_repeats_exactly_the_predicted_results(broker: EmbeddedBroker, tmp_path: Path, name: str) -> None:
    topics = Topics(broker, f"{name}-kills", input_partitions=1)
    deaths = []
    with make(name, topics, tmp_path / "engine") as engine:
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        load = PacedLoad(topics.load(window=f"{WINDOW_MS}ms", events_per_window=100, limit={"duration": "900s"}))
        for kill in range(KILLS):
            await_answers(topics)
            # The test varies the instant: this long after a result.
            time.sleep(COMMIT_SECONDS * kill / KILLS)
            engine.kill(0)
            deaths.append(death(engine, topics, tmp_path / "engine"))
            engine.restart(0)
            engine.ready(READY_SECONDS_MAX)
        back_ms = now_ms()
        # Send the last events only after the engine has read all older ones.
        until(lambda: topics.newest_answer_ms() > back_ms, ANSWER_SECONDS_MAX, topics.newest_answer_ms)
        load.finish()
        expected = topics.expected(WINDOW_MS)
        until(lambda: topics.answered().keys() >= expected.keys(), ANSWER_SECONDS_MAX, topics.newest_answer_ms)
        effective = engine.effective()
        engine.stop()

    counted, report = assert_sidecar_agrees(
        tmp_path / "sidecar", broker.bootstrap_servers, effective, input_topic=topics.input, output=topics.output,
        late=topics.late, guarantee="at_least_once", window_ms=WINDOW_MS,
    )  # fmt: skip
    answered = topics.answered()
    again = expected_repeats(topics.results(), deaths)
    print(name, KILLS, "kills; predicted:", again.total(), counted)
    assert answered.keys() == expected.keys()  # each id is in its own cell, none is missing or invented
    assert {i: n - 1 for (_, _, i), n in answered.items() if n > 1} == again
    assert (counted.missing, counted.misplaced, counted.late, counted.duplicates) == (0, 0, 0, again.total())
    # Spark commits a batch right after its results, so possibly none of the kills came in between.
    assert again or name == "spark"
    assert report["effective_guarantee"]["effective"] == "at_least_once"


def make(name: str, topics: Topics, folder: Path) -> RealEngine:
    settings = RealEngineSettings(
        bootstrap_servers=topics.broker.bootstrap_servers,
        input=topics.input,
        output=topics.output,
        late=topics.late,
        group=topics.input,
        guarantee="at_least_once",
        window_ms=WINDOW_MS,
        max_disorder_ms=1_000,
        timeouts=Timeouts(commit_interval_seconds=COMMIT_SECONDS),
    )
    return SparkEngine(settings, folder) if name == "spark" else StormEngine(settings, folder)


def await_answers(topics: Topics) -> None:
    """Return right after a result. Reading the results would take longer than Spark's commit."""
    seen = topics.results_end()
    until(lambda: topics.results_end() > seen, ANSWER_SECONDS_MAX, topics.newest_answer_ms)


def death(engine: RealEngine, topics: Topics, folder: Path) -> Death:
    """Return the death of instance 0, which was just killed, from the engine's committed progress."""
    time.sleep(UNDER_WAY_SECONDS)
    if isinstance(engine, SparkEngine):
        committed_ms = 1000 * last_commit_seconds(folder / "checkpoint")
        return Death(now_ms(), lambda answer, _: answer.appended_ms > committed_ms)
    committed = topics.committed(topics.input)
    noted_ms = now_ms()
    # The Supervisor restarts the worker by itself. If the new worker had read already, the offsets could be its own.
    assert not engine._is_ready(0)
    offsets = topics.offsets()

    def is_repeated(_: Answer, number: int) -> bool:
        partition, offset = offsets[number]
        return offset >= committed[partition]

    return Death(noted_ms, is_repeated)

"""Engines run with the timeouts of a paper: their effective settings equal the profile's, and they write results.

The profiles for Kafka Streams (PGVal, Vogel et al.) and Flink (PGVal) differ from the tested ones only in numbers.
PGVal's sessions need a separate broker (docs/engines.md).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.broker import EmbeddedBroker
from testbed.engines.real import timeouts
from tests.engines.killed_run import READY_SECONDS_MAX, KilledRun


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("profile", "name", "commits_seconds", "logged"),
    [
        ("pgval", "storm", 30, "topology.message.timeout.secs=124"),
        ("ospbench", "spark", 0, "ready "),
        ("ospbench", "kafka_streams", 1, "session.timeout.ms = 45000"),
    ],
)
def test_an_engine_runs_with_the_times_of_a_paper(
    broker: EmbeddedBroker,
    topic_names: Callable[[str], str],
    tmp_path: Path,
    profile: str,
    name: str,
    commits_seconds: float,
    logged: str,
) -> None:
    run = KilledRun(broker, topic_names)
    times = timeouts(profile, name)
    with run.engine(name, tmp_path / "engine", guarantee="at_least_once", parallelism=1, timeouts=times) as engine:
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective = engine.effective()
        run.start_load()
        run.await_answers(uncommitted=False)
        run.end_load()
        log = engine.instances[0].log_path.read_text(encoding="utf-8")
        engine.stop()
    print(profile, effective)
    assert effective.commit_interval_seconds == commits_seconds
    assert effective.session_timeout_seconds == (None if name == "spark" else times.session_timeout_seconds)
    assert logged in log

"""A worker of each real engine is SIGKILLed between an answer and its commit, and comes back.

What must hold was written down before the first run:

- exactly once: for a reader of committed records nothing is missing and no id comes out twice;
- at least once: nothing is missing; ids may come out again, how many depends on the instant;
- both: no id in a result of another page or window. A window may be answered twice with different ids: watermarks of
  Flink are not part of its checkpoints, so that a late event after recovery opens a window again;
- the sidecar counts what is counted here, class by class. Declared as what it is, the pipeline passes; exactly once
  fails just where ids came out again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.broker import EmbeddedBroker
from testbed.engines.real import LOCAL
from testbed.engines.settings import Guarantee
from tests.engines.killed_run import FLUSHING_EVENTS, KilledRun


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "guarantee"),
    [
        # In its place the default run has a join of Kafka Streams (test_killed_join.py) and one that is delayed.
        pytest.param("kafka_streams", "exactly_once", marks=pytest.mark.extended),
        pytest.param("kafka_streams", "at_least_once", marks=pytest.mark.extended),
        ("flink", "exactly_once"),
        pytest.param("flink", "at_least_once", marks=pytest.mark.extended),
    ],
)
def test_a_killed_worker_costs_what_the_guarantee_allows(
    broker: EmbeddedBroker,
    topic_names: Callable[[str], str],
    tmp_path: Path,
    name: str,
    guarantee: Guarantee,
) -> None:
    run = KilledRun(broker, topic_names)
    effective = run.through_a_kill(name, tmp_path / "engine", guarantee)
    assert effective.guarantee == guarantee, effective
    assert (effective.mismatch("exactly_once") is None) == (guarantee == "exactly_once")
    assert effective.session_timeout_seconds == LOCAL.session_timeout_seconds, effective
    assert effective.heartbeat_interval_seconds == LOCAL.heartbeat_interval_seconds, effective
    counted = run.agreed(tmp_path / "sidecar", guarantee, effective)
    print(name, guarantee, counted)
    assert counted.events == run.sent() - FLUSHING_EVENTS
    assert (counted.missing, counted.misplaced) == (0, 0), counted
    assert counted.late > 0, "the load has late events, and they have a topic of their own"
    if guarantee == "exactly_once":
        assert counted.duplicates == 0, counted

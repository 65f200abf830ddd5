"""A worker of each real engine is SIGKILLed between a result and its commit, and restarted.

The expectations were written before the first run:

- exactly once: for a read_committed consumer, nothing is missing and no id occurs twice;
- at least once: nothing is missing; ids may be repeated, how many depends on the instant;
- both: no id is in a result of another page or window. A window may have two results with different ids: Flink's
  checkpoints do not include watermarks, so a late event after the recovery opens a window again;
- the sidecar's counts equal the topics' count, class by class. With its actual guarantee declared, the pipeline passes;
  exactly once fails if and only if ids are repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.broker import EmbeddedBroker
from testbed.engines.real import LOCAL
from testbed.engines.settings import Guarantee
from tests.engines.killed_run import FLUSHING_EVENTS, KilledRun


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("name", "guarantee"),
    [
        ("kafka_streams", "exactly_once"),
        ("kafka_streams", "at_least_once"),
        ("flink", "exactly_once"),
        ("flink", "at_least_once"),
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

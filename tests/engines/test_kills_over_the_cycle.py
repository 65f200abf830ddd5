"""Five SIGKILLs per engine at instants spread over the commit or checkpoint cycle. The expectations are those of one
kill."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.broker import EmbeddedBroker
from testbed.engines.real import LOCAL
from testbed.engines.settings import Guarantee
from tests.engines.killed_run import FLUSHING_EVENTS, READY_SECONDS_MAX, KilledRun

pytestmark = [pytest.mark.full, pytest.mark.timeout(800)]
KILLS = 5
LOAD_SECONDS_MAX = 500
"""The load ends with the last kill, however slow the machine is."""


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("name", ["kafka_streams", "flink"])
def test_kills_at_any_instant_cost_what_the_guarantee_allows(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path, name: str, guarantee: Guarantee
) -> None:
    run = KilledRun(broker, topic_names, LOAD_SECONDS_MAX)
    draw = random.Random(name)
    with run.engine(name, tmp_path / "engine", guarantee=guarantee) as engine:
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective = engine.effective()
        run.start_load()
        for kill in range(KILLS):
            run.await_answers(uncommitted=False)
            # The test varies the instant: this long after a result.
            threading.Event().wait(LOCAL.commit_interval_seconds * kill / KILLS)
            victim = draw.randrange(2)
            engine.kill(victim)
            engine.restart(victim)
            engine.ready(READY_SECONDS_MAX)
        run.end_load()
        run.finish()
        engine.stop()
    counted = run.agreed(tmp_path / "sidecar", guarantee, effective)
    print(name, guarantee, KILLS, "kills;", counted)
    assert counted.events == run.sent() - FLUSHING_EVENTS
    assert (counted.missing, counted.misplaced) == (0, 0), counted
    if guarantee == "exactly_once":
        assert counted.duplicates == 0, counted

"""A worker of each engine that joins is SIGKILLed between an answer and its commit, and comes back.

What must hold was written down before the first run, and the sidecar's figures must be those of the topics:

- exactly once: nothing that is owed is missing, no id comes out twice; the verdict is pass;
- at least once: nothing that is owed is missing; ids may come out again, how many depends on the instant. Declared as
  what it is, the verdict is pass; exactly once is fail just where ids did come out again;
- both: no id in a result of another page or window, no result of one input alone, and no finding, since the engine runs
  what was declared.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.broker import EmbeddedBroker
from testbed.engines.settings import Guarantee
from tests.engines.joined_run import JoinedRun

"""Each takes 75 to 125 s on two busy cores, and the part has 400 s for all its engines."""


@pytest.mark.timeout(420)
@pytest.mark.extended
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("name", ["kafka_streams", "flink"])
def test_a_killed_join_costs_what_the_guarantee_allows(
    broker: EmbeddedBroker,
    topic_names: Callable[[str], str],
    tmp_path: Path,
    name: str,
    guarantee: Guarantee,
) -> None:
    run = JoinedRun(broker, topic_names)
    effective = run.through_a_kill(name, tmp_path / "engine", guarantee)
    counted = run.joined()
    print(name, guarantee, counted)
    assert counted.processed > 0
    assert counted.late > 0, "the load has late events, and each input has a topic for its own"
    assert (counted.missing, counted.misplaced, counted.lonely) == (0, 0, 0), counted
    if guarantee == "exactly_once":
        assert counted.duplicates == 0, counted

    status, report = run.validate(tmp_path / "sidecar", guarantee, effective)
    told = report["contributions"]
    assert [told[name] for name in ("processed", "late", "duplicate")] == [
        counted.processed, counted.late, counted.duplicates
    ]  # fmt: skip
    assert (told["missing"], told["incorrect"]) == (0, 0)
    assert report["verdicts"]["exactly_once"] == ("fail" if counted.duplicates else "pass")
    assert (report["outcome"], status) == ("pass", 0), report["reasons"]
    assert report["effective_guarantee"]["effective"] == guarantee
    assert report["effective_guarantee"]["finding"] is None

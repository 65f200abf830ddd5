"""A worker of each engine with a join is SIGKILLed between a result and its commit, and restarted.

The expectations were written before the first run, and the sidecar's counts must equal those of the topics:

- exactly once: no owed event is missing, no id occurs twice; the verdict is pass;
- at least once: no owed event is missing; ids may be repeated, and their number depends on the instant of the kill.
  With this guarantee declared, the verdict is pass; exactly once fails if and only if ids are repeated;
- both: no id is in a result of another page or window, and the report has no finding, since the engine runs with the
  declared guarantee;
- inner join: no result has ids of one input only, though each window has a page with clicks only and one with updates
  only;
- left join: clicks without an update have results like all others; updates without a click have none.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.broker import EmbeddedBroker
from testbed.engines.join import Join
from testbed.engines.settings import Guarantee
from tests.engines.joined_run import JoinedRun

JOINS: list[tuple[Join, int, Guarantee]] = [
    ("inner", 2, "exactly_once"),
    ("inner", 2, "at_least_once"),
    ("left", 3, "exactly_once"),
    ("left", 1, "at_least_once"),
]
"""Join, parallelism, guarantee."""


@pytest.mark.full
@pytest.mark.timeout(800)
@pytest.mark.parametrize(
    ("name", "join", "parallelism", "guarantee"),
    [(name, *join) for name in ("kafka_streams", "flink") for join in JOINS],
)
def test_a_killed_join_costs_what_the_guarantee_allows(
    broker: EmbeddedBroker,
    topic_names: Callable[[str], str],
    tmp_path: Path,
    name: str,
    join: Join,
    parallelism: int,
    guarantee: Guarantee,
) -> None:
    run = JoinedRun(broker, topic_names, join=join)
    effective = run.through_a_kill(name, tmp_path / "engine", guarantee, parallelism=parallelism)
    counted = run.joined()
    print(name, join, parallelism, guarantee, counted)
    assert counted.processed > 0
    assert counted.late > 0, "the load has late events, and each input has a topic for its own"
    assert (counted.missing, counted.misplaced, counted.updates_alone) == (0, 0, 0), counted
    assert (counted.clicks_alone > 0) == (join == "left"), counted
    if guarantee == "exactly_once":
        assert counted.duplicates == 0, counted

    status, report = run.validate(tmp_path / "sidecar", guarantee, effective)
    contributions = report["contributions"]
    assert [contributions[name] for name in ("processed", "late", "duplicate")] == [
        counted.processed, counted.late, counted.duplicates
    ]  # fmt: skip
    assert (contributions["missing"], contributions["incorrect"]) == (0, 0)
    assert report["verdicts"]["exactly_once"] == ("fail" if counted.duplicates else "pass")
    assert (report["outcome"], status) == ("pass", 0), report["reasons"]
    assert report["effective_guarantee"]["effective"] == guarantee
    assert report["effective_guarantee"]["finding"] is None

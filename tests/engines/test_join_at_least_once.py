"""Spark and Storm, whose strongest guarantee is at least once, run a join and are SIGKILLed right after a result.

The expectations were written before the first run, and the sidecar's counts must equal those of the topics:

- no owed event is missing: Spark repeats a batch that is not in its checkpoint, Storm reads unacknowledged events
  again; ids may be repeated, how many depends on the instant;
- no id is in a result of another page or window;
- inner join: no result has ids of one input only, though each window has a page with clicks only and one with updates
  only; left join: the page with clicks only has results, the page with updates only has none;
- six late events belong to windows that already have results: Storm writes each to the late topic of its input; Spark
  drops them, and the sidecar, configured to tolerate that, counts six dropped and none missing;
- at least once passes, exactly once fails if and only if ids are repeated; if exactly once is declared, the report has
  a finding that the engine's effective guarantee is weaker.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.broker import EmbeddedBroker
from testbed.engines.join import Join
from tests.engines.late_by_hand import LateByHand


@pytest.mark.timeout(800)
@pytest.mark.full
@pytest.mark.parametrize(("join", "parallelism"), [("inner", 2), ("left", 3)])
@pytest.mark.parametrize("name", ["spark", "storm"])
def test_a_killed_join_loses_nothing(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path, name: str, join: Join, parallelism: int
) -> None:
    run = LateByHand(broker, topic_names, name, join)
    effective = run.through_a_kill(name, tmp_path / "engine", "at_least_once", parallelism=parallelism)
    counted = run.joined()
    print(name, join, parallelism, counted)
    assert counted.processed > 0
    assert (counted.missing, counted.misplaced, counted.updates_alone) == (0, 0, 0), counted
    assert (counted.clicks_alone > 0) == (join == "left"), counted
    assert len(run.late_events) == 6
    assert counted.late == 0 if run.dropped() else counted.late >= 6

    status, report = run.validate(tmp_path / "sidecar", "at_least_once", effective)
    contributions = report["contributions"]
    assert [contributions[name] for name in ("processed", "late", "duplicate")] == [
        counted.processed, counted.late, counted.duplicates
    ]  # fmt: skip
    assert contributions["dropped_late"] == len(run.dropped())
    assert (contributions["missing"], contributions["incorrect"]) == (0, 0)
    assert report["verdicts"]["exactly_once"] == ("fail" if counted.duplicates else "pass")
    assert (report["outcome"], status) == ("pass", 0), report["reasons"]
    assert report["effective_guarantee"]["effective"] == "at_least_once"
    assert "runs at-least-once" in (effective.mismatch("exactly_once") or "")

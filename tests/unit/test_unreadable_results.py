"""Undecodable results are violations on record: their positions, their first time, and their acknowledgement."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.judged_run import JudgedRun
from tests.unit.publish_snapshots import clean, newest
from tests.unit.reconcile_rows import fact, facts
from validator.codecs.columns import UNDECODABLE, UNEXAMINED
from validator.model.frontier import Frontier, PartitionId
from validator.model.snapshot import FaultWindow
from validator.publish.findings import findings
from validator.publish.report import build
from validator.state.acknowledgements import acknowledge
from validator.state.tables import Table

MINUTE = 60_000_000
EMPTY = Frontier("output", "output", 0, "t", 0, 0, 0, 0, 0, 0, records=1000)


def bad(at_us: int, first: int, last: int, *, side: str = "output", partition: int = 0) -> dict[str, Any]:
    """Records of one partition that did not decode in the batch at ``at_us``."""
    row = fact("output", [], batch=at_us, lookup_us=at_us)
    return {
        **row,
        "side": side,
        "topic": side,
        "partition": partition,
        "status": UNDECODABLE,
        "window_start_us": None,
        "key": None,
        "records": last - first + 1,
        "first_offset": first,
        "last_offset": last,
        "results": [],
    }


class Reading:
    """Batches with undecodable records, on the state of ``run``."""

    def __init__(self, run: JudgedRun) -> None:
        self.run = run
        self.frontiers: dict[PartitionId, Frontier] = {}
        # A right result, so that the configuration is not in doubt.
        run.after(1, fact("input", [1], batch=1, lookup_us=1), fact("output", [1], batch=1, lookup_us=1))

    def committed(self, at_us: int, *rows: dict[str, Any]) -> None:
        """Commit a batch's facts and update the frontiers."""
        for row in rows:
            place = PartitionId(row["topic"], row["partition"])
            new = replace(EMPTY, side=row["side"], topic=place.topic, partition=place.partition)
            known = self.frontiers.get(place, new)
            more = row["records"] if row["status"] == UNDECODABLE else 0
            self.frontiers[place] = replace(known, undecodable=known.undecodable + more)
        if rows:
            self.run.tables.append(facts(*rows), Table.FACTS, writer="test", version=at_us)

    def after(self, at_us: int, *rows: dict[str, Any]) -> None:
        """Run a whole batch."""
        self.committed(at_us, *rows)
        self.run.take(at_us, facts(*rows) if rows else None, frontiers=self.frontiers)

    def killed(self, at_us: int, *rows: dict[str, Any]) -> None:
        """Run a batch that is killed once its facts are committed, and restart."""
        self.committed(at_us, *rows)
        self.run.restarted(self.frontiers)


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    return Reading(JudgedRun(tmp_path))


def test_undecodable_results_are_confirmed_with_partition_and_offsets(reading: Reading) -> None:
    reading.after(10, bad(10, 7, 9), bad(10, 3, 3, partition=1), bad(10, 0, 5, side="input"))
    record = reading.run.record
    assert record.confirmed_total == {("undecodable", "control"): 4}
    assert record.first_confirmed_us == {"undecodable": 10}
    first, second = sorted(record.latest.values(), key=lambda entry: entry.key)
    assert (first.key, first.count, first.ids) == ("output-0", 3, ("output-0@7", "output-0@9"))
    assert (second.key, second.count, second.ids) == ("output-1", 1, ("output-1@3",))
    assert re.fullmatch("3 records of output-0 .* offset 7 and 9", first.explanation)


def test_each_undecodable_result_is_reported_once_also_after_a_restart(reading: Reading) -> None:
    reading.after(10, bad(10, 7, 9))
    reading.after(20)
    reading.run.restarted(reading.frontiers)
    reading.after(30)
    reading.after(40, bad(40, 20, 20))
    record = reading.run.record
    assert record.confirmed_total == {("undecodable", "control"): 4}
    [one] = record.latest.values()
    assert (one.count, one.ids, one.first_us, one.changed_us) == (4, ("output-0@20",), 10, 40)


def test_a_kill_between_facts_and_violations_loses_no_undecodable_result(reading: Reading) -> None:
    reading.after(10, bad(10, 7, 9))
    reading.killed(20, bad(20, 15, 16))
    reading.after(30)
    [one] = reading.run.record.latest.values()
    assert (one.count, one.ids) == (5, ("output-0@7", "output-0@16"))
    assert reading.run.record.confirmed_total == {("undecodable", "control"): 5}


def test_undecodable_results_fail_the_verdict_of_their_hour(reading: Reading) -> None:
    reading.after(10 * MINUTE, bad(10 * MINUTE, 7, 9))
    assert reading.run.record.recent.since(60, 50 * MINUTE) == {"undecodable": 3}
    reading.run.restarted(reading.frontiers)
    assert reading.run.record.recent.since(60, 50 * MINUTE) == {"undecodable": 3}
    assert reading.run.record.recent.since(60, 90 * MINUTE) == {}


def test_undecodable_results_are_attributed_to_the_fault_during_which_they_were_read(reading: Reading) -> None:
    reading.run.record.faults = (FaultWindow("1", "kill", "process_kill", "engine-0", 5, 6, 15, 15),)
    reading.after(10, bad(10, 7, 9))
    assert reading.run.record.by_fault == {("kill", "undecodable"): 3}
    assert reading.run.record.confirmed_total == {("undecodable", "failure"): 3}


def test_undecodable_results_can_be_acknowledged(reading: Reading) -> None:
    reading.after(10, bad(10, 7, 9))
    acknowledge(reading.run.state, reading.run.violation("output-0"), "the old version's")
    reading.run.published()
    assert reading.run.record.acknowledged.left == {(None, "undecodable"): 3}
    reading.after(20, bad(20, 15, 16))
    assert reading.run.record.acknowledged.left == {(None, "undecodable"): 3}


def test_a_finding_of_undecodable_results_has_no_command_for_an_id(reading: Reading) -> None:
    reading.after(10, bad(10, 7, 9))
    shown = replace(
        clean(),
        violations={"confirmed": {"undecodable": 3}, "retracted": {}, "suspected": {}},
        violations_latest=tuple(reading.run.record.latest.values()),
        first_confirmed_us=reading.run.record.first_confirmed_us,
    )
    [found] = findings(build(shown), newest(shown))
    assert (found.violation, found.count, found.command) == ("undecodable", 3, None)


def test_records_that_were_not_examined_are_counted_with_the_first_of_each_partition(reading: Reading) -> None:
    why = "its value has 201 bytes, above limits.value_bytes"
    reading.after(10, {**bad(10, 7, 7), "key": why, "status": UNEXAMINED}, bad(10, 8, 9))
    reading.after(20, {**bad(20, 3, 3), "key": why, "status": UNEXAMINED}, {**bad(20, 1, 1, side="input"), "key": why})
    reading.after(30)
    assert reading.run.record.unexamined == {
        PartitionId("output", 0): (2, 3, why),
        PartitionId("input", 0): (1, 1, why),
    }

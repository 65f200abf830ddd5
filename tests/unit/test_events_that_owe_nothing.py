"""Events for which the oracle's condition does not hold: they are known, and owed no result. Late and rejected records
of them cause no violation, even after restarts and retention.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import MINUTE_US, fact
from tests.unit.retained_run import EPOCH_US, RETENTION_US, START_US, Run
from validator.codecs.columns import KNOWN, UNOWED
from validator.model.classes import Verdict
from validator.model.snapshot import Snapshot
from validator.state.tables import StateTables, Table

HOUR_US = 60 * MINUTE_US
DEAD = "rejected=[{topic: dead, fields: {id: order, key: customer, event_time: ordered_at}}]"
ORDERS, PAID = "orders", "paid-orders"


@pytest.fixture
def run(tmp_path: Path) -> FedRun:
    """A filter with a dead-letter topic. One event has passed it and was answered."""
    run = FedRun(tmp_path, settings=("state.retention=2h", "oracle.bucket=60s", DEAD), example="filter")
    run.feed([Fed(ORDERS, (1,), key="own"), Fed(PAID, (1,), key="own")])
    return run


def confirmed(shown: Snapshot) -> dict[str, int]:
    return {name: count for name, count in shown.violations["confirmed"].items() if count}


def later(run: FedRun, number: int, minutes: int, *, after_us: int = HOUR_US) -> Snapshot:
    """``after_us`` later an event of another key passes and is answered, which moves the watermark."""
    at = minutes * MINUTE_US
    return run.feed([Fed(ORDERS, (number,), at, "last"), Fed(PAID, (number,), at, "last")], after_us=after_us)


def rows(run: FedRun, status: int) -> list[tuple[str | None, int]]:
    """The (key, id) pairs of the facts table's rows with this status."""
    found = [row for part in StateTables(run.state).scan(Table.FACTS) for row in part.to_pylist()]
    return sorted((row["key"], event["id"]) for row in found if row["status"] == status for event in row["ids"])


def test_a_filtered_event_is_read_and_owes_nothing(run: FedRun) -> None:
    run.feed([Fed(ORDERS, (2,), key="own", owed=False), Fed(ORDERS, (3,), key="alone", owed=False)])
    shown = later(run, 9, 5)
    assert (shown.contributions["expected"], shown.contributions["processed"]) == (2, 2)
    assert shown.inputs["read"] == 4
    assert "alone" not in run.runner.judging.cells.keys().to_pylist()
    end = run.end()
    assert (end.verdicts["exactly_once"], confirmed(end)) == (Verdict.PASS, {})


def test_a_result_of_a_filtered_event_is_misplaced_also_after_retirement(run: FedRun) -> None:
    run.feed([Fed(ORDERS, (2,), key="own", owed=False), Fed(PAID, (2,), key="own")])
    assert confirmed(later(run, 9, 5, after_us=1)) == {"misplaced": 1}
    run.feed([Fed(PAID, (2,), 5 * MINUTE_US, "last")])
    assert confirmed(run.feed([])) == {"misplaced": 2}
    for number in range(4):
        later(run, 10 + number, 5 + number)
        run.feed([Fed(PAID, (2,), 5 * MINUTE_US, "last")])
    run.restart()
    later(run, 20, 20, after_us=1)
    assert "own" not in run.runner.judging.cells.keys().to_pylist()
    assert rows(run, KNOWN) == [("own", 2)]
    assert rows(run, UNOWED) == []
    assert run.shown().contributions["unknown_id"] == 0
    assert run.shown().contributions["misplaced"] == 6


@pytest.mark.parametrize("restarts", [False, True], ids=["same process", "restart"])
def test_a_filtered_event_that_was_set_aside_is_not_a_violation(run: FedRun, restarts: bool) -> None:
    run.feed([Fed(ORDERS, (2,), key="own", owed=False), Fed(ORDERS, (3,), key="alone", owed=False)])
    # The batch that read them has left memory, and no cell knows them.
    run.runner.judging.known.forget(run.runner.progress.batch + 1)
    if restarts:
        run.restart()
    run.feed([Fed("dead", (3,), key="alone"), Fed("dead", (3,), key="alone")])
    run.feed([Fed("dead", (2,), key="own")])
    shown = later(run, 9, 5)
    assert confirmed(shown) == {}
    assert shown.contributions["rejected"] == 0
    end = run.end()
    assert (end.verdicts["exactly_once"], confirmed(end)) == (Verdict.PASS, {})


def test_an_id_that_no_event_has_is_unknown_on_a_dead_letter_topic_too(run: FedRun) -> None:
    run.feed([Fed("dead", (4,), key="own")])
    assert confirmed(run.feed([])) == {"unknown_id": 1}


def test_a_filtered_event_read_after_its_late_record_retracts_the_violation(run: FedRun) -> None:
    run.feed([Fed(ORDERS, (5,), key="other"), Fed(PAID, (5,), key="other"), Fed("dead", (5,), key="own")])
    assert confirmed(run.feed([])) == {"misplaced": 1}
    # The id was known before, and no number of the cell changes.
    run.feed([Fed(ORDERS, (5,), key="own", owed=False)])
    assert confirmed(run.feed([])) == {}


def test_facts_of_a_filtered_event_stay_as_long_as_a_cell_that_has_it(run: FedRun) -> None:
    run.feed([Fed(ORDERS, (2,), key="own", owed=False), Fed("dead", (2,), key="own")])
    # The cell keeps changing, so that only its older facts are past the retention.
    for number in range(5):
        run.feed([Fed(ORDERS, (30 + number,), key="own"), Fed(PAID, (30 + number,), key="own")], after_us=1)
        later(run, 40 + number, 5 + number)
    assert rows(run, UNOWED) == [("own", 2)]
    run.restart()
    assert confirmed(run.feed([Fed("dead", (2,), key="own")])) == {}
    assert confirmed(run.feed([])) == {}


def test_facts_of_a_filtered_event_stay_as_long_as_a_settled_cell_that_may_have_it(run: FedRun) -> None:
    run.runner.judging.evict_at = 1
    soon = 3 * MINUTE_US
    run.feed([Fed(ORDERS, (2,), soon, "left", owed=False)])
    later(run, 9, 5)
    # The cell is created in another epoch, and leaves memory with a verdict.
    run.feed([Fed(ORDERS, (3,), soon, "left"), Fed(PAID, (3,), soon, "left"), Fed("dead", (2,), soon, "left")])
    later(run, 10, 6, after_us=1)
    later(run, 11, 7, after_us=1)
    assert "left" not in run.runner.judging.cells.keys().to_pylist()
    later(run, 12, 8, after_us=HOUR_US + HOUR_US // 2)
    assert run.runner.retired.retirements
    # New records bring the cell back, and all of its ids are compared again.
    shown = run.feed([Fed(ORDERS, (4,), soon, "left"), Fed(PAID, (4,), soon, "left")])
    assert "left" in run.runner.judging.cells.keys().to_pylist()
    assert (confirmed(shown), confirmed(run.feed([]))) == ({}, {})
    assert rows(run, UNOWED) == [("left", 2)]


def test_a_cell_without_the_facts_of_its_filtered_event_is_out_of_scope(run: FedRun) -> None:
    soon = 3 * MINUTE_US
    run.feed([Fed(ORDERS, (3,), soon, "alone", owed=False)])
    for number in range(5):
        later(run, 10 + number, 5 + number)
    run.restart()
    assert rows(run, UNOWED) == []
    run.feed([Fed("dead", (3,), soon, "alone")])
    shown = run.feed([])
    assert confirmed(shown) == {}
    assert (shown.contributions["unknown_id"], shown.contributions["misplaced"]) == (0, 0)


def test_an_event_of_the_far_future_stays_and_hides_no_cell(tmp_path: Path) -> None:
    run = Run(tmp_path)
    near, far = START_US // MINUTE_US * MINUTE_US, (START_US + 10**6 * EPOCH_US) // MINUTE_US * MINUTE_US
    passed = far - MINUTE_US
    owing = [
        fact("input", [number], batch=0, lookup_us=START_US, window_us=at, key=key)
        for number, (at, key) in enumerate([(near, "near"), (far, "far")])
    ]
    run.batch(START_US, *({**row, "status": UNOWED, "contributions": 0} for row in owing), watermark_us=passed)
    run.batch(START_US + RETENTION_US + 3 * EPOCH_US, watermark_us=passed)
    run.retire()
    kept = [row for part in run.tables.scan(Table.FACTS) for row in part.to_pylist() if row["status"] == UNOWED]
    assert [row["key"] for row in kept] == ["far"]
    [retirement] = run.retired.retirements
    assert retirement.horizon_us == near + 1

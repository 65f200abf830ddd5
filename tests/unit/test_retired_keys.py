"""Running aggregates with values: keys that retention drops, keys that stay, and what withdraws proofs of a key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.retained_run import LATER_US, START_US, TIME_RULES, InMemory, ListRun, grouped
from validator.codecs.batches import EVENTS, RESULTS
from validator.codecs.columns import DECODED, TOMBSTONE
from validator.oracles.running_aggregate import RunningAggregate
from validator.oracles.seam import Reads
from validator.reconcile.grouping import facts_of_events, facts_of_results
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.stream.recording import CommitContext, record
from validator.stream.recovery import recover
from validator.stream.run_record import RunRecord

ORACLE = RunningAggregate.of(replaces=True).model_copy(update={"values": {"n": "count", "total": "sum(amount)"}})
ORACLE = ORACLE.reading(Reads(replaces=True, evidence="values", names_ids=False))
RULES = Rules(oracle=ORACLE, overdue_after_us=1, missing_after_us=2)


def events(batch: int, at_us: int, *items: tuple[str, int]) -> pa.Table:
    """Facts of events (key, amount)."""
    rows: list[dict[str, Any]] = [
        {"partition": 0, "offset": batch * 100 + i, "time_us": at_us, "id": 1, "key": key, "values": [amount]}
        | {"event_time_us": at_us - 9, "status": DECODED}
        for i, (key, amount) in enumerate(items)
    ]
    table = pa.Table.from_pylist(rows, EVENTS)
    return grouped(facts_of_events(table, 0, ORACLE, 0, 2**61, with_first_event=False), batch, at_us)


def results(batch: int, at_us: int, *items: tuple[str, int | None, int | None]) -> pa.Table:
    """Facts of results (key, number, total); without a number, a null value."""
    rows: list[dict[str, Any]] = [
        {"partition": 0, "offset": batch * 100 + i, "time_us": at_us, "key": key, "ids": [], "text_ids": []}
        | {"status": DECODED if number is not None else TOMBSTONE, "count": number, "values": [total]}
        for i, (key, number, total) in enumerate(items)
    ]
    return grouped(facts_of_results(pa.Table.from_pylist(rows, RESULTS), 1, ORACLE), batch, at_us)


class KeyRun(ListRun):
    """A state of keys. Verdicts are recorded."""

    rules = RULES

    def step(self, at_us: int, *parts: pa.Table) -> dict[str, int]:
        self.read(at_us, *parts)
        context = CommitContext(self.tables, "test", self.progress.batch, at_us)
        record(self.judging._effects([]), context, RunRecord(), lambda: at_us)
        return self.counts | {name: count for name, count in self.judging.sums.results.items() if count}

    def restart(self) -> None:
        known = KnownFacts(self.tables, first_batch=self.progress.batch + 1)
        self.judging = recover(self.tables, TIME_RULES, ORACLE).judging(known, RULES)


def retired_key(folder: Path) -> KeyRun:
    """A state that has retired the key `k`, and not `j`, which got an event later."""
    run = KeyRun(folder)
    run.step(START_US, events(1, START_US, ("k", 5), ("j", 7)), results(1, START_US, ("k", 1, 5), ("j", 1, 7)))
    found = run.step(LATER_US, events(2, LATER_US, ("j", -3)), results(2, LATER_US, ("j", 2, 4)))
    assert found == {"expected": 3, "processed": 3, "correct": 2}
    run.retire()
    assert run.keys == ["j"]
    assert run.retired.sums.cells_seen == 1
    return run


@pytest.mark.parametrize("restarts", [False, True])
def test_a_retired_key_that_returns_is_out_of_scope(restarts: bool, tmp_path: Path) -> None:
    run = retired_key(tmp_path / "state")
    at = LATER_US + 100
    if restarts:
        run.restart()
    run.step(at, events(3, at, ("k", 1)), results(3, at, ("k", 2, 6)))
    found = run.step(at + 20)
    assert found == {"expected": 3, "processed": 3, "out_of_scope": 1, "correct": 2}
    assert not run.judging.sums.violations("duplicate")


@pytest.mark.parametrize("restarts", [False, True])
def test_a_key_that_stays_is_judged_by_all_of_its_events(restarts: bool, tmp_path: Path) -> None:
    run = retired_key(tmp_path / "state")
    at = LATER_US + 100
    if restarts:
        run.restart()
    more = [events(3, at, ("j", 1), ("new", 2)), results(3, at, ("j", 3, 5), ("new", 1, 2))]
    assert run.step(at, *more) == {"expected": 5, "processed": 5, "correct": 3}
    run.step(at + 1, events(4, at + 1, ("j", 10)), results(4, at + 1, ("j", 4, 16)))
    assert run.step(at + 20) == {"expected": 6, "processed": 6, "correct": 2, "wrong_value": 1}
    run.step(at + 30, results(5, at + 30, ("j", 4, 15)))
    assert run.step(at + 50) == {"expected": 6, "processed": 6, "correct": 3}
    assert not run.judging.sums.violations("wrong_value"), "retracted"


def test_a_null_value_withdraws_the_result_of_its_key(tmp_path: Path) -> None:
    run = KeyRun(tmp_path / "state")
    at = START_US
    run.step(at, events(1, at, ("k", 5), ("k", 6)), results(1, at, ("k", 2, 11)))
    run.step(at + 10, results(2, at + 10, ("k", None, None)))
    assert run.counts == {"expected": 2, "pending": 2}
    assert run.step(at + 20) == {"expected": 2, "missing": 2}
    run.restart()
    # These tables do not say when the watermark passed the events.
    run.step(at + 21)
    assert run.step(at + 25) == {"expected": 2, "missing": 2}
    assert run.step(at + 26, results(3, at + 26, ("k", 2, 11))) == {"expected": 2, "processed": 2, "correct": 1}


def test_a_key_with_events_in_each_batch_shows_what_is_due(tmp_path: Path) -> None:
    """Its newest events are pending, and what a result lacks beyond these is missing."""
    run = KeyRun(tmp_path / "state")
    for n in range(1, 30):
        at = START_US + n
        found = run.step(at, events(n, at, ("k", 1)), results(n, at, ("k", max(0, n - 3), max(0, n - 3))))
        # Three events are lacking: the newest is not due, the one before is overdue.
        assert {name: found.get(name, 0) for name in ("pending", "overdue", "missing")} == {
            "pending": 1,
            "overdue": 1 if n > 1 else 0,
            "missing": 1 if n > 2 else 0,
        }, n


def test_memory_of_events_that_wait_is_bounded(tmp_path: Path) -> None:
    run = KeyRun(tmp_path / "state")
    for n in range(1, 60):
        at = START_US + n
        run.step(at, events(n, at, *(("k", 1) for _ in range(20))), results(n, at, ("k", 20 * n, 20 * n)))
    waiting = run.judging.cells.waiting
    assert waiting is not None
    assert len(waiting) < 5


def test_an_older_sum_written_again_is_not_wrong_at_once(tmp_path: Path) -> None:
    """SEMANTICS 3.12: an engine that restores a checkpoint. No number of events shows that the sum is an older one."""
    sums = ORACLE.model_copy(update={"values": {"total": "sum(amount)"}}).reading(ORACLE.reads)
    run = InMemory(tmp_path, replace(RULES, oracle=sums))
    at = START_US
    right = {"expected": 2, "processed": 2, "correct": 1}
    run.step(at, events(1, at, ("k", 5), ("k", 6)), results(1, at, ("k", 2, 11)))
    assert run.step(at + 10) == right
    assert run.step(at + 20, results(2, at + 20, ("k", 1, 5))) == right
    assert run.step(at + 21, results(3, at + 21, ("k", 2, 11))) == right
    assert run.step(at + 30, results(4, at + 30, ("k", 1, 5))) == right
    assert run.step(at + 32) == {"expected": 2, "processed": 2, "wrong_value": 1}


def test_losses_are_found_once_a_group_that_went_back_is_there_again(tmp_path: Path) -> None:
    run = InMemory(tmp_path, replace(RULES, reports_unconsumed=True))
    at = START_US
    run.committed = 200
    run.step(at, events(1, at, ("k", 5), ("k", 6)), results(1, at, ("k", 2, 11)))
    assert run.step(at + 5) == {"expected": 2, "processed": 2, "correct": 1}
    run.committed = 0
    withdrawn = [results(2, at + 10, ("k", None, None))]
    assert run.step(at + 10, *withdrawn) == {"expected": 2, "pending": 2}
    assert run.step(at + 20) == {"expected": 2, "unconsumed": 2}
    run.committed = 199
    assert run.step(at + 21) == {"expected": 2, "unconsumed": 2}
    run.committed = 200
    assert run.step(at + 22) == {"expected": 2, "missing": 2}
    run.committed = 400
    more = [events(3, at + 30, ("k", 1)), results(3, at + 30, ("k", 2, 11))]
    run.step(at + 30, *more)
    assert run.step(at + 40) == {"expected": 3, "processed": 2, "missing": 1, "incomplete": 1}


def test_a_revoked_proof_retracts_no_loss(tmp_path: Path) -> None:
    """As when a partition of the output is new."""
    run = InMemory(tmp_path, RULES)
    at = START_US
    run.step(at, events(1, at, ("k", 5), ("k", 6)), results(1, at, ("k", 1, 5)))
    lost = {"expected": 2, "processed": 1, "missing": 1, "incomplete": 1}
    assert run.step(at + 10) == run.step(at + 11) == lost
    for after in (12, 13):
        found = run.step(at + after, proven_us=at - 5)
        assert found == {"expected": 2, "processed": 1, "pending": 1, "incomplete": 1}
        assert run.judging.sums.on_record["missing"] == 1
    run.step(at + 14, results(2, at + 14, ("k", 2, 11)))
    assert run.judging.sums.on_record["missing"] == 0

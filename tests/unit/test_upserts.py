"""Rows that records of their key replace: what compaction may have removed, and what the order of records does not
show (SEMANTICS 2.35, 4.6)."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

import pyarrow.compute as pc
import pytest

from tests.property.upserts import RESULTS, ROWS, SECOND_US, Engine, UpsertRun, new_run, row
from tests.unit.fed_run import confirmed, suspected
from tests.unit.memory_tables import MemoryTables
from validator.codecs.columns import VERSION
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.model.frontier import PartitionId
from validator.model.snapshot import Snapshot
from validator.settings.errors import ConfigError
from validator.state.tables import Table
from validator.stream import retention, stage
from validator.stream.topic_settings import TopicSettings, warnings

HOUR_US: Final = 3_600 * SECOND_US
FIRST: Final = PartitionId(ROWS, 0)


class Killed(Exception):
    """Stands for SIGKILL."""


def engine_of(run: UpsertRun) -> Engine:
    return Engine(run, Random(0))


def put(run: UpsertRun, key: str | None, group: str | None, partition: int = 0, amount: float = 1) -> None:
    """Write a row of a group; without a group, delete it."""
    value = None if group is None else row(group, amount)
    run.brokers.put(ROWS, partition, run.now_us, None if key is None else key.encode(), value)


def exactly_once(shown: Snapshot) -> str:
    return str({str(name): str(verdict) for name, verdict in shown.verdicts.items()}["exactly_once"])


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_task_that_is_cut_replaces_rows_in_the_order_of_offsets(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow decodes rows, and leaves null values to the other decoder."""
    monkeypatch.setattr(stage, "_RECORDS_AT_ONCE", most)
    run = new_run(tmp_path)
    for group in ("new", None, "paid", None, "sent"):
        put(run, "a", group)
        put(run, "b", group)
    run.batch()
    assert run.net() == run.rows_read() == {"sent": 2}


def removed(run: UpsertRun, *offsets: int) -> None:
    run.brokers.removed |= {(FIRST, offset) for offset in offsets}


def with_a_removed_change(run: UpsertRun, engine: Engine) -> None:
    """The engine counts a row as paid. Before the sidecar reads that, the row is sent, and compaction runs."""
    put(run, "a", "new")
    engine.poll()
    run.batch()
    put(run, "b", "paid")
    engine.poll()
    put(run, "b", "sent")
    removed(run, 1)


def test_a_result_that_shows_a_removed_change_is_no_violation_while_the_engine_may_replace_it(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    engine = engine_of(run)
    with_a_removed_change(run, engine)
    for _ in range(3):
        shown = run.batch(15 * SECOND_US)
        assert confirmed(shown) == {}
        assert suspected(shown), "the result of `paid` is known to be too large"
        assert exactly_once(shown) == "unknown"
        assert any("later ones replace" in reason for reason in shown.reasons), shown.reasons
        run.restart()
    engine.poll()
    run.batch()
    shown = run.batch(70 * SECOND_US)
    assert confirmed(shown) == suspected(shown) == {}
    assert exactly_once(run.end()) == "pass"


def test_it_is_one_once_the_engine_has_had_its_time(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    # It loses that the row was sent.
    engine = Engine(run, Random(0), frozenset({3}))
    with_a_removed_change(run, engine)
    for number in range(9):
        shown = run.batch(15 * SECOND_US)
        # In the batch of number 1 other rows let the watermark pass the removed change; from the next lookup on the
        # engine has a minute.
        assert bool(confirmed(shown)) == (number >= 6), number
        put(run, "d", "other", partition=0)
        put(run, "e", "other", partition=1)
        engine.poll()
    assert exactly_once(shown) == "fail"


@pytest.mark.parametrize("restarts", [False, True], ids=["goes_on", "restarts"])
@pytest.mark.parametrize(("away_us", "verdict"), [(4 * SECOND_US, "pass"), (6 * SECOND_US, "unknown")])
def test_a_deletion_may_have_been_removed_once_its_time_has_passed(
    away_us: int, verdict: str, restarts: bool, tmp_path: Path
) -> None:
    run = new_run(tmp_path)
    run.brokers.deletions_kept_us = 10 * SECOND_US
    engine = engine_of(run)
    put(run, "a", "new")
    put(run, "b", "paid")
    engine.poll()
    run.batch()
    # A row that is replaced, and perhaps one that is deleted.
    put(run, "b", "sent")
    if verdict == "unknown":
        put(run, "a", None)
    put(run, "b", "sent")
    engine.poll()
    removed(run, 1, *([0, 2, 3] if verdict == "unknown" else [2]))
    if restarts:
        run.now_us += away_us
        run.restart()
        away_us = 1
    run.batch(away_us)
    engine.poll()
    run.batch()
    for _ in range(2):
        shown = run.batch(70 * SECOND_US)
    assert confirmed(shown) == {}
    assert exactly_once(shown) == verdict
    assert any("deletions of rows" in reason for reason in shown.reasons) == (verdict == "unknown")


def test_the_first_reading_may_take_many_batches(tmp_path: Path) -> None:
    """Until the log was read to its end once, the first batch counts."""
    run = new_run(tmp_path)
    run.tables = MemoryTables()
    run.brokers.deletions_kept_us = 40 * SECOND_US
    for number in range(20):
        put(run, f"k{number % 3}", "new", amount=number)
    removed(run, 1, 2, 7, 8, 12, 13)
    for _ in range(3):
        run.restart()
        run.batch(5 * SECOND_US, share=0.3)
    assert run.runner.progress.frontiers[FIRST].read_through_us is None
    assert not run.runner.progress.compacted
    run.batch(11 * SECOND_US, share=0.5)
    assert run.runner.progress.compacted


def test_a_key_on_several_partitions_is_not_judged(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    put(run, "a", "new", partition=0)
    put(run, "a", "paid", partition=1)
    run.brokers.put(RESULTS, 0, run.now_us, b"paid", b'{"n": 1, "total": 1}')
    run.batch()
    for restarts in (False, True):
        if restarts:
            run.restart()
        shown = run.batch(100 * SECOND_US)
        assert confirmed(shown) == {}
        assert exactly_once(shown) == "unknown"
        assert any("several partitions" in reason for reason in shown.reasons)
    assert confirmed(run.end()) == {}


@pytest.mark.parametrize(("key", "value"), [(None, row("new", 1)), (None, None), (b"a", b"?"), (b"x" * 70_000, None)])
def test_a_record_that_does_not_name_its_row_or_decode_explains_any_difference(
    key: bytes | None, value: bytes | None, tmp_path: Path
) -> None:
    run = new_run(tmp_path)
    put(run, "a", "new")
    put(run, "b", "new")
    run.brokers.put(ROWS, 0, run.now_us, key, value)
    run.brokers.put(RESULTS, 0, run.now_us, b"new", b'{"n": 1, "total": 1}')
    run.batch()
    shown = run.end()
    assert confirmed(shown) == {}
    assert exactly_once(shown) == "unknown"
    assert run.runner.progress.undecodable("input") == 1


def test_a_deletion_of_an_unknown_row_removes_nothing(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    engine = engine_of(run)
    put(run, "x", None)
    put(run, "a", "new")
    put(run, "x", None)
    engine.poll()
    run.batch()
    assert exactly_once(run.end()) == "pass"


def test_an_update_without_a_change_may_be_stated_again_or_not(tmp_path: Path) -> None:
    for states_again in (False, True):
        run = new_run(tmp_path / str(states_again))
        engine = engine_of(run)
        put(run, "a", "new")
        engine.poll()
        run.batch(100 * SECOND_US)
        put(run, "a", "new")
        if states_again:
            engine.said.clear()
        engine.poll()
        for _ in range(3):
            shown = run.batch(50 * SECOND_US)
            assert confirmed(shown) == suspected(shown) == {}
        assert exactly_once(run.end()) == "pass"


@pytest.mark.parametrize("killed_at", [None, "before_retiring", "after_retiring"])
def test_retention_keeps_the_newest_row_of_each_key(
    killed_at: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = new_run(tmp_path, retention="1h")
    kills = [killed_at]

    def reach(name: str) -> None:
        if name in kills:
            kills.clear()
            raise Killed

    monkeypatch.setattr(retention, "reach", reach)
    engine = engine_of(run)
    put(run, "a", "new", amount=7)
    put(run, "b", "sent")
    engine.poll()
    run.batch()
    put(run, "b", "sent", amount=3)
    put(run, "c", "new")
    put(run, "c", None)
    for _ in range(8):
        # Other rows let the watermark pass.
        put(run, "d", "other", partition=0)
        put(run, "e", "other", partition=1)
        engine.poll()
        try:
            run.batch(HOUR_US // 2)
        except Killed:
            run.restart()
    assert kills in ([], [None])
    assert run.runner.retired.sums.cells_seen == 2, "the cells of `new` and `sent` were retired"
    assert {"a", "b", "c"} <= set(versions(run))
    assert versions(run).count("b") == 1, "the row that was replaced is dropped"
    run.restart()
    put(run, "a", "paid", amount=2)
    put(run, "c", "paid")
    engine.poll()
    run.batch()
    assert run.net() == {"new": -1, "paid": 2, "other": 2}
    for _ in range(3):
        assert confirmed(run.batch(50 * SECOND_US)) == {}


def versions(run: UpsertRun) -> list[str]:
    """The record keys of the rows that the facts have."""
    assert run.tables is not None
    facts = [part.filter(pc.equal(part["status"], VERSION)) for part in run.tables.scan(Table.FACTS)]
    return sorted(one["id"] for part in facts for rows in part["text_ids"].to_pylist() for one in rows)


def test_the_operator_learns_when_a_deletion_may_be_lost(tmp_path: Path) -> None:
    config = new_run(tmp_path).config
    settings = {one: TopicSettings("compact", False, None, None, 86_400 * SECOND_US) for one in (ROWS, RESULTS)}
    said = dict(warnings(config, settings, settings))
    assert "within 12h (half of delete.retention.ms)" in said[ROWS]
    assert "transaction markers, make the verdict unknown" in said[RESULTS]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("oracle={kind: running_aggregate, values: {orders: count, total: max(amount)}}", "state their number"),
        ("inputs.0.explode={at: space}", "state their number"),
        ("inputs.0.envelope=debezium", "a change of the envelope has the row that it deletes"),
        ("inputs.0.table=false", "only rows of a table are deleted"),
        ("guarantee=at_least_once", "does not show whether a pipeline is at_least_once"),
    ],
)
def test_what_cannot_be_judged_is_refused(setting: str, said: str, tmp_path: Path) -> None:
    run = new_run(tmp_path)
    with pytest.raises(ConfigError) as refused:
        loads(EXAMPLES[run.example], tmp_path, [*run.settings, setting], environment={})
    assert said in str(refused.value)

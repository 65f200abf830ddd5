"""The order of a batch's steps, each tested at the instant at which another order would give a wrong report."""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.unit.fed_run import Fed, FedRun
from tests.unit.memory_tables import MemoryTables
from tests.unit.reconcile_rows import MINUTE_US
from tests.worlds import some
from validator.model.classes import Verdict
from validator.model.frontier import Lookup, PartitionId
from validator.publish.publisher import Publisher
from validator.reconcile.judge import VIOLATIONS
from validator.state.tables import Table
from validator.stream import batch, recording, retention
from validator.stream.batch import PartitionUnlisted, TopicDeleted, TopicReplaced
from validator.stream.brokers import Brokers, BrokersUnreachable, Topic
from validator.stream.failpoints import NAMES
from validator.stream.generations import Generations


@pytest.fixture(autouse=True, params=some([False, True]), ids=lambda saves: "saves" if saves else "folds")
def saves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process folds all facts, or continues from the cells that the previous one saved."""
    monkeypatch.setattr(FedRun, "saves", request.param)


ANSWER = Fed("output", (1,))
SECOND = PartitionId("output", 1)


class Killed(Exception):
    """Stands for SIGKILL."""


class Meanwhile:
    """The brokers of a run. Their response to the call ``after`` takes time: meanwhile the sidecar's clock advances and
    ``happens`` is called."""

    def __init__(self, run: FedRun, after: str, takes_us: int, happens: Any) -> None:
        self.run, self.after, self.takes_us, self.happens = run, after, takes_us, happens
        self.partitions = (0,)

    def topics(self, names: Iterable[str], optional: object = ()) -> dict[str, Topic]:
        found = self.run.logs.topics(names)
        if "output" in found:
            found["output"] = Topic("output", found["output"].id, self.partitions)
        return self._answered("topics", found)

    def lookup(self, topics: dict[str, Topic]) -> dict[PartitionId, Lookup]:
        found = self.run.logs.lookup(topics)
        if len(topics["output"].partitions) > 1:
            found[SECOND] = Lookup(topics["output"].id, 0, 1, 1)
        return self._answered("lookup", found)

    def policies(self, topics: Iterable[str]) -> dict[str, str]:
        return self.run.logs.policies(topics)

    def _answered(self, call: str, answer: Any) -> Any:
        if call == self.after and self.happens is not None:
            happens, self.happens = self.happens, None
            self.run.now_us += self.takes_us
            happens(self)
        return answer


def run_in_memory(tmp_path: Path) -> tuple[FedRun, MemoryTables]:
    tmp_path.mkdir(exist_ok=True)
    tables = MemoryTables()
    return FedRun(tmp_path, tables=tables), tables


def answered_in_a_new_partition(brokers: Meanwhile) -> None:
    brokers.partitions = (0, 1)


def answered(brokers: Meanwhile) -> None:
    brokers.run.send(ANSWER)


@pytest.mark.parametrize(
    ("after", "happens"), [("topics", answered_in_a_new_partition), ("lookup", answered)], ids=["topics", "lookup"]
)
def test_a_result_written_during_the_lookup_is_not_missing(after: str, happens: Any, tmp_path: Path) -> None:
    """The result is appended before it is due, but after the brokers' response; the lookup's instant is before both."""
    run, _ = run_in_memory(tmp_path)
    run.feed([Fed("click", (1,)), Fed("click", (2,), 2 * MINUTE_US)])
    due_us = run.now_us + run.config.timing.missing_after_us
    brokers = Meanwhile(run, after, 10, happens)
    run.runner.brokers = cast("Brokers", brokers)
    shown = run.feed([], after_us=due_us - 5 - run.now_us)
    assert brokers.happens is None
    assert run.now_us > due_us
    assert (shown.contributions["missing"], shown.contributions["expected"]) == (0, 2)


def recreated(brokers: Meanwhile) -> None:
    brokers.run.logs.made_anew.add("click")


def deleted(brokers: Meanwhile) -> None:
    del brokers.run.logs.ends["click"]


@pytest.mark.parametrize(("happens", "error"), [(recreated, TopicReplaced), (deleted, TopicDeleted)])
def test_nothing_is_committed_of_a_topic_recreated_while_it_is_read(
    happens: Any, error: type[Exception], tmp_path: Path
) -> None:
    """The lookup may be of the old topic, and the records of the new one."""
    run, tables = run_in_memory(tmp_path)
    run.feed([Fed("click", (1,))])
    before = len(tables.appended)
    run.runner.brokers = cast("Brokers", Meanwhile(run, "lookup", 1, happens))
    with pytest.raises(error):
        run.feed([Fed("click", (2,)), ANSWER])
    assert len(tables.appended) == before


def test_nothing_is_committed_while_the_brokers_do_not_list_a_planned_partition(tmp_path: Path) -> None:
    """The metadata is stale: without a lookup the partition's frontier stays, and its records would be read again."""
    run, tables = run_in_memory(tmp_path)
    run.feed([Fed("click", (1,)), Fed("click", (2,), 2 * MINUTE_US)])
    before = len(tables.appended)
    run.runner.brokers = cast("Brokers", StaleBrokers(run))
    with pytest.raises(PartitionUnlisted, match="output-0"):
        run.feed([ANSWER])
    assert len(tables.appended) == before
    run.restart()
    assert run.feed([]).contributions["processed"] == 1
    assert run.feed([], after_us=3 * MINUTE_US).violations["confirmed"]["duplicate"] == 0


class StaleBrokers(Meanwhile):
    """Brokers that do not know the partition of the results."""

    def __init__(self, run: FedRun) -> None:
        super().__init__(run, "", 0, None)

    def lookup(self, topics: dict[str, Topic]) -> dict[PartitionId, Lookup]:
        return {place: found for place, found in super().lookup(topics).items() if place.topic != "output"}


def test_a_topic_id_that_was_replaced_is_not_taken_for_another_new_topic(tmp_path: Path) -> None:
    """A broker with stale metadata lists the topic as it was before it was recreated."""
    run, tables = run_in_memory(tmp_path)
    run.feed([Fed("click", (1,)), ANSWER])
    run.logs.made_anew.add("output")
    run.logs.ends["output"] = 0
    run._sent = [one for one in run._sent if one[0].topic != "output"]
    run.restart()
    run.feed([Fed("click", (2,)), Fed("click", (3,), 2 * MINUTE_US), Fed("output", (2,))])
    before = len(tables.appended)
    run.logs.made_anew.clear()
    with pytest.raises(BrokersUnreachable, match="before it was recreated"):
        run.restart()
    assert len(tables.appended) == before
    run.logs.made_anew.add("output")
    run.restart()
    run.feed([], after_us=3 * MINUTE_US)
    assert run.feed([], after_us=1).violations["confirmed"]["duplicate"] == 0


def compacted(run: FedRun) -> None:
    run.logs.policy = "compact"
    run.logs.ends["click"] += 1


def expired(run: FedRun) -> None:
    run.logs.ends["click"] += 1
    run.logs.starts["click"] = run.logs.ends["click"]
    run.restart()


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("vanishes", [compacted, expired])
def test_an_event_after_an_expired_record_may_have_been_late(vanishes: Any, restarts: bool, tmp_path: Path) -> None:
    """The missing record may have been an event so new that the next one was late, so the absence of a result proves no
    loss."""
    tables = MemoryTables()
    run = FedRun(tmp_path, settings=("timing.late_policy=drop",), tables=tables)
    run.feed([Fed("click", (1,)), Fed("output", (1,))])
    vanishes(run)
    run.feed([Fed("click", (2,))])
    run.feed([Fed("click", (3,), 2 * MINUTE_US)])
    if restarts:
        run.restart()
    run.feed([], after_us=1)
    shown = run.feed([], after_us=2 * run.config.timing.missing_after_us)
    assert {name: shown.contributions[name] for name in ("missing", "overdue")} == {"missing": 0, "overdue": 1}


HISTORY = (
    [Fed("click", (1,)), Fed("click", (2,)), Fed("output", (1,))],
    # Closes the first window and confirms a duplicate.
    [Fed("click", (3,), 2 * MINUTE_US), Fed("output", (1,))],
    # Confirms that event 2 is missing. Its later result retracts that.
    [Fed("click", (4,), 4 * MINUTE_US), Fed("output", (3,), 2 * MINUTE_US)],
    [Fed("output", (2,))],
    [],
)
IN_EVERY_BATCH = tuple(name for name in NAMES if name != "batch_begun" and "rest" not in name and "retir" not in name)


def played(run: FedRun, batch_number: int) -> None:
    run.feed(HISTORY[batch_number], after_us=3 * MINUTE_US)


def on_record(tables: MemoryTables) -> tuple[Any, ...]:
    """The data of a restart: records per topic, confirmed and retracted contributions per violation, and the newest
    verdict of each cell."""
    records, confirmed, retracted = Counter[str](), Counter[str](), Counter[str]()
    verdicts: dict[tuple[int, str], Any] = {}
    for table, rows in tables.appended:
        for row in rows.to_pylist():
            if table is Table.FACTS and row["kind"] == "fact":
                records[row["topic"]] += row["records"]
            elif table is Table.VIOLATIONS:
                confirmed[row["violation"]] += row["confirmed"]
                retracted[row["violation"]] += row["retracted"]
            elif table is Table.VERDICTS:
                kept = {name: value for name, value in row.items() if name not in ("batch", "lookup_us", "closed_us")}
                verdicts[row["window_start_us"], row["key"]] = kept
    return records, +confirmed, +retracted, verdicts


@pytest.mark.parametrize(("name", "killed_in"), some(product(IN_EVERY_BATCH, range(len(HISTORY)))))
def test_a_kill_at_any_step_of_a_batch_loses_and_repeats_nothing(
    name: str, killed_in: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill is an exception in this process: the tables have what was appended before it."""
    if name == "after_saving":
        monkeypatch.setattr(FedRun, "saves", True)
    undisturbed, expected = run_in_memory(tmp_path / "undisturbed")
    for number in range(len(HISTORY)):
        played(undisturbed, number)
    _, confirmed, retracted, _ = on_record(expected)
    assert (len(confirmed), len(retracted)) == (2, 1), "the history has what can be told twice"

    run, tables = run_in_memory(tmp_path)
    for number in range(killed_in):
        played(run, number)

    with monkeypatch.context() as patched:
        patched.setattr(batch, "reach", killing(name))
        patched.setattr(recording, "reach", killing(name))
        with pytest.raises(Killed):
            played(run, killed_in)
    run.restart()
    run.feed([], after_us=1)
    for number in range(killed_in + 1, len(HISTORY)):
        played(run, number)
    assert on_record(tables) == on_record(expected)
    assert run.shown().violations == undisturbed.shown().violations


@pytest.mark.parametrize("failed_in", some(range(len(HISTORY))))
def test_nothing_is_recorded_of_a_batch_whose_facts_were_not_stored(
    failed_in: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cells are judged while the facts are written."""
    undisturbed, expected = run_in_memory(tmp_path / "undisturbed")
    run, tables = run_in_memory(tmp_path)
    for number in range(len(HISTORY)):
        played(undisturbed, number)
    for number in range(failed_in):
        played(run, number)
    before, progress, stored = len(tables.appended), run.runner.progress, tables.append

    def full(rows: pa.Table, table: Table, *, writer: str, version: int) -> None:
        if table is Table.FACTS:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        stored(rows, table, writer=writer, version=version)

    with monkeypatch.context() as patched:
        patched.setattr(tables, "append", full)
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            played(run, failed_in)
        with pytest.raises(AssertionError, match="did not complete"):
            run.runner.advance({})
        run.runner.save()
    assert len(tables.appended) == before
    assert run.runner.progress == progress
    run.restart()
    run.feed([], after_us=1)
    for number in range(failed_in + 1, len(HISTORY)):
        played(run, number)
    assert on_record(tables) == on_record(expected)


def test_facts_are_stored_even_if_judging_them_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed, expected = run_in_memory(tmp_path / "undisturbed")
    run, tables = run_in_memory(tmp_path)
    for number in range(2):
        played(undisturbed, number)
    played(run, 0)
    before = run.runner.progress.batch

    def fails(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(run.runner.judging, "step", fails)
    with pytest.raises(MemoryError):
        played(run, 1)
    assert run.runner.progress.batch == before + 1
    run.restart()
    run.feed([], after_us=1)
    assert on_record(tables) == on_record(expected)


@pytest.mark.parametrize("writing", [False, True], ids=["failed", "hangs"])
@pytest.mark.parametrize(
    ("first", "batch", "verdict"),
    [
        # A record that cannot be read may explain the unknown id, and the duplicate.
        ((), (Fed("click", None), Fed("click", (1,)), Fed("output", (1, 7))), Verdict.UNKNOWN),
        ((), (Fed("click", None), Fed("click", (1,)), Fed("output", (1, 1))), Verdict.UNKNOWN),
        (HISTORY[0], (Fed("click", None), Fed("click", (3,), 2 * MINUTE_US)), Verdict.UNKNOWN),
        ((*HISTORY[0], *HISTORY[1], Fed("click", (8,), 6 * MINUTE_US)), (Fed("click", None),), Verdict.FAIL),
    ],
    ids=["unknown_id", "duplicate", "pass", "fail"],
)
def test_a_run_stopped_in_its_first_batch_ends_with_the_verdict_of_the_tables(
    first: tuple[Fed, ...], batch: tuple[Fed, ...], verdict: Verdict, writing: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The query that is stopped returns no error. The cells in memory have facts that the tables lack."""
    run, tables = run_in_memory(tmp_path)
    if first:
        run.feed(first)
        run.feed([], after_us=3 * MINUTE_US)
    run.restart()
    stop = threading.Event()
    generations = Generations(
        *(run.config, tables, run.runner.brokers, Publisher(run.config, tmp_path), None),
        once=True, leave_open=False, at_rest=False, say=lambda _: None, stop=stop,
    )  # fmt: skip
    generations._runner, generations._record = run.runner, run.runner.record
    monkeypatch.setattr(tables, "append", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run.feed(batch, after_us=3 * MINUTE_US)
    stop.set()
    if writing:
        assert run.runner._batch_lock.acquire(blocking=False)
    assert generations._ended(run.runner) is (Verdict.UNKNOWN if writing else verdict)
    assert generations.cut_short


def test_totals_equal_a_recount_of_the_tables_also_after_a_retraction(tmp_path: Path) -> None:
    run, tables = run_in_memory(tmp_path)
    taken_back = 0
    for number in range(len(HISTORY)):
        shown = run.feed(HISTORY[number], after_us=3 * MINUTE_US)
        confirmed, retracted, counted = Counter[str](), Counter[str](), Counter[str]()
        for part in tables.scan(Table.VIOLATIONS):
            for row in part.to_pylist():
                confirmed[row["class"]] += row["confirmed"]
                retracted[row["class"]] += row["retracted"]
        for verdict in on_record(tables)[3].values():
            counted.update({name: verdict[name] for name in VIOLATIONS})
        names = [name for name in VIOLATIONS if name in shown.contributions]
        assert {name: shown.contributions[name] for name in names} == {name: counted[name] for name in names}
        assert +Counter(shown.violations["confirmed"]) == confirmed - retracted
        assert +Counter(run.runner.record.confirmed_now) == confirmed - retracted
        assert Counter(shown.violations["retracted"]) == +retracted
        assert set(shown.first_confirmed_us) == set(confirmed - retracted)
        taken_back = retracted.total()
    assert taken_back


def test_a_kill_at_the_start_of_a_batch_has_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, tables = run_in_memory(tmp_path)
    played(run, 0)
    before = len(tables.appended)
    with monkeypatch.context() as patched:
        patched.setattr(batch, "reach", killing("batch_begun"))
        with pytest.raises(Killed):
            run.runner.process(0)
    assert len(tables.appended) == before


def test_every_failpoint_has_a_test_here() -> None:
    once = {"batch_begun", "before_rest", "after_rest", "before_retiring", "after_retiring"}
    assert {*IN_EVERY_BATCH, *once} == set(NAMES)


def killing(name: str) -> Any:
    def reach(reached: str) -> None:
        if reached == name:
            raise Killed

    return reach


@pytest.mark.parametrize("name", ["before_rest", "after_rest"])
def test_a_run_killed_at_its_end_can_be_ended_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed, expected = run_in_memory(tmp_path / "undisturbed")
    run, tables = run_in_memory(tmp_path)
    for number in range(len(HISTORY)):
        played(undisturbed, number)
        played(run, number)
    before = undisturbed.shown().contributions["missing"]
    ended = undisturbed.end()
    assert ended.contributions["missing"] == before + 1, "the end decides something"
    with monkeypatch.context() as patched:
        patched.setattr(batch, "reach", killing(name))
        with pytest.raises(Killed):
            run.end()
    run.restart()
    assert run.end().contributions == ended.contributions
    assert on_record(tables) == on_record(expected)


@pytest.mark.parametrize("settles", some([False, True]), ids=lambda settles: "settled" if settles else "in_memory")
@pytest.mark.parametrize("name", some(["before_retiring", "after_retiring"]))
def test_a_kill_during_retirement_changes_no_total(
    name: str, settles: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begun(folder: str) -> FedRun:
        run = FedRun(tmp_path / folder, ("state.retention=1h",))
        run.runner.judging.evict_at = 1 if settles else None
        for number in range(len(HISTORY)):
            played(run, number)
        return run

    def retired(run: FedRun, hours: Iterator[int]) -> Any:
        for hour in hours:
            window = (60 + hour) * MINUTE_US
            run.feed([Fed("click", (9 + hour,), window), Fed("output", (9 + hour,), window)], after_us=60 * MINUTE_US)
        shown = run.shown()
        return shown.contributions, shown.cells, shown.violations, run.runner.retired.sums.counts

    undisturbed, run = begun("undisturbed"), begun("killed")
    hours = iter(range(3))
    with monkeypatch.context() as patched:
        patched.setattr(retention, "reach", killing(name))
        with pytest.raises(Killed):
            retired(run, hours)
    run.restart()
    run.feed([], after_us=1)
    expected = retired(undisturbed, iter(range(3)))
    assert expected[3]["expected"] > 0, "something was retired"
    assert retired(run, hours)[:3] == expected[:3]

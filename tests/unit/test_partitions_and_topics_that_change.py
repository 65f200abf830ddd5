"""Topics that are recreated or absent, and partitions that are added, while outstanding results are waited for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.fed_run import Fed, FedRun
from tests.unit.memory_tables import MemoryTables
from tests.unit.reconcile_rows import MINUTE_US
from tests.worlds import some
from validator.model.classes import Verdict
from validator.model.frontier import PartitionId
from validator.model.snapshot import Snapshot

SECOND_US = 1_000_000


@pytest.fixture(autouse=True, params=some([False, True]), ids=lambda saves: "saves" if saves else "folds")
def saves(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process folds all facts, or continues from the cells that the previous one saved."""
    monkeypatch.setattr(FedRun, "saves", request.param)


def with_one_result_outstanding(tmp_path: Path, *settings: str) -> FedRun:
    """Event 2 is not answered yet, and its window has closed."""
    run = FedRun(tmp_path, settings=settings, tables=MemoryTables())
    run.feed([Fed("click", (1,)), Fed("click", (2,)), Fed("output", (1,))])
    run.feed([Fed("click", (3,), 2 * MINUTE_US), Fed("output", (3,), 2 * MINUTE_US)], after_us=SECOND_US)
    return run


def later(run: FedRun) -> Snapshot:
    """The report after every deadline has passed."""
    run.feed([], after_us=MINUTE_US)
    run.feed([], after_us=2 * MINUTE_US)
    return run.feed([], after_us=2 * MINUTE_US)


def missing(shown: Snapshot) -> tuple[int, int]:
    """Contributions that are missing, and confirmed as missing."""
    return shown.contributions["missing"], shown.violations["confirmed"]["missing"]


def recreate_outputs(run: FedRun) -> None:
    run.logs.made_anew.add("output")
    run.logs.ends["output"] = 0
    run._sent = [sent for sent in run._sent if sent[0].topic != "output"]


def test_a_result_of_a_recreated_topic_is_unprovable_also_if_the_input_topic_is_deleted(tmp_path: Path) -> None:
    """All topics are deleted, and the one with the results is created again first. The result of event 2 was in the
    deleted one."""
    run = with_one_result_outstanding(tmp_path)
    recreate_outputs(run)
    del run.logs.ends["click"]
    run.restart()
    shown = later(run)
    assert missing(shown) == (0, 0)
    assert shown.contributions["overdue"] == 1
    assert shown.verdicts[run.config.guarantee] is Verdict.UNKNOWN


def add_partition(run: FedRun, topic: str, *, expired: int) -> PartitionId:
    """Add partition 1 to a topic. Its first records have expired when the sidecar lists it for the first time."""
    place = PartitionId(topic, 1)
    run.logs.added[place] = (expired, expired)
    return place


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
def test_a_result_that_expired_in_a_new_partition_is_not_missing(restarts: bool, tmp_path: Path) -> None:
    run = with_one_result_outstanding(tmp_path)
    add_partition(run, "output", expired=1)
    if restarts:
        run.restart()
    shown = later(run)
    assert missing(shown) == (0, 0)
    assert shown.contributions["overdue"] == 1
    assert shown.verdicts[run.config.guarantee] is Verdict.UNKNOWN


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("topic", ["click", "output", "lateOutput"])
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_records_that_expired_in_a_new_partition_let_no_guarantee_pass(
    start: str, topic: str, restarts: bool, tmp_path: Path
) -> None:
    """The partition did not exist when the state began, so `start` does not leave out its first records."""
    run = FedRun(tmp_path, settings=(f"start={start}",), tables=MemoryTables())
    run.feed([Fed("click", (1,)), Fed("output", (1,))])
    run.logs.starts["click"] = 1
    place = add_partition(run, topic, expired=3)
    if restarts:
        run.restart()
    run.feed([Fed("click", (2,), 2 * MINUTE_US), Fed("output", (2,), 2 * MINUTE_US)], after_us=SECOND_US)
    if topic == "click":
        run.feed([Fed("click", (3,), 2 * MINUTE_US, partition=1), Fed("output", (3,), 2 * MINUTE_US)])
    shown = later(run)
    assert shown.contributions["processed"] + shown.contributions["out_of_scope"] == 2 + (topic == "click")
    assert shown.verdicts[run.config.guarantee] is Verdict.UNKNOWN
    assert any(f"3 records of {topic}-1 expired" in reason for reason in shown.reasons)
    assert run.runner.progress.frontiers[place].invisible == 0


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "restarted"])
def test_an_expired_event_of_a_new_partition_may_have_made_later_ones_late(restarts: bool, tmp_path: Path) -> None:
    """The expired event was of minute 60. The engine drops events 2 and 3 as late."""
    run = FedRun(tmp_path, settings=("timing.late_policy=drop",), tables=MemoryTables())
    run.feed([Fed("click", (1,)), Fed("output", (1,))])
    add_partition(run, "click", expired=1)
    if restarts:
        run.restart()
    for id_, minute in ((2, 2), (3, 10), (4, 100)):
        run.feed([Fed("click", (id_,), minute * MINUTE_US, partition=1)], after_us=SECOND_US)
    run.feed([Fed("click", (5,), 100 * MINUTE_US), Fed("output", (4, 5), 100 * MINUTE_US)])
    shown = later(run)
    assert missing(shown) == (0, 0)
    assert shown.contributions["overdue"] == 1
    run.restart()
    assert missing(later(run)) == (0, 0)
    assert shown.verdicts[run.config.guarantee] is Verdict.UNKNOWN


@pytest.mark.parametrize("ends", [False, True], ids=["live", "once"])
def test_events_of_a_deleted_input_topic_are_not_lost(ends: bool, tmp_path: Path) -> None:
    """The engine may not have read event 2 before its topic was deleted. A recreated topic shows that it never will."""
    run = with_one_result_outstanding(tmp_path)
    del run.logs.ends["click"]
    run.restart()
    shown = run.end() if ends else later(run)
    assert missing(shown) == (1, 0)
    assert shown.verdicts[run.config.guarantee] is Verdict.UNKNOWN
    run.logs.ends["click"] = 0
    run.logs.made_anew.add("click")
    run._sent = [sent for sent in run._sent if sent[0].topic != "click"]
    run.restart()
    assert missing(later(run)) == (0, 0)


def test_a_loss_is_proven_once_the_input_topic_is_listed_again(tmp_path: Path) -> None:
    run = with_one_result_outstanding(tmp_path)
    read = run.logs.ends.pop("click")
    run.restart()
    assert missing(later(run)) == (1, 0)
    run.logs.ends["click"] = read
    run.restart()
    assert missing(later(run)) == (1, 1)

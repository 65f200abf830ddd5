"""Absence that proves nothing yet: the engine has not consumed the input, the pipeline is not at rest, or an open
transaction holds inputs.
"""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.unit.ended_run import MISSING_AFTER_US, RunsOfOneState, verdict
from tests.unit.fed_run import Fed, FedRun
from tests.unit.publish_snapshots import config
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.config.model import Config
from validator.core.judging import Judging
from validator.core.totals import CellTotals
from validator.model.arrays import ABSENT
from validator.model.classes import Guarantee, Verdict
from validator.model.frontier import Clock, Frontier, Lookup, PartitionId, RunEnd
from validator.model.progress import IngestProgress, TimeRules
from validator.model.snapshot import Snapshot
from validator.oracles.tumbling_window import TumblingWindow
from validator.publish.publisher import Publisher
from validator.reconcile.compare import PartitionOffsets
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables
from validator.stream.batch import BatchRunner, NewGenerationWanted
from validator.stream.end_of_run import EndOfRun
from validator.stream.generations import Generations
from validator.stream.reporting import doubts_of, snapshot_of
from validator.stream.run_record import RunRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = Rules(oracle=TumblingWindow.of(MINUTE_US), overdue_after_us=10, missing_after_us=20, reports_unconsumed=True)
PLACE = PartitionId("input", 0)
PASS, UNKNOWN = Verdict.PASS, Verdict.UNKNOWN


def clock(at_us: int, run_end: RunEnd = RunEnd.NONE) -> Clock:
    """All topics read through at ``at_us``, every window closed."""
    return Clock(at_us, 2**60, at_us, at_us, at_us, None, None, 0, False, False, run_end)


def consumed(below: int) -> dict[tuple[str, int], PartitionOffsets]:
    return {("input", 0): PartitionOffsets(committed_offset=below)}


def judging(folder: Path, *, reports_unconsumed: bool = True) -> Judging:
    rules = replace(RULES, reports_unconsumed=reports_unconsumed)
    return Judging(KnownFacts(StateTables(folder), first_batch=0), rules)


def outstanding(sums: CellTotals) -> dict[str, int]:
    return {name: sums.counts[name] for name in ("pending", "overdue", "missing", "unconsumed") if sums.counts[name]}


def test_long_unconsumed_events_are_counted_from_the_due_time_of_the_oldest(tmp_path: Path) -> None:
    it = judging(tmp_path)
    first, second = (
        fact("input", ids, batch=0, lookup_us=at, key=key) for ids, at, key in (([1, 2], 5, "a"), ([3], 9, "b"))
    )
    it.absorb(facts(first, second), clock(10), consumed(1))
    sums = it.absorb(None, clock(20), consumed(1))
    assert (outstanding(sums), sums.unconsumed_overdue, sums.unconsumed_due_us) == (
        {"overdue": 2, "unconsumed": 1},
        0,
        None,
    )
    sums = it.absorb(None, clock(30), consumed(1))
    assert (outstanding(sums), sums.unconsumed_overdue, sums.unconsumed_due_us) == (
        {"missing": 2, "unconsumed": 1},
        1,
        10,
    )
    beside = it.sums.with_retired(replace(sums, unconsumed_due_us=4))
    assert (beside.unconsumed_overdue, beside.unconsumed_due_us, beside.unconsumed_retired) == (1, 10, 1)
    assert CellTotals.from_json(sums.to_json()) == replace(sums, fit=None)

    # The group's offsets expire: the reported loss stays on record, and a restart reports the same.
    sums = it.absorb(None, clock(40), consumed(0))
    assert (outstanding(sums), sums.unconsumed_overdue, sums.on_record["missing"]) == ({"unconsumed": 3}, 3, 2)
    sums = it.absorb(None, clock(50), consumed(9))
    assert (outstanding(sums), sums.unconsumed_overdue) == ({"missing": 3}, 0)


@pytest.mark.parametrize(
    ("run_end", "found"),
    [
        (RunEnd.ALL, {"missing": 1, "unconsumed": 1}),
        (RunEnd.CLOSED, {"pending": 1, "unconsumed": 1}),
        (RunEnd.OPEN, {"pending": 1, "unconsumed": 1}),
        (RunEnd.NONE, {"pending": 2}),
    ],
)
def test_at_the_end_of_a_run_an_engine_with_input_to_read_has_lost_nothing(
    run_end: RunEnd, found: dict[str, int], tmp_path: Path
) -> None:
    """The watermark has not passed the window, and the engine has consumed the first of its two events."""
    it = judging(tmp_path)
    early = replace(clock(10, run_end), watermark_us=0)
    assert outstanding(it.absorb(facts(fact("input", [1, 2], batch=0, lookup_us=5)), early, consumed(1))) == found
    assert (it.cells["closed_us"].tolist() == [ABSENT]) is (run_end is not RunEnd.ALL)


def test_unconsumed_events_are_counted_at_the_end_of_a_run_that_lags(tmp_path: Path) -> None:
    """1 is answered, and so is 9, whose input is unknown so far. By number alone nothing would be outstanding."""
    it = judging(tmp_path)
    rows = facts(fact("input", [1, 2], batch=0, lookup_us=5), fact("output", [1, 9], batch=0, lookup_us=5))
    lagging = replace(clock(10), watermark_us=0, inputs_us=4, unheld_inputs_us=4)
    assert it.absorb(rows, lagging, consumed(1)).counts["unconsumed"] == 0
    sums = it.absorb(None, replace(lagging, lookup_us=11, run_end=RunEnd.OPEN), consumed(1))
    assert [sums.counts[name] for name in ("unconsumed", "unresolved", "misplaced", "unknown_id")] == [1, 1, 0, 0]
    long_due = replace(lagging, lookup_us=40, outputs_us=40, watermark_us=2**60, run_end=RunEnd.OPEN)
    it.absorb(None, replace(long_due, lookup_us=12, outputs_us=12), consumed(1))
    assert outstanding(it.absorb(None, long_due, consumed(2))) == {"overdue": 1}, "as in the live mode"


def open_counts(runner: BatchRunner) -> dict[str, int]:
    return outstanding(runner.judging.sums)


def test_events_consumed_after_a_run_are_not_due_by_that_run(tmp_path: Path) -> None:
    """The engine is down at the end of a run. It restarts, consumes everything, and correctly keeps its last window
    open."""
    runs = RunsOfOneState(tmp_path)
    runs.now_us += 1
    ended = runs.start()
    ended.conclude(runs.rests, leave_open=False, at_rest=False)
    assert (open_counts(ended), verdict(ended)) == ({"unconsumed": 2}, UNKNOWN)
    assert ended.progress.batch == 1, "it was the last commit"

    runs.fake_brokers.committed = 4
    runs.now_us += 2 * MISSING_AFTER_US
    live = runs.start()
    live.advance({})
    assert (open_counts(live), verdict(live)) == ({"pending": 2}, PASS)

    # If the pipeline moves at the end of a run, the events do not become due. The end of a run at rest closes the
    # window.
    runs.now_us += 2 * MISSING_AFTER_US
    again = runs.start()
    again.conclude(runs.moving, leave_open=False, at_rest=False)
    assert (open_counts(again), verdict(again)) == ({"pending": 2}, UNKNOWN)
    at_rest = runs.start()
    at_rest.conclude(runs.rests, leave_open=False, at_rest=False)
    assert (open_counts(at_rest), verdict(at_rest)) == ({"missing": 2}, Verdict.FAIL)


def test_a_kill_between_the_two_commits_of_the_end_of_a_run_closes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = RunsOfOneState(tmp_path)
    runs.fake_brokers.committed = 4
    runs.now_us += 1
    killed = runs.start()
    advance = BatchRunner.advance

    def first_only(*given: Any, **named: Any) -> None:
        if killed.progress.batch > 0:
            raise KeyboardInterrupt
        advance(*given, **named)

    monkeypatch.setattr(BatchRunner, "advance", first_only)
    with pytest.raises(KeyboardInterrupt):
        killed.conclude(runs.rests, leave_open=False, at_rest=False)
    monkeypatch.undo()
    runs.now_us += 2 * MISSING_AFTER_US
    live = runs.start()
    live.advance({})
    assert (open_counts(live), verdict(live)) == ({"pending": 2}, PASS)


@pytest.mark.parametrize("moves", [False, True])
def test_a_run_that_leaves_open_windows_never_passes_with_a_dead_engine(moves: bool, tmp_path: Path) -> None:
    """The unconsumed events lie in a window that the watermark has not passed."""
    runs = RunsOfOneState(tmp_path)
    runs.fake_brokers.committed = 2
    runs.now_us += 1
    dead = runs.start()
    dead.conclude(runs.moving if moves else runs.rests, leave_open=True, at_rest=False)
    assert (open_counts(dead), verdict(dead)) == ({"unconsumed": 2}, UNKNOWN)
    runs.fake_brokers.committed = 4
    runs.now_us += 1
    alive = runs.start()
    alive.conclude(runs.moving if moves else runs.rests, leave_open=True, at_rest=False)
    assert (open_counts(alive), verdict(alive)) == ({"pending": 2}, PASS)


def test_the_exit_status_is_that_of_the_report_if_retention_drops_cells_in_the_last_commit(
    tmp_path: Path,
) -> None:
    runs = RunsOfOneState(tmp_path)
    publisher = Publisher(runs.config, tmp_path)
    run = Generations(
        *(runs.config, runs.tables, runs.brokers, publisher, None),
        once=True, leave_open=False, at_rest=False, say=lambda _: None, stop=threading.Event(),
    )  # fmt: skip
    runs.now_us += 4 * runs.config.state.retention_us
    run._runner = ended = runs.start(run._publish)
    run._begun, run._record = dict(runs.rests), ended.record
    (tmp_path / "lock").touch()
    found = run._ended(ended)
    assert len(ended.judging.cells) == 1, "the answered cell has left"
    outcome = json.loads((tmp_path / "report.json").read_text())["outcome"]
    assert (outcome, found) == ("unknown", UNKNOWN)


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_the_report_of_a_run_that_did_not_come_to_its_end_never_passes(is_interrupted: bool, tmp_path: Path) -> None:
    """The run was interrupted (status 130), or failed, after a batch: records of the topics may be unread."""
    runs = RunsOfOneState(tmp_path)
    runs.fake_brokers.committed = 4
    publisher, stop = Publisher(runs.config, tmp_path), threading.Event()
    run = Generations(
        *(runs.config, runs.tables, runs.brokers, publisher, None),
        once=True, leave_open=True, at_rest=False, say=lambda _: None, stop=stop,
    )  # fmt: skip
    (tmp_path / "lock").touch()
    runs.now_us += 1
    run._runner = runner = runs.start(run._publish)
    run._begun, run._record = dict(runs.rests), run._restored()
    runner.record = run._record
    runner.advance({})
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["outcome"], set(report["verdicts_over"]["1h"].values())) == ("unknown", {"unknown"})
    [reason] = report["reasons"]
    assert reason.startswith("this run with --once has not reached its end")
    if is_interrupted:
        stop.set()
    run._ended(runner)
    outcome = json.loads((tmp_path / "report.json").read_text())["outcome"]
    assert (run.cut_short, outcome) == (is_interrupted, "unknown" if is_interrupted else "pass")


def test_the_end_of_a_run_is_repeated_if_it_needs_a_new_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example, the lookups of the end list a new partition whose first event is newer than settled cells."""
    runs, conclude, refused = RunsOfOneState(tmp_path), BatchRunner.conclude, list[bool]()
    runs.fake_brokers.committed = 4
    run = Generations(
        *(runs.config, runs.tables, runs.brokers, Publisher(runs.config, tmp_path), None),
        once=True, leave_open=True, at_rest=False, say=lambda _: None, stop=threading.Event(),
    )  # fmt: skip
    (tmp_path / "lock").touch()
    run._begun, run._record = dict(runs.rests), run._restored()

    def generation(*_: object) -> None:
        runs.now_us += 1
        run._runner = runs.start(run._publish)
        run._runner.record = run._record

    def refuse_once(runner: BatchRunner, *args: Any, **options: Any) -> None:
        conclude(runner, *args, **options)
        if not refused:
            refused.append(runner.record.has_ended)
            raise NewGenerationWanted("the first event of a new partition puts settled cells out of scope")

    monkeypatch.setattr(run, "_open_generation", lambda progress, *_: (progress, runs.rests))
    monkeypatch.setattr(run, "_run_generation", generation)
    monkeypatch.setattr(BatchRunner, "conclude", refuse_once)
    assert (run._run_generations(cast("SparkSession", None)), refused) == (PASS, [True])


@pytest.mark.parametrize(("read", "words"), [(False, "does not exist yet"), (True, "does not exist")])
def test_a_topic_that_was_read_is_not_said_to_be_awaited_for_the_first_time(
    read: bool, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, said = RunsOfOneState(tmp_path), list[str]()
    run = Generations(
        *(runs.config, runs.tables, runs.brokers, Publisher(runs.config, tmp_path), None),
        once=True, leave_open=True, at_rest=False, say=said.append, stop=threading.Event(),
    )  # fmt: skip
    runner = runs.start(run._publish)
    progress = runner.progress if read else IngestProgress(TimeRules(0, 1))
    monkeypatch.setattr(runs.fake_brokers, "topics", lambda *_: {})
    run._await_topics(progress, runner.judging, runner.positions)
    assert f"topic click {words}" in said
    assert said[-1] == "none of the topics exists, so this run verified nothing"
    run._runner = runner
    run._await_topics(progress, runner.judging, runner.positions)
    assert said[-1] == "none of the topics exists"  # this run has read batches
    record = replace(run._record, waiting_for=("click",))
    doubts = doubts_of(runs.config, progress, record, CellTotals.empty())
    assert f"topic click {words}" in [doubt.sentence for doubt in doubts]


def test_long_blocked_events_are_counted(tmp_path: Path) -> None:
    it = judging(tmp_path, reports_unconsumed=False)
    held = replace(clock(10), outputs_us=4, outputs_held=True)
    it.absorb(facts(fact("input", [1, 2], batch=0, lookup_us=5)), held, {})
    sums = it.absorb(None, replace(held, lookup_us=20, unheld_outputs_us=20), {})
    assert (sums.counts["blocked"], sums.blocked_overdue) == (2, 0)
    sums = it.absorb(None, replace(held, lookup_us=30, unheld_outputs_us=30), {})
    assert (sums.counts["blocked"], sums.blocked_overdue, sums.blocked_due_us) == (2, 2, 10)
    shown = snapshot(tmp_path, replace(sums, cells_settled=1, cells_verified=1), RunRecord())
    assert (shown.verdicts[Guarantee.AT_MOST_ONCE], shown.verdicts[Guarantee.EXACTLY_ONCE]) == (PASS, UNKNOWN)
    assert all(part in shown.reasons[0] for part in ("open transaction", " 2 events ", " 2m, "))


def snapshot(folder: Path, sums: CellTotals, record: RunRecord, committed: int | None = 1) -> Snapshot:
    given = config(folder)
    grouped: Config = given.model_copy(update={"engine": given.engine.model_copy(update={"consumer_group": "g"})})
    frontier = Frontier("input", "input", 0, "t", 0, 3, 0, 3, 3, 20, records=3, committed_offset=committed)
    progress = IngestProgress(TimeRules(0, 0), batch=1, lookup_us=30, frontiers={PLACE: frontier})
    return snapshot_of(grouped, progress, replace(sums, events={"settled": 3}), record)


def test_a_loss_is_in_doubt_while_the_engine_is_behind(tmp_path: Path) -> None:
    none = CellTotals.empty()
    counts = {**none.counts, "unconsumed": 20_996}
    sums = replace(none, counts=counts, cells_settled=1, unconsumed_overdue=20_996, unconsumed_due_us=10)
    shown = snapshot(tmp_path, sums, RunRecord())
    in_doubt = {Guarantee.AT_MOST_ONCE: PASS, Guarantee.AT_LEAST_ONCE: UNKNOWN, Guarantee.EXACTLY_ONCE: UNKNOWN}
    assert shown.verdicts == shown.verdicts_over["1h"] == shown.verdicts_over["24h"] == in_doubt
    [reason] = shown.reasons
    assert re.fullmatch(r"20,996 events .* group g .* 2m, since 1970-01-01T00:00:00\.000010Z", reason)
    assert "is misspelt" in snapshot(tmp_path, sums, RunRecord(), None).reasons[0]
    assert (
        "the committed offset 4 of input-0 is past the end of the log (3)"
        in snapshot(tmp_path, sums, RunRecord(), 4).reasons[0]
    )
    # Before missing_after has passed, the verdict is "pass" in the live mode, but "unknown" at the end of a run.
    sums = replace(none, counts={**none.counts, "unconsumed": 1}, cells_settled=1, unconsumed=1)
    assert set(snapshot(tmp_path, sums, RunRecord()).verdicts.values()) == {PASS}
    shown = snapshot(tmp_path, sums, RunRecord(has_ended=True))
    assert set(shown.verdicts.values()) == {UNKNOWN}
    assert re.match("1 event .* group g at the end of the run", shown.reasons[0])


AT_START = Lookup("t", 0, 3, 3)
AT_END = Frontier("input", "input", 0, "t", 0, 3, 0, 3, 3, 20)


@pytest.mark.parametrize(
    ("begun", "end", "why"),
    [
        (AT_START, AT_END, None),
        (
            AT_START,
            replace(AT_END, high_watermark=5, last_stable_offset=5),
            "the end of input-0 moved from offset 3 to 5",
        ),
        (replace(AT_START, topic_id="s"), AT_END, "topic input was deleted and created again"),
        (None, AT_END, "input-0 was created"),
        (
            AT_START,
            replace(AT_END, next_offset=2, last_stable_offset=2),
            "an open transaction holds back input-0 from offset 2 on",
        ),
        (AT_START, replace(AT_END, next_offset=1), "input-0 has 2 offsets that were not read"),
    ],
)
def test_a_pipeline_at_rest_is_read_to_ends_that_do_not_move(
    begun: Lookup | None, end: Frontier, why: str | None
) -> None:
    known = {} if begun is None else {PLACE: begun}
    assert EndOfRun(RunEnd.ALL, known).why_not_at_rest({PLACE: end}, ()) == why
    assert EndOfRun(RunEnd.ALL, known, checked=False).why_not_at_rest({PLACE: end}, ()) is None
    created = EndOfRun(RunEnd.ALL, known).why_not_at_rest({PLACE: end}, ["late"])
    assert (created or "").startswith("topic late was created")


@pytest.mark.parametrize("is_due", [False, True])
def test_runs_beside_a_load_settle_cells_of_earlier_runs(is_due: bool, tmp_path: Path) -> None:
    """Each run reads to the ends that it looks up at its start, while the topics grow."""
    run = FedRun(tmp_path)

    def load(first: int) -> list[Fed]:
        """Two windows, all answered, except that window 0 has one answer for its two events."""
        ids = {window: (2 * window, 2 * window + 1) for window in (first, first + 1)}
        events = [Fed("click", (number,), window * MINUTE_US) for window in ids for number in ids[window]]
        given = {window: ids[window][: 2 if window else 1] for window in ids}
        return [*events, *(Fed("output", given[window], window * MINUTE_US) for window in ids)]

    found = []
    for number in range(3):
        run.send(*load(4 * number))
        run.now_us += 10
        run.restart()
        begun = run.logs.lookup(run.logs.ends)
        run.feed([], after_us=20 * MINUTE_US if is_due else 1, meanwhile=load(4 * number + 2))
        run.now_us += 1
        run.runner.conclude(begun, leave_open=True, at_rest=False)
        sums = run.runner.judging.sums
        found.append((sums.cells_settled, sums.counts["missing"], run.shown().verdicts[Guarantee.EXACTLY_ONCE]))
    settled = [one[0] for one in found]
    assert settled == [0, 1, 6 if is_due else 5]
    assert [one[1:] for one in found] == [(0, UNKNOWN), (0, PASS), (1, Verdict.FAIL) if is_due else (0, PASS)]


@pytest.mark.parametrize(
    ("record", "cells", "to_do"),
    [
        (RunRecord(leaves_open=True, left_open_because="the end of input-0 moved"), 1, "run again on this state"),
        (RunRecord(leaves_open=True, left_open_because="the end of input-0 moved"), 1, "(the end of input-0 moved)"),
        (RunRecord(leaves_open=True), 1, "run without it"),
        (RunRecord(leaves_open=True), 0, "no cell is closed and judged"),
        (RunRecord(), 1, "no cell is closed and judged"),
    ],
)
def test_a_run_with_leave_open_that_settled_nothing_says_what_to_do(record: RunRecord, cells: int, to_do: str) -> None:
    doubts = doubts_of(
        config(Path("state")), IngestProgress(TimeRules(0, 1)), record, replace(CellTotals.empty(), cells_seen=cells)
    )
    [said] = [doubt.sentence for doubt in doubts if doubt.sentence.startswith("nothing has settled yet")]
    assert to_do in said
    assert ("--leave-open" in said) == (record.leaves_open and cells > 0)


@pytest.mark.parametrize(
    ("partitions", "watermark_us", "has_ended", "names"),
    [
        ("event none", None, False, ("click-1",)),
        ("event none none none", None, False, ("click-1", "click-2", "1 other partition")),
        ("event none", None, True, ()),
        ("event none", 5, False, ()),
        ("event event", None, False, ()),
        ("none none", None, False, ()),
        ("event undecodable", None, False, ()),
        ("event unread", None, False, ()),
        ("event none unread", None, False, ()),
    ],
)
def test_input_partitions_that_hold_back_the_watermark_without_a_record_are_named(
    partitions: str, watermark_us: int | None, has_ended: bool, names: tuple[str, ...]
) -> None:
    empty = Frontier("input", "click", 0, "t", 0, 1, 0, 1, 1, 0)
    kinds = {
        "event": replace(empty, records=1, newest_event_time_us=5),
        "none": empty,
        "undecodable": replace(empty, records=1, undecodable=1),
        "unread": replace(empty, high_watermark=2),
    }
    frontiers = {
        PartitionId("click", number): replace(kinds[kind], partition=number)
        for number, kind in enumerate(partitions.split())
    }
    progress = IngestProgress(TimeRules(0, 1), frontiers=frontiers, watermark_us=watermark_us)
    doubts = doubts_of(config(Path("state")), progress, RunRecord(has_ended=has_ended), CellTotals.empty())
    [said] = [doubt.sentence for doubt in doubts if doubt.sentence.startswith("nothing has settled yet")]
    assert "click-0" not in said
    assert ("timing.idle_after" in said) == bool(names)
    assert all(name in said for name in names)


def test_while_an_open_transaction_may_explain_an_excess_all_else_is_counted_by_id(tmp_path: Path) -> None:
    """1 is answered, 2 and 3 are not. The results have 9 and a second 1 instead. By number alone nothing would
    be outstanding."""
    it = judging(tmp_path, reports_unconsumed=False)
    rows = facts(
        fact("input", [1, 2, 3], batch=0, lookup_us=5),
        fact("output", [1, 1, 9], batch=0, lookup_us=5),
        fact("input", [9], batch=0, lookup_us=5, key="b"),
    )
    held = replace(clock(10), inputs_us=4, inputs_held=True, unheld_inputs_us=4)
    names = ("processed", "unresolved", "missing", "duplicate", "misplaced", "pending")
    sums = it.absorb(rows, held, {})
    # The sidecar itself may be behind. For now it compares only the numbers: three of four events are answered.
    assert [sums.counts[name] for name in names] == [3, 0, 0, 0, 0, 1]
    sums = it.absorb(None, replace(held, lookup_us=11, unheld_inputs_us=11), {})
    assert [sums.counts[name] for name in names] == [1, 2, 0, 0, 0, 3]
    late = replace(held, lookup_us=40, outputs_us=40, unheld_inputs_us=40)
    sums = it.absorb(None, late, {})
    assert [sums.counts[name] for name in names] == [1, 2, 3, 0, 0, 0]
    # After the transaction it is a violation that names its ids. A new open transaction does not retract it.
    sums = it.absorb(None, clock(50), {})
    assert [sums.counts[name] for name in names] == [1, 0, 3, 1, 1, 0]
    assert (it.evidence[0, "duplicate"], it.evidence[0, "misplaced"]) == (("1",), ("9",))
    assert it.absorb(None, replace(late, lookup_us=60), {}).on_record["duplicate"] == 1


@pytest.mark.parametrize("leave_open", [False, True])
def test_a_run_never_passes_while_an_open_transaction_may_explain_an_excess(leave_open: bool, tmp_path: Path) -> None:
    """Event 1 was answered twice. With `--at-rest`, the event that the transaction holds back may be a second 1."""
    run = FedRun(tmp_path)
    run.feed([Fed("click", (1,)), Fed("click", (2,), MINUTE_US), Fed("click", (3,), 9 * MINUTE_US)])
    run.feed([Fed("output", (1,)), Fed("output", (2,), MINUTE_US), Fed("output", (3,), 9 * MINUTE_US)])
    run.feed([])
    run.logs.open_from["click"] = 3
    run.send(Fed("click", (4,)))
    run.feed([Fed("output", (1,))])
    run.now_us += 1
    run.runner.conclude(run.logs.lookup(run.logs.ends), leave_open=leave_open, at_rest=True)
    found = run.shown()
    assert (found.contributions["unresolved"], set(found.verdicts.values())) == (1, {UNKNOWN})
    assert "may hold its event" in "; ".join(found.reasons)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_long_open_transaction_that_may_explain_an_excess_is_a_doubt(restarts: bool, tmp_path: Path) -> None:
    """Event 1 was answered twice while a transaction that never ends holds back an event."""
    run = FedRun(tmp_path)
    missing_after_us = run.config.timing.missing_after_us
    run.feed([Fed("click", (1,)), Fed("click", (2,), MINUTE_US), Fed("click", (3,), 9 * MINUTE_US)])
    run.feed([Fed("output", (1,)), Fed("output", (2,), MINUTE_US)])
    assert set(run.feed([]).verdicts.values()) == {PASS}
    run.logs.open_from["click"] = 3
    run.send(Fed("click", (4,), MINUTE_US))
    assert set(run.feed([Fed("output", (1,))]).verdicts.values()) == {PASS}
    if restarts:
        run.restart()
    found = run.feed([], after_us=missing_after_us - 2 * restarts - 1)
    assert (found.contributions["unresolved"], set(found.verdicts.values())) == (1, {PASS})
    found = run.feed([], after_us=missing_after_us)
    assert (found.contributions["unresolved"], set(found.verdicts.values())) == (1, {UNKNOWN})
    assert "an open transaction on an input topic may hold its event" in "; ".join(found.reasons)
    del run.logs.open_from["click"]
    run.feed([])
    assert run.feed([]).verdicts[Guarantee.EXACTLY_ONCE] is Verdict.FAIL


@pytest.mark.parametrize("ends", [False, True])
def test_a_run_whose_cells_are_all_out_of_scope_never_passes(ends: bool, tmp_path: Path) -> None:
    """The input's first records had expired before the state began. The results have an id that no input has."""
    run = FedRun(tmp_path)
    frontiers = run.runner.progress.frontiers
    hidden = {
        place: replace(one, hidden_start=True, horizon_us=2 * MINUTE_US) if one.side == "input" else one
        for place, one in frontiers.items()
    }
    run.runner.progress = replace(run.runner.progress, frontiers=hidden)
    found = run.feed([Fed("click", (1,)), Fed("click", (2,)), Fed("output", (1, 8)), Fed("output", (1, 8))])
    found = run.end() if ends else found
    assert (found.contributions["out_of_scope"], set(found.verdicts.values())) == (2, {UNKNOWN})
    assert "every cell that is closed and judged is out of scope" in found.reasons[0]
    run.feed([Fed("click", (3,), 30 * MINUTE_US), Fed("output", (3,), 30 * MINUTE_US)])
    run.feed([Fed("click", (4,), 60 * MINUTE_US)])
    found = run.feed([Fed("output", (4,), 60 * MINUTE_US)])
    assert (set(found.verdicts.values()), found.reasons) == ({PASS}, ())


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("topic", ["click", "output"])
def test_records_of_a_new_partition_that_expired_before_they_were_read_are_a_doubt(
    topic: str, restarts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic gets a second partition, and retention removes its first five records before they are read."""
    run = FedRun(tmp_path)
    run.feed([Fed("click", (1,)), Fed("click", (2,), 9 * MINUTE_US), Fed("output", (1,))])
    assert run.feed([]).verdicts[Guarantee.EXACTLY_ONCE] is PASS
    topics, lookup, new = run.logs.topics, run.logs.lookup, PartitionId(topic, 1)
    monkeypatch.setattr(
        run.logs, "topics", lambda *given, **named: {
            name: replace(one, partitions=(0, 1)) if name == topic else one
            for name, one in topics(*given, **named).items()
        },
    )  # fmt: skip
    monkeypatch.setattr(run.logs, "lookup", lambda names: {**lookup(names), new: Lookup(f"id-{topic}", 5, 5, 5)})
    run.now_us += 1
    if restarts:
        run.restart()
    run.feed([Fed("output", (2,), 9 * MINUTE_US)])
    # As if an event of the new partition had been read.
    read = replace(run.runner.progress.frontiers[new], horizon_us=-(10**12) if topic == "click" else None)
    run.runner.progress = replace(run.runner.progress, frontiers={**run.runner.progress.frontiers, new: read})
    found = run.feed([], after_us=MINUTE_US)
    assert (found.contributions["processed"], set(found.verdicts.values())) == (2, {UNKNOWN})
    assert any(reason.startswith(f"5 records of {topic}-1 expired") for reason in found.reasons)
    assert all(part.invisible == 0 for part in found.coverage)


def test_a_state_whose_cells_are_all_retired_keeps_their_totals_before_its_first_batch(tmp_path: Path) -> None:
    """Otherwise a run that waits for its topics would count these contributions again."""
    runs = RunsOfOneState(tmp_path)
    runner = runs.start(lambda: None)
    empty = CellTotals.empty()
    retired = replace(empty, counts={**empty.counts, "expected": 3, "processed": 3})
    judging = Judging(runner.judging.known, runner.judging.rules, retired=retired)
    judging.judge_recovered(runner.progress)
    assert {name: count for name, count in judging.sums.counts.items() if count} == {"expected": 3, "processed": 3}

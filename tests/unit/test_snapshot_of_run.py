"""From progress, sums and record to the published snapshot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.unit.publish_snapshots import config
from validator.core.totals import CellTotals
from validator.model.classes import Guarantee, Verdict
from validator.model.frontier import Frontier, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.model.snapshot import FaultWindow
from validator.model.violation import Violation
from validator.publish.report import build
from validator.state.acknowledgements import Acknowledgement
from validator.state.tables import StateTables
from validator.stream.reporting import snapshot_of
from validator.stream.run_record import RunRecord

UNREADABLE = {"class": "undecodable", "phase": "control", "fault": None, "state": "confirmed", "provable_us": 10}


def test_unmeasured_values_are_absent(tmp_path: Path) -> None:
    report = build(snapshot_of(config(tmp_path), IngestProgress(TimeRules(0, 0)), CellTotals.empty(), RunRecord()))
    assert report["results"] == {
        "read": 0,
        "correct": 0,
        "incomplete": 0,
        "excess": 0,
        "misplaced": 0,
        "inconsistent": None,
        "wrong_value": None,
        "undecodable": 0,
        "tombstone": 0,
    }
    assert report["inputs"] == {"read": 0, "undecodable": 0, "expired": 0, "sampled_out": None, "out_of_scope": 0}


def test_an_undecodable_result_fails_the_last_hour_and_is_open_until_acknowledged(
    tmp_path: Path,
) -> None:
    frontier = Frontier("output", "output", 0, "t", 0, 3, 0, 3, 3, 20, records=3, undecodable=3)
    progress = IngestProgress(TimeRules(0, 0), batch=1, lookup_us=20, frontiers={PartitionId("output", 0): frontier})
    record = RunRecord()
    record.violations_recorded(
        [{**UNREADABLE, "lookup_us": 20, "confirmed": 3, "retracted": 0, "rows": 1}],
        [Violation("v", "undecodable", "confirmed", None, "o-0", 3, (), 20, 20, confirmed=3, confirmed_now=3)],
        20,
    )
    shown = snapshot_of(config(tmp_path), progress, CellTotals.empty(), record)
    for verdicts in (shown.verdicts, shown.verdicts_over["1h"], shown.verdicts_over["24h"]):
        assert verdicts[Guarantee.EXACTLY_ONCE] is Verdict.FAIL
    assert (shown.unacknowledged_open, shown.first_confirmed_us) == (3, {"undecodable": 20})
    seen = Acknowledgement("v", "undecodable", 3, "seen", {}, batch=1)
    record.acknowledged.follow(StateTables(tmp_path), {"v": seen})
    shown = snapshot_of(config(tmp_path), progress, CellTotals.empty(), record)
    assert (shown.unacknowledged_open, shown.verdicts[Guarantee.EXACTLY_ONCE]) == (0, Verdict.FAIL)


def test_confirmed_violations_stay_in_the_report_when_new_ones_are_suspected(tmp_path: Path) -> None:
    """Includes contributions of retired cells, which the cells in memory do not cover."""
    frontier = Frontier("input", "input", 0, "t", 0, 9, 0, 9, 9, 20, records=9, undecodable=5)
    progress = IngestProgress(TimeRules(0, 0), batch=1, lookup_us=20, frontiers={PartitionId("input", 0): frontier})
    record = RunRecord(confirmed_now={"duplicate": 3, "missing": 2})
    excess = {"duplicate": 4, "misplaced": 0, "unknown_id": 1}
    none = CellTotals.empty()
    sums = replace(none, counts={**none.counts, **excess, "missing": 2}, on_record=excess, matched=9)
    assert record.suspicion.by_hidden_records(progress, sums) == {"duplicate", "misplaced", "unknown_id"}
    shown = snapshot_of(config(tmp_path), progress, sums, record)
    assert shown.violations["confirmed"] == {
        "missing": 2, "duplicate": 3, "misplaced": 0, "unknown_id": 0, "undecodable": 0,
    }  # fmt: skip
    assert shown.violations["suspected"] == {"duplicate": 1, "misplaced": 0, "unknown_id": 1}
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.FAIL


def test_a_confirmed_loss_stays_in_the_report_while_it_is_overdue_again(tmp_path: Path) -> None:
    """A late event extended its cell's time, or the topic was recreated: the loss is still outstanding, and on
    record."""
    none = CellTotals.empty()
    sums = replace(none, counts={**none.counts, "overdue": 2}, on_record={"missing": 2})
    shown = snapshot_of(
        config(tmp_path), IngestProgress(TimeRules(0, 0)), sums, RunRecord(confirmed_now={"missing": 2})
    )
    assert shown.violations["confirmed"]["missing"] == 2
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.FAIL


def test_a_poison_fault_is_named_as_a_cause_of_undecodable_records(tmp_path: Path) -> None:
    frontier = Frontier("input", "input", 0, "t", 0, 9, 0, 9, 9, 20, records=9, undecodable=5)
    progress = IngestProgress(TimeRules(0, 0), batch=1, lookup_us=20, frontiers={PartitionId("input", 0): frontier})
    kill, planned = (
        FaultWindow("1", "kill", "process_kill", "w", 1, 1, 2, 3),
        FaultWindow("2", "later", "poison", "t", *[None] * 4),
    )
    poison = [FaultWindow(f"p{number}", f"dirt-{number}", "poison", "t", 5, 6, 7, 8) for number in (1, 2, 3)]

    def doubt(*faults: FaultWindow) -> str:
        shown = snapshot_of(config(tmp_path), progress, CellTotals.empty(), RunRecord(faults=faults))
        (said,) = [reason for reason in shown.reasons if "could not be decoded" in reason]
        return said

    assert "fault" not in doubt(kill, planned)
    assert "(fault dirt-1 wrote " in doubt(kill, poison[0])
    assert "(fault dirt-1 and 2 more wrote " in doubt(*poison)


def test_suspected_violations_of_retired_cells_fail_the_verdict_without_an_alert(tmp_path: Path) -> None:
    """The violation was never reported, so it could not be acknowledged. The reasons state that its time is unknown."""
    none = CellTotals.empty()
    sums = replace(none, counts={**none.counts, "missing": 2}, on_record={"missing": 2})
    shown = snapshot_of(
        config(tmp_path), IngestProgress(TimeRules(0, 0)), sums, RunRecord(confirmed_now={"missing": 1})
    )
    assert (shown.violations["confirmed"]["missing"], shown.violations_open["missing"]) == (2, 1)
    assert any(reason.startswith("it is not known when ") and " class missing " in reason for reason in shown.reasons)
    assert shown.verdicts_over["1h"][Guarantee.EXACTLY_ONCE] is Verdict.UNKNOWN


def test_possibly_late_events_raise_a_doubt(tmp_path: Path) -> None:
    sums = replace(CellTotals.empty(), cells_settled=1, doubtful=3)
    shown = snapshot_of(config(tmp_path), IngestProgress(TimeRules(0, 0)), sums, RunRecord())
    assert set(shown.verdicts.values()) == {Verdict.UNKNOWN}
    assert [reason for reason in shown.reasons if reason.startswith("3 contributions without an answer")]
    assert sums.plus(sums).doubtful == 6, "what retention took is not forgotten"

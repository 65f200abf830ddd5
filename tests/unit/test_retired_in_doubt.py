"""Violations that were only suspected when retention dropped their cells: the end of a doubt does not confirm them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.core.judging import Judging
from validator.model.classes import Guarantee, Verdict
from validator.model.frontier import Frontier, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.model.snapshot import Snapshot
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.judge import Rules
from validator.state import identity
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables, Table
from validator.stream import retention
from validator.stream.commit_rows import epoch_length_us, epoch_of, frontier_rows
from validator.stream.recording import CommitContext, record
from validator.stream.recovery import recover, restore_record
from validator.stream.reporting import snapshot_of
from validator.stream.rereading import adopt
from validator.stream.retention import Retired
from validator.stream.run_record import RunRecord

RETENTION_US = 24 * MINUTE_US
RULES = Rules(oracle=TumblingWindow.of(MINUTE_US), overdue_after_us=1, missing_after_us=2)
TIME_RULES = TimeRules(0, MINUTE_US)
START_US = 1_000 * epoch_length_us(RETENTION_US)
WATERMARK_US = 2**60
SIDES = {"click": "input", "output": "output", "lateOutput": "late"}


class Run:
    """A state whose batches are judged, recorded and retired as in the sidecar. ``undecodable``: topic ->
    number of undecodable records among 1,000. A topic of ``decodes_nothing`` has no other records."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = self._configured()
        self.tables = StateTables(folder / "state")
        self.tables.state.mkdir()
        identity.check_or_write(self.tables.state, self.config)
        self.undecodable: dict[str, int] = {}
        self.decodes_nothing: set[str] = set()
        self.progress = IngestProgress(TIME_RULES, lookup_us=START_US - 1)
        self.record = RunRecord()
        self.retired = Retired()
        self.judging = Judging(KnownFacts(self.tables, first_batch=0), RULES)

    def _configured(self, *settings: str) -> Any:
        given = ["state.path=state", "metrics.port=0", "state.retention=24m", *settings]
        return loads(EXAMPLES["clickstream"], self.folder, given, {})

    def batch(self, *rows: dict[str, Any], after_us: int = 10) -> Snapshot:
        """Run a batch ``after_us`` after the last one and return the published snapshot."""
        at_us, number = self.progress.lookup_us + after_us, self.progress.batch + 1
        added = facts(*[{**row, "batch": number, "lookup_us": at_us, "epoch": self._epoch(at_us)} for row in rows])
        self.progress = replace(
            self.progress, batch=number, lookup_us=at_us, watermark_us=WATERMARK_US, frontiers=self._frontiers(at_us)
        )
        self._append(pa.concat_tables([added, frontier_rows(self.progress, None, RETENTION_US)]))
        effects = self.judging.step(added, self.progress, self.record.suspicion)
        record(effects, CommitContext(self.tables, "w", number, at_us), self.record, lambda: at_us)
        return self.shown()

    def shown(self) -> Snapshot:
        return snapshot_of(self.config, self.progress, self.judging.sums, self.record)

    def retire(self) -> None:
        """Let time pass until all cells are retired."""
        self.batch(after_us=RETENTION_US + 2 * epoch_length_us(RETENTION_US))
        held = self.record.suspicion.unprovable_if_retired(self.progress, self.judging.sums)
        plan = retention.plan(self.tables, self.judging, self.progress, self.retired, RETENTION_US, unprovable=held)
        assert plan.removed.all()
        self.progress = retention.commit(plan, self.tables, self.judging, self.progress, RETENTION_US, writer="w")
        self.retired = plan.retired

    def restart(self, *settings: str) -> tuple[str, ...]:
        """Start a new process with another configuration. Returns the topics that are read again."""
        self.config = self._configured(*settings)
        again = adopt(self.tables, self.config)
        found = recover(self.tables, TIME_RULES, RULES.oracle)
        self.progress, self.retired, self.record = found.progress, found.retired, RunRecord()
        restore_record(self.tables, self.record)
        known = KnownFacts(self.tables, first_batch=found.progress.batch + 1)
        self.judging = Judging(known, RULES, cells=found.cells, retired=found.retired.sums)
        return again

    def _frontiers(self, at_us: int) -> dict[PartitionId, Frontier]:
        found = {}
        for topic, side in SIDES.items():
            bad = self.undecodable.get(topic, 0)
            read = bad if topic in self.decodes_nothing else 1000
            empty = Frontier(side, topic, 0, "id", 0, read, 0, read, read, at_us, read_through_us=at_us)
            found[PartitionId(topic, 0)] = replace(empty, records=read, undecodable=bad)
        return found

    def _epoch(self, at_us: int) -> int:
        return epoch_of(at_us, RETENTION_US)

    def _append(self, rows: pa.Table) -> None:
        self.tables.append(rows, Table.FACTS, writer="w", version=self.progress.batch)


def events(*ids: int, window: int = 0, key: str = "a") -> dict[str, Any]:
    row = fact("input", ids, batch=0, lookup_us=0, window_us=window * MINUTE_US, key=key)
    return {**row, "topic": "click"}


def result(*ids: int, window: int = 0, key: str = "a") -> dict[str, Any]:
    return fact("output", ids, batch=0, lookup_us=0, window_us=window * MINUTE_US, key=key)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.fixture(params=["running", "restarted"])
def go_on(request: pytest.FixtureRequest) -> Callable[[Run], object]:
    """The same process, or the next one."""
    return (lambda run: None) if request.param == "running" else (lambda run: run.restart())


def standing(shown: Snapshot) -> tuple[dict[str, int], dict[str, int]]:
    """The confirmed and the suspected contributions."""
    kinds = ("confirmed", "suspected")
    confirmed, held = ({k: v for k, v in shown.violations[kind].items() if v} for kind in kinds)
    return confirmed, held


def is_unknown(shown: Snapshot, *names: str) -> bool:
    """Whether each class has a reason, and the exactly-once verdict is not "pass" for the run or the last day."""
    wanted = [f"of class {name}" for name in names]
    said = all(any(one in reason and "state.retention" in reason for reason in shown.reasons) for one in wanted)
    return said and Verdict.PASS not in (
        shown.verdicts[Guarantee.EXACTLY_ONCE], shown.verdicts_over["24h"][Guarantee.EXACTLY_ONCE]
    )  # fmt: skip


def test_suspected_violations_of_retired_cells_stay_suspected_when_more_data_ends_the_doubt(
    run: Run, go_on: Callable[[Run], object]
) -> None:
    shown = run.batch(events(*range(20)), result(*range(1000, 1020), key="b"))
    run.batch()
    run.retire()
    go_on(run)
    matching = range(100, 200)
    shown = run.batch(events(*matching, window=1), result(*matching, window=1))
    shown = run.batch()
    assert shown.contributions["processed"] == 100
    assert standing(shown) == ({}, {"missing": 20, "unknown_id": 20})
    assert is_unknown(shown, "missing", "unknown_id")


def test_suspected_violations_of_retired_cells_stay_suspected_when_an_absent_topic_is_created(
    run: Run, go_on: Callable[[Run], object]
) -> None:
    run.record.waiting_sides, run.record.waiting_for = frozenset({"late"}), ("lateOutput",)
    run.batch(events(1, 2), result(1))
    assert standing(run.batch()) == ({}, {"missing": 1})
    run.retire()
    go_on(run)
    run.record.waiting_sides, run.record.waiting_for = frozenset(), ()
    shown = run.batch(events(7, 8, window=1), result(7, window=1))
    shown = run.batch()
    assert standing(shown) == ({"missing": 1}, {"missing": 1})
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.FAIL


def test_retired_cells_when_fields_are_corrected_and_the_topic_is_read_again(run: Run) -> None:
    """A loss was confirmed before the undecodable topic had its first record."""
    run.undecodable["output"], run.decodes_nothing = 0, {"output"}
    run.batch(events(1, 2), result(1))
    assert standing(run.batch()) == ({"missing": 1}, {})
    run.undecodable["output"] = 30
    shown = run.batch(events(3, 4, 5, window=1, key="b"))
    shown = run.batch()
    assert shown.violations["suspected"]["missing"] == 3
    run.retire()
    for again in (("output",), ()):
        assert run.restart("outputs.0.fields.key=site") == again
        assert run.retired.sums.on_record["missing"] == 1
        run.undecodable.clear()
        run.decodes_nothing.clear()
    shown = run.batch(events(7, window=2), result(7, window=2))
    shown = run.batch()
    assert standing(shown) == ({"missing": 1}, {"missing": 3})


def test_late_records_read_again_may_belong_to_retired_cells(run: Run) -> None:
    run.batch(events(1, 2), result(1), events(7, window=1), result(7, 7, window=1))
    assert standing(run.batch()) == ({"missing": 1, "duplicate": 1}, {})
    run.undecodable["lateOutput"], run.decodes_nothing = 3, {"lateOutput"}
    run.batch(events(3, 4, window=2))
    assert standing(run.batch()) == ({"missing": 1, "duplicate": 1}, {"missing": 2})
    run.retire()
    # A late record for a retired cell brings the cell back into memory, where it is not judged.
    run.batch(events(2))
    run.batch(events(20, window=9), after_us=MINUTE_US)
    for again in (("lateOutput",), ()):
        assert run.restart("late.0.fields.id=number") == again
        sums = run.retired.sums
        assert (sums.on_record["missing"], sums.on_record["duplicate"], sums.unproven["missing"]) == (1, 1, 2)
        assert (sums.cells_missing, sums.cells_in_excess) == (1, 1)
    run.undecodable.clear()
    run.decodes_nothing.clear()
    run.batch(events(*range(100, 110), window=10), result(*range(100, 110), window=10))
    shown = run.batch()
    assert shown.contributions["missing"] == 4, "three of retired cells, and one of the cells in memory"
    assert standing(shown) == ({"missing": 2, "duplicate": 1}, {"missing": 2})
    assert is_unknown(shown, "missing") or shown.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.FAIL


def test_excess_explained_by_hidden_inputs_is_not_confirmed_when_they_are_read_again(run: Run) -> None:
    run.undecodable["click"], run.decodes_nothing = 30, {"click"}
    run.batch(result(1, 1), result(2, 2, key="b"))
    assert standing(run.batch()) == ({}, {"unknown_id": 4})
    run.retire()
    assert run.restart("inputs.0.fields.id=number") == ("click",)
    run.undecodable["click"], run.decodes_nothing = 3, set()
    run.batch(events(5, 6, window=1), result(5, 5, 6, window=1))
    shown = run.batch()
    # Three hidden inputs can explain one duplicate, whatever was retired before.
    assert standing(shown) == ({}, {"duplicate": 1, "unknown_id": 4})
    assert is_unknown(shown, "unknown_id")


def test_excess_beyond_hidden_records_is_confirmed_after_its_cells_are_retired(run: Run) -> None:
    """More repeats than hidden inputs are a proof, even if it is unknown which are explained (SEMANTICS 4.18)."""
    run.undecodable["click"] = 1
    run.batch(events(1, 2), result(1, 1, 2))
    assert standing(run.batch()) == ({}, {"duplicate": 1})
    run.retire()
    run.batch(events(7, window=1), result(7, 7, window=1))
    shown = run.batch()
    assert standing(shown) == ({"duplicate": 2}, {})
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] is Verdict.FAIL


def test_a_record_of_a_retired_cell_retracts_nothing_confirmed(run: Run, go_on: Callable[[Run], object]) -> None:
    run.batch(events(1, 2), result(1))
    run.batch()
    run.retire()
    run.batch(result(2))
    go_on(run)
    run.batch(events(7, window=1), result(7, window=1))
    shown = run.batch()
    assert standing(shown) == ({"missing": 1}, {})
    assert run.record.retracted_total == {}
    assert run.record.confirmed_now == {"missing": 1}

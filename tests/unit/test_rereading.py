"""Corrected fields: a topic that never decoded is read again, wherever a kill interrupts the process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.reconcile_rows import bad, facts
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.core.judging import Judging
from validator.model.frontier import Frontier, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.judge import Rules
from validator.reconcile.lateness import offset_gap_row
from validator.state import identity
from validator.state.identity import StateMismatch
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables, Table
from validator.stream import retention
from validator.stream.commit_rows import frontier_rows, mark_row
from validator.stream.recovery import lateness_of, recover
from validator.stream.rereading import _from_start, adopt, would_adopt

DAY_US = 86_400_000_000
CLICK, OUTPUT = PartitionId("click", 0), PartitionId("output", 0)
CORRECTED = "inputs.0.fields.id=number"


class Killed(Exception):
    pass


def config(folder: Path, *settings: str) -> Config:
    return loads(EXAMPLES["clickstream"], folder, ["state.path=state", "metrics.port=0", *settings], {})


def state(folder: Path, *more: dict[str, Any], **of_click: Any) -> StateTables:
    """A state at rest that read 5 records of ``click`` from offset 4 on, and results."""
    tables = StateTables(folder / "state")
    tables.state.mkdir()
    identity.check_or_write(tables.state, config(folder))
    kept = Frontier("input", "click", 0, "one", 4, 9, 0, 9, 9, 7, read_through_us=5, **{"records": 5} | of_click)
    results = replace(kept, side="output", topic="output", records=5, undecodable=1)
    progress = IngestProgress(TimeRules(0, 1), batch=2, lookup_us=7, frontiers={CLICK: kept, OUTPUT: results})
    undecodable = {**bad(2, [4, 5, 6]), "topic": "click", "partition": 0, "reach_us": 60}
    rows = [facts(undecodable, *more), frontier_rows(progress, None, DAY_US), mark_row(progress, "rest_all", DAY_US)]
    tables.append(pa.concat_tables(rows), Table.FACTS, writer="w", version=2)
    return tables


def test_a_topic_that_never_decoded_is_read_again_from_where_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = state(tmp_path, undecodable=5)
    corrected = config(tmp_path, CORRECTED)
    assert would_adopt(tables, corrected) == ("click",)
    assert recover(tables, TimeRules(0, 1), TumblingWindow.of(60)).cells.lateness.possible

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(identity, "write", killed)
        with pytest.raises(Killed):
            adopt(tables, corrected)
    for given, again in ((config(tmp_path), ()), (corrected, ("click",)), (corrected, ())):
        assert adopt(tables, given) == again
        recovered = recover(tables, TimeRules(0, 1), TumblingWindow.of(60))
        click, output = (recovered.progress.frontiers[place] for place in (CLICK, OUTPUT))
        assert (click.first_offset, click.next_offset, click.records, click.undecodable) == (4, 4, 0, 0)
        assert (click.read_through_us, click.expired) == (None, 0)
        assert (output.next_offset, output.records, output.undecodable) == (9, 5, 1)
        # The rows of the topic are void.
        assert not recovered.cells.lateness.possible
        assert not recovered.positions.by_cause


def test_the_records_of_the_previous_topic_are_expired() -> None:
    made_again = Frontier("input", "click", 0, "two", -6, 3, 0, 9, 9, 7, records=9, undecodable=9, expired=0)
    began = _from_start(made_again, 8)
    assert (began.first_offset, began.next_offset, began.expired, began.records) == (-6, 0, 6, 0)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (CORRECTED, r'inputs\[0\].fields.id.path was "id" and is "number" .*1 of 8 records of topic click'),
        ("outputs.0.fields.key=site", r"outputs\[0\].fields.key.*4 of 5 .* topic output"),
        ("inputs.0.topic=clicks", r'inputs\[0\].topic was "click" and is "clicks"'),
        ("inputs.0.duplicates=collapse", r"inputs\[0\].duplicates"),
        ("oracle.size=7s", r"oracle.size"),
    ],
)
def test_any_other_difference_is_refused_and_changes_nothing(tmp_path: Path, setting: str, said: str) -> None:
    tables = state(tmp_path, undecodable=4)
    before = recover(tables, TimeRules(0, 1), TumblingWindow.of(60)).progress
    for refuse in (adopt, would_adopt):
        with pytest.raises(StateMismatch, match=said):
            refuse(tables, config(tmp_path, setting))
    assert recover(tables, TimeRules(0, 1), TumblingWindow.of(60)).progress == before
    assert adopt(tables, config(tmp_path)) == ()


def test_expired_and_compacted_records_of_the_topic_stay_known(tmp_path: Path) -> None:
    """Expired records are not read again. Records hidden before a topic was recreated stay hidden, and a topic whose
    policy was changed may have been compacted before."""
    gone = {**offset_gap_row("click", 0, 0, 60), "batch": 1, "lookup_us": 6, "epoch": 0}
    tables = state(tmp_path, gone, undecodable=5, cleanup_policy="delete", compacted_below=7, compacted=2, markers=1)
    assert adopt(tables, config(tmp_path, CORRECTED)) == ("click",)
    recovered = recover(tables, TimeRules(0, 1), TumblingWindow.of(60))
    click = recovered.progress.frontiers[CLICK]
    assert (click.cleanup_policy, click.compacted_below, click.compacted, click.markers) == ("delete", 7, 0, 0)
    assert recovered.cells.lateness.possible == {("click", 0): {60: -1}}
    assert lateness_of(tables, recovered.positions, -1).possible == {("click", 0): {60: -1}}


@pytest.mark.parametrize("order", ["read again, then retired", "retired, then read again"])
def test_records_read_again_hide_nothing_after_retention(tmp_path: Path, order: str) -> None:
    """Retention keeps the doubt about events that undecodable records may have made late. After these are read again,
    only the doubt because of a gap remains."""
    gone = {**offset_gap_row("click", 0, 9, 60), "batch": 2, "lookup_us": 7, "epoch": 0}
    tables = state(tmp_path, gone, undecodable=5)

    def read_again() -> None:
        assert adopt(tables, config(tmp_path, CORRECTED)) == ("click",)

    def retire() -> None:
        """Drop the oldest epoch, as a batch three days later does."""
        found = recover(tables, TimeRules(0, 1), TumblingWindow.of(60))
        read = {place: replace(it, read_through_us=3 * DAY_US) for place, it in found.progress.frontiers.items()}
        progress = replace(found.progress, lookup_us=3 * DAY_US, watermark_us=3 * DAY_US, frontiers=read)
        rules = Rules(oracle=TumblingWindow.of(60), overdue_after_us=1, missing_after_us=2, drops_late=True)
        judging = Judging(KnownFacts(tables, first_batch=progress.batch + 1), rules, cells=found.cells)
        judging.absorb(None, progress.clock(), {})
        plan = retention.plan(tables, judging, progress, found.retired, DAY_US, found.positions)
        retention.commit(plan, tables, judging, progress, DAY_US, writer="w")

    steps = [read_again, retire]
    for step in steps if order.startswith("read") else reversed(steps):
        step()
    recovered = recover(tables, TimeRules(0, 1), TumblingWindow.of(60))
    assert recovered.retired.through_epoch >= 0
    assert recovered.cells.lateness.possible == {("click", 0): {60: 8}}
    assert lateness_of(tables, recovered.positions, recovered.retired.through_epoch).possible == {("click", 0): {60: 8}}


def test_records_read_again_are_not_counted_as_not_examined(tmp_path: Path) -> None:
    reason = "its value has 17000000 bytes, above limits.value_bytes"
    row = {**bad(2, [7]), "topic": "click", "partition": 0, "key": reason}
    tables = state(tmp_path, row, undecodable=5)
    assert recover(tables, TimeRules(0, 1), TumblingWindow.of(60)).unread.unexamined == {CLICK: (1, 7, reason)}
    adopt(tables, config(tmp_path, CORRECTED))
    assert recover(tables, TimeRules(0, 1), TumblingWindow.of(60)).unread.unexamined == {}

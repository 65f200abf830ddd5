"""Each cell's share of the totals (`validator.core.cell_states`), and the integer type in which it is stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.unit.read_through import Suspected, read_through
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.core.cell_states import signed_for
from validator.core.judging import Judging, new_cells
from validator.oracles.running_aggregate import RunningAggregate
from validator.oracles.seam import Reads
from validator.oracles.session_window import SessionWindow
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables, Table


def test_a_share_fits_its_type_which_is_signed_and_the_smallest() -> None:
    for bits in range(63):
        for most in ((1 << bits) - 1, 1 << bits):
            found = signed_for(most)
            assert np.issubdtype(found, np.signedinteger), most
            assert most <= np.iinfo(found).max
            assert found == np.int8 or most > np.iinfo(f"int{4 * found.itemsize}").max


def test_events_in_results_late_records_and_rejected_records_are_handled(tmp_path: Path) -> None:
    tables = StateTables(tmp_path)
    rows = facts(
        fact("input", [1, 2, 3, 4], batch=0, lookup_us=0),
        *(
            fact(side, [event_id], batch=0, lookup_us=0)
            for side, event_id in (("output", 1), ("late", 2), ("rejected", 3))
        ),
    )
    tables.append(rows, Table.FACTS, writer="test", version=0)
    rules = Rules(oracle=TumblingWindow.of(MINUTE_US), overdue_after_us=20, missing_after_us=40)
    judging = Judging(KnownFacts(tables, first_batch=0), rules)
    judging.step(rows, read_through(0), Suspected())
    judging.step(None, read_through(41), Suspected())
    sums = judging.sums
    assert {name: sums.counts[name] for name in ("processed", "late", "rejected", "missing")} == dict.fromkeys(
        ("processed", "late", "rejected", "missing"), 1
    )
    assert (sums.settled_expected, sums.settled_handled) == (4, 3)


def result(topic: str, ids: Sequence[int], **more: object) -> dict[str, object]:
    return {**fact("output", ids, batch=0, lookup_us=1), "topic": topic, **more}


def test_a_single_output_has_no_counts_of_its_own() -> None:
    cells = new_cells(TumblingWindow.of(MINUTE_US))
    cells.fold(facts(result("a", [1, 2])))
    assert cells.outputs == []


def test_the_counts_of_outputs_survive_a_save_and_a_merge_of_sessions() -> None:
    oracle = SessionWindow.of(MINUTE_US).reading(Reads(several_outputs=True))
    cells = new_cells(oracle)
    for start, topic, ids in ((0, "a", [1]), (0, "b", [2, 3]), (MINUTE_US, "b", [4])):
        cells.fold(facts(result(topic, ids, window_start_us=start)))
    cells.put("landed/b", np.array([0, 1]), np.array([2, 1]))
    again = new_cells(oracle)
    assert again.fill(cells.to_table())
    assert again.outputs == ["a", "b"]
    assert [again["carried/a"].tolist(), again["carried/b"].tolist()] == [[1, 0], [2, 1]]
    assert again["landed/b"].tolist() == [0, 0], "the result of a comparison is not saved"
    events_of_both = ({**fact("input", [9], batch=1, lookup_us=2, window_us=start), "earliest_us": start,
                       "latest_us": start} for start in (0, MINUTE_US))  # fmt: skip
    again.fold(facts(*events_of_both))
    assert [again["carried/a"].tolist(), again["carried/b"].tolist()] == [[1, 0], [3, 0]]
    other = new_cells(oracle)
    other.adopt(again)
    assert other.outputs == ["a", "b"]


def test_a_cumulative_result_counts_its_ids_once_however_often_they_are_repeated() -> None:
    oracle = RunningAggregate.of(replaces=True).reading(Reads(replaces=True, several_outputs=True))
    cells = new_cells(oracle)
    for batch in range(3):
        listing = result("a", [1], batch=batch, window_start_us=None, key='["a","1"]', last_offset=batch)
        cells.fold(facts(listing))
    assert cells["carried/a"].max() == 1

"""Values that results state beside ids: each result is judged by the events that it names (SEMANTICS 2.32)."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.unit.reconcile_rows import MINUTE_US, clock
from validator.codecs.batches import EVENTS, RESULTS
from validator.codecs.columns import DECODED
from validator.core.judging import Judging
from validator.oracles.seam import Reads
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.facts import Side, completed
from validator.reconcile.grouping import facts_of_events, facts_of_results
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables

VALUES: Final = {"number": "count", "total": "sum(paid)", "kinds": "distinct(page)"}
ORACLE: Final = TumblingWindow.of(MINUTE_US).model_copy(update={"values": VALUES}).reading(Reads())
RULES: Final = Rules(oracle=ORACLE, overdue_after_us=1, missing_after_us=2)

Event = tuple[int | str, Any, int]
"""Id, amount, hash of the page."""
Result = tuple[Sequence[int | str], int, Any, int]
"""Ids, and the three values."""

USUAL: Final[list[Event]] = [(1, 5, 7), ("a", "0.5", 7), (2, None, 8)]
CASES: Final[dict[str, tuple[list[Event], list[Result], dict[str, int]]]] = {
    "right": (USUAL, [([1, 2, "a"], 3, "5.5", 2)], {"correct": 1}),
    "in parts": (USUAL, [(["a"], 1, "0.5", 1), ([2, 1], 2, 5, 2)], {"correct": 2}),
    "another sum": (USUAL, [([1, 2, "a"], 3, "5.4", 2)], {"wrong_value": 1}),
    "another number": (USUAL, [([1, 2, "a"], 2, "5.5", 2)], {"wrong_value": 1}),
    "another number of pages": (USUAL, [([1, 2, "a"], 3, "5.5", 3)], {"wrong_value": 1}),
    "no amount": ([(2, None, 8)], [([2], 1, None, 1)], {"correct": 1}),
    "0 for no amount": ([(2, None, 8)], [([2], 1, 0, 1)], {"correct": 1}),
    "1 for no amount": ([(2, None, 8)], [([2], 1, 1, 1)], {"wrong_value": 1}),
    "a repeat": (USUAL, [([1, 2, "a"], 3, "5.5", 2), ([1], 1, 5, 1)], {"correct": 1, "excess": 1}),
    "a wrong repeat": (USUAL, [([1, 2, "a"], 3, "5.5", 2), ([1], 1, 6, 1)], {"correct": 1, "wrong_value": 1}),
    "an id named twice": ([(1, 5, 7)], [([1, 1], 2, 10, 1)], {"excess": 1}),
    "a loss": (USUAL, [([1, 2], 2, 5, 2)], {"incomplete": 1}),
    "a loss with the whole sum": (USUAL, [([1, 2], 2, "5.5", 2)], {"wrong_value": 1}),
    "copies that differ": ([(1, 5, 7), (1, 6, 7)], [([1, 1], 2, 99, 1)], {"correct": 1}),
    "copies that agree": ([(1, 5, 7), (1, 5, 7)], [([1, 1], 2, 99, 1)], {"wrong_value": 1}),
    "no event": ([], [([1, "a"], 9, 99, 9)], {"excess": 1}),
    "no ids": (USUAL, [([], 0, None, 0), ([1, 2, "a"], 3, "5.5", 2)], {"correct": 2}),
}


def facts_of(events: Sequence[Event], results: Sequence[Result]) -> pa.Table:
    """The facts of one window, read by one task."""
    common = {"status": DECODED, "partition": 0, "time_us": 1, "key": "k"}
    of_events = [
        common
        | {"offset": at, ("id" if isinstance(id_, int) else "text_id"): id_, "event_time_us": 0}
        | {"values": [None if amount is None else Decimal(amount), Decimal(page)]}
        for at, (id_, amount, page) in enumerate(events)
    ]
    of_results = [
        common
        | {"offset": at, "window_start_us": 0, "count": number}
        | {
            "ids": [one for one in ids if isinstance(one, int)],
            "text_ids": [one for one in ids if isinstance(one, str)],
        }
        | {"values": [None if total is None else Decimal(total), Decimal(kinds)]}
        for at, (ids, number, total, kinds) in enumerate(results)
    ]
    grouped = [
        facts_of_events(pa.Table.from_pylist(of_events, EVENTS), 0, ORACLE, 0, 10, with_first_event=True),
        facts_of_results(pa.Table.from_pylist(of_results, RESULTS), 1, ORACLE),
    ]
    sources = [(Side.INPUT, "in"), (Side.OUTPUT, "out")]
    return completed(pa.concat_tables(grouped), sources, batch=0, lookup_us=1, epoch=0)


@pytest.mark.parametrize("name", CASES)
def test_a_result_is_inconsistent_if_its_values_do_not_follow_from_its_ids(name: str, tmp_path: Path) -> None:
    events, results, expected = CASES[name]
    judging = Judging(KnownFacts(StateTables(tmp_path), first_batch=0), RULES)
    judging.absorb(facts_of(events, results), clock(10), {})
    judging.absorb(None, clock(100), {})
    assert {name: count for name, count in judging.sums.results.items() if count} == expected

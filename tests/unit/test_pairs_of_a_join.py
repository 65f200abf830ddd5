"""Windows of a join whose results state the number of pairs: what is owed, and how many events of each side match."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.memory_tables import MemoryTables
from tests.unit.reconcile_rows import MINUTE_US, clock, fact, facts
from validator.core.judging import Judging
from validator.oracles.seam import Reads
from validator.oracles.two_sides import Join
from validator.oracles.windowed_join import WindowedJoin
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts

pytestmark = pytest.mark.unit


def judged(join: Join, rows: list[dict[str, Any]]) -> Judging:
    """The window once it is closed and due."""
    oracle = WindowedJoin.of(MINUTE_US, join=join, left="click", right="update")
    oracle = oracle.model_copy(update={"values": {"pairs": "count"}}).reading(Reads(evidence="values", names_ids=False))
    rules = Rules(oracle, overdue_after_us=1, missing_after_us=2, several_inputs=True)
    found = Judging(KnownFacts(MemoryTables(), first_batch=0), rules)
    found.absorb(facts(*rows), clock(10), {})
    found.absorb(None, clock(100), {})
    return found


def events(topic: str, many: int) -> dict[str, Any]:
    row = fact("input", range(many), batch=0, lookup_us=1)
    return {**row, "topic": topic, "ids": [], "min_id": None, "max_id": None, "hash_a": 0, "hash_b": 0}


def result(pairs: int) -> dict[str, Any]:
    stated = {"offset": 0, "time_us": 1, "ids": [], "text_ids": [], "count": pairs, "values": []}
    return {**fact("output", [], batch=0, lookup_us=1), "contributions": pairs, "results": [stated]}


@pytest.mark.parametrize(
    ("join", "lefts", "rights", "pairs", "expected", "matched"),
    [
        ("inner", 3, 2, 6, {"expected": 6, "processed": 6}, (3, 2)),
        ("inner", 3, 2, 4, {"expected": 6, "processed": 4, "missing": 2}, (3, 2)),
        ("inner", 3, 2, None, {"expected": 6, "missing": 6}, (0, 0)),
        ("inner", 3, 2, 7, {"expected": 6, "processed": 6, "duplicate": 1}, (3, 2)),
        ("inner", 3, 0, None, {}, (0, 0)),
        ("inner", 3, 0, 3, {"unknown_id": 3}, (0, 0)),
        ("left", 3, 0, 3, {"expected": 3, "processed": 3}, (3, 0)),
        ("left", 3, 2, 3, {"expected": 6, "processed": 3, "missing": 3}, (3, 2)),
        ("left", 0, 2, None, {}, (0, 0)),
        ("semi", 3, 2, 3, {"expected": 3, "processed": 3}, (3, 2)),
        ("semi", 3, 0, None, {}, (0, 0)),
    ],
)
def test_a_window_owes_pairs(
    join: Join, lefts: int, rights: int, pairs: int | None, expected: dict[str, int], matched: tuple[int, int]
) -> None:
    sides = {"click": lefts, "update": rights}
    rows = [events(topic, many) for topic, many in sides.items() if many]
    sums = judged(join, rows if pairs is None else [*rows, result(pairs)]).sums
    assert {name: count for name, count in sums.counts.items() if count} == expected
    assert tuple(sums.inputs[topic].matched if many else 0 for topic, many in sides.items()) == matched

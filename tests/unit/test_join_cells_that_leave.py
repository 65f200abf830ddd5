"""A cell of a join that leaves memory, and returns or stays away, has the verdict of one that stays in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tests.property.spark_core import as_if_all_were_judged
from tests.unit.memory_tables import MemoryTables
from tests.unit.reconcile_rows import fact, facts
from validator.codecs.columns import UNDECODABLE
from validator.core.judging import Judging
from validator.model.frontier import Clock
from validator.oracles.windowed_join import WindowedJoin
from validator.reconcile.judge import Rules
from validator.reconcile.lateness import Lateness
from validator.state.known_facts import KnownFacts
from validator.state.tables import Table

SECOND_US, WINDOW_US = 1_000_000, 60_000_000
BEGAN_US = 1_000_000 * SECOND_US
FAR_US = 10_000 * SECOND_US
RULES = Rules(
    WindowedJoin.of(WINDOW_US, join="inner", left="click", right="update"),
    overdue_after_us=30 * SECOND_US,
    missing_after_us=120 * SECOND_US,
    several_inputs=True,
)
Row = dict[str, Any]


class Core:
    """A core that gets facts and watermarks by hand. ``evict_at``: as in `Judging`."""

    def __init__(self, evict_at: int | None) -> None:
        self._tables = MemoryTables()
        self.judging = Judging(KnownFacts(self._tables, first_batch=0), RULES, evict_at=evict_at)
        self._batch = -1

    def take(self, at_s: int, rows: Sequence[Row], watermark_s: int, settled: int = 0) -> dict[str, Any]:
        """Judge a batch. Returns the counts, and the violations that it changes."""
        self._batch += 1
        at = BEGAN_US + at_s * SECOND_US
        clock = Clock(at, watermark_s * SECOND_US, at, at, at, None, None, 0, False, False, accepted_records=settled)
        table = facts(*({**row, "batch": self._batch, "lookup_us": at} for row in rows)) if rows else None
        if table is not None:
            self._tables.append(table, Table.FACTS, writer="w", version=self._batch)
        self.judging.absorb(table, clock, {})
        violations = self.judging._effects([]).violations
        as_if_all_were_judged(self.judging, self.judging.judged_of(np.arange(len(self.judging.cells))))
        changed = [(one.violation_class, one.state, one.confirmed, one.retracted) for one in violations]
        return {"counts": {k: n for k, n in self.judging.sums.counts.items() if n}, "changed": changed}


def event(topic: str, number: int, offset: int, *, window_us: int = 0, key: str = "a", reach_us: int = 0) -> Row:
    """A fact of one event. Ids of updates are texts."""
    row = fact("input", [number], batch=0, lookup_us=0, window_us=window_us, key=key)
    row |= {"topic": topic, "first_offset": offset, "last_offset": offset, "reach_us": reach_us or None}
    row |= {"hash_a": hash((topic, number)) % 10**9, "hash_b": hash((number, topic)) % 10**9}
    row["newest_event_time_us"] = window_us
    if topic == "update":
        text_ids = [{"id": f"update/{number}", "offset": offset}]
        return {**row, "ids": [], "text_ids": text_ids, "min_id": None, "max_id": None}
    return {**row, "ids": [{"id": number, "offset": offset}]}


def unreadable(topic: str) -> Row:
    """The first record of a topic. Its time may be as late as `FAR_US`."""
    row = event(topic, 1, 0, reach_us=FAR_US)
    nothing = dict.fromkeys(("window_start_us", "key", "newest_event_time_us", "min_id", "max_id"))
    counts = {"status": UNDECODABLE, "contributions": 0, "hash_a": 0, "hash_b": 0}
    return {**row, **nothing, **counts, "ids": [], "text_ids": []}


def result(number: int, partition: int) -> Row:
    row = fact("output", [number], batch=0, lookup_us=0, key="a")
    listed = {"offset": 0, "time_us": 0, "ids": [number], "text_ids": [f"update/{number}"]}
    place = {"topic": "output", "partition": partition, "first_offset": 0, "last_offset": 0}
    return {**row, **place, "contributions": 2, "records": 1, "results": [listed]}


SIDES = ("click", "update")
AHEAD = [event(topic, 9, 0, window_us=300 * SECOND_US, key="z", reach_us=300 * SECOND_US) for topic in SIDES]
"""One event per input: it makes later events of its partition late. Another partition holds back the watermark."""
LATE = [event(topic, number, number) for topic in SIDES for number in (1, 2)]
"""Late events that the engine counts all the same. It answers slowly, in two results."""
STEPS: tuple[tuple[int, list[Row], int], ...] = (
    *((0, [*AHEAD, *LATE], 0), (60, [], 60), (91, [], 60), (100, [], 60)),
    *((130, [result(1, 0)], 60), (131, [result(2, 1)], 60)),
)
"""Time in seconds, facts, watermark in seconds."""


@pytest.mark.parametrize("evict_at", [None, 1], ids=["stays", "leaves"])
def test_a_result_that_makes_partners_owed_gives_them_the_time_since_the_closing(evict_at: int | None) -> None:
    core = Core(evict_at)
    found = [core.take(*step) for step in STEPS]
    assert all(one["changed"] == [] for one in found)
    assert found[-2]["counts"]["overdue"] == 2
    assert found[-1]["counts"]["processed"] == 4


@pytest.mark.parametrize("evict_at", [None, 1], ids=["stays", "leaves"])
def test_partners_are_owed_once_the_records_are_settled_that_made_their_events_doubtful(evict_at: int | None) -> None:
    core = Core(evict_at)
    core.take(0, [unreadable("click"), unreadable("update"), event("click", 1, 1), event("update", 1, 1)], 0)
    for at_s in (60, 91, 100):
        assert core.take(at_s, [], 60)["changed"] == []
    core.judging.cells.lateness = Lateness()  # as the batch that settles the records does
    core.take(300, [], 60, settled=2)
    core.take(301, [], 60, settled=2)
    assert core.judging.sums.counts["missing"] == 2

"""Events without ids that owe nothing, and that the engine sets aside all the same (SEMANTICS 2.6, 2.23, 2.24)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.property.counted import counting
from validator.codecs.batches import EVENTS
from validator.codecs.columns import SKIPPED
from validator.codecs.one_record import NO_ID, NULL_KEY
from validator.core.judging import Judging
from validator.model.frontier import Clock
from validator.oracles.seam import Reads
from validator.oracles.sliding_window import SlidingWindow
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.facts import Side, completed
from validator.reconcile.grouping import facts_of_events
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts

S = 1_000_000
ORACLES = {"tumbling": TumblingWindow.of(60 * S), "sliding": SlidingWindow.of(60 * S, slide=30 * S)}


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("side", [Side.LATE, Side.REJECTED])
@pytest.mark.parametrize("is_sent", [True, False])
def test_an_event_without_a_key_may_be_set_aside(name: str, side: Side, is_sent: bool) -> None:
    """Without such an event, what is set aside names no event. ``is_sent``: whether the events exist."""
    oracle = counting(ORACLES[name]).reading(Reads(evidence="values", names_ids=False))

    def row(offset: int) -> dict[str, Any]:
        place = {"partition": 0, "offset": offset, "key": NULL_KEY, "event_time_us": 45 * S}
        return {**place, "id": NO_ID, "is_owed": True}

    inputs = [row(offset) | {"status": SKIPPED} for offset in range(2)] if is_sent else []
    answers = [row(offset) for offset in range(2)]
    tables = [pa.Table.from_pylist(rows, EVENTS) for rows in (inputs, answers)]
    grouped = [
        facts_of_events(table, source, oracle, 0, 2**50, with_first_event=False) for source, table in enumerate(tables)
    ]
    sources = [(Side.INPUT, "in"), (side, "aside")]
    facts = completed(pa.concat_tables(grouped), sources, batch=0, lookup_us=1, epoch=0)
    judging = Judging(KnownFacts(None, first_batch=0), Rules(oracle=oracle, overdue_after_us=1, missing_after_us=2))
    for at in (100, 200):
        clock = Clock(at, 2**60, at, at, at, None, None, 0, False, False)
        counts = judging.absorb(facts if at == 100 else None, clock, {}).counts
    assert counts["unknown_id"] == (0 if is_sent else 2 * oracle.cells_most)
    assert counts["duplicate"] == 0

"""Facts of one event of a window, and of what may have made it late."""

from __future__ import annotations

from typing import Any

from tests.unit.reconcile_rows import MINUTE_US, fact
from validator.core.judging import Judging
from validator.model.frontier import Clock
from validator.model.lateness_scope import LatenessScope
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.judge import Rules
from validator.reconcile.lateness import offset_gap_row
from validator.state.known_facts import KnownFacts
from validator.state.tables import Table, rows_of


def clock(at_us: int) -> Clock:
    """All topics read through at ``at_us``, every window closed."""
    return Clock(at_us, 2**60, at_us, at_us, at_us, None, None, 0, False, False)


def judged(*rows: dict[str, Any], drops_late: bool = True, scope: LatenessScope | None = "partition") -> dict[str, int]:
    """The counts of facts long after they were due."""
    rules = Rules(
        oracle=TumblingWindow.of(MINUTE_US),
        overdue_after_us=1,
        missing_after_us=2,
        drops_late=drops_late,
        lateness_scope=scope,
    )
    judging = Judging(KnownFacts(None, first_batch=0), rules)
    judging.absorb(rows_of(Table.FACTS, rows), clock(100), {})
    sums = judging.absorb(None, clock(10 * MINUTE_US), {})
    return {name: count for name, count in sums.counts.items() if count}


def poison(offset: int, reach_us: int | None = MINUTE_US) -> dict[str, Any]:
    return {**offset_gap_row("input", 0, offset + 1, 0), "records": 1, "reach_us": reach_us, "batch": 0, "lookup_us": 1}


def passing(topic: str, partition: int, end_us: int = MINUTE_US) -> dict[str, Any]:
    """An event of another window, by which its partition has passed the end of the first window."""
    newer = fact("input", [8], batch=0, lookup_us=1, window_us=MINUTE_US)
    return {**newer, "topic": topic, "partition": partition, "first_offset": 90, "reach_us": end_us}

"""A window without results owes nothing if its values may not reach the bounds of results (SEMANTICS 2.33)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.unit.reconcile_rows import MINUTE_US, clock
from validator.codecs.batches import EVENTS
from validator.codecs.columns import DECODED
from validator.codecs.one_record import NO_ID
from validator.core.judging import Judging
from validator.oracles.seam import Oracle, Reads
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.compare import PartitionOffsets
from validator.reconcile.facts import Side, completed
from validator.reconcile.grouping import facts_of_events
from validator.reconcile.judge import Rules
from validator.settings.aggregates import LowerBound
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables

VALUES: Final = {"number": "count", "most": "max(paid)", "kinds": "distinct(page)", "given": "count(page)"}
Event = tuple[Any, int | None]
"""Amount, and hash of the page."""
USUAL: Final[list[Event]] = [(5, 7), (None, 7), (3, None)]
CASES: Final[dict[str, tuple[Mapping[str, LowerBound], Sequence[Event], Sequence[Event], int]]] = {
    # Bounds, events, events that were set aside, lost events.
    "as many": ({"number": LowerBound(at_least=3)}, USUAL, [], 3),
    "too few": ({"number": LowerBound(above=3)}, USUAL, [], 0),
    "too few are left": ({"number": LowerBound(at_least=3)}, USUAL, [(5, 7)], 0),
    "the maximum": ({"most": LowerBound(at_least=5)}, USUAL, [], 3),
    "below the maximum": ({"most": LowerBound(above=5)}, USUAL, [], 0),
    "no maximum": ({"most": LowerBound(at_least=-9)}, [(None, 7)], [], 0),
    "the maximum may be aside": ({"most": LowerBound(at_least=2)}, USUAL, [(5, 7)], 0),
    "different pages": ({"kinds": LowerBound(above=1)}, [*USUAL, (1, 8)], [], 4),
    "one page": ({"kinds": LowerBound(above=1)}, USUAL, [], 0),
    "a page that is not aside": ({"kinds": LowerBound(at_least=1)}, [*USUAL, (1, 8)], [(1, 8)], 3),
    "pages": ({"given": LowerBound(at_least=2)}, USUAL, [], 3),
    "one of two bounds": ({"number": LowerBound(at_least=3), "kinds": LowerBound(above=1)}, USUAL, [], 0),
}


def oracle_of(bounds: Mapping[str, LowerBound]) -> Oracle:
    """Windows of a minute, with these bounds."""
    found = TumblingWindow.of(MINUTE_US).model_copy(update={"values": VALUES, "having": dict(bounds)})
    return found.reading(Reads(states_values=True))


def facts_of(oracle: Oracle, events: Sequence[Event], source: int) -> pa.Table:
    """The facts of one window, read by one task. An amount is read as a number, and a page as a hash and as present."""
    rows = [
        {"status": DECODED, "partition": 0, "offset": at, "time_us": 1, "key": "k", "id": NO_ID, "event_time_us": 0}
        | {
            "values": [
                *(None if number is None else Decimal(number) for number in (amount, page)),
                None if page is None else Decimal(1),
            ]
        }
        for at, (amount, page) in enumerate(events)
    ]
    return facts_of_events(pa.Table.from_pylist(rows, EVENTS), source, oracle, 0, 10, with_first_event=True)


def judged(folder: Path, name: str, committed: int | None = None) -> Judging:
    """The window, once it is due. ``committed``: the engine's offset."""
    bounds, events, aside, _ = CASES[name]
    oracle = oracle_of(bounds)
    rules = Rules(oracle=oracle, overdue_after_us=1, missing_after_us=2, reports_unconsumed=committed is not None)
    found = Judging(KnownFacts(StateTables(folder), first_batch=0), rules)
    tables = [facts_of(oracle, events, 0), facts_of(oracle, aside, 1)]
    sources = [(Side.INPUT, "in"), (Side.LATE, "late")]
    offsets = {("in", 0): PartitionOffsets(committed_offset=committed)}
    found.absorb(completed(pa.concat_tables(tables), sources, batch=0, lookup_us=1, epoch=0), clock(10), offsets)
    found.absorb(None, clock(100), offsets)
    return found


@pytest.mark.parametrize("name", CASES)
def test_a_window_without_results_owes_none_below_a_bound(name: str, tmp_path: Path) -> None:
    assert judged(tmp_path, name).sums.counts["missing"] == CASES[name][3]


@pytest.mark.parametrize(("committed", "found"), [(0, 3), (2, 3), (3, 0)])
def test_events_that_are_not_consumed_may_be_those_that_reach_the_bound(
    committed: int, found: int, tmp_path: Path
) -> None:
    counts = judged(tmp_path, "as many", committed).sums.counts
    assert (counts["unconsumed"], counts["missing"]) == (found, 3 - found)

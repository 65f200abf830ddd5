"""A window without results owes nothing if its values may not reach the bounds of results (SEMANTICS 2.33)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.unit.reconcile_rows import MINUTE_US, clock
from validator.codecs.batches import EVENTS, RESULTS
from validator.codecs.columns import DECODED, UNDECODABLE
from validator.codecs.one_record import NO_ID
from validator.codecs.plain_events import RECORD_SCHEMA
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.core.judging import Judging
from validator.oracles.seam import Oracle, Reads
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.compare import PartitionOffsets
from validator.reconcile.facts import Side, completed
from validator.reconcile.grouping import facts_of_events, facts_of_results
from validator.reconcile.judge import Rules
from validator.settings.aggregates import LowerBound
from validator.settings.errors import ConfigError
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables
from validator.stream.decode import result_reader

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


def oracle_of(bounds: Mapping[str, LowerBound], **reads: Any) -> Oracle:
    """Windows of a minute, with these bounds."""
    found = TumblingWindow.of(MINUTE_US).model_copy(update={"values": VALUES, "having": dict(bounds)})
    return found.reading(Reads(evidence="values", names_ids=False, **reads))


def facts_of(oracle: Oracle, events: Sequence[Event], source: int, first: int = 0) -> pa.Table:
    """The facts of one window, read by one task from the offset ``first`` on. An amount is read as a number, and a page
    as a hash and as present."""
    rows = [
        {"status": DECODED, "partition": 0, "offset": at, "time_us": 1, "key": "k", "id": NO_ID, "event_time_us": 0}
        | {
            "values": [
                *(None if number is None else Decimal(number) for number in (amount, page)),
                None if page is None else Decimal(1),
            ]
        }
        for at, (amount, page) in enumerate(events, first)
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


def due(folder: Path, oracle: Oracle, tables: Sequence[pa.Table], unprovable_below: int = 0) -> Judging:
    """The window with these facts of events and results, once it is due. Answers to early events may be unread."""
    found = Judging(
        KnownFacts(StateTables(folder), first_batch=0), Rules(oracle, overdue_after_us=1, missing_after_us=2)
    )
    of_batch = completed(
        pa.concat_tables(tables), [(Side.INPUT, "in"), (Side.OUTPUT, "out")], batch=0, lookup_us=1, epoch=0
    )
    offsets = {("in", 0): PartitionOffsets(unprovable_below=unprovable_below)}
    for facts, now in ((of_batch, clock(10)), (None, clock(100))):
        found.absorb(facts, replace(now, unread_since_us=0, unprovable_offsets=unprovable_below), offsets)
    return found


@pytest.mark.parametrize(
    ("name", "least", "lost"), [("number", 3, 0), ("number", 2, 2), ("most", 5, 2), ("most", 6, 0)]
)
def test_events_that_the_engine_may_never_have_read_may_be_those_that_reach_the_bound(
    name: str, least: int, lost: int, tmp_path: Path
) -> None:
    oracle = oracle_of({name: LowerBound(at_least=least)})
    tables = [facts_of(oracle, [event], 0, at) for at, event in enumerate([(9, 7), (5, 7), (1, 7)])]
    counts = due(tmp_path, oracle, tables, unprovable_below=1).sums.counts
    assert (counts["missing"], counts["overdue"]) == (lost, 3 - lost)


@pytest.mark.parametrize(
    ("name", "least", "lost"), [("number", 4, 0), ("number", 3, 3), ("most", 6, 0), ("most", 5, 3)]
)
def test_a_null_value_instead_of_a_result_is_no_result(name: str, least: int, lost: int, tmp_path: Path) -> None:
    oracle = oracle_of({name: LowerBound(at_least=least)}, replaces=True)
    withdrawn = {"status": DECODED, "partition": 0, "offset": 0, "time_us": 1, "key": "k", "window_start_us": 0}
    withdrawn |= {"count": 0, "ids": [], "text_ids": [], "values": [None, None, None]}
    results = facts_of_results(pa.Table.from_pylist([withdrawn], RESULTS), 1, oracle)
    assert due(tmp_path, oracle, [facts_of(oracle, USUAL, 0), results]).sums.counts["missing"] == lost


@pytest.mark.parametrize(("name", "least", "lost"), [("kinds", 2, 0), ("kinds", 1, 4), ("most", 5, 0), ("most", 4, 4)])
def test_an_engine_whose_values_may_be_off_may_find_them_below_the_bound(
    name: str, least: int, lost: int, tmp_path: Path
) -> None:
    oracle = oracle_of({name: LowerBound(at_least=least)}, tolerances=((name, Decimal(1)),))
    assert due(tmp_path, oracle, [facts_of(oracle, [*USUAL, (1, 8)], 0)]).sums.counts["missing"] == lost


@pytest.mark.parametrize(("stated", "status"), [("5.0", DECODED), ("4.0", DECODED), ("3.9", UNDECODABLE)])
def test_a_result_that_may_be_off_may_state_a_value_below_the_bound(stated: str, status: int) -> None:
    settings = [
        "oracle.values={number: count, most: max(amount)}",
        "oracle.having={most: {above: 4.5}}",
        "outputs.0.fields.values={number: count, most: {path: most, tolerance: 0.55}}",
    ]
    config = loads(EXAMPLES["counts"], ".", settings, {})
    value = f'{{"page":"p","windowStart":"2026-01-01T00:00:00Z","count":3,"most":{stated}}}'.encode()
    reader = result_reader(config.outputs[0], config.oracle, "auto")
    columns = [pa.array([one], field.type) for one, field in zip((value, 0, 0, 5), RECORD_SCHEMA, strict=True)]
    [part] = reader.batches(iter([pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)]))
    assert part["status"].to_pylist() == [status]


def test_a_session_in_parts_may_have_parts_below_a_bound() -> None:
    settings = ["oracle={kind: session_window, gap: 1m, values: {clicks: count}, having: {clicks: {above: 1}}}"]
    with pytest.raises(ConfigError, match="having is supported only for tumbling and sliding windows"):
        loads(EXAMPLES["counts"], ".", settings, {})

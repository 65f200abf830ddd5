"""Decoded records become fact rows: examples. tests/property/test_stage.py compares with a twin."""

from __future__ import annotations

import pyarrow as pa

from validator.codecs.batches import EVENTS
from validator.codecs.columns import DECODED, SKIPPED, TOMBSTONE, UNDECODABLE, UNOWED
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.grouping import facts_of_events
from validator.reconcile.lateness import Lateness
from validator.state.tables import Table, rows_of

SECOND_US = 1_000_000
WINDOW = TumblingWindow.of(10 * SECOND_US, 0)


def event(offset: int, id_: int | None, second: int | None, key: str | None = "/a") -> dict[str, object]:
    at = None if second is None else second * SECOND_US
    return {"partition": 1, "offset": offset, "time_us": 1000 - offset, "id": id_, "key": key, "event_time_us": at}


def test_a_fact_holds_the_events_of_one_window_key_and_reach() -> None:
    events = [event(100 + n, n, n, f"/{n % 2}") for n in range(9, 19)]
    table = facts_of_events(pa.Table.from_pylist(events, EVENTS), 4, WINDOW, 0, 10**12, with_first_event=True)
    by_cell = {(row["key"], row["window_start_us"]): row for row in table.to_pylist()}
    # 9 is the only id in its window.
    assert {cell: [item["id"] for item in row["ids"]] for cell, row in by_cell.items()} == {
        ("/1", 0): [9],
        ("/0", 10 * SECOND_US): [10, 12, 14, 16, 18],
        ("/1", 10 * SECOND_US): [11, 13, 15, 17],
    }
    row = by_cell["/0", 10 * SECOND_US]
    assert (row["source"], row["partition"], row["status"], row["records"]) == (4, 1, DECODED, 5)
    assert [item["offset"] for item in row["ids"]] == [110, 112, 114, 116, 118]
    assert (row["first_offset"], row["last_offset"], row["first_time_us"], row["last_time_us"]) == (110, 118, 882, 890)
    assert (row["first_event_time_us"], row["newest_event_time_us"]) == (10 * SECOND_US, 18 * SECOND_US)
    assert (row["min_id"], row["max_id"], row["reach_us"]) == (10, 18, 10 * SECOND_US)


def test_an_event_too_far_ahead_moves_neither_the_watermark_nor_the_horizon() -> None:
    names = ("window_start_us", "reach_us", "newest_event_time_us", "first_event_time_us")
    events = pa.Table.from_pylist([event(1, 7, 25), event(2, 8, 26)], EVENTS)
    table = facts_of_events(events, 0, WINDOW, 0, 25 * SECOND_US, with_first_event=True).sort_by("first_offset")
    assert [[None if row[name] is None else row[name] // SECOND_US for name in names] for row in table.to_pylist()] == [
        [20, 20, 25, 25],
        [20, None, None, 25],
    ]


def test_undecodable_records_have_stretches_of_offsets() -> None:
    events = [event(offset, None, None, None) for offset in (9, 3, 4, 7, 8)] + [event(5, 1, 0)]
    table = facts_of_events(pa.Table.from_pylist(events, EVENTS), 0, WINDOW, 0, 10**12, with_first_event=True)
    good, bad = sorted(table.to_pylist(), key=lambda row: row["status"])
    assert good["stretches"] is None
    assert bad["status"] == UNDECODABLE
    assert bad["stretches"] == [{"first": 3, "last": 4, "records": 2}, {"first": 7, "last": 9, "records": 3}]
    assert (bad["contributions"], bad["hash_a"], bad["ids"], bad["window_start_us"]) == (0, 0, [], None)


def test_what_the_engine_ignores_moves_no_watermark_and_may_make_later_events_late() -> None:
    given = [
        event(1, 7, 5),
        {**event(2, 8, 31, "[null]"), "status": SKIPPED},
        {**event(3, None, 42, None), "status": TOMBSTONE},
        {**event(4, None, None, None), "status": TOMBSTONE},
        event(5, 9, 6),
    ]
    table = facts_of_events(pa.Table.from_pylist(given, EVENTS), 0, WINDOW, 0, 10**12, with_first_event=False)
    names = ("status", "records", "contributions", "window_start_us", "newest_event_time_us")
    found = sorted(
        tuple(row[name] for name in names) for row in table.to_pylist() if row["window_start_us"] is not None
    )
    assert found == [(DECODED, 2, 2, 0, 6 * SECOND_US), (UNOWED, 1, 0, 30 * SECOND_US, None)]
    assert [row["records"] for row in table.to_pylist() if row["status"] == TOMBSTONE] == [1, 1]
    of_input = [{**row, "kind": "fact", "side": "input", "topic": "clicks"} for row in table.to_pylist()]
    lateness = Lateness()
    lateness.absorb(rows_of(Table.FACTS, [{k: v for k, v in row.items() if k != "source"} for row in of_input]))
    # The record at offset 2 has the reach of its own time, not that of a record of which nothing is known.
    assert lateness.possible == {("clicks", 1): {30 * SECOND_US: 2, 40 * SECOND_US: 3}}
    assert lateness.proven == {("clicks", 1): {0: 1}}

"""Positions of undecodable records: settled exactly where somebody said so, and the same after every restart."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.unit.reconcile_rows import fact, facts
from validator.codecs.columns import UNDECODABLE
from validator.model.books import Books, TimeRules
from validator.model.frontier import PartitionId
from validator.state import positions
from validator.state.positions import BY_OPERATOR, Positions, Settlement, Stretch, joined, positions_of, reread_mark
from validator.state.tables import StateTables, Table
from validator.stream.committing import mark_row
from validator.stream.retiring import Retired

PLACE = PartitionId("orders", 3)


def bad(batch: int, offsets: list[int], *, side: str = "input", names: tuple[str, ...] = ()) -> dict[str, Any]:
    """The row of records that did not decode. ``names``: the positions that they name, in their order."""
    stretches = [{"first": at, "last": at, "records": 1} for at in offsets]
    return {
        **fact("output", [], batch=batch, lookup_us=batch),
        "side": side,
        "topic": PLACE.topic if side == "input" else side,
        "partition": PLACE.partition,
        "status": UNDECODABLE,
        "window_start_us": None,
        "key": None,
        "records": len(offsets),
        "first_offset": min(offsets),
        "last_offset": max(offsets),
        "stretches": stretches,
        "results": [],
        "text_ids": [{"id": name, "offset": at} for name, at in zip(names, offsets, strict=False)],
    }


def asked(first: int, last: int) -> Settlement:
    return Settlement(PLACE, (Stretch(first, last, 0),), BY_OPERATOR, "said")


@pytest.mark.parametrize("seed", range(4))
def test_what_is_hidden_and_settled_is_what_a_set_of_offsets_says_also_after_a_restart(
    seed: int, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    tables, live, hidden, gone = StateTables(tmp_path), Positions(), set[int](), set[int]()
    retired = Retired()
    for batch in range(12):
        offsets = sorted(rng.sample(range(batch * 50, batch * 50 + 50), rng.randint(1, 50)))
        rows = facts(bad(batch, offsets))
        live.absorb(rows)
        hidden |= set(offsets)
        first = rng.randrange(batch * 50 + 50)
        last = first + rng.randrange(60)
        done = live.settle([asked(first, last)])
        taken = {at for at in hidden if first <= at <= last}
        assert sum(one.records for one in done) == len(taken)
        hidden, gone = hidden - taken, gone | taken
        tables.append(rows, Table.FACTS, writer="facts", version=batch)
        books = Books(TimeRules(0, 0), batch=batch, lookup_us=batch + 1)
        for number, one in enumerate(done):
            row = mark_row(books, one.to_mark(), 10**15)
            tables.append(row, Table.FACTS, writer=f"marks-{number}", version=batch)
        if batch == 6:
            retired = Retired.from_mark(Retired(positions=live.to_json(batch)).to_mark())
    for known in (live, positions_of(tables, Positions()), positions_of(tables, retired.known_positions())):
        assert offsets_of(known.hidden[PLACE]) == hidden
        assert offsets_of(known.gone.get(PLACE, ())) == gone
        assert known.settled.get(PLACE, 0) == len(gone)
    again = positions_of(tables, Positions())
    assert again.settle([asked(0, 10_000)])[0].records == len(hidden) or not hidden
    row = mark_row(Books(TimeRules(0, 0), batch=12, lookup_us=13), reread_mark(["orders"]), 10**15)
    tables.append(row, Table.FACTS, writer="reread", version=12)
    assert positions_of(tables, Positions()) == Positions(), "what was said of a topic that is read again is void"


def offsets_of(stretches: tuple[Stretch, ...]) -> set[int]:
    assert all(one.records == one.last - one.first + 1 for one in stretches)
    return {at for one in stretches for at in range(one.first, one.last + 1)}


def test_beyond_a_bound_neighbours_are_settled_only_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "STRETCHES_MOST", 2)
    found = joined(Stretch(at, at, 1) for at in (1, 3, 5, 7))
    assert found == (Stretch(1, 3, 2), Stretch(5, 7, 2))
    known = Positions(hidden={PLACE: found})
    assert known.settle([asked(3, 7)]) == [Settlement(PLACE, (Stretch(5, 7, 2),), BY_OPERATOR, "said")]
    assert known.hidden[PLACE] == (Stretch(1, 3, 2),)


def test_a_rejected_record_settles_the_position_that_it_names_in_either_order() -> None:
    named = bad(0, [7, 8], side="rejected", names=("orders/3/17", "orders/3/99"))
    known = Positions()
    known.absorb(facts(named))
    assert known.settle([]) == []
    known.absorb(facts(bad(1, [16, 17])))
    done = known.settle([])
    assert {(one.place.topic, one.stretches, one.by) for one in done} == {
        ("orders", (Stretch(17, 17, 1),), "rejected"),
        ("rejected", (Stretch(7, 7, 1),), "rejected"),
    }
    assert known.hidden == {PLACE: (Stretch(16, 16, 1),), PartitionId("rejected", 3): (Stretch(8, 8, 1),)}
    assert known.settle([]) == []


def test_a_row_begins_with_its_first_record_that_is_not_settled() -> None:
    rows = facts(bad(0, [1, 2, 5]), bad(1, [9]), fact("input", [1], batch=0, lookup_us=1))
    known = Positions()
    known.absorb(rows)
    known.settle([asked(1, 3), asked(9, 9)])
    left = known.unsettled(rows).to_pylist()
    assert [row["first_offset"] for row in left if row["status"] == UNDECODABLE] == [5]
    assert len(left) == 2

"""Ids that stay known when the cells of their events are retired (SEMANTICS 2.7).

A result with the id of another cell's event is *misplaced* because an input has that id. The event's cell may be
retired before the result's cell. The facts table then keeps the id, in a row without records, until the result's cell
is retired as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from validator.codecs.columns import DECODED, KNOWN, UNOWED
from validator.core.judging import Judging
from validator.model.arrays import Bools, Ints, field, ints, listed
from validator.reconcile.compare import RequestedIds
from validator.reconcile.facts import Kind, Side
from validator.state.tables import StateTables, Table

_COLUMNS = (
    *("kind", "batch", "lookup_us", "side", "topic", "partition", "status", "window_start_us", "key"),
    *("first_offset", "last_offset", "first_time_us", "last_time_us", "ids", "text_ids"),
)


def ids_kept(
    tables: StateTables,
    judging: Judging,
    removed: Bools,
    stay: Callable[[pa.Table], Bools],
    through_epoch: int,
    epoch: int,
) -> Iterator[dict[str, Any]]:
    """Rows for ``epoch`` with those ids of events in epochs up to ``through_epoch`` that must stay known.

    An id must stay known if a result of a remaining cell has it and this cell does not expect it. ``removed``: which
    judged cells are retired. ``stay``: which rows of a table are written again completely.
    """
    of_input = (ds.field("kind") == Kind.FACT.value) & (ds.field("side") == Side.INPUT.value)
    where = of_input & ds.field("status").isin([DECODED, UNOWED, KNOWN]) & (ds.field("epoch") <= through_epoch)
    parts = list(judging.foreign_ids(~removed))
    if not parts:
        return
    # All parts at once: an id that occurs in cells of several parts is kept in one row.
    requested = np.concatenate([numbers for numbers, _ in parts]), [text for _, texts in parts for text in texts]
    for part in tables.scan(Table.FACTS, _COLUMNS, where):
        leaves = ~stay(part) | (ints(part["status"]) == KNOWN)
        yield from _with_ids(part.filter(pa.array(leaves)), requested, epoch)


def _with_ids(inputs: pa.Table, requested: RequestedIds, epoch: int) -> Iterator[dict[str, Any]]:
    """For each row that has some of the ``requested`` ids, a row with only these ids."""
    numbers, texts = requested
    of_number, events = listed(inputs["ids"])
    numbered = np.isin(ints(field(events, "id")), numbers)
    of_text, named_events = listed(inputs["text_ids"])
    is_in = pc.is_in(field(named_events, "id"), value_set=pa.array(texts, pa.string()))
    named = np.asarray(is_in.to_numpy(zero_copy_only=False), dtype=np.bool_)
    wanted = np.union1d(of_number[numbered], of_text[named])
    ids, text_ids = _by_row(of_number, events, numbered), _by_row(of_text, named_events, named)
    rows = inputs.drop_columns(["ids", "text_ids"]).take(pa.array(wanted))
    for at, row in zip(wanted.tolist(), rows.to_pylist(), strict=True):
        kept = [event["id"] for event in ids.get(at, ())]
        yield {
            **row,
            "status": KNOWN,
            "records": 0,
            "contributions": 0,
            "min_id": min(kept, default=None),
            "max_id": max(kept, default=None),
            "ids": ids.get(at, []),
            "text_ids": text_ids.get(at, []),
            "results": [],
            "epoch": epoch,
        }


def _by_row(parents: Ints, events: pa.Array, chosen: Bools) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for row, event in zip(parents[chosen].tolist(), events.filter(pa.array(chosen)).to_pylist(), strict=True):
        found.setdefault(row, []).append(event)
    return found

"""Fact rows for tests, as a batch's Spark job returns them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from validator.codecs.columns import DECODED, UNDECODABLE
from validator.model.frontier import Clock
from validator.state.tables import Table, rows_of

MINUTE_US = 60_000_000


def fact(
    side: str, ids: Sequence[int], *, batch: int, lookup_us: int, window_us: int = 0, key: str = "a", epoch: int = 0
) -> dict[str, Any]:
    """One fact of partition 0 of the topic ``side``: events with these ids, or one result that carries them.

    Fingerprints are sums of the ids and of their squares.
    """
    is_result = side == "output"
    offsets = range(len(ids))
    return {
        "kind": "fact",
        "batch": batch,
        "lookup_us": lookup_us,
        "side": side,
        "topic": side,
        "partition": 0,
        "status": DECODED,
        "window_start_us": window_us,
        "key": key,
        "records": 1 if is_result else len(ids),
        "contributions": len(ids),
        "hash_a": sum(ids),
        "hash_b": sum(number * number for number in ids),
        "first_offset": 0,
        "last_offset": len(ids),
        "first_time_us": lookup_us,
        "last_time_us": lookup_us,
        "newest_event_time_us": None if is_result else window_us,
        "min_id": None if is_result else min(ids),
        "max_id": None if is_result else max(ids),
        "ids": [] if is_result else [{"id": id_, "offset": at} for id_, at in zip(ids, offsets, strict=True)],
        "text_ids": [],
        "results": [{"offset": 0, "time_us": lookup_us, "ids": list(ids), "text_ids": []}] if is_result else [],
        "epoch": epoch,
    }


def facts(*rows: dict[str, Any]) -> pa.Table:
    """A facts table of these rows."""
    return rows_of(Table.FACTS, rows)


def bad(batch: int, offsets: Iterable[int], *, side: str = "input", names: Sequence[str] = ()) -> dict[str, Any]:
    """The row of undecodable records of partition 3 of the topic `orders`, an input, or `dead`, a topic of dead
    letters. ``names``: the positions that they name, in order."""
    at = sorted(offsets)
    return {
        **fact("output", [], batch=batch, lookup_us=batch),
        "side": side,
        "topic": "orders" if side == "input" else "dead",
        "partition": 3,
        "status": UNDECODABLE,
        "window_start_us": None,
        "key": None,
        "records": len(at),
        "first_offset": at[0],
        "last_offset": at[-1],
        "stretches": [{"first": offset, "last": offset, "records": 1} for offset in at],
        "results": [],
        "text_ids": [{"id": name, "offset": offset} for name, offset in zip(names, at, strict=False)],
    }


def clock(at_us: int) -> Clock:
    """All topics read through at ``at_us``, every window closed."""
    return Clock(at_us, 2**60, at_us, at_us, at_us, None, None, 0, False, False)

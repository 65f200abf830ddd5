"""A task groups its records in parts. If an event is in many windows, a part has fewer records."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from validator.codecs.batches import EVENTS
from validator.oracles.seam import Oracle
from validator.oracles.sliding_window import SlidingWindow
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.facts import GROUPED
from validator.reconcile.grouping import facts_of_events
from validator.stream import stage
from validator.stream.stage import Stage

MINUTE_US = 60_000_000
EVENTS_READ = 1_000


def events() -> pa.RecordBatch:
    """Events of one key at intervals of one second."""
    numbers = np.arange(EVENTS_READ, dtype=np.int64)
    known: dict[str, Any] = {
        "partition": np.zeros_like(numbers),
        "offset": numbers,
        "id": numbers,
        "time_us": numbers,
        "event_time_us": numbers * 1_000_000,
        "key": ["a"] * EVENTS_READ,
    }
    columns = [
        pa.array(known[field.name]).cast(field.type) if field.name in known else pa.nulls(EVENTS_READ, field.type)
        for field in EVENTS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=EVENTS)


@pytest.mark.parametrize(
    ("oracle", "parts"),
    [
        (TumblingWindow.of(MINUTE_US), 1),
        (SlidingWindow.of(60 * MINUTE_US, slide=MINUTE_US, time_zone="UTC", closed="left"), 8),
    ],
)
def test_the_contributions_of_a_part_are_limited(oracle: Oracle, parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "_CONTRIBUTIONS_AT_ONCE", 128 * 60)
    sizes: list[int] = []

    def grouped(records: pa.Table, *rest: Any, **named: Any) -> pa.Table:
        sizes.append(records.num_rows)
        return facts_of_events(records, *rest, **named)

    monkeypatch.setattr(stage, "facts_of_events", grouped)

    class Batches:
        words = None

        def __call__(self, _: object) -> Iterator[pa.RecordBatch]:
            return iter([events()])

    reader = SimpleNamespace(batches=Batches(), oracle=oracle, slack_us=0, of_rows=False, replaces_rows=False)
    produced = Stage([cast("Any", reader)], 2**62, with_first_event=False).facts(0, iter([]))
    found = pa.concat_tables([GROUPED.empty_table(), *produced])
    assert len(sizes) == parts
    assert sum(sizes) == EVENTS_READ
    expected = facts_of_events(pa.Table.from_batches([events()]), 0, oracle, 0, 2**62, with_first_event=False)
    for name in ("records", "contributions"):
        assert sum(found[name].to_pylist()) == sum(expected[name].to_pylist())

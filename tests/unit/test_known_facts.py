"""Facts for comparing ids come from memory if they are there, otherwise from the table; none is missed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables, Table

BATCHES = 6


@pytest.fixture
def tables(tmp_path: Path) -> StateTables:
    """Six batches. Batch n has event n in the window of minute n."""
    found = StateTables(tmp_path)
    for batch in range(BATCHES):
        found.append(_of(batch), Table.FACTS, writer="w", version=batch)
    return found


def _of(batch: int) -> object:
    return facts(fact("input", [batch], batch=batch, lookup_us=batch, window_us=batch * MINUTE_US))


def _known(tables: StateTables, room_bytes: int) -> KnownFacts:
    found = KnownFacts(tables, first_batch=0, room_bytes=room_bytes)
    for batch in range(BATCHES):
        found.add(_of(batch))
    return found


@pytest.mark.parametrize("room_bytes", [0, 700, 10_000_000], ids=["nothing held", "some held", "all held"])
def test_all_facts_of_a_span_are_found_once(tables: StateTables, room_bytes: int) -> None:
    known = _known(tables, room_bytes)
    for oldest in range(BATCHES):
        parts = known.facts_of_windows(oldest, oldest * MINUTE_US, BATCHES * MINUTE_US)
        batches = sorted(batch for part in parts for batch in part["batch"].to_pylist())
        assert [batch for batch in batches if batch >= oldest] == list(range(oldest, BATCHES))


@pytest.mark.parametrize("room_bytes", [0, 700, 10_000_000], ids=["nothing held", "some held", "all held"])
def test_an_id_is_known_whether_its_input_is_in_memory_or_on_disk(tables: StateTables, room_bytes: int) -> None:
    known = _known(tables, room_bytes)
    numbers, texts = known.inputs_with((np.array([0, 3, 5, 99]), ["x"]))
    assert numbers.tolist() == [0, 3, 5]
    assert texts == []


def test_many_small_batches_are_held_as_few_tables(tables: StateTables) -> None:
    """A comparison scans each table in memory. After days, a table for each batch would be too many."""
    known = KnownFacts(tables, first_batch=0)
    for batch in range(1_000):
        known.add(_of(batch))
    parts = list(known.facts_of_windows(0, 0, 1_000 * MINUTE_US))
    assert len(parts) < 20
    assert [number for part in parts for number in part["batch"].to_pylist()] == list(range(1_000))


def test_memory_is_bounded(tables: StateTables) -> None:
    assert not list(KnownFacts(tables, first_batch=BATCHES).facts_of_windows(BATCHES, 0, 1))
    known = _known(tables, 700)
    held = list(known.facts_of_windows(BATCHES - 1, (BATCHES - 1) * MINUTE_US, BATCHES * MINUTE_US))
    assert 0 < sum(part.nbytes for part in held) <= 700

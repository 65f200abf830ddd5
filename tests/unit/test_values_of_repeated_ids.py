"""Results without ids whose pipeline drops repeats: each different id of a window counts once (SEMANTICS 2.4, 2.23)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.unit.read_through import read_through
from validator.codecs.batches import EVENTS, RESULTS
from validator.codecs.columns import DECODED
from validator.core.judging import Judging
from validator.core.suspicion import Suspicion
from validator.oracles.passthrough import Passthrough
from validator.oracles.seam import Oracle, Reads
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.facts import Side, completed
from validator.reconcile.grouping import facts_of_events, facts_of_results
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts

pytestmark = pytest.mark.unit

VALUES: Final = {"n": "count", "total": "sum(paid)", "kinds": "distinct(paid)"}
Id = int | str
Sent = tuple[Id, int]
"""The id of an event, and what was paid."""


def violations(
    *batches: Sequence[Sent], stated: Sequence[tuple[int, ...]], kind: Oracle | None = None
) -> Mapping[str, int]:
    """The violations of one window whose events were read in these batches. ``stated``: number, sum and number of
    different values of each result. ``kind``: another oracle, whose results repeat the hash of what was paid."""
    oracle = kind or TumblingWindow.of(1_000).model_copy(update={"values": VALUES})
    oracle = oracle.reading(Reads(evidence="values", names_ids=False, has_ids=True, collapses=True))
    sources, place, offset = [(Side.INPUT, "input"), (Side.OUTPUT, "output")], {"key": "k", "time_us": 1}, 0
    judging = Judging(KnownFacts(None, first_batch=0), Rules(oracle, 1, 1, collapse=True))
    found: dict[str, int] = {}
    for number, batch in enumerate([*batches, ()], 1):
        events = []
        for id_, paid in batch:
            name = "id" if isinstance(id_, int) else "text_id"
            values = [Decimal(paid), Decimal(1_000_003 * paid)][-len(oracle.stated.paths) :]
            events.append(place | {name: id_, "values": values, "offset": offset, "partition": offset % 2})
            events[-1] |= {"event_time_us": 5, "status": DECODED}
            offset += 1
        results: list[dict[str, Any]] = []
        for at, (many, *values_of_result) in enumerate(stated if number == len(batches) else ()):
            row = {"offset": at, "partition": 0, "window_start_us": 0, "count": many, "ids": [], "text_ids": []}
            results.append(place | row | {"values": [*map(Decimal, values_of_result)], "status": DECODED})
        grouped = [
            facts_of_events(pa.Table.from_pylist(events, EVENTS), 0, oracle, 0, 2**60, with_first_event=False),
            facts_of_results(pa.Table.from_pylist(results, RESULTS), 1, oracle),
        ]
        facts = completed(pa.concat_tables(grouped), sources, batch=number, lookup_us=number, epoch=0)
        at_us = number if batch else 100
        for one in judging.step(facts if batch else None, read_through(at_us), Suspicion()).violations:
            found[one.violation_class] = one.count
    return {name: count for name, count in found.items() if count}


REPEATED: Final = ((1, 7), ("a", 5), (1, 7)), (("a", 5), (2, 5), (-3, 1))
"""Four events, two of which were sent twice."""


def test_a_repeat_counts_once() -> None:
    assert violations(*REPEATED, stated=[(4, 18, 3)]) == {}
    assert violations(*REPEATED, stated=[(2, 12, 2), (2, 6, 2)]) == {}


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ((6, 30, 3), {"duplicate": 2}),
        ((5, 25, 3), {"duplicate": 1}),
        ((3, 17, 2), {"missing": 1}),
        ((4, 20, 3), {"wrong_value": 1}),
        ((4, 18, 2), {"wrong_value": 1}),
    ],
)
def test_what_counts_twice_or_not_at_all_is_found(stated: tuple[int, int, int], found: Mapping[str, int]) -> None:
    assert violations(*REPEATED, stated=[stated]) == found


def test_copies_that_differ_leave_values_open_and_not_numbers() -> None:
    differing = ((1, 7), (1, 8), (2, 5))
    assert violations(differing, stated=[(2, 12, 2)]) == violations(differing, stated=[(2, 13, 2)]) == {}
    assert violations(differing, stated=[(3, 20, 3)]) == {"duplicate": 1}


@pytest.mark.parametrize(
    ("paid", "found"),
    [
        ((7, 5, 5, 1), {}),
        ((5, 1, 7, 5), {}),
        ((7, 5, 1), {"missing": 1}),
        ((7, 7, 5, 5, 1), {"duplicate": 1}),
        ((7, 7, 5, 1), {"wrong_value": 4}),
        ((7, 5, 5, 2), {"wrong_value": 4}),
    ],
)
def test_results_of_one_event_each_repeat_its_field_once(paid: Sequence[int], found: Mapping[str, int]) -> None:
    kind = Passthrough.model_validate({"kind": "passthrough", "bucket": "1ms", "values": {"paid": "same(paid)"}})
    stated = [(1, 1_000_003 * one) for one in paid]
    assert violations(*REPEATED, stated=stated, kind=kind) == found

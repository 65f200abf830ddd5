"""Totals add up whatever the order and the grouping, so that parts of a state can be judged apart."""

from __future__ import annotations

from dataclasses import fields
from random import Random
from typing import Any

import pytest

from validator.core.totals import CellTotals, TopicCounts
from validator.model.arrays import ABSENT, NEVER
from validator.reconcile import newest
from validator.reconcile.quantities import OF_CELL, OF_INPUT, OF_OUTPUT, Fold, compared, of_results, of_violations

ONE_PER_TOPIC = ("inputs", "outputs", "set_aside")


def any_totals(rng: Random) -> CellTotals:
    """Totals in which every number is drawn, and some topics and instants are absent."""
    found: dict[str, Any] = {}
    for one in fields(CellTotals):
        drawn = getattr(CellTotals.empty(), one.name)
        if one.name in ONE_PER_TOPIC:
            topics = [topic for topic in "abc" if rng.random() < 0.6]
            found[one.name] = {
                topic: TopicCounts(*(rng.randrange(-9, 9) for _ in fields(TopicCounts))) for topic in topics
            }
        elif isinstance(drawn, dict):
            names = drawn or ("settled", "open", "out_of_scope")
            found[one.name] = {name: rng.randrange(-9, 9) for name in names}
        elif drawn is not None:
            found[one.name] = rng.randrange(-9, 9)
        elif one.metadata:
            found[one.name] = rng.choice([None, *range(9)])
    return CellTotals(**found)


@pytest.mark.parametrize("seed", range(50))
def test_totals_add_up_in_any_order_and_grouping(seed: int) -> None:
    rng = Random(seed)
    one, two, three = (any_totals(rng) for _ in range(3))
    assert one.plus(two) == two.plus(one)
    assert one.plus(two).plus(three) == one.plus(two.plus(three))
    assert one.plus(CellTotals.empty()) == one
    parts = one.plus(two).minus(two)
    for it in fields(CellTotals):
        if it.name not in ONE_PER_TOPIC and not it.name.endswith("_us"):
            assert getattr(parts, it.name) == getattr(one, it.name), it.name


def test_every_total_but_the_fit_of_the_sample_is_a_fold() -> None:
    assert [it.name for it in fields(CellTotals) if "fold" not in it.metadata] == ["fit"]


def test_totals_survive_a_mark() -> None:
    found = any_totals(Random(7))
    assert CellTotals.from_json(found.to_json()) == found


def test_the_initial_number_of_a_folded_quantity_is_neutral() -> None:
    all_of = (*OF_CELL, *OF_INPUT, *OF_OUTPUT, *of_results("records", "latest_us"), *newest.QUANTITIES)
    names = [one.name for one in (*all_of, *compared(ABSENT), *of_violations(["missing"]))]
    assert {name for name in names if names.count(name) > 1} == {"results", *(f"processed_{it}" for it in newest.PARTS)}
    folded = [one for one in all_of if one.fold not in (Fold.OWN, Fold.COMPARED)]
    assert {one.fold for one in folded} == {Fold.SUM, Fold.MINIMUM, Fold.MAXIMUM}
    for one in folded:
        for value in (ABSENT + 1, -1, 0, 1, NEVER - 1):
            assert one.fold.of_two(one.initial, value) == value, one.name

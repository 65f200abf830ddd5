"""The core's joins against their brute-force references: the same classes after every step.

`test_spark_core.py` is the same test for the tumbling window.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from random import Random
from typing import Final

import pytest

from tests.property.intervals import interval_case
from tests.property.join_agreement import JoinCase, compare, join_case, join_opinions
from tests.property.join_reference import Join
from tests.property.paired import pair_case
from tests.property.spark_agreement import Tally, closing_differences, unpersisted
from tests.property.spark_core import Judged, Row
from tests.property.spark_histories import Opinion
from tests.worlds import IS_STANDING, scaled, seeds
from validator.reconcile.judge import VIOLATIONS

pytestmark = [pytest.mark.property, pytest.mark.timeout(2700)]

CAUSAL: Final = 50
FAULTY: Final = 150
"""Histories per kind of join."""
STEPS_MOST: Final = 5
RESTARTS: Final = 10
SHOWN: Final = 20
EXPECTED_CLASSES: Final = (
    *("processed", "late", "rejected", "duplicate", "misplaced", "unknown_id", "overdue", "blocked", "pending"),
    *("dropped_late", "unconsumed", "missing", "out_of_scope"),
    *("results:correct", "results:incomplete", "results:excess", "results:misplaced"),
    "results:wrong_value",
)


@dataclass(frozen=True)
class Joins:
    """Cases, the core's rows after each step, and the referees' opinions."""

    judged: Judged
    cases: list[JoinCase]
    rows: list[list[list[Row]]]
    opinions: list[list[Opinion]]


@pytest.fixture(scope="module")
def joins(tmp_path_factory: pytest.TempPathFactory) -> Joins:
    """Every step of every history, judged by both."""
    kinds: tuple[Join, ...] = ("inner", "left", "semi")
    cases = [
        join_case(seed, join, causal=causal, steps_most=STEPS_MOST)
        for join in kinds
        for causal, number in ((True, CAUSAL), (False, FAULTY))
        for seed in seeds(number if join != "semi" else number // 3)
    ]
    cases += [
        interval_case(seed, join, causal=causal, steps_most=STEPS_MOST)
        for join in kinds
        for causal, number in ((True, CAUSAL), (False, FAULTY))
        for seed in seeds(number if join != "semi" else number // 3)
    ]
    cases += [
        pair_case(seed, join, causal=causal, steps_most=STEPS_MOST)
        for join in kinds
        for causal, number in ((True, CAUSAL), (False, FAULTY))
        for seed in seeds(number // 2)
    ]
    cases += [
        made(seed, join, causal=causal, steps_most=STEPS_MOST, cumulative=True)
        for made in (join_case, pair_case)
        for join in kinds
        for causal, number in ((True, CAUSAL), (False, FAULTY))
        for seed in seeds(number // 3)
    ]
    # The referees run in another process while the core works.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as beside:
        opinions = beside.submit(join_opinions, cases)
        judged = Judged(cases, tmp_path_factory.mktemp("joins"))
        rows = [list(judged.live(number)) for number in range(len(cases))]
        return Joins(judged, cases, rows, opinions.result())


def test_the_core_agrees_with_the_reference_after_every_step(joins: Joins, capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(histories=len(joins.cases))
    for number, case in enumerate(joins.cases):
        for step, rows in enumerate(joins.rows[number]):
            instant, opinion = joins.judged.instants[number][step], joins.opinions[number][step]
            compare(case, step, rows, instant, opinion, tally)
    with capsys.disabled():
        print(f"\njoins: {tally}")
    assert tally.differences[:SHOWN] == []
    assert not IS_STANDING or (tally.exact > tally.provisional // 2)
    assert not IS_STANDING or ([name for name in EXPECTED_CLASSES if not tally.classes[name]] == [])


def test_a_correct_join_is_never_accused_after_any_step(joins: Joins) -> None:
    alarms = []
    for number, case in enumerate(joins.cases):
        for step, rows in enumerate(joins.rows[number]):
            held = joins.judged.instants[number][step].suspected(rows)
            if case.causal and any(row[name] for row in rows for name in VIOLATIONS if name not in held):
                alarms.append((case.seed, step))
    assert alarms == []


def test_a_restart_restores_the_same_state(joins: Joins) -> None:
    rng = Random(11)
    differences: list[str] = []
    for number in rng.sample(range(len(joins.cases)), scaled(RESTARTS)):
        upto = rng.randrange(len(joins.rows[number]))
        before, after = joins.judged.restarted(number, upto)
        differences += closing_differences(joins.cases[number], before, after) + unpersisted(before, after)
    assert differences == []

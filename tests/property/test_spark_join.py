"""The Spark core's windowed join against the brute-force reference: the same classes after every step.

As `test_spark_core.py` does it for the window, with its session.
"""

from __future__ import annotations

import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.property import spark_frames as frames
from tests.property.join_agreement import JoinCase, JudgedJoins, compare, join_case, join_opinions
from tests.property.join_reference import Join
from tests.property.spark_agreement import Row, Tally
from tests.property.spark_frames import World
from tests.property.spark_histories import Opinion
from tests.property.test_spark_core import spark
from validator.reconcile.judge import VIOLATIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]
pytestmark = [pytest.mark.property, pytest.mark.timeout(600)]

MORE: Final = int(os.environ.get("STREAMPROOF_WORLDS", "2000")) // 2000
CAUSAL: Final = 25 * MORE
FAULTY: Final = 75 * MORE
"""Of each kind of join; with the late policy `drop` alone where the left side needs no partner."""
STEPS_MOST: Final = 5
LIVE: Final = 30
LIVE_STEPS_MOST: Final = 4
SHOWN: Final = 20
EXPECTED_CLASSES: Final = (
    *("processed", "late", "rejected", "duplicate", "misplaced", "unknown_id", "overdue"),
    *("dropped_late", "missing", "out_of_scope"),
    *("results:correct", "results:incomplete", "results:excess", "results:misplaced"),
)
Judgements = list[tuple[JudgedJoins, dict[World, list[Row]], list[list[Opinion]]]]


@pytest.fixture(scope="module")
def judgements(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Judgements:
    """Every step of every history, judged by both."""
    groups: dict[tuple[Join, bool], list[JoinCase]] = {}
    joins: tuple[Join, ...] = ("inner", "left")
    for join in joins:
        for causal, number in ((True, CAUSAL), (False, FAULTY)):
            for seed in range(number):
                case = join_case(seed, join, causal=causal, steps_most=STEPS_MOST)
                if join == "inner" or case.rules.drops_late:
                    groups.setdefault((join, case.rules.drops_late), []).append(case)
    found = []
    with ThreadPoolExecutor(1) as beside:
        opinions = {name: beside.submit(join_opinions, cases) for name, cases in groups.items()}
        for name, cases in groups.items():
            folder = tmp_path_factory.mktemp(f"joins-{name[0]}-{name[1]}")
            judged = JudgedJoins(spark, cases, frames.every_step(cases), folder)
            found.append((judged, judged.at_once(), opinions[name].result()))
    return found


def test_the_core_says_what_the_reference_says_after_every_step(
    judgements: Judgements, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()
    for judged, rows, opinions in judgements:
        tally.histories += len(judged.cases)
        for world, of_world in rows.items():
            case = judged.cases[world.case]
            assert isinstance(case, JoinCase)
            instant = judged.instants[world.case][world.step]
            compare(case, world.step, of_world, instant, opinions[world.case][world.step], tally)
    with capsys.disabled():
        print(f"\njoins: {tally}")
    assert tally.differences[:SHOWN] == []
    assert tally.exact > tally.provisional // 2
    assert [name for name in EXPECTED_CLASSES if not tally.classes[name]] == []


def test_a_correct_join_is_never_accused_after_any_step(judgements: Judgements) -> None:
    alarms = []
    for judged, rows, _ in judgements:
        for world, of_world in rows.items():
            case, held = judged.cases[world.case], judged.instants[world.case][world.step].suspected
            if case.causal and any(row[name] for row in of_world for name in VIOLATIONS if name not in held):
                alarms.append((case.seed, world.step))
    assert alarms == []


@pytest.mark.extended
def test_batch_after_batch_says_the_same(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was compared once is kept, and compared again where it may have changed."""
    drawn = (join_case(20_000 + seed, "inner", causal=False, steps_most=LIVE_STEPS_MOST) for seed in itertools.count())
    cases = list(itertools.islice((case for case in drawn if case.rules.drops_late and case.grouped), LIVE))
    live = JudgedJoins(spark, cases, frames.whole(cases), tmp_path)
    opinions, tally = join_opinions(cases), Tally(histories=len(cases))
    for batch in live.batch_by_batch():
        for world, rows in batch.items():
            instant = live.instants[world.case][world.step]
            compare(cases[world.case], world.step, rows, instant, opinions[world.case][world.step], tally)
    with capsys.disabled():
        print(f"\njoins, batch after batch: {tally}")
    assert tally.differences[:SHOWN] == []
    assert tally.exact > LIVE

"""The Spark core against the brute-force reference: the same classes of the same cells after every step.

Thousands of random histories are judged in a few Spark jobs, each step of each from all of its facts; a smaller sample
batch after batch, as the sidecar does it live; and some through the tables of a state folder, with restarts.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.property import spark_frames as frames
from tests.property.spark_agreement import Row, Tally, closing_differences, compare, untold
from tests.property.spark_core import Judged
from tests.property.spark_frames import World
from tests.property.spark_histories import Case, Opinion, all_opinions, case
from validator.reconcile.judge import VIOLATIONS
from validator.stream import jars, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.property, pytest.mark.timeout(600)]

CAUSAL: Final = 600
FAULTY: Final = 1450
STEPS_MOST: Final = 8
LIVE: Final = 30
LIVE_STEPS_MOST: Final = 3
SHOWN: Final = 20
"""Differences shown of a failure."""
EXPECTED_CLASSES: Final = (
    *("processed", "late", "rejected", "duplicate", "misplaced", "unknown_id", "pending", "overdue"),
    *("blocked", "unconsumed", "dropped_late", "missing", "out_of_scope"),
    *("results:correct", "results:incomplete", "results:excess", "results:misplaced", "results:unjudged"),
)


@dataclass(frozen=True)
class Group:
    """Cases that the core judges in one frame, what it made of them, and the reference's opinions."""

    judged: Judged
    rows: dict[World, list[Row]]
    opinions: list[list[Opinion]]

    def compared(self) -> Tally:
        """Both held against each other."""
        tally = Tally(histories=len(self.judged.cases))
        for world, rows in self.rows.items():
            instant = self.judged.instants[world.case][world.step]
            opinion = self.opinions[world.case][world.step]
            compare(self.judged.cases[world.case], world.step, rows, instant, opinion, tally)
        return tally


def kinds(cases: list[Case]) -> list[list[Case]]:
    """Cases apart by what cannot be a column: nothing special, lateness or consumption told, repeats collapsed."""
    plain = [it for it in cases if not (it.rules.collapse or it.rules.drops_late or it.rules.tells_unconsumed)]
    collapsing = [it for it in cases if it.rules.collapse]
    telling = [it for it in cases if it not in plain and it not in collapsing]
    return [plain, telling, collapsing]


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """A session with Delta, which the tests of one run share."""
    return session.start("tests", "local[2]", jars.resolve(jars.SIDECAR_LOCK), {"spark.driver.memory": "2g"})


@pytest.fixture(scope="module")
def groups(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[Group]:
    """Every step of every history, judged by both."""
    cases = [case(seed, causal=False, steps_most=STEPS_MOST) for seed in range(FAULTY)]
    cases += [case(seed, causal=True, steps_most=STEPS_MOST) for seed in range(CAUSAL)]
    found = []
    # The reference thinks while Spark works.
    with ThreadPoolExecutor(1) as beside:
        apart = kinds(cases)
        opinions = [beside.submit(all_opinions, some) for some in apart]
        for number, some in enumerate(apart):
            judged = Judged(spark, some, frames.every_step(some), tmp_path_factory.mktemp(f"group-{number}") / "frames")
            found.append(Group(judged, judged.at_once(), opinions[number].result()))
    return found


def test_the_core_says_what_the_reference_says_after_every_step(
    groups: list[Group], capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()
    for group in groups:
        tally = tally.plus(group.compared())
    with capsys.disabled():
        print(f"\n{tally}")
    assert tally.differences[:SHOWN] == []
    assert tally.histories >= 2000
    assert tally.exact > 5 * tally.provisional
    assert {name: tally.classes[name] for name in EXPECTED_CLASSES if tally.classes[name] < 10} == {}


def test_a_correct_engine_is_never_accused_after_any_step(groups: list[Group]) -> None:
    alarms = []
    for group in groups:
        for world, rows in group.rows.items():
            it, held = group.judged.cases[world.case], group.judged.instants[world.case][world.step].suspected
            told = [name for name in VIOLATIONS if name not in held]
            if it.causal and any(row[name] for row in rows for name in told):
                alarms.append((it.seed, world.step))
    assert alarms == []


def test_batch_after_batch_says_the_same_and_so_does_a_restart(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = (case(10_000 + seed, causal=False, steps_most=LIVE_STEPS_MOST) for seed in range(20 * LIVE))
    cases = list(_telling(drawn))
    live = Judged(spark, cases, frames.whole(cases), tmp_path / "live")
    with ThreadPoolExecutor(1) as beside:
        opinions = beside.submit(all_opinions, cases)
        rows: dict[World, list[Row]] = {}
        for batch in live.batch_by_batch():
            rows |= batch
        again = live.at_once()
    tally = Group(live, rows, opinions.result()).compared()
    with capsys.disabled():
        print(f"\nbatch after batch: {tally}")
    assert tally.differences[:SHOWN] == []
    assert [
        line
        for world, at_once in again.items()
        for line in closing_differences(cases[world.case], rows[world], at_once)
    ] == []
    later = [(World(world.case, world.step - 1), now) for world, now in rows.items() if world.step > 0]
    assert [line for world, now in later for line in untold(rows[world], now)] == []


def _telling(drawn: Iterator[Case]) -> Iterator[Case]:
    """Cases where a comparison of ids may have to be repeated: commits move, answers expire, late ones are dropped."""
    found = 0
    for it in drawn:
        gone = any(state.log_start > state.start_offset for step in it.history.steps for state in step.partitions)
        if not it.rules.collapse and it.rules.drops_late and (it.grouped or gone):
            yield it
            found += 1
        if found == LIVE:
            return

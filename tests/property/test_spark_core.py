"""The core against the brute-force reference: the same classes of the same cells after every step.

The facts of thousands of random histories are computed at once. Each history is then judged batch after batch, as in a
live sidecar. Some are judged again from the tables of a state folder, after a restart.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

from tests.property.history import Cell
from tests.property.persisted_violations import persisted, totals, wrongly_persisted
from tests.property.spark_agreement import Row, Tally, closing_differences, compare, unpersisted
from tests.property.spark_core import Judged, rows_of
from tests.property.spark_histories import Opinion, all_opinions, case
from tests.worlds import IS_STANDING, scaled, seeds
from validator.reconcile.judge import VIOLATIONS
from validator.state.tables import StateTables
from validator.stream import jars, session
from validator.stream.recovery import restore_record
from validator.stream.run_record import RunRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.property, pytest.mark.timeout(2700)]

CAUSAL: Final = 600
FAULTY: Final = 1450
COMPACTED: Final = 150
STEPS_MOST: Final = 8
RESTARTS: Final = 40
REPLAYED: Final = 16
SHOWN: Final = 20
"""Number of differences in a failure message."""
EXPECTED_CLASSES: Final = (
    *("processed", "late", "rejected", "duplicate", "misplaced", "unknown_id", "pending", "overdue"),
    *("blocked", "unconsumed", "unconsumed:overdue", "dropped_late", "missing", "out_of_scope"),
    *("results:correct", "results:incomplete", "results:excess", "results:misplaced", "results:unjudged"),
)


@dataclass(frozen=True)
class Group:
    """Cases, the core's rows after each step, and the reference's opinions."""

    judged: Judged
    rows: Sequence[Sequence[Sequence[Row]]]
    opinions: list[list[Opinion]]

    def compared(self) -> Tally:
        """Compare the core with the reference."""
        tally = Tally(histories=len(self.judged.cases))
        for number, it in enumerate(self.judged.cases):
            for step, rows in enumerate(self.rows[number]):
                instant, opinion = self.judged.instants[number][step], self.opinions[number][step]
                compare(it, step, rows, instant, opinion, tally)
        return tally


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """A session with Delta, shared by the tests of a run."""
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "2g",
    }
    return session.start("tests", "local[2]", jars.resolve(jars.SIDECAR_LOCK), settings)


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Group:
    """Every step of every history, judged by both."""
    cases = [case(seed, causal=False, steps_most=STEPS_MOST) for seed in seeds(FAULTY)]
    cases += [case(seed, causal=True, steps_most=STEPS_MOST) for seed in seeds(CAUSAL)]
    cases += [case(seed, causal=seed % 2 == 0, steps_most=STEPS_MOST, compacts=True) for seed in seeds(COMPACTED)]
    # The reference runs in another process while the core works.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as beside:
        opinions = beside.submit(all_opinions, cases)
        judged = Judged(cases, tmp_path_factory.mktemp("histories"))
        rows = [list(judged.live(number)) for number in range(len(cases))]
        return Group(judged, rows, opinions.result())


def test_the_core_agrees_with_the_reference_after_every_step(group: Group, capsys: pytest.CaptureFixture[str]) -> None:
    tally = group.compared()
    with capsys.disabled():
        print(f"\n{tally}")
    assert tally.differences[:SHOWN] == [], tally.differences[:SHOWN]
    assert tally.histories >= scaled(2000)
    assert not IS_STANDING or (tally.exact > 5 * tally.provisional)
    assert not IS_STANDING or (
        {name: tally.classes[name] for name in EXPECTED_CLASSES if tally.classes[name] < 10} == {}
    )


def test_a_correct_engine_is_never_accused_after_any_step(group: Group) -> None:
    alarms = []
    for number, it in enumerate(group.judged.cases):
        for step, rows in enumerate(group.rows[number]):
            held = group.judged.instants[number][step].suspected(rows)
            certain = [name for name in VIOLATIONS if name not in held]
            if it.causal and any(row[name] for row in rows for name in certain):
                alarms.append((it.seed, step))
    assert alarms == []


def test_persisted_violations_are_the_judged_ones(group: Group) -> None:
    assert [
        line for rows in group.rows for before, now in itertools.pairwise(rows) for line in unpersisted(before, now)
    ] == []


def test_persisted_confirmed_violations_are_those_of_the_reference(
    group: Group, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a topic is absent, violations are suspected. Once it exists they are confirmed, each only once, even if
    the process is killed at some steps."""
    rng, judged = Random(11), group.judged
    # The step at which something is first confirmed, in histories that go on after it.
    first = {
        number: next(step for step, found in enumerate(opinions) if found.confirmed)
        for number, opinions in enumerate(group.opinions)
        if any(found.confirmed for found in opinions[:-1])
    }
    differences: list[str] = []
    late = 0
    for number in rng.sample(sorted(first), scaled(REPLAYED)):
        steps = len(judged.cases[number].history.steps)
        since, until = rng.randint(0, first[number]), rng.randrange(first[number] + 1, steps)
        absent = dict.fromkeys(range(since, until), frozenset({"missing", "unknown_id"}))
        tables = StateTables(tmp_path / str(number))
        killed = rng.sample(range(steps), min(2, steps))
        before: Counter[tuple[str, Cell]] = Counter()
        run = judged.recorded(number, tables, suspected=absent, killed_after=killed)
        for step, after in enumerate(run):
            rows = rows_of(after.judging)
            held = after.instants[step].suspected(rows)
            opinion, now = group.opinions[number][step], persisted(tables)
            differences += wrongly_persisted(judged.cases[number], rows, opinion, held, before, now)
            again = RunRecord()
            restore_record(tables, again)
            if totals(after.record) != totals(again):
                differences.append(
                    f"seed {judged.cases[number].seed}: {totals(after.record)}, restored {totals(again)}"
                )
            late += step == until and (now - before).total() > 0
            before = now
    with capsys.disabled():
        print(f"\n{scaled(REPLAYED)} histories told, {late} with something confirmed as its suspicion ended")
    assert differences[:SHOWN] == []
    assert not IS_STANDING or (late >= scaled(REPLAYED) // 2)


def test_a_restart_restores_the_same_state(group: Group, capsys: pytest.CaptureFixture[str]) -> None:
    """Restart from the tables of a state folder, at random steps of random histories."""
    rng, judged = Random(7), group.judged
    differences: list[str] = []
    numbers = rng.sample(range(len(judged.cases)), scaled(RESTARTS))
    for number in numbers:
        upto = rng.randrange(len(judged.cases[number].history.steps))
        before, after = judged.restarted(number, upto)
        differences += closing_differences(judged.cases[number], before, after)
        differences += unpersisted(before, after)
    with capsys.disabled():
        print(f"\n{len(numbers)} restarts")
    assert differences[:SHOWN] == []

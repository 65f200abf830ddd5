"""The core with each further oracle against its brute-force twin: the same classes of the same cells after every
step.

`test_spark_core.py` is the same test for the tumbling window. To add an oracle, add its twin: a function that generates
a case.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from random import Random
from typing import Final, Protocol

import pytest

from tests.property.beside import beside_case
from tests.property.collapsed import collapsed_case
from tests.property.counted import counted_case
from tests.property.distinct import distinct_case
from tests.property.enriched import enriched_case
from tests.property.having import having_case
from tests.property.idle import idle_case
from tests.property.keyed import EVERY, keyed_case, keyed_values_case
from tests.property.matched import matched_case
from tests.property.passthrough import passthrough_case
from tests.property.repeated import repeated_case
from tests.property.replacing import replacing_case
from tests.property.running import running_case
from tests.property.sessions import counted_session_case, session_case
from tests.property.sliding import sliding_case
from tests.property.spark_agreement import Tally, closing_differences, compare, unpersisted
from tests.property.spark_core import Judged, Row
from tests.property.spark_histories import Case, Opinion, all_opinions
from tests.property.tables import AVERAGES, table_case
from tests.property.updated import updated_case, updated_collapsed_case
from tests.property.valued import OF_IDS, SUMS, WITHOUT_COUNT, valued_case, valued_session_case
from tests.property.zoned import zoned_case
from tests.tiers import full
from tests.worlds import IS_STANDING, scaled, seeds
from validator.reconcile.judge import VIOLATIONS

pytestmark = [pytest.mark.property, pytest.mark.timeout(600)]


class Twin(Protocol):
    """Generates the case of a seed."""

    def __call__(self, seed: int, *, causal: bool, steps_most: int) -> Case: ...


TWINS: Final[dict[str, Twin]] = {
    "counts": counted_case,
    "counts-cumulative": partial(replacing_case, counted=True),
    "counts-of-keys": keyed_case,
    "counts-of-keys-every": partial(keyed_case, every=EVERY),
    "counts-sessions": counted_session_case,
    "counts-under-bounds": having_case,
    "windows-cumulative": replacing_case,
    "windows-cumulative-in-topics": partial(replacing_case, several=True),
    "distinct": distinct_case,
    "enrichment": enriched_case,
    "enrichment-inner": partial(enriched_case, join="inner"),
    "passthrough": passthrough_case,
    "rule_match": matched_case,
    "rule_match-every": partial(matched_case, every=EVERY),
    "running_aggregate": running_case,
    "running_aggregate-cumulative": partial(running_case, cumulative=True),
    "session_window": session_case,
    "sliding_window": sliding_case,
    "rows-of-tables": table_case,
    "values": valued_case,
    "values-beside-ids": beside_case,
    "values-cumulative": updated_case,
    "values-cumulative-of-different-events": updated_collapsed_case,
    "values-cumulative-of-ids": partial(updated_case, aggregates=OF_IDS),
    "values-cumulative-sums": partial(updated_case, aggregates=SUMS),
    "values-cumulative-uncounted": partial(updated_case, aggregates=WITHOUT_COUNT),
    "values-of-keys": keyed_values_case,
    "values-of-keys-every": partial(keyed_values_case, every=EVERY),
    "values-of-keys-sums": partial(keyed_values_case, aggregates=SUMS),
    "values-of-keys-uncounted": partial(keyed_values_case, aggregates=WITHOUT_COUNT),
    "values-of-tables": partial(table_case, aggregates=AVERAGES),
    "values-sessions": valued_session_case,
    "values-sliding": partial(updated_case, slides=True, updates=False),
    "values-sliding-cumulative": partial(updated_case, slides=True),
    "values-of-different-events": collapsed_case,
    "values-of-events": repeated_case,
    "values-of-events-counted": partial(repeated_case, width=0),
    "values-of-ids": partial(valued_case, aggregates=OF_IDS),
    "values-sums": partial(valued_case, aggregates=SUMS),
    "values-uncounted": partial(valued_case, aggregates=WITHOUT_COUNT),
    "tumbling_window-idle": idle_case,
    "tumbling_window-zoned": zoned_case,
}
COMBINED: Final = (
    *("counts", "counts-cumulative", "counts-sessions", "values-of-events-counted", "values-of-ids", "values-sums"),
    *("values-uncounted", "values-of-keys-sums", "values-of-keys-uncounted", "rows-of-tables", "values-sliding"),
    *(f"values-cumulative-{name}" for name in ("of-different-events", "of-ids", "sums", "uncounted")),
    *("rule_match", "rule_match-every"),
)
"""Twins of which the first tier has each part."""
CAUSAL: Final = 60
FAULTY: Final = 120
STEPS_MOST: Final = 6
RESTARTS: Final = 10
SHOWN: Final = 20
EXPECTED_CLASSES: Final = (
    *("processed", "late", "rejected", "duplicate", "misplaced", "unknown_id", "pending", "overdue"),
    *("missing", "out_of_scope", "results:correct", "results:excess", "results:misplaced", "results:unjudged"),
)


@dataclass(frozen=True)
class Worlds:
    """Cases of one oracle, the core's rows after each step, and the referee's opinions."""

    twin: str
    judged: Judged
    cases: list[Case]
    rows: list[list[list[Row]]]
    opinions: list[list[Opinion]]


@pytest.fixture(scope="module", params=[full(name) if name in COMBINED else name for name in sorted(TWINS)])
def worlds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    """Every step of every history, judged by both."""
    twin = TWINS[request.param]
    cases = [
        twin(seed, causal=causal, steps_most=STEPS_MOST)
        for causal, number in ((True, CAUSAL), (False, FAULTY))
        for seed in seeds(number)
    ]
    # The referees run in another process while the core works.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as beside:
        opinions = beside.submit(all_opinions, cases)
        judged = Judged(cases, tmp_path_factory.mktemp(request.param))
        rows = [list(judged.live(number)) for number in range(len(cases))]
        return Worlds(request.param, judged, cases, rows, opinions.result())


def test_the_core_agrees_with_its_reference_twin_after_every_step(
    worlds: Worlds, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally(histories=len(worlds.cases))
    for number, case in enumerate(worlds.cases):
        for step, rows in enumerate(worlds.rows[number]):
            compare(case, step, rows, worlds.judged.instants[number][step], worlds.opinions[number][step], tally)
    with capsys.disabled():
        print(f"\n{worlds.twin}: {tally}")
    assert tally.differences[:SHOWN] == []
    assert not IS_STANDING or (tally.exact > tally.provisional)
    # SEMANTICS 2.23: a count that belongs to another cell looks like an invented one.
    never = (
        {"misplaced", "results:misplaced"} if worlds.twin.startswith(("counts", "rows", "rule", "values")) else set()
    )
    # Beside tables and rules, where repeats are dropped, and with `every`, there are no topics of set-aside events.
    is_without = worlds.twin.endswith(("tables", "different-events", "every", "rule_match"))
    never |= {"late", "rejected"} if is_without else set()
    # Newest results that stand for all events repeat none.
    never |= {"duplicate"} if worlds.twin in ("values-of-keys-uncounted", "values-cumulative-uncounted") else set()
    assert not IS_STANDING or (
        [name for name in EXPECTED_CLASSES if not tally.classes[name] and name not in never] == []
    )


def test_a_correct_engine_is_never_accused_after_any_step(worlds: Worlds) -> None:
    alarms = []
    for number, case in enumerate(worlds.cases):
        for step, rows in enumerate(worlds.rows[number]):
            held = worlds.judged.instants[number][step].suspected(rows)
            if case.causal and any(row[name] for row in rows for name in VIOLATIONS if name not in held):
                alarms.append((case.seed, step))
    assert alarms == []


def test_a_restart_restores_the_same_state(worlds: Worlds) -> None:
    rng = Random(11)
    differences: list[str] = []
    for number in rng.sample(range(len(worlds.cases)), scaled(RESTARTS)):
        upto = rng.randrange(len(worlds.rows[number]))
        before, after = worlds.judged.restarted(number, upto)
        differences += closing_differences(worlds.cases[number], before, after) + unpersisted(before, after)
    assert differences == []

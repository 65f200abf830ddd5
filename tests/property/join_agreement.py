"""Compares the core's windowed join with its reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Final

from tests.property.history import Cell, History
from tests.property.join_reference import LEFT, RIGHT, InnerJoin, Join, LeftJoin, SemiJoin
from tests.property.join_worlds import correct_join_history, faulty_join_history
from tests.property.replacing import RESTORES, ReplacingReferee, running
from tests.property.spark_agreement import Row, Tally, held_agrees, observed
from tests.property.spark_histories import Case, Instant, Opinion, Referee, coarser, odder, opinions, stretched
from tests.property.strategies import EVERYTHING, Allowed
from validator.oracles.seam import Oracle, Reads
from validator.oracles.windowed_join import WindowedJoin
from validator.reconcile.judge import CONTRIBUTIONS, VIOLATIONS


class InnerReferee(InnerJoin, Referee):
    """The inner join's reference with the rules of `Referee`."""


class LeftReferee(LeftJoin, Referee):
    """The left join's reference with the rules of `Referee`."""


class SemiReferee(SemiJoin, Referee):
    """The semi join's reference with the rules of `Referee`."""


REFEREES: Final[dict[Join, type[Referee]]] = {"inner": InnerReferee, "left": LeftReferee, "semi": SemiReferee}


@dataclass(frozen=True)
class JoinCase(Case):
    """One history for the windowed join. ``cumulative``: of the results of a cell, only the newest counts."""

    join: Join = "inner"
    cumulative: bool = False

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return self.replacing(REFEREES[self.join])

    def replacing(self, referee: type[Referee]) -> type[Referee]:
        """The reference, of which only the newest results count if they replace each other."""
        return type("Replacing", (referee, ReplacingReferee), {}) if self.cumulative else referee

    @cached_property
    def oracle(self) -> Oracle:
        """The oracle with which the core judges it."""
        timing = self.history.timing
        sides = {"join": self.join, "left": LEFT, "right": RIGHT}
        made = WindowedJoin.of(timing.window_us, timing.window_offset_us, **sides)
        return made.reading(Reads(replaces=self.cumulative))


def join_case(
    seed: int,
    join: Join,
    *,
    causal: bool,
    steps_most: int,
    allowed: Allowed = EVERYTHING,
    cumulative: bool = False,
) -> JoinCase:
    """The case that ``seed`` generates."""
    rng = Random(seed)
    history = (
        correct_join_history(rng, join, allowed) if causal else odder(faulty_join_history(rng, join, allowed), rng)
    )
    history = stretched(coarser(history, rng, steps_most))
    return JoinCase(seed, causal, accumulated(history, seed, causal) if cumulative else history, join, cumulative)


def accumulated(history: History, seed: int, causal: bool) -> History:
    """The history, in which each result repeats the earlier ones of its cell."""
    return running(history, Random(seed), restores=0 if causal else RESTORES)


def join_opinions(cases: Sequence[JoinCase]) -> list[list[Opinion]]:
    """The referees' opinions of many cases."""
    return [opinions(case) for case in cases]


def compare(case: JoinCase, number: int, rows: Sequence[Row], instant: Instant, opinion: Opinion, tally: Tally) -> None:
    """Compare the core's verdicts after a step with the reference's and add the differences to ``tally``."""
    where = f"seed {case.seed} {case.join}{' (causal)' if case.causal else ''}, step {number}"

    def differs(what: str, core: object, reference: object) -> None:
        if core != reference:
            tally.differences.append(f"{where}: {what}: the core says {core}, the reference {reference}")

    tally.steps += 1
    differs("held", held_agrees(rows, instant.suspected(rows), opinion), True)
    cells: dict[Cell, Row] = {(row["window_start_us"], row["key"]): row for row in rows}
    differs("cells", sorted(cells), sorted(opinion.cells))
    for cell, row in cells.items():
        counts, results = opinion.cells.get(cell, (Counter[str](), Counter[str]()))
        core = Counter({name: row[name] for name in CONTRIBUTIONS})
        said = Counter({name: row[column] for name, column in RESULT_COLUMNS.items()})
        said["unjudged"] = row["results"] - said.total()
        if not row["in_scope"] or (row["compared"] and (row["resolved"] or row["held"] or observed(row) == 0)):
            tally.exact += 1
            tally.classes += core + Counter({f"results:{name}": count for name, count in said.items()})
            differs(f"{cell}", +core, +counts)
            differs(f"results of {cell}", +said, +results)
            continue
        tally.provisional += 1
        differs(f"violations of the provisional {cell}", [core[name] for name in VIOLATIONS], [0] * len(VIOLATIONS))
        if observed(row):
            differs(f"resolved, yet not compared {cell}", row["resolved"] or row["held"], False)
        else:
            # The counts are an upper bound. All are pending or blocked, since an overdue cell is compared by id.
            kinds = {name for name, count in core.items() if count}
            differs(f"classes of the uncompared {cell}", kinds <= {"expected", "pending", "blocked"}, True)
            differs(f"events of the uncompared {cell}", core["expected"], opinion.copies.get(cell, 0))
            differs(f"alarms of the uncompared {cell}", sum(counts[n] for n in (*VIOLATIONS, "overdue")), 0)


RESULT_COLUMNS: Final = {
    "correct": "correct",
    "incomplete": "incomplete",
    "excess": "excess",
    "misplaced": "misplaced_results",
    "wrong_value": "wrong_value",
}

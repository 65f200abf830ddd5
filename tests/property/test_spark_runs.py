"""Histories that go on after the end of a run, and whose cells retire: every oracle, with and without restarts.

The plain process never restarts, and cells leave its memory by retention only. After each step its cells are compared
with the reference and its totals with a recount. Another process reads the same steps and restarts now and then. In
half of the histories it continues from saved cells, and its settled cells leave memory; in the others it folds all
facts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest

from tests.property import join_agreement, spark_agreement, test_spark_oracles
from tests.property.history import Cell
from tests.property.join_agreement import JoinCase, join_case
from tests.property.paired import pair_case
from tests.property.spark_agreement import Row, Tally
from tests.property.spark_core import Judged, Run, time_rules_of
from tests.property.spark_histories import Case, Opinion, case, in_runs, opinions
from tests.property.strategies import PAUSING
from tests.property.test_settled_cells import persisted, totals
from tests.unit.memory_tables import MemoryTables
from tests.worlds import IS_STANDING, seeds, some
from validator.core.totals import CellTotals
from validator.reconcile.judge import RESULTS, VIOLATIONS
from validator.state.tables import Table
from validator.stream.saved_cells import Saver

pytestmark = [pytest.mark.property, pytest.mark.timeout(2700)]

TWINS: Final[dict[str, Callable[..., Case]]] = {
    "tumbling_window": case,
    **test_spark_oracles.TWINS,
    "inner join": partial(join_case, join="inner"),
    "left join": partial(join_case, join="left"),
    "pairs of a join": partial(pair_case, join="inner"),
}
WORLDS: Final = 16
"""Histories per twin."""
STEPS_MOST: Final = 14
SECOND_US: Final = 1_000_000
SLOWER: Final = SECOND_US // 64
"""One instant of the generators is then a second, the shortest epoch of facts."""
SHOWN: Final = 10
CERTAIN: Final = (
    *(name for name in VIOLATIONS if name not in RESULTS),
    *("processed", "late", "rejected", "dropped_late", "out_of_scope"),
)
ESTIMATED: Final = (
    "blocked",
    "blocked_overdue",
    "blocked_retired",  # blocked_overdue of the cells that retire
    "blocked_due_us",
    "cells_settled",
    "cells_verified",
    "cells_estimated",
)
OF_SETTLED: Final = ("settled_expected", "settled_handled", "settled_exact")
BLOCKED: Final = ("blocked", "blocked_overdue", "blocked_retired", "blocked_due_us")


class Forgetful(Run):
    """Reads all facts from the table, even the newest ones."""

    room_bytes = 0


@dataclass
class Seen:
    """What the histories had, and all differences."""

    histories: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    retirements: int = 0
    retired_cells: int = 0
    restarts: int = 0
    from_saved: int = 0
    compared: Tally = field(default_factory=Tally)
    differences: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ends = ", ".join(f"{name} {count}" for name, count in sorted(self.ended.items()))
        return (
            f"{self.histories} histories; ends of runs: {ends}; {self.retired_cells} cells retired in "
            f"{self.retirements} retirements; {self.restarts} restarts, {self.from_saved} from saved cells\n"
            f"{self.compared}"
        )


def paused(twin: Callable[..., Case], seed: int) -> tuple[Case, int]:
    """A case whose runs end and go on, and its retention in microseconds."""
    found = twin(seed, causal=seed % 2 == 0, steps_most=STEPS_MOST, allowed=PAUSING)
    found = replace(found, history=in_runs(found.history, SLOWER))
    more_us = Random(seed).choice((1, 5, 20, 80, 300)) * SECOND_US
    return found, found.history.timing.missing_after_us + more_us


def name_of(row: Row) -> Cell:
    """The cell of a row."""
    return row["window_start_us"], row["key"]


def disagreements(it: Case, number: int, run: Run, opinion: Opinion, gone: set[Cell], seen: Seen) -> list[str]:
    """The differences between the cells after a step and the reference.

    ``gone``: the cells that retention dropped before. These cells, and those that it put out of scope, are left out:
    they must have no violation.
    """
    retirements = run.instants[-1].progress.retirements
    horizon_us = max((one.horizon_us for one in retirements), default=None)
    left_out = gone | {
        name_of(row)
        for row in run.rows
        if not row["in_scope"]
        and horizon_us is not None
        and row["window_start_us"] - it.oracle.scope_margin_us < horizon_us
    }
    wrong = [
        f"step {number}: {name_of(row)} is judged, but retired"
        for row in run.rows
        if name_of(row) in left_out and any(row[name] for name in VIOLATIONS)
    ]
    rows = [row for row in run.rows if name_of(row) not in left_out]
    known = replace(opinion, cells={cell: found for cell, found in opinion.cells.items() if cell not in left_out})
    one = Tally(histories=number == 0)
    compare: Any = join_agreement.compare if isinstance(it, JoinCase) else spark_agreement.compare
    compare(it, number, rows, run.instants[-1], known, one)
    # What is suspected and confirmed depends on the retired cells, too.
    of_all = (": held:", ": confirmed:") if retirements else ()
    seen.compared = seen.compared.plus(replace(one, differences=[]))
    return [*wrong, *(text for text in one.differences if not any(part in text for part in of_all))]


def _known_again(counts: dict[str, int]) -> dict[str, int]:
    """The counts, with the outstanding contributions as one."""
    outstanding = ("pending", "blocked", "overdue", "missing")
    return {name: n for name, n in counts.items() if name not in outstanding} | {
        "outstanding": sum(counts[name] for name in outstanding)
    }


def _without_comparisons(kept: dict[str, Any]) -> dict[str, Any]:
    """The totals without those that are estimates until a comparison: contributions that are not due, and their
    cells."""
    return {
        **kept,
        "counts": {name: kept["counts"][name] for name in CERTAIN},
        "events": sum(kept["events"].values()),
        "inputs": {topic: counts.read for topic, counts in kept["inputs"].items()},
    }


def totals_after(
    it: Case, plain: CellTotals, other: CellTotals, *, restarted: bool, saves: bool
) -> dict[str, tuple[Any, Any]]:
    """The totals in which the two processes differ."""
    one, two = totals(plain), totals(other)
    if restarted and not saves and two["counts"]["missing"] < one["counts"]["missing"]:
        # docs/limits.md: after such a restart, losses can wait for their proof again. They stay on record.
        one, two = ({"on_record": kept["on_record"], **_known_again(kept["counts"])} for kept in (one, two))
        return {name: (one[name], two[name]) for name in one if one[name] != two[name]}
    if restarted:
        # After a restart the results of earlier comparisons are unknown until the next comparison.
        two |= {name: one[name] for name in ("matched", "set_aside")}
        if not saves or it.oracle.merging_gap_us is not None:
            # Nor is it always known when a cell closed.
            two |= {name: one[name] for name in ("blocked_due_us", "unconsumed_due_us") if two[name] is not None}
        if it.rules.compares_all:
            one, two = map(_without_comparisons, (one, two))
            # When a cell is settled may depend on when it closed.
            of_settled = OF_SETTLED if one["cells_settled"] != two["cells_settled"] else ()
            two |= {name: one[name] for name in (*ESTIMATED, *of_settled)}
    if one["cells_undecided"] != two["cells_undecided"]:
        # Settled cells that left memory wait longer before they retire undecided, so what they block is retired later.
        overdue = [kept["blocked_overdue"] + kept["blocked_retired"] for kept in (one, two)]
        one, two = ({**kept, **dict.fromkeys((*BLOCKED, "cells_undecided"))} for kept in (one, two))
        one["blocked_overdue"], two["blocked_overdue"] = overdue
    return {name: (one[name], two[name]) for name in one if one[name] != two[name]}


def play(it: Case, retention_us: int, facts: Sequence[pa.Table], folder: Path, seen: Seen) -> None:
    """Read one history with both processes, and note the differences."""
    rng, saves = Random(it.seed), it.seed % 4 < 2
    (folder / "plain").mkdir(parents=True)
    (folder / "other").mkdir()
    plain = Run(it, facts, MemoryTables(folder / "plain"), retention_us=retention_us)
    other = (Forgetful if it.seed % 3 else Run)(
        it,
        facts,
        MemoryTables(folder / "other"),
        evict_at=1 if saves else None,
        saver=Saver(folder / "other", it.rules, time_rules_of(it)) if saves else None,
        retention_us=retention_us,
    )
    gone: set[Cell] = set()
    found: list[str] = []
    restarted = waited = False
    for number, (step, opinion) in enumerate(zip(it.history.steps, opinions(it), strict=True)):
        plain.take(number)
        other.take(number)
        found += disagreements(it, number, plain, opinion, gone, seen)
        cells = plain.judging.cells
        stays = set(zip(cells["window_start_us"].tolist(), cells.keys().to_pylist(), strict=True))
        left = {name_of(row) for row in plain.rows} - stays
        gone |= left
        waited |= plain.judging.sums.cells_undecided != other.judging.sums.cells_undecided
        odd = totals_after(it, plain.judging.sums, other.judging.sums, restarted=restarted, saves=saves)
        found += [f"step {number}: totals of the plain process and of the other one: {odd}"] * bool(odd)
        seen.ended.update([step.ending] if step.ending != "none" else [])
        seen.retirements += bool(left)
        seen.retired_cells += len(left)
        if rng.random() < 0.5:
            other.save()
        if rng.random() < (0.7 if step.ending != "none" else 0.35):
            other.restart()
            restarted = True
    one, two = persisted(plain.tables), persisted(other.tables)  # type: ignore[arg-type]
    if waited:
        one, two = (sorted(row[1:] for row in rows) for rows in (one, two))  # without the batch that recorded them
    found += ["other violations"] * (one != two)
    accused = sum(sum(part["confirmed"].to_pylist()) for part in plain.tables.scan(Table.VIOLATIONS))
    # SEMANTICS 2.25: these engines write open sessions when the input rests, so their sessions are in parts.
    is_right = it.causal and it.oracle.merging_gap_us is None
    found += ["a correct engine is accused"] * (is_right and accused > 0)
    seen.differences += [f"{it.oracle.kind} seed {it.seed}{' saves' if saves else ''}: {text}" for text in found]
    seen.histories += 1
    seen.restarts += len(other.folded_from)
    seen.from_saved += sum(first > 0 for first in other.folded_from)


def played(name: str, seeds: Sequence[int], folder: Path) -> Seen:
    """The histories of a twin."""
    cases = [paused(TWINS[name], seed) for seed in seeds]
    judged, seen = Judged([it for it, _ in cases], folder), Seen()
    for (it, retention_us), facts in zip(cases, judged.facts, strict=True):
        play(it, retention_us, facts, folder / str(it.seed), seen)
    return seen


@pytest.mark.parametrize("name", some(sorted(TWINS)))
def test_later_runs_and_retired_cells(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen = played(name, seeds(WORLDS), tmp_path)
    number = seen.histories
    with capsys.disabled():
        print(f"\n{name}: {seen}")
    assert seen.differences[:SHOWN] == []
    assert not IS_STANDING or (seen.ended.total() >= number // 2)
    # A key leaves memory only once none of its events is due, and a rule's events are in few cells.
    has_few = name.endswith("tables") or "of-keys" in name or name.startswith("rule_match")
    assert not IS_STANDING or (seen.retirements >= (1 if has_few else number // 2))
    assert not IS_STANDING or (seen.restarts > number)

"""Histories that go on after the end of a run, and whose cells retire: every oracle, with and without restarts.

The plain process never restarts, and no cell leaves its memory before retention. After each step its cells are compared
with the reference, and its totals with a recount. Two other processes read the same steps and restart now and then: one
folds all facts, the other continues from saved cells, and its settled cells leave memory.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests.property import join_agreement, spark_agreement
from tests.property.distinct import distinct_case
from tests.property.history import Cell
from tests.property.join_agreement import join_case
from tests.property.passthrough import passthrough_case
from tests.property.running import running_case
from tests.property.sessions import session_case
from tests.property.sliding import sliding_case
from tests.property.spark_agreement import Row, Tally
from tests.property.spark_core import Judged, Run, time_rules_of
from tests.property.spark_histories import Case, Opinion, case, in_runs, opinions
from tests.property.strategies import PAUSING
from tests.property.test_settled_cells import persisted, totals
from tests.unit.memory_tables import MemoryTables
from validator.reconcile.judge import CONTRIBUTIONS, VIOLATIONS
from validator.state.tables import Table
from validator.stream.saved_cells import Saver

pytestmark = [pytest.mark.property, pytest.mark.timeout(1200)]

TWINS: Final[dict[str, Callable[..., Case]]] = {
    "tumbling_window": case,
    "distinct": distinct_case,
    "passthrough": passthrough_case,
    "running_aggregate": running_case,
    "running_aggregate-cumulative": partial(running_case, cumulative=True),
    "session_window": session_case,
    "sliding_window": sliding_case,
    "inner join": partial(join_case, join="inner"),
    "left join": partial(join_case, join="left"),
}
STEPS_MOST: Final = 14
SECOND_US: Final = 1_000_000
SLOWER: Final = SECOND_US // 64
"""An instant of the generators is a second, the shortest epoch of facts."""
SHOWN: Final = 10


@dataclass
class Seen:
    """What the histories had."""

    histories: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    retired_cells: int = 0
    retirements: int = 0
    restarts: int = 0
    from_saved: int = 0
    differences: list[str] = field(default_factory=list)


class Forgetful(Run):
    """Reads all facts from the table, even the newest ones."""

    room_bytes = 0


def paused(twin: Callable[..., Case], seed: int) -> tuple[Case, int]:
    """A case whose runs end and go on, and its retention in microseconds."""
    found = twin(seed, causal=seed % 2 == 0, steps_most=STEPS_MOST, allowed=PAUSING)
    found = replace(found, history=in_runs(found.history, SLOWER))
    more = Random(seed).choice((1, 5, 20, 80, 300))
    return found, found.history.timing.missing_after_us + more * SECOND_US


def name_of(row: Row) -> Cell:
    return row["window_start_us"], row["key"]


def disagreements(it: Case, number: int, run: Run, opinion: Opinion, gone: set[Cell], tally: Tally) -> list[str]:
    """The differences between the cells of a step and the reference. Cells that retention dropped, or put out of scope,
    are left out, but have no violation."""
    horizon_us = max((one.horizon_us for one in run.instants[-1].progress.retirements), default=-(1 << 80))
    rows, left_out = [], set(gone)
    for row in run.rows:
        if name_of(row) in gone or (not row["in_scope"] and row["window_start_us"] < horizon_us):
            left_out.add(name_of(row))
            if any(row[name] for name in VIOLATIONS):
                tally.differences.append(f"seed {it.seed} step {number}: {name_of(row)} is judged after it retired")
        else:
            rows.append(row)
    known = replace(opinion, cells={cell: found for cell, found in opinion.cells.items() if cell not in left_out})
    compare: Any = join_agreement.compare if it.rules.asks_lateness and "join" in it.oracle.kind else spark_agreement.compare
    one = Tally()
    compare(it, number, rows, run.instants[-1], known, one)
    if run.instants[-1].progress.retirements:
        one.differences = [text for text in one.differences if ": held:" not in text and ": confirmed:" not in text]
    tally.exact, tally.provisional, tally.classes = tally.exact + one.exact, tally.provisional + one.provisional, tally.classes + one.classes
    return one.differences


def play(it: Case, retention_us: int, facts: Sequence[Any], folder: Path, seen: Seen, tally: Tally) -> None:
    rng, said = Random(it.seed), opinions(it)
    states = [folder / "plain", folder / "other"]
    for state in states:
        state.mkdir(parents=True)
    saves = it.seed % 4 < 2
    saver = Saver(states[1], it.rules, time_rules_of(it)) if saves else None
    plain = Run(it, facts, MemoryTables(states[0]), retention_us=retention_us)
    other = (Forgetful if it.seed % 3 else Run)(
        it, facts, MemoryTables(states[1]), settle_at=1 if saves else None, saver=saver, retention_us=retention_us
    )
    gone: set[Cell] = set()
    where = f"{it.oracle.kind} seed {it.seed}{' saves' if saves else ' folds'}"
    restarted = False
    for number, step in enumerate(it.history.steps):
        plain.take(number)
        seen.ended[step.ending] += 1
        seen.differences += [f"{it.oracle.kind} {text}" for text in disagreements(it, number, plain, said[number], gone, tally)]
        left = {name_of(row) for row in plain.rows} - set(
            zip(plain.judging.cells["window_start_us"].tolist(), plain.judging.cells.keys().to_pylist(), strict=True)
        )
        gone |= left
        seen.retired_cells += len(left)
        seen.retirements += bool(left)
        other.take(number)
        mine, its = totals(plain.judging.sums), totals(other.judging.sums)
        if restarted:
            its |= {name: mine[name] for name in ("matched", "set_aside")}
        odd = {name: (mine[name], its[name]) for name in mine if mine[name] != its[name]}
        if odd:
            seen.differences.append(f"{where} step {number}: plain, other: {odd}")
        if rng.random() < 0.5:
            other.save()
        if rng.random() < (0.7 if step.ending != "none" else 0.2):
            other.restart()
            restarted = True
            seen.restarts += 1
    if persisted(plain.tables) != persisted(other.tables):
        seen.differences.append(f"{where}: other violations")
    if it.causal and any(sum(part["confirmed"].to_pylist()) for part in plain.tables.scan(Table.VIOLATIONS)):
        seen.differences.append(f"{where}: a correct engine is accused")
    seen.from_saved += sum(first > 0 for first in other.folded_from)
    seen.histories += 1


@pytest.mark.parametrize("name", sorted(TWINS))
def test_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = int(os.environ.get("RUNS", "40"))
    begin = int(os.environ.get("BEGIN", "0"))
    paused_cases = [paused(TWINS[name], seed) for seed in range(begin, begin + number)]
    judged = Judged([it for it, _ in paused_cases], tmp_path)
    seen, tally = Seen(), Tally()
    for at, (it, retention_us) in enumerate(paused_cases):
        play(it, retention_us, judged.facts[at], tmp_path / str(at), seen, tally)
    with capsys.disabled():
        print(f"\n{name}: {replace(seen, differences=[])}, {len(seen.differences)} differences\n{tally}")
    print("\n".join(seen.differences))
    assert seen.differences[:SHOWN] == []

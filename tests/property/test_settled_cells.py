"""Settled cells leave memory and return without an effect: totals and violations are as if all cells had stayed."""

from __future__ import annotations

import itertools
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from tests.property.enriched import enriched_case
from tests.property.join_agreement import join_case
from tests.property.join_reference import Join
from tests.property.paired import pair_case
from tests.property.passthrough import passthrough_case
from tests.property.running import running_case
from tests.property.sessions import session_case
from tests.property.sliding import sliding_case
from tests.property.spark_core import Judged, Run, time_rules_of
from tests.property.spark_histories import Case, case
from tests.unit.memory_tables import MemoryTables
from tests.worlds import IS_STANDING, seeds
from validator.core.totals import CellTotals
from validator.state.tables import Table
from validator.stream.saved_cells import Saver

pytestmark = [pytest.mark.property, pytest.mark.timeout(600)]

STEPS_MOST: Final = 10
WORLDS: Final = 70
SAVED: Final = 12
JOINS: Final[tuple[Join, ...]] = ("inner", "left", "semi")
SHOWN: Final = 10
OF_COMPARISONS: Final = ("matched", "set_aside", "cells_several", "cells_updated", "updates")


class _Forgetful(Run):
    """Reads all facts from the table, even the newest ones."""

    room_bytes = 0


def cases() -> list[Case]:
    """Correct and broken engines, for each kind of oracle whose cells leave memory."""
    found: list[Case] = []
    for seed in seeds(WORLDS):
        causal = seed % 3 == 0
        found.append(case(seed, causal=causal, steps_most=STEPS_MOST))
        if seed % 3 == 1:
            found.append(sliding_case(seed, causal=seed % 2 == 0, steps_most=STEPS_MOST))
        if seed % 3 == 2:
            found.append(passthrough_case(seed, causal=seed % 2 == 0, steps_most=STEPS_MOST))
        if seed % 5 == 2:
            found.append(enriched_case(seed, causal=causal, steps_most=STEPS_MOST))
        if seed % 5 == 3:
            found.append(enriched_case(seed, causal=causal, steps_most=STEPS_MOST, join="inner"))
        if seed % 5 == 0:
            found.append(join_case(seed, JOINS[seed // 5 % 3], causal=causal, steps_most=STEPS_MOST))
        if seed % 5 == 1:
            found.append(pair_case(seed, JOINS[seed // 5 % 3], causal=causal, steps_most=STEPS_MOST))
    return found


def cases_of_all() -> list[Case]:
    """A third of `cases`, and cases of sessions, of cells with one id each, and of compacted topics."""
    found = cases()[::3]
    for seed in seeds(SAVED):
        causal = seed % 3 == 0
        found.append(session_case(seed, causal=causal, steps_most=STEPS_MOST))
        found.append(running_case(seed, causal=causal, steps_most=STEPS_MOST, cumulative=seed % 2 == 0))
        found.append(case(seed, causal=causal, steps_most=STEPS_MOST, compacts=True))
    return found


def totals(sums: CellTotals) -> dict[str, Any]:
    """All totals but two: the verdicts that the batch changed, and the cells compared to check fingerprints."""
    return {
        field.name: getattr(sums, field.name)
        for field in fields(sums)
        if field.name not in ("changed", "cells_sampled")
    }


def persisted(tables: MemoryTables) -> list[tuple[Any, ...]]:
    """The rows of the violations table, sorted."""
    names = ("batch", "violation", "state", "count", "confirmed", "retracted", "provable_us", "explanation")
    rows = itertools.chain.from_iterable(part.to_pylist() for part in tables.scan(Table.VIOLATIONS))
    return sorted(tuple(row[name] for name in names) for row in rows)


def test_settled_cells_outside_memory_change_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged = Judged(cases(), tmp_path)
    rng, differences = Random(5), []
    left = steps = sampled = refuted = 0
    for number, it in enumerate(judged.cases):
        stays = Run(it, judged.facts[number], MemoryTables())
        leaves = (_Forgetful if number % 2 else Run)(it, judged.facts[number], MemoryTables(), evict_at=1)
        killed_after = rng.randrange(len(it.history.steps)) if number % 4 == 0 else None
        for step in range(len(it.history.steps)):
            stays.take(step)
            leaves.take(step)
            steps += 1
            refuted += leaves.judging.sums.cells_refuted
            sampled += leaves.judging.sums.cells_sampled
            left += len(leaves.judging.cells) < len(stays.judging.cells)
            one, other = totals(stays.judging.sums), totals(leaves.judging.sums)
            if killed_after is not None and step > killed_after:
                # After a restart the results of earlier comparisons are unknown until the next comparison.
                other |= {name: one[name] for name in OF_COMPARISONS}
            odd = {name: (one[name], other[name]) for name in one if one[name] != other[name]}
            if odd:
                differences.append(f"seed {it.seed} {it.oracle.kind} step {step}: all stay, they leave: {odd}")
            if step == killed_after:
                leaves.restart()
        if persisted(stays.tables) != persisted(leaves.tables) and killed_after is None:  # type: ignore[arg-type]
            differences.append(f"seed {it.seed} {it.oracle.kind}: other violations")
    with capsys.disabled():
        print(f"\n{len(judged.cases)} histories, {steps} steps; after {left} of them some cells were not in memory")
    assert differences[:SHOWN] == []
    assert not IS_STANDING or (left > steps // 5)
    assert refuted == 0
    assert not IS_STANDING or (sampled > len(judged.cases) // 2)


@pytest.mark.full
def test_a_restart_from_saved_cells_equals_a_fold_of_all_facts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = Judged(cases_of_all(), tmp_path)
    rng, differences = Random(6), []
    used = spared = 0
    for number, it in enumerate(judged.cases):
        state = tmp_path / str(number)
        state.mkdir()
        folds = Run(it, judged.facts[number], MemoryTables())
        saver = Saver(state, it.rules, time_rules_of(it))
        saves = _Forgetful(it, judged.facts[number], MemoryTables(), evict_at=1, saver=saver)
        restarted = False
        for step in range(len(it.history.steps)):
            folds.take(step)
            saves.take(step)
            one, other = totals(folds.judging.sums), totals(saves.judging.sums)
            if restarted:
                # After a restart the results of earlier comparisons are unknown until the next comparison.
                other |= {name: one[name] for name in OF_COMPARISONS}
            odd = {name: (one[name], other[name]) for name in one if one[name] != other[name]}
            if odd:
                differences.append(f"seed {it.seed} {it.oracle.kind} step {step}: all folded, some saved: {odd}")
            # A restart comes before a save: it has facts of batches after the saved one to fold.
            if rng.random() < 0.3:
                folds.restart()
                saves.restart()
                restarted = True
            if rng.random() < 0.5:
                saves.save()
        if persisted(folds.tables) != persisted(saves.tables):  # type: ignore[arg-type]
            differences.append(f"seed {it.seed} {it.oracle.kind}: other violations")
        if folds.record.latest != saves.record.latest:
            differences.append(f"seed {it.seed} {it.oracle.kind}: the newest violations are other ones")
        used += sum(first > 0 for first in saves.folded_from)
        spared += sum(saves.folded_from)
    with capsys.disabled():
        print(f"\n{len(judged.cases)} histories; {used} restarts used saved cells and did not fold {spared} batches")
    assert differences[:SHOWN] == []
    assert not IS_STANDING or (used > len(judged.cases))

"""A share of the cells with matching fingerprints is compared by id nevertheless, and differences are reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import MINUTE_US, fact
from validator.model.classes import Guarantee, Verdict
from validator.reconcile.judge import SAMPLED_OF

SENT, ANSWERED = (1, 5, 6), (2, 3, 7)
"""In these tests a fingerprint is the sum of the ids and of their squares. Both tuples have the same fingerprint."""


def closed(run: FedRun) -> None:
    run.feed([Fed("click", (99,), 3 * MINUTE_US)], after_us=MINUTE_US)
    run.feed([], after_us=10 * MINUTE_US)


def begun(path: Path, share: int) -> FedRun:
    run = FedRun(path)
    run.runner.judging.rules = replace(run.runner.judging.rules, sampled_of=share)
    return run


def test_the_fingerprints_of_this_test_collide() -> None:
    sent, answered = (fact(side, ids, batch=0, lookup_us=0) for side, ids in (("input", SENT), ("output", ANSWERED)))
    assert all(sent[name] == answered[name] for name in ("contributions", "hash_a", "hash_b"))


@pytest.mark.parametrize(("share", "verdict"), [(1, Verdict.FAIL), (1 << 62, Verdict.PASS)], ids=["sampled", "not"])
def test_a_collision_in_a_sampled_cell_is_found(tmp_path: Path, share: int, verdict: Verdict) -> None:
    run = begun(tmp_path, share)
    right = Fed("click", (8,), key="b"), Fed("output", (8,), key="b")
    run.feed([*(Fed("click", (id_,)) for id_ in SENT), Fed("output", ANSWERED), *right])
    closed(run)
    shown = run.shown()
    found = share == 1
    assert (shown.contributions["missing"], shown.contributions["unknown_id"]) == ((3, 3) if found else (0, 0))
    said = "the expected and the found ids of 1 cell differ though its fingerprints agree (2 cells were compared)"
    assert sum(said in reason for reason in shown.reasons) == int(found)
    assert shown.verdicts[Guarantee.EXACTLY_ONCE] == verdict


def test_the_share_is_drawn_by_the_ids_and_counted(tmp_path: Path) -> None:
    run = begun(tmp_path, 4)
    for id_ in range(1, 41):
        run.send(Fed("click", (id_,), key=str(id_)), Fed("output", (id_,), key=str(id_)))
    run.feed([])
    closed(run)
    shown = run.shown()
    assert (shown.cells["verified"], shown.cells["sampled"]) == (40, 10)
    assert not [reason for reason in shown.reasons if "fingerprints" in reason]
    assert SAMPLED_OF == 1_024


def test_cells_whose_facts_left_memory_are_not_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(tmp_path, 1)
    run.feed([Fed("click", (1,)), Fed("output", (1,))])
    run.runner.judging.known.forget(run.runner.progress.batch + 1)
    monkeypatch.setattr(run.runner.tables, "scan", None)
    closed(run)
    assert run.shown().cells["sampled"] == 0

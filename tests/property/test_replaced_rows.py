"""Random tables whose records replace the row of their record key: a correct engine is never accused, whatever
compaction removed and whenever the sidecar was killed, and an engine that loses a change is found."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow.compute as pc
import pytest

from tests.property.upserts import BINARY, GROUPS, MORE, ROWS, Engine, UpsertRun, new_run, row
from tests.unit.fed_run import confirmed
from tests.worlds import some
from validator.codecs.columns import VERSION
from validator.reconcile.kept_rows import KeptRows
from validator.state.tables import Table
from validator.stream import batch, recording, stage

WORLDS: Final = 60
STEPS: Final = 14
FAILPOINTS: Final = ("before_facts", "after_judging", "after_facts", "after_violations", "after_verdicts")


class Killed(Exception):
    """Stands for SIGKILL."""


def world(folder: Path, seed: int) -> UpsertRun:
    where = ", where: {path: kind, one_of: [order]}" if seed % 4 == 1 else ""
    topics = (ROWS, MORE) if seed % 3 == 2 else (ROWS,)
    return new_run(folder / str(seed), topics=topics, where=where)


def changed(run: UpsertRun, rng: Random) -> None:
    """Write some changes. All records of a key are on one partition."""
    for _ in range(rng.randint(0, 6)):
        topic, key = rng.choice(run.topics), rng.randint(0, 9)
        name = BINARY + bytes([key + 120]) if key % 3 == 0 else f"k{key}".encode()
        kind = {"kind": rng.choice(("order", "order", "offer"))} if run.where else {}
        amount = rng.choice((None, rng.randint(-50, 50), rng.randint(0, 9) / 4))
        value = None if rng.random() < 0.25 else row(rng.choice(GROUPS), amount, **kind)
        run.brokers.put(topic, key % 2, run.now_us, name, value)
        run.now_us += rng.randint(0, 1_000)


def killed(run: UpsertRun, monkeypatch: pytest.MonkeyPatch, name: str, **how: Any) -> None:
    """Kill the sidecar during a batch, and start it again. ``name``: a failpoint; not all batches pass each."""

    def reach(reached: str) -> None:
        if reached == name:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(batch, "reach", reach)
        patched.setattr(recording, "reach", reach)
        try:
            run.batch(**how)
        except Killed:
            run.restart()


def played(run: UpsertRun, engine: Engine, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(STEPS):
        # A task may be cut between any two of its records.
        monkeypatch.setattr(stage, "_RECORDS_AT_ONCE", rng.choice((1, 2, 3, 1 << 19)))
        changed(run, rng)
        if rng.random() < 0.3:
            run.brokers.compact(rng)
        engine.poll(rng.choice((0, 0.5, 1)))
        how: dict[str, Any] = {
            "share": rng.choice((0.3, 1, 1)),
            "tasks": rng.choice((1, 2)),
            "after_us": rng.randint(1, 9_000_000),
        }
        if rng.random() < 0.2:
            killed(run, monkeypatch, rng.choice(FAILPOINTS), **how)
        else:
            run.batch(**how)
        if rng.random() < 0.1:
            run.restart()
        if not engine.loses:
            assert confirmed(run.shown()) == {}
        engine.poll()
        run.batch(rng.choice((1, 1, 70_000_000)))
        assert run.net() == run.rows_read()


@pytest.mark.parametrize("seed", some(range(WORLDS)))
def test_an_engine_that_uses_each_change_once_is_never_accused(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(seed)
    run = world(tmp_path, seed)
    engine = Engine(run, rng)
    played(run, engine, rng, monkeypatch)
    engine.poll()
    run.batch()
    shown = run.end()
    assert confirmed(shown) == {}
    assert {str(it) for it in shown.verdicts.values()} == {"pass"}, shown.reasons
    assert shown.contributions["processed"] == shown.contributions["expected"]
    assert_any_order(run, rng)


def assert_any_order(run: UpsertRun, rng: Random) -> None:
    """A restart reads the batches in any order: it finds the same newest rows."""
    assert run.tables is not None
    [facts] = run.tables.scan(Table.FACTS)
    facts = facts.filter(pc.equal(facts["status"], VERSION))
    found = []
    for shuffled in (False, True):
        kept = KeptRows.of(run.config.oracle)
        assert kept is not None
        batches = sorted(set(facts["batch"].to_pylist()))
        for number in rng.sample(batches, len(batches)) if shuffled else batches:
            kept.absorb(facts.filter(pc.equal(facts["batch"], number)))
        found.append(kept.needed(facts).tolist())
    assert found[0] == found[1] != [True] * facts.num_rows


@pytest.mark.parametrize("seed", some(range(WORLDS, 2 * WORLDS)))
def test_an_engine_that_loses_a_change_is_found(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(seed)
    run = world(tmp_path, seed)
    engine = Engine(run, rng, frozenset({rng.randint(1, 8)}))
    played(run, engine, rng, monkeypatch)
    engine.poll()
    run.batch()
    found = confirmed(run.end())
    # A later change of the row may make up for the lost one.
    assert bool(found) == (engine.stated() != engine.read_all())

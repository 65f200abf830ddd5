"""An id of an input stays known after retention of its own cell, and after restarts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.fed_run import Fed, FedRun
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.codecs.columns import KNOWN
from validator.model.classes import Verdict
from validator.model.snapshot import Snapshot
from validator.reconcile.unknown_ids import UnknownIds
from validator.state.tables import StateTables, Table
from validator.stream.ids_kept import _with_ids

HOUR_US = 60 * MINUTE_US


def _run(folder: Path, *settings: str) -> FedRun:
    return FedRun(folder, settings=("state.retention=2h", *settings))


def _violations(shown: Snapshot) -> tuple[dict[str, int], dict[str, int], dict[str, int]]:
    """The confirmed, suspected and retracted contributions by class, without zeros."""
    found = (shown.violations[name] for name in ("confirmed", "suspected", "retracted"))
    confirmed, suspected, retracted = ({name: n for name, n in counts.items() if n} for counts in found)
    return confirmed, suspected, retracted


def _keys(run: FedRun) -> list[str | None]:
    return sorted(run.runner.judging.cells.keys().to_pylist(), key=str)


@pytest.fixture
def misplaced(tmp_path: Path) -> FedRun:
    """Two ids of the cell ``own`` are in results of the cell ``other``, one input record does not decode, and ``own``
    is retired."""
    run = _run(tmp_path)
    run.feed([*(Fed("click", (number,), 0, "own") for number in (1, 2, 3)), Fed("click", (4,), 0, "other")])
    run.feed([Fed("click", (9,), 2 * MINUTE_US, "last"), Fed("output", (1, 2, 3), 0, "own")])
    wrong = [Fed("output", (4, 1), 0, "other"), Fed("output", (2,), 0, "other")]
    shown = run.feed([*wrong, Fed("click", None)], after_us=HOUR_US)
    assert _violations(shown) == ({"misplaced": 2}, {}, {})
    run.feed([Fed("click", (10,), 3 * MINUTE_US, "last")], after_us=HOUR_US + HOUR_US // 2)
    assert "own" not in _keys(run)
    return run


@pytest.mark.parametrize("restarts", [False, True], ids=["same process", "restart"])
def test_a_misplaced_id_stays_misplaced_when_its_own_cell_is_retired(misplaced: FedRun, restarts: bool) -> None:
    if restarts:
        misplaced.restart()
    shown = misplaced.feed([Fed("click", (11,), 3 * MINUTE_US, "last")])
    assert _violations(shown) == ({"misplaced": 2}, {}, {})
    assert shown.verdicts["exactly_once"] is Verdict.FAIL
    # A new result of the cell causes a comparison of all of its ids.
    misplaced.feed([Fed("output", (3,), 0, "other")])
    shown = misplaced.feed([])
    # No remaining cell contained this id when its own cell was retired.
    assert (shown.contributions["misplaced"], shown.contributions["unknown_id"]) == (2, 1)


def test_ids_stay_known_through_one_retirement_after_another(misplaced: FedRun) -> None:
    for number in range(3):
        answer = Fed("output", (3,), 0, "other")
        misplaced.feed([answer, Fed("click", (20 + number,), (4 + number) * MINUTE_US, "last")], after_us=HOUR_US)
        misplaced.restart()
    shown = misplaced.feed([])
    assert (shown.contributions["misplaced"], shown.contributions["unknown_id"]) == (2, 3)
    kept = [row for row in _rows(misplaced) if row["status"] == KNOWN]
    assert sorted((e["id"], row["min_id"], row["max_id"]) for row in kept for e in row["ids"]) == [(1, 1, 1), (2, 2, 2)]
    named = ("key", "topic", "records", "contributions")
    assert {tuple(row[name] for name in named) for row in kept} == {("own", "click", 0, 0)}


def test_ids_are_kept_no_longer_than_the_cell_that_carries_them(misplaced: FedRun) -> None:
    for number in range(3):
        misplaced.feed([Fed("click", (20 + number,), (4 + number) * MINUTE_US, "last")], after_us=2 * HOUR_US)
    assert "other" not in _keys(misplaced)
    assert not [row for row in _rows(misplaced) if row["status"] == KNOWN]


def _rows(run: FedRun) -> Iterator[dict[str, Any]]:
    for part in StateTables(run.state).scan(Table.FACTS):
        yield from part.to_pylist()


@pytest.mark.parametrize("restarts", [False, True], ids=["same process", "restart"])
def test_an_unknown_id_that_an_input_has_later_becomes_misplaced(tmp_path: Path, restarts: bool) -> None:
    run = _run(tmp_path)
    run.feed([Fed("click", (1,)), Fed("output", (1, 2))])
    assert _violations(run.feed([])) == ({"unknown_id": 1}, {}, {})
    # The unreadable record was appended after the confirmation, and retracts nothing.
    run.feed([Fed("click", None)])
    if restarts:
        run.restart()
    run.feed([Fed("click", (2,), MINUTE_US, "b")])
    assert _violations(run.feed([])) == ({"misplaced": 1}, {}, {"unknown_id": 1})


def test_text_ids_are_kept_like_integer_ids() -> None:
    event = fact("input", [1, 2], batch=3, lookup_us=4, key="own")
    named = {**event, "ids": [], "text_ids": [{"id": "x", "offset": 7}, {"id": "y", "offset": 8}]}
    other = fact("input", [5], batch=3, lookup_us=4)
    rows = list(_with_ids(facts(event, named, other), (np.array([2, 9]), ["y", "z"]), 60))
    assert [(row["ids"], row["text_ids"]) for row in rows] == [
        ([{"id": 2, "offset": 1}], []),
        ([], [{"id": "y", "offset": 8}]),
    ]
    assert [(row["status"], row["batch"], row["key"], row["epoch"]) for row in rows] == [(KNOWN, 3, "own", 60)] * 2
    assert [row["min_id"] for row in rows] == [2, None]
    assert not list(_with_ids(facts(event, named), (np.array([9]), []), 60))


def test_texts_and_integers_of_cells_that_stay_are_found() -> None:
    unknown = UnknownIds()
    none = (np.empty(0, dtype=np.int64), pa.array([], pa.string()))
    unknown.compared(np.array([0, 1, 2]), (np.array([0, 2]), pa.array([7, 8])), (np.array([1]), pa.array(["x"])))
    event = fact("input", [8], batch=0, lookup_us=0)
    named = {**event, "ids": [], "text_ids": [{"id": "x", "offset": 0}]}
    assert unknown.read(facts(event, named)).tolist() == [1, 2]
    assert not len(unknown.read(facts({**event, "side": "late"})))
    unknown.drop(np.array([True, False, False]))
    assert unknown.read(facts(event, named)).tolist() == [0, 1]
    unknown.compared(np.array([0, 1]), (np.array([1]), pa.array([9])), none)
    assert not len(unknown.read(facts(event, named)))


def test_the_room_for_unknown_ids_is_bounded() -> None:
    unknown = UnknownIds(room_bytes=100)
    none = (np.empty(0, dtype=np.int64), pa.array([], pa.string()))
    for row in range(10):
        unknown.compared(np.array([row]), (np.array([row]), pa.array([row])), none)
    found = unknown.read(facts(fact("input", list(range(10)), batch=0, lookup_us=0)))
    assert found.tolist() == list(range(6))


SETTINGS = ((), ("timing.late_policy=drop",), ("inputs.0.duplicates=collapse",), ("engine.consumer_group=g",))
Step = tuple[int, list[Fed], bool]
"""Microseconds since the previous step, records, and whether a restart precedes them."""


def _history(rng: random.Random) -> list[Step]:
    """Events, results with ids of any cell or of none, late and undecodable records, and pauses, some longer than the
    retention."""
    made: list[tuple[int, int, str]] = []
    newest, steps = 0, []

    def event(minute: int, key: str) -> Fed:
        made.append((len(made) + 1, minute, key))
        return Fed("click", (len(made),), minute * MINUTE_US, key)

    for _ in range(rng.randint(6, 14)):
        records = []
        for _ in range(rng.randint(0, 4)):
            minute, key = max(0, newest - rng.choice([0, 0, 1, 2, 4, 9])), rng.choice("ab")
            kind = rng.random() if made else 0
            if kind < 0.4:
                records.append(event(minute, key))
            elif kind < 0.5:
                records.append(Fed("click", (rng.choice(made)[0],), minute * MINUTE_US, key))
            elif kind < 0.85:
                own = [one for one in made if one[1:] == (minute, key)] or made
                # The third id belongs to any cell, or its event is sent later or never.
                ids = (rng.choice(own)[0], rng.choice(own)[0], rng.choice([*made, (len(made) + 2, 0, "")])[0])
                records.append(Fed("output", ids, minute * MINUTE_US, key))
            elif kind < 0.92:
                records.append(Fed("lateOutput", (rng.choice(made)[0],), minute * MINUTE_US, key))
            else:
                records.append(Fed(rng.choice(["click", "click", "lateOutput", "output"]), None))
        if rng.random() < 0.6:
            newest += rng.randint(1, 3)
            records.append(event(newest, "a"))
        after_us = rng.choice([1, 10**6, 10**8, HOUR_US // 2, HOUR_US, 2 * HOUR_US, 3 * HOUR_US])
        steps.append((after_us, records, rng.random() < 0.4))
    return steps


def _judged(folder: Path, steps: list[Step], settings: tuple[str, ...], *, restarts: bool) -> list[object]:
    run = _run(folder, *settings)
    found: list[object] = []
    for number, (after_us, records, restart) in enumerate(steps):
        if restart and restarts:
            run.restart()
        if number % 3 == 0:
            run.logs.committed = run.logs.ends["click"]
        run.feed(records, after_us=after_us)
        found.append(_reported(run, run.feed([])))
    run.feed([Fed("click", (10**6,), 100 * MINUTE_US)])
    run.feed([], after_us=5 * MINUTE_US)
    return [*found, _reported(run, run.feed([], after_us=5 * MINUTE_US))]


def _reported(run: FedRun, shown: Snapshot) -> object:
    confirmed, suspected, _ = _violations(shown)
    return (
        *(shown.contributions, shown.results, shown.verdicts, shown.cells, confirmed, suspected, shown.reasons),
        _keys(run),
    )


@pytest.mark.full
@pytest.mark.parametrize("seed", [5, 11])
def test_a_restart_after_retention_decides_the_same(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    settings, steps = SETTINGS[seed % len(SETTINGS)], _history(rng)
    whole = _judged(tmp_path / "whole", steps, settings, restarts=False)
    assert _judged(tmp_path / "cut", steps, settings, restarts=True) == whole

"""Settled cells leave memory, return with later facts and are retired, without an effect on any total.

`tests/property/test_settled_cells.py` tests the same on histories of engines, in which cells seldom return. Here facts
arrive for cells of any age.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from tests.tiers import full
from tests.unit.memory_tables import MemoryTables
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from tests.unit.retained_run import RETENTION_US, START_US, Run, clock, progress
from tests.worlds import IS_STANDING, scaled, seeds
from validator.core.judging import Judging
from validator.core.totals import CellTotals
from validator.oracles.seam import Reads
from validator.oracles.sliding_window import SlidingWindow
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.compare import PartitionOffsets
from validator.reconcile.judge import Rules
from validator.state.known_facts import BYTES_KEPT, KnownFacts
from validator.state.tables import StateTables
from validator.stream import retention
from validator.stream.commit_rows import epoch_of, frontier_rows

pytestmark = pytest.mark.timeout(600)

KEYS: Final = "abc"
SIDES: Final = (("input", "output"), ("input",), ("output",), ("input", "late"), ("input", "output"), ("rejected",))
WORLDS: Final = 20
WORLDS_WITH_RETENTION: Final = 4


@dataclass
class Batch:
    """The data that both runs read in one batch."""

    at_us: int
    watermark_us: int
    inputs_us: int
    rows: list[dict[str, Any]]
    places: dict[tuple[str, int], PartitionOffsets]


class WorldRun(Run):
    """A state in which settled cells stay in memory (``evict_at`` None) or leave it."""

    def __init__(self, tables: StateTables, rules: Rules, evict_at: int | None) -> None:
        super().__init__(tables.state)
        self.tables = tables
        # Reads all facts from the table, even the newest ones.
        known = KnownFacts(tables, first_batch=0, room_bytes=BYTES_KEPT if evict_at is None else 0)
        self.judging = Judging(known, rules, evict_at=evict_at)

    def read(self, batch: Batch) -> dict[str, Any]:
        """The totals after a batch, except for what only this batch changed."""
        known, retirements = (
            progress(self.progress.batch + 1, batch.at_us, batch.watermark_us),
            self.progress.retirements,
        )
        self.progress = type(known)(**{**known.__dict__, "retirements": retirements})
        about = {"batch": self.progress.batch, "lookup_us": batch.at_us, "epoch": epoch_of(batch.at_us, RETENTION_US)}
        batch_facts = facts(*[{**row, **about} for row in batch.rows])
        self._append(pa.concat_tables([batch_facts, frontier_rows(self.progress, None, RETENTION_US)]))
        now = clock(batch.at_us, batch.watermark_us)
        retired = tuple((one.at_us, one.horizon_us) for one in retirements)
        now = type(now)(**{**now.__dict__, "inputs_us": batch.inputs_us, "retired": retired})
        sums = self.judging.absorb(batch_facts, now, batch.places)
        return {field.name: getattr(sums, field.name) for field in fields(CellTotals) if field.name != "changed"}

    def retires(self) -> bool:
        """Whether an epoch is old enough to be dropped."""
        return retention.last_droppable(self.progress, RETENTION_US) > self.retired.through_epoch


class World:
    """Batches of a random pipeline. Most windows are new, some are old."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        rng = self.rng
        size = MINUTE_US
        self.oracle = TumblingWindow.of(size) if rng.random() < 0.5 else SlidingWindow.of(3 * size, slide=size)
        self.rules = Rules(
            oracle=self.oracle,
            overdue_after_us=size // 4,
            missing_after_us=size // 2,
            collapse=rng.random() < 0.3,
            drops_late=rng.random() < 0.4,
            reports_unconsumed=rng.random() < 0.3,
            several_inputs=rng.random() < 0.4,
        )
        self.oracle.reading(Reads(several_outputs=rng.random() < 0.4))
        self.at_us, self.watermark_us, self.inputs_us, self.offset = START_US, 0, 0, 0

    def batch(self) -> Batch:
        """The next batch."""
        rng = self.rng
        self.at_us += rng.choice(
            (1, 1_000_000, 30_000_000, rng.choice((MINUTE_US, RETENTION_US // 6, RETENTION_US // 3)))
        )
        now_us = self.at_us - START_US
        self.watermark_us = max(self.watermark_us, now_us - rng.choice((0, MINUTE_US, 5 * MINUTE_US)))
        self.inputs_us = max(self.inputs_us, self.at_us - rng.choice((0, 0, 0, 1, MINUTE_US)))
        rows = [row for _ in range(rng.randint(0, 4)) for row in self._rows(now_us // MINUTE_US)]
        places = {}
        if self.rules.reports_unconsumed:
            behind = rng.choice((0, 0, 3)) if rng.random() < 0.9 else rng.randint(0, self.offset)
            places["input", 0] = PartitionOffsets(committed_offset=max(0, self.offset - behind))
        return Batch(self.at_us, self.watermark_us, self.inputs_us, rows, places)

    def _rows(self, newest: int) -> list[dict[str, Any]]:
        rng, rows = self.rng, []
        window, key = newest - rng.randint(0, 3 if rng.random() < 0.6 else 40), rng.choice(KEYS)
        ids = [
            10 * (window % 1000) + n + 1_000_000 * KEYS.index(key)
            for n in sorted(rng.sample(range(1, 5), rng.randint(1, 3)))
        ]
        for side in rng.choice(SIDES):
            row = fact(side, ids, batch=0, lookup_us=0, window_us=window * MINUTE_US, key=key)
            first, self.offset = self.offset, self.offset + len(ids)
            row |= {"first_offset": first, "last_offset": first + len(ids) - 1}
            if side == "output":
                row["results"] = [{"offset": first, "time_us": 0, "ids": ids, "text_ids": []}]
                row["topic"] = rng.choice(("output", "more")) if self.oracle.reads.several_outputs else "output"
            else:
                row["ids"] = [{"id": id_, "offset": first + n} for n, id_ in enumerate(ids)]
            if side == "input":
                time_us = np.array([window * MINUTE_US], dtype=np.int64)
                row["reach_us"] = int(self.oracle.reaches_us(time_us, rng.choice((0, 5 * MINUTE_US)))[0])
                row["topic"] = rng.choice(("input", "again")) if self.rules.several_inputs else "input"
            rows.append(row)
        return rows


def differences(seed: int, stays: WorldRun, leaves: WorldRun, world: World, *, retires: bool) -> list[str]:
    """The differences between the totals of both runs, up to the first step that has one."""
    for step in range(world.rng.randint(15, 40)):
        batch = world.batch()
        one, other = stays.read(batch), leaves.read(batch)
        odd = {name: (one[name], other[name]) for name in one if one[name] != other[name]}
        if odd:
            return [f"seed {seed} step {step}: all stay, they leave: {odd}"]
        if retires and stays.retires():
            stays.retire()
            leaves.retire()
    return []


@pytest.fixture
def reloaded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of cells judged at each return of settled cells."""
    found: list[int] = []
    judge_evicted = Judging.judge_evicted

    def counted(self: Judging, *arguments: Any) -> None:
        found.append(len(self.cells))
        judge_evicted(self, *arguments)

    monkeypatch.setattr(Judging, "judge_evicted", counted)
    return found


def test_reloaded_cells_equal_the_settled_ones(reloaded: list[int]) -> None:
    found = []
    for seed in seeds(WORLDS):
        world = World(seed)
        runs = [WorldRun(MemoryTables(), world.rules, evict_at) for evict_at in (None, 1)]
        found += differences(seed, runs[0], runs[1], world, retires=False)
    assert found == []
    assert not IS_STANDING or (sum(reloaded) > scaled(WORLDS))


@pytest.mark.full
def test_retention_retires_settled_cells_with_the_others(reloaded: list[int], tmp_path: Path) -> None:
    found, retired = [], 0
    for seed in seeds(WORLDS_WITH_RETENTION):
        world = World(1_000 + seed)
        folders = [tmp_path / f"{seed}-{n}" for n in range(2)]
        runs = [WorldRun(StateTables(folder), world.rules, at) for folder, at in zip(folders, (None, 1), strict=True)]
        found += differences(seed, runs[0], runs[1], world, retires=True)
        retired += runs[1].retired.sums.cells_seen
    assert found == []
    assert not IS_STANDING or (retired > scaled(WORLDS_WITH_RETENTION))
    assert reloaded


def landed(rows: Iterable[Mapping[str, Any]], *, collapse: bool) -> dict[str, tuple[int, int]]:
    """Topic -> contributions in its results, and those of them that match an event, by definition."""
    expected: Counter[tuple[int, str, int]] = Counter()
    carried: dict[str, Counter[tuple[int, str, int]]] = {}
    for one in rows:
        cell = one["window_start_us"], one["key"]
        if one["side"] == "input":
            expected.update((*cell, each["id"]) for each in one["ids"])
        elif one["side"] == "output":
            topic = carried.setdefault(one["topic"], Counter())
            topic.update((*cell, id_) for each in one["results"] for id_ in each["ids"])
    found = {}
    for topic, mine in carried.items():
        matching = 0
        for contribution, count in mine.items():
            owed = min(1, expected[contribution]) if collapse else expected[contribution]
            others = sum(its[contribution] for name, its in carried.items() if name != topic)
            matching += min(count, max(0, owed - others))
        found[topic] = (mine.total(), matching)
    return found


@pytest.mark.parametrize("evict_at", [None, full(1)])
def test_the_counts_of_outputs_are_those_of_a_definition_record_by_record(evict_at: int | None) -> None:
    differences, compared, several = [], 0, 0
    for seed in range(8):
        world = World(2_000 + seed)
        world.oracle.reading(Reads(several_outputs=True))
        run, rows = WorldRun(MemoryTables(), world.rules, evict_at), list[dict[str, Any]]()
        for step in range(world.rng.randint(15, 40)):
            batch = world.batch()
            rows += batch.rows
            found = run.read(batch)["outputs"]
            if batch.inputs_us < batch.at_us:
                continue
            of_topics = landed(rows, collapse=world.rules.collapse)
            compared, several = compared + 1, several + (len(of_topics) > 1)
            if {topic: (one.read, one.matched) for topic, one in found.items()} != of_topics:
                differences.append(f"seed {seed} step {step}: {found}, by definition {of_topics}")
                break
    assert differences == []
    assert several > compared // 2 > 30

"""A state that receives facts batch after batch, without a query, and retires on request: for tests of retention."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.codecs.batches import EVENTS, RESULTS
from validator.codecs.columns import DECODED, TOMBSTONE
from validator.core.judging import Judging
from validator.model.frontier import Clock, Frontier, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.oracles.running_aggregate import RunningAggregate
from validator.oracles.session_window import SessionWindow
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.compare import PartitionOffsets
from validator.reconcile.facts import Side, completed
from validator.reconcile.grouping import facts_of_events, facts_of_results
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables, Table
from validator.stream import retention
from validator.stream.commit_rows import epoch_length_us, epoch_of, frontier_rows, mark_row
from validator.stream.recovery import recover
from validator.stream.retention import Retired

RETENTION_US = 24 * MINUTE_US
RULES = Rules(oracle=TumblingWindow.of(MINUTE_US), overdue_after_us=1, missing_after_us=2)
TIME_RULES = TimeRules(0, MINUTE_US)
EPOCH_US = epoch_length_us(RETENTION_US)
START_US = 1_000 * EPOCH_US
WATERMARK_US = 2**60


def clock(at_us: int, watermark_us: int = WATERMARK_US) -> Clock:
    """All topics read through at ``at_us``; by default every window is closed."""
    return Clock(at_us, watermark_us, at_us, at_us, at_us, None, None, 0, False, False)


def progress(batch: int, at_us: int, watermark_us: int = WATERMARK_US) -> IngestProgress:
    frontiers = {
        PartitionId(side, 0): Frontier(side, side, 0, "topic", 0, 10, 0, 10, 10, at_us, read_through_us=at_us)
        for side in ("input", "output")
    }
    return IngestProgress(TIME_RULES, batch=batch, lookup_us=at_us, watermark_us=watermark_us, frontiers=frontiers)


class Run:
    """A state that receives one batch after another, and retires on request."""

    rules = RULES

    def __init__(self, folder: Path) -> None:
        self.tables = StateTables(folder)
        self.judging = Judging(KnownFacts(self.tables, first_batch=0), self.rules)
        self.retired = Retired()
        self.progress = IngestProgress(TIME_RULES)

    def batch(self, at_us: int, *rows: dict[str, object], watermark_us: int = WATERMARK_US) -> None:
        self.progress = progress(self.progress.batch + 1, at_us, watermark_us)
        batch_facts = facts(*[{**row, "epoch": epoch_of(at_us, RETENTION_US)} for row in rows])
        self._append(pa.concat_tables([batch_facts, frontier_rows(self.progress, None, RETENTION_US)]))
        self.judging.absorb(batch_facts, clock(at_us, watermark_us), {})

    def retire(self) -> None:
        plan = retention.plan(self.tables, self.judging, self.progress, self.retired, RETENTION_US)
        self.progress = retention.commit(plan, self.tables, self.judging, self.progress, RETENTION_US, writer="w")
        self.retired = plan.retired

    def epochs(self) -> set[int]:
        """The epochs with a folder."""
        names = {folder.name for folder in (self.tables.state / "facts").glob("epoch=*")}
        return {int(name.removeprefix("epoch=")) for name in names}

    def mark(self, text: str) -> None:
        """Add a row to the last batch."""
        row = mark_row(self.progress, text, RETENTION_US)
        self.tables.append(row, Table.FACTS, writer="marks", version=self.progress.batch)

    def _append(self, rows: pa.Table) -> None:
        self.tables.append(rows, Table.FACTS, writer="w", version=self.progress.batch)


OF_SESSIONS = Rules(oracle=SessionWindow.of(MINUTE_US), overdue_after_us=1, missing_after_us=2)


def event(id_: int, time_us: int, at: int, batch: int, key: str = "a") -> dict[str, object]:
    """An event with its slot."""
    row = fact("input", [id_], batch=batch, lookup_us=at, window_us=time_us - time_us % MINUTE_US, key=key)
    return {**row, "earliest_us": time_us, "latest_us": time_us}


CUMULATIVE = RunningAggregate.of(replaces=True)
SOURCES = [(Side.INPUT, "in"), (Side.OUTPUT, "out")]
OF_LISTS = Rules(oracle=CUMULATIVE, overdue_after_us=1, missing_after_us=2)
LATER_US = START_US + RETENTION_US + 2 * EPOCH_US


def grouped(rows: pa.Table, batch: int, at_us: int) -> pa.Table:
    return completed(rows, SOURCES, batch=batch, lookup_us=at_us, epoch=epoch_of(at_us, RETENTION_US))


def events(batch: int, at_us: int, *items: tuple[int, str, int]) -> pa.Table:
    """Facts of events (id, key, time)."""
    rows: list[dict[str, Any]] = [
        {"partition": 0, "offset": batch * 100 + i, "time_us": at_us, "id": id_, "key": key, "event_time_us": time}
        for i, (id_, key, time) in enumerate(items)
    ]
    table = pa.Table.from_pylist(rows, EVENTS)
    return grouped(facts_of_events(table, 0, CUMULATIVE, 0, 2**61, with_first_event=False), batch, at_us)


def results(batch: int, at_us: int, *items: tuple[str | None, list[int] | None], partition: int = 0) -> pa.Table:
    """Facts of results (key, ids); None instead of ids is a tombstone."""
    rows: list[dict[str, Any]] = [
        {
            "partition": partition,
            "offset": batch * 100 + i,
            "time_us": at_us,
            "status": DECODED if ids is not None else TOMBSTONE,
            "key": key,
            "ids": ids or [],
            "text_ids": [],
        }
        for i, (key, ids) in enumerate(items)
    ]
    return grouped(facts_of_results(pa.Table.from_pylist(rows, RESULTS), 1, CUMULATIVE), batch, at_us)


class ListRun(Run):
    """The same with `CUMULATIVE`: cells of one id, and results that list the ids of a key."""

    rules = OF_LISTS

    def read(self, at_us: int, *parts: pa.Table) -> dict[str, int]:
        """Run a batch and return the contributions by class."""
        frontiers = {
            PartitionId(topic, 0): Frontier(side.value, topic, 0, "id", 0, 10, 0, 10, 10, at_us, read_through_us=at_us)
            for side, topic in SOURCES
        }
        self.progress = IngestProgress(
            TIME_RULES,
            batch=self.progress.batch + 1,
            lookup_us=at_us,
            watermark_us=at_us,
            frontiers=frontiers,
            retirements=self.retired.retirements,
        )
        batch_facts = pa.concat_tables(parts) if parts else None
        rows = [frontier_rows(self.progress, None, RETENTION_US), *parts]
        self._append(pa.concat_tables(rows))
        self.judging.absorb(batch_facts, self.clock, {})
        return self.counts

    @property
    def clock(self) -> Clock:
        at = self.progress.lookup_us
        retired = tuple((it.at_us, it.horizon_us) for it in self.retired.retirements)
        return Clock(at, at, at, at, at, None, None, 0, False, False, retired=retired)

    @property
    def counts(self) -> dict[str, int]:
        return {name: count for name, count in self.judging.sums.counts.items() if count}

    def restarted(self) -> dict[str, int]:
        """The contributions by class in another process that recovers the state."""
        found = recover(self.tables, TIME_RULES, self.rules.oracle)
        judging = Judging(KnownFacts(self.tables, first_batch=found.progress.batch + 1), self.rules)
        judging.cells, judging.retired = found.cells, found.retired.sums
        judging.absorb(None, self.clock, {})
        return {name: count for name, count in judging.sums.counts.items() if count}

    @property
    def keys(self) -> list[str]:
        return sorted(self.judging.cells.keys().to_pylist())


class InMemory:
    """A state that stores nothing. ``committed``: the engine's offset."""

    def __init__(self, folder: Path, rules: Rules) -> None:
        self.judging = Judging(KnownFacts(StateTables(folder), first_batch=0), rules)
        self.committed = 2**40

    def step(self, at_us: int, *parts: pa.Table, proven_us: int | None = None) -> dict[str, int]:
        """Run a batch, with outputs read through ``proven_us``."""
        now = clock(at_us, at_us)
        if proven_us is not None:
            now = replace(now, outputs_us=proven_us, unheld_outputs_us=proven_us)
        offsets = {("in", 0): PartitionOffsets(self.committed, None, has_records=True)}
        facts = pa.concat_tables(parts) if parts else None
        sums = self.judging.absorb(facts, now, offsets)
        return {name: count for name, count in (*sums.counts.items(), *sums.results.items()) if count}

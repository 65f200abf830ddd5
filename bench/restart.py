"""The cost of a start with many settled cells, of a batch without records, and of a day: `restart`, `idle`, `day`.

The sidecar's own batches build the state from synthetic records, without Kafka and Spark. A batch is a window of a
minute with a million keys (`day`: 100,000), each with one event and one result. Each start is timed in its own process
and excludes Spark's start.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from validator.codecs.batches import EVENTS, RESULTS
from validator.codecs.columns import DECODED
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.model.frontier import Lookup, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.reconcile.facts import Side, completed
from validator.reconcile.grouping import facts_of_events, facts_of_results
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.state.sizes import TableSizes
from validator.state.tables import StateTables
from validator.stream.batch import BatchRunner
from validator.stream.brokers import Brokers, Topic
from validator.stream.commit_rows import epoch_of
from validator.stream.kafka_reading import Range
from validator.stream.recovery import recover, restore_record
from validator.stream.run_record import RunRecord
from validator.stream.saved_cells import FILE, Saver, saved_cells
from validator.stream.sources import sources_of
from validator.stream.start_offsets import first_frontier

CELLS_OF_BATCH: Final = 1_000_000
WINDOW_US: Final = 60_000_000
BEGIN_US: Final = 1_700_000_040_000_000
OPEN_CELLS: Final = 10_000
TICKS: Final = 100
KEYS_OF_DAY: Final = 100_000
HOURS: Final = (1, *range(3, 25, 3))
"""Hours of the day with a row in the table."""
FOLDED_CELLS_MAX: Final = 3_000_000
"""Up to this size a start without the file of saved cells is timed too; it takes about 2 kB of memory per cell."""


def restart(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of the table: one per size."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        state, made, begun = Path(folder, "state"), _SyntheticSidecar(Path(folder, "state")), time.monotonic()
        for cells in sorted(given.cells or [1_000_000, 10_000_000]):
            made.up_to(cells // CELLS_OF_BATCH)
            row: dict[str, Any] = {"settled_cells": made.settled, "cells_in_memory": made.in_memory}
            row |= {"making_seconds": round(time.monotonic() - begun)}
            row["state_gigabytes"] = round(sum(TableSizes(state).recent().values()) / 1e9, 2)
            row["saved_megabytes"] = round((state / FILE).stat().st_size / 1e6, 3)
            row |= {f"saved_{name}": value for name, value in _started(state).items()}
            if cells <= FOLDED_CELLS_MAX:
                kept = shutil.move(state / FILE, Path(folder, "kept"))
                row |= {f"folded_{name}": value for name, value in _started(state).items()}
                shutil.move(kept, state / FILE)
            rows.append(row)
            print(json.dumps(row, indent=1))
    return rows


def idle(given: argparse.Namespace) -> list[dict[str, Any]]:
    """CPU of a batch without records, with settled and open cells. Only publishing is excluded."""
    rows = []
    for cells in sorted(given.cells or [5_000_000]):
        with tempfile.TemporaryDirectory() as folder:
            made = _SyntheticSidecar(Path(folder, "state"))
            made.up_to(cells // CELLS_OF_BATCH, open_cells=OPEN_CELLS)
            made.tick()
            seconds = sorted(made.tick() for _ in range(TICKS))
            row: dict[str, Any] = {"settled_cells": made.settled, "cells_in_memory": made.in_memory, "ticks": TICKS}
            row |= {"cpu_seconds_p50": round(seconds[TICKS // 2], 4), "cpu_seconds_max": round(seconds[-1], 4)}
        rows.append(row)
        print(json.dumps(row, indent=1))
    return rows


def day(given: argparse.Namespace) -> list[dict[str, Any]]:
    """Memory and time of the sidecar's batches over a day of event time, then of a start."""
    del given
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        state, made = Path(folder, "state"), _SyntheticSidecar(Path(folder, "state"), KEYS_OF_DAY)
        for before, hour in itertools.pairwise((0, *HOURS)):
            begun = time.process_time()
            made.up_to(60 * hour - 1, open_cells=KEYS_OF_DAY)
            seconds = (time.process_time() - begun) / (60 * (hour - before))
            row: dict[str, Any] = {"hour": hour, "settled_cells": made.settled, "cells_in_memory": made.in_memory}
            row |= {"resident_gigabytes": _memory_gigabytes("VmRSS"), "peak_gigabytes": _memory_gigabytes("VmHWM")}
            row |= {"cpu_seconds_per_batch": round(seconds, 2)}
            rows.append(row)
            print(json.dumps(row))
        rows[-1] |= {"state_gigabytes": round(sum(TableSizes(state).recent().values()) / 1e9, 2)}
        rows[-1] |= {f"start_{name}": value for name, value in _started(state).items()}
        print(json.dumps(rows[-1], indent=1))
    return rows


def _memory_gigabytes(name: str) -> float:
    """``VmRSS`` (resident now) or ``VmHWM`` (its maximum) of this process.

    `getrusage` is not used: its maximum includes that of the process that started this one.
    """
    [kib] = re.findall(rf"{name}:\s*(\d+)", Path("/proc/self/status").read_text())
    return round(int(kib) * 1024 / 1e9, 2)


def _started(state: Path) -> Mapping[str, object]:
    """The figures of a new process that starts with the state."""
    done = subprocess.run([sys.executable, "-m", "bench.restart", str(state)], capture_output=True, check=True)
    found: Mapping[str, object] = json.loads(done.stdout)
    return found


def _config(state: Path) -> Config:
    given = ["metrics.port=0", f"state.path={state}", "state.retention=1000d"]
    return loads(EXAMPLES["clickstream"], state.parent, given, environment={})


def _rules(config: Config) -> tuple[Rules, TimeRules]:
    timing = config.timing
    rules = Rules(config.oracle, timing.overdue_after_us, timing.missing_after_us, reports_unconsumed=False)
    return rules, TimeRules(timing.max_disorder_us, timing.idle_after_us)


class _SyntheticBrokers:
    """The brokers of two topics that are always read to their ends."""

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}

    def topics(self, names: Iterable[str], optional: object = ()) -> dict[str, Topic]:
        del optional
        return {name: Topic(name, f"id-{name}", (0,)) for name in names}

    def lookup(self, topics: Iterable[str]) -> dict[PartitionId, Lookup]:
        ends = {name: self.ends.get(name, 0) for name in topics}
        return {PartitionId(name, 0): Lookup(f"id-{name}", 0, end, end) for name, end in ends.items()}

    def policies(self, topics: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "delete")


class _SyntheticRunner(BatchRunner):
    """The sidecar's runner, with synthetic records."""

    window: int = 0
    cells_of_window: int = CELLS_OF_BATCH
    size: int = CELLS_OF_BATCH

    def _facts(self, ranges: Sequence[Range], progress: IngestProgress) -> pa.Table:
        del ranges
        size, first = self.size, self.window * self.cells_of_window
        start_us = BEGIN_US + self.window * WINDOW_US
        keys = pa.array(np.char.add("page-", np.arange(size).astype("U7"))).dictionary_encode()
        ids = np.arange(first, first + size)
        position = {
            "status": pa.repeat(pa.scalar(DECODED, pa.int32()), size),
            "partition": pa.repeat(pa.scalar(0, pa.int32()), size),
            "offset": pa.array(ids),
            "time_us": pa.array(np.full(size, progress.lookup_us - 1)),
            "key": keys,
        }
        events = {"id": pa.array(ids), "event_time_us": pa.array(np.full(size, start_us))}
        lists = pa.ListArray.from_arrays(pa.array(np.arange(size + 1, dtype=np.int32)), pa.array(ids))
        results = {"window_start_us": pa.array(np.full(size, start_us)), "ids": lists}
        timing, oracle = self.config.timing, self.config.oracle
        grouped = [
            facts_of_results(_filled_table(position | results, RESULTS), self._index(Side.OUTPUT), oracle),
            facts_of_events(
                _filled_table(position | events, EVENTS),
                self._index(Side.INPUT),
                oracle,
                timing.max_disorder_us + timing.allowed_lateness_us,
                progress.lookup_us + timing.max_ahead_us,
                with_first_event=bool(progress.partitions_with_hidden_start),
            ),
        ]
        return completed(
            pa.concat_tables(grouped),
            [(source.side, source.topic) for source in self.sources],
            batch=progress.batch,
            lookup_us=progress.lookup_us,
            epoch=epoch_of(progress.lookup_us, self._retention),
        )

    def _index(self, side: Side) -> int:
        return next(number for number, source in enumerate(self.sources) if source.side is side)


def _filled_table(columns: Mapping[str, pa.Array], schema: pa.Schema) -> pa.Table:
    """``columns`` as a table of ``schema``; a column that is not given is null."""
    size = len(columns["offset"])
    lists = pa.ListArray.from_arrays(pa.array(np.zeros(size + 1, dtype=np.int32)), pa.array([], pa.string()))
    given = {"text_ids": lists, **columns}
    found = [given[one.name] if one.name in given else pa.nulls(size, one.type) for one in schema]
    return pa.table([column.cast(one.type) for column, one in zip(found, schema, strict=True)], schema=schema)


class _SyntheticSidecar:
    """A sidecar whose state gains settled cells."""

    def __init__(self, state: Path, cells_of_window: int = CELLS_OF_BATCH) -> None:
        state.mkdir()
        config, self._logs, self._now_us = _config(state), _SyntheticBrokers(), BEGIN_US
        sources = [source for source in sources_of(config) if source.side in (Side.INPUT, Side.OUTPUT)][:2]
        sides = {source.topic: source.side for source in sources}
        rules, time_rules = _rules(config)
        tables = StateTables(state)
        frontiers = {
            place: first_frontier(sides[place.topic], place, lookup, 0, BEGIN_US - 1)
            for place, lookup in self._logs.lookup(sides).items()
        }
        self._runner = _SyntheticRunner(
            config=config,
            sources=sources,
            brokers=cast("Brokers", self._logs),
            progress=IngestProgress(time_rules, lookup_us=BEGIN_US - 1, frontiers=frontiers),
            judging=recover(tables, time_rules, config.oracle).judging(KnownFacts(tables, first_batch=0), rules),
            record=RunRecord(),
            tables=tables,
            generation=1,
            checkpoint=state / "checkpoint",
            starts={},
            read_faults=lambda: None,
            publish=lambda: None,
            now_us=lambda: self._now_us,
            saver=Saver(state, rules, time_rules),
        )
        self._runner.cells_of_window = cells_of_window

    def up_to(self, batches: int, open_cells: int = CELLS_OF_BATCH) -> None:
        """Read the windows up to number ``batches``, and save the cells."""
        runner = self._runner
        for window in range(runner.window, batches + 1):
            # The last window stays open.
            runner.window, runner.size = window, runner.cells_of_window if window < batches else open_cells
            self._now_us = BEGIN_US + (window + 1) * WINDOW_US
            self._logs.ends = {source.topic: window * runner.cells_of_window + runner.size for source in runner.sources}
            ends = {PartitionId(name, 0): end for name, end in self._logs.ends.items()}
            runner.advance(ends)
        runner.window = batches + 1
        runner.save()

    def tick(self) -> float:
        """Run the batch of a second without records; its CPU seconds."""
        self._now_us += 1_000_000
        began = time.process_time()
        self._runner.advance({})
        return time.process_time() - began

    @property
    def settled(self) -> int:
        """The number of cells that have left memory."""
        return self._runner.judging.evicted.sums.cells_settled

    @property
    def in_memory(self) -> int:
        """The number of cells in memory."""
        return len(self._runner.judging.cells)


def main() -> None:
    """Load a state as a start does; print time and memory."""
    state = Path(sys.argv[1])
    config, began = _config(state), time.monotonic()
    rules, time_rules = _rules(config)
    tables, record = StateTables(state), RunRecord()
    restore_record(tables, record)
    saved = saved_cells(state, rules, time_rules)
    assert not isinstance(saved, str), saved
    found = recover(tables, time_rules, config.oracle, saved)
    judging = found.judging(KnownFacts(tables, first_batch=found.progress.batch + 1), rules)
    judging.judge_recovered(found.progress)
    seconds = round(time.monotonic() - began, 2)
    sums = judging.sums
    assert sums.cells_verified == sums.cells_closed > 0, sums
    print(
        json.dumps(
            {
                "seconds": seconds,
                "peak_gigabytes": _memory_gigabytes("VmHWM"),
                "verified": sums.cells_verified,
            }
        )
    )


if __name__ == "__main__":
    main()

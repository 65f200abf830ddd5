"""The latency of each result of a run, to the microsecond, from the facts in its sidecar's state. The sidecar's own
measures have buckets, and count a negative latency as 0.

Beside the sidecar's definitions: `next_window`, from the first input of the key's next window to the result (PGVal's
code), and `second_window`, from that of the window after it (PGVal's second gauge, for topologies with two windows).
Only events of the first input count: PGVal's updates never set the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from validator.config.load import load
from validator.core.judging import new_cells
from validator.measure.latency import DEFINITIONS, RESULT_COLUMNS, ResultTimes, result_times
from validator.model.arrays import NEVER, Bools, Ints, ints
from validator.publish.report_types import PhaseOfReport
from validator.reconcile.cells import Cells, contributing
from validator.reconcile.facts import Kind, Side
from validator.state.tables import StateTables, Table

PERCENTILES: Final = (1, 5, 25, 50, 75, 95, 99, 99.9, 99.99, 99.999)
"""Of the results of a phase, by nearest rank: of fewer than 100,000 results the last one is the largest value."""
LAST_SECONDS: Final = (20, 720)
"""Vogel et al. give percentiles over the last so many seconds."""
WINDOWS: Final = ("next_window", "second_window")
_SCHEMA: Final = pa.schema(
    [("time", pa.timestamp("us", tz="UTC")), ("partition", pa.int64()), ("contributions", pa.int64())]
    + [(f"{name}_seconds", pa.float64()) for name in (*DEFINITIONS, *WINDOWS)]
)
_OF_EVENTS: Final = ("kind", "status", "window_start_us", "key", "first_time_us")
_IS_FACT: Final = ds.field("kind") == Kind.FACT.value


def of_state(config: Path) -> pa.Table:
    """A row for each result with its broker time and its latencies in seconds, null where one is not known. ``config``:
    that of the sidecar, which has ended. Raises the errors of a configuration or a state that cannot be read."""
    settings = load(config)
    tables, cells = StateTables(settings.state.path), new_cells(settings.oracle)
    for facts in tables.scan(Table.FACTS, cells.fact_columns, _IS_FACT):
        cells.absorb(facts)
    if cells.newest is not None:
        cells.newest.settle()
    first_us = _firsts(tables, cells, settings.inputs[0].topic)
    of_results = _IS_FACT & (ds.field("side") == Side.OUTPUT.value)
    parts = [result_times(facts, cells) for facts in tables.scan(Table.FACTS, RESULT_COLUMNS, of_results)]
    found = [_table(cells, part, first_us) for part in parts if part is not None]
    return pa.concat_tables(found).sort_by("time") if found else _SCHEMA.empty_table()


def _firsts(tables: StateTables, cells: Cells, topic: str) -> Ints:
    """The broker time of the first event of ``topic`` in each cell; `NEVER` if there is none."""
    found = np.full(len(cells), NEVER, dtype=np.int64)
    of_topic = _IS_FACT & (ds.field("side") == Side.INPUT.value) & (ds.field("topic") == topic)
    for part in tables.scan(Table.FACTS, _OF_EVENTS, of_topic):
        facts = contributing(part)
        np.minimum.at(found, cells.rows_of_facts(facts), ints(facts["first_time_us"]))
    return found


def _table(cells: Cells, times: ResultTimes, first_us: Ints) -> pa.Table:
    since = dict(times.since)
    rows = times.rows
    for name in WINDOWS:
        rows, first = _next(cells, rows, first_us)
        since[name] = (first, first != NEVER)
    columns = [pa.array(times.result_us, _SCHEMA.field("time").type)]
    columns += [pa.array(times.partition), pa.array(times.contributions)]
    for from_us, known in since.values():
        seconds = np.where(known, times.result_us - np.where(known, from_us, 0), 0) / 1e6
        columns.append(pa.array(seconds, mask=~known))
    return pa.table(columns, schema=_SCHEMA)


def _next(cells: Cells, rows: Ints, first_us: Ints) -> tuple[Ints, Ints]:
    """The cells of the same keys that begin at the ends of these, -1 where there is none; and their first inputs."""
    found = np.full(len(rows), -1, dtype=np.int64)
    there: Bools = rows >= 0
    if cells.oracle.has_windows and there.any():
        found[there] = cells.rows_of(cells["end_us"][rows[there]], cells.keys(rows[there]))
    first = np.full(len(rows), NEVER, dtype=np.int64)
    first[found >= 0] = first_us[found[found >= 0]]
    return found, first


def path_of(folder: Path, run: str) -> Path:
    """Path of the file of a run."""
    return folder / "series" / f"{run}.latency.parquet"


def write(path: Path, latencies: pa.Table) -> None:
    """Write the latencies as Parquet. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".tmp")
    pq.write_table(latencies, partial)
    partial.replace(path)


def by_phase(
    latencies: pa.Table, phases: Sequence[PhaseOfReport], load_us: tuple[int, int] | None = None
) -> dict[str, dict[str, dict[str, float]]]:
    """Definition -> phase -> name of a number -> its value: the percentiles, mean and standard deviation in seconds,
    and the number of results and of negative latencies. Of each kind of phase the first counts. ``load_us``: begin and
    end of the load; its last seconds (`LAST_SECONDS`) are phases, too, if it has so many."""
    of: dict[str, tuple[int, int]] = {}
    for phase in phases:
        of.setdefault(phase["phase"], (micros(phase["start"], 0), micros(phase["end"], NEVER)))
    begin, end = load_us or (0, 0)
    for seconds in LAST_SECONDS:
        if end - begin >= seconds * 1_000_000:
            of[f"last {seconds} s"] = (end - seconds * 1_000_000, end)
    at = latencies["time"].cast(pa.int64()).to_numpy()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name in (*DEFINITIONS, *WINDOWS):
        values = latencies[f"{name}_seconds"].to_numpy()
        for kind, (start, end) in of.items():
            chosen = values[(at >= start) & (at < end) & ~np.isnan(values)]
            if len(chosen):
                found.setdefault(name, {})[kind] = _numbers(chosen)
    return found


def _numbers(values: npt.NDArray[np.float64]) -> dict[str, float]:
    ordered = np.sort(values)
    # Whole numbers: 99.9 % of 1000 in floating point is above 999.
    ranks = [-(-round(q * 1000) * len(ordered) // 100_000) - 1 for q in PERCENTILES]
    numbers: Mapping[str, float] = {
        "results": len(values), "negative": int((values < 0).sum()),
        **{f"p{q:g}": float(ordered[max(0, rank)]) for q, rank in zip(PERCENTILES, ranks, strict=True)},
        "mean": float(values.mean()), "deviation": float(values.std()),
    }  # fmt: skip
    return {name: round(value, 6) for name, value in numbers.items()}


def micros(instant: str | None, otherwise: int) -> int:
    """An instant of a report in microseconds; ``otherwise`` without one."""
    return otherwise if instant is None else round(datetime.fromisoformat(instant).timestamp() * 1e6)

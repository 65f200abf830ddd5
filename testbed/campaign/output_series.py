"""The output of a run by second, as its sidecar measured it: a Parquet file beside that of the samples.

Columns: ``time`` and ``seconds`` of the stretch, ``results``, ``contributions`` (ids or events in them), and of each
definition of latency its mean, its maximum, and the upper bounds of the buckets with p50 and p99, in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from validator.measure.output import Output, Spread
from validator.publish.history import LATENCIES

_SCHEMA: Final = pa.schema(
    [
        ("time", pa.timestamp("s", tz="UTC")),
        *((name, pa.int64()) for name in ("seconds", "results", "contributions")),
        *(
            (f"{definition}_{name}_seconds", pa.float64())
            for definition in LATENCIES
            for name in ("mean", "p50", "p99", "max")
        ),
    ]
)


def path_of(folder: Path, run: str) -> Path:
    """Path of the file of a run."""
    return folder / "series" / f"{run}.output.parquet"


def write(path: Path, outputs: Iterable[Output]) -> None:
    """Write a row for each second with output. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".tmp")
    pq.write_table(pa.Table.from_pylist(list(map(_row, outputs)), _SCHEMA), partial)
    partial.replace(path)


def _row(output: Output) -> dict[str, Any]:
    found: dict[str, Any] = {
        "time": output.start_s, "seconds": output.end_s - output.start_s,
        "results": output.results, "contributions": output.contributions,
    }  # fmt: skip
    for definition in LATENCIES:
        if (spread := output.latency.get(definition)) is not None:
            found |= {f"{definition}_{name}_seconds": value for name, value in _latencies(spread).items()}
    return found


def _latencies(spread: Spread) -> Mapping[str, float | None]:
    histogram = spread.histogram()
    return {
        "mean": spread.mean_us / 1e6, "p50": histogram.quantile(0.5), "p99": histogram.quantile(0.99),
        "max": spread.max_us / 1e6,
    }  # fmt: skip

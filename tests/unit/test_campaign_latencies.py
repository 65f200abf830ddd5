"""The latency of each result of a run: percentiles that no bucket rounds, and negative values."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from generator.workloads.kinds import named
from testbed.campaign import formats, latencies
from testbed.campaign.matrix import matrix, runs
from testbed.campaign.table import table
from testbed.run_files import SidecarFile, Topics
from tests.unit.campaign_results import fake, plan
from tests.unit.reconcile_rows import MINUTE_US, fact
from tests.unit.retained_run import START_US, Run

pytestmark = pytest.mark.unit
MILLISECOND_US = 1000


def config(folder: Path) -> Path:
    file = SidecarFile("p", "at_least_once", "reference", MINUTE_US // 1000, 1000, 2000)
    return file.write("127.0.0.1:1", folder)


def test_each_result_has_its_latencies_and_one_before_an_input_of_its_cell_is_negative(tmp_path: Path) -> None:
    """Windows 0, 1 and 2 of one key. The answer to window 0 comes between its two inputs."""
    run, at = Run(tmp_path / "state"), START_US

    def arrives(side: str, window: int, ms: int, ids: list[int]) -> None:
        us = at + ms * MILLISECOND_US
        row = fact(side, ids, batch=run.progress.batch + 1, lookup_us=us, window_us=window * MINUTE_US)
        run.batch(us, row | ({"topic": "click"} if side == "input" else {}))

    arrives("input", 0, 0, [1])
    arrives("input", 1, 100, [2])
    arrives("output", 0, 150, [1])
    arrives("input", 0, 400, [9])  # late
    arrives("input", 2, 500, [3])
    arrives("output", 1, 530, [2])
    found = latencies.of_state(config(tmp_path)).to_pylist()
    names = [
        f"{name}_seconds" for name in ("last_input", "first_input", "window_close", "next_window", "second_window")
    ]
    assert [[row[name] for name in names] for row in found] == [
        [-0.25, 0.15, 0.05, 0.05, -0.35],
        [0.43, 0.43, 0.03, 0.03, None],
    ]
    assert [row["contributions"] for row in found] == [1, 1]


def test_an_update_never_sets_the_reference_of_the_next_window(tmp_path: Path) -> None:
    """Windows 0 and 1 of one key. The update of window 1 comes 300 ms before its click."""
    run = Run(tmp_path / "state")

    def arrives(side: str, topic: str, window: int, ms: int, number: int) -> None:
        us = START_US + ms * MILLISECOND_US
        row = fact(side, [number], batch=run.progress.batch + 1, lookup_us=us, window_us=window * MINUTE_US)
        run.batch(us, row | {"topic": topic})

    arrives("input", "click", 0, 0, 1)
    arrives("input", "update", 1, 100, 2)
    arrives("input", "click", 1, 400, 3)
    arrives("output", "output", 0, 500, 1)
    file = SidecarFile("p", "at_least_once", "reference", MINUTE_US // 1000, 1000, 2000, Topics(named("mst")))
    [found] = latencies.of_state(file.write("127.0.0.1:1", tmp_path)).to_pylist()
    assert (found["next_window_seconds"], found["window_close_seconds"]) == (0.1, 0.4)


def test_percentiles_are_of_the_results_of_their_phase() -> None:
    def instant(second: int) -> str:
        return datetime.fromtimestamp(second, UTC).isoformat()

    seconds = [i / 1000 for i in range(1, 1001)]
    times = [10_000_000 + i for i in range(len(seconds))]
    series = pa.table(
        [pa.array([*times, 20_000_001], latencies._SCHEMA.field("time").type), *[pa.array([1] * 1001)] * 2,
         *(pa.array([*seconds, -7.0]) for _ in latencies._SCHEMA.names[3:])], schema=latencies._SCHEMA,
    )  # fmt: skip
    phases: Any = [
        {"phase": "control", "start": None, "end": instant(20)},
        {"phase": "failure", "start": instant(20), "end": None},
        {"phase": "control", "start": instant(40), "end": None},
    ]
    found = latencies.by_phase(series, phases)["window_close"]
    control, failure = found["control"], found["failure"]
    assert (control["results"], control["negative"], control["mean"]) == (1000, 0, 0.5005)
    assert [control[f"p{q}"] for q in ("1", "50", "95", "99.9", "99.999")] == [0.01, 0.5, 0.95, 0.999, 1.0]
    assert (failure["results"], failure["negative"], failure["p50"]) == (1, 1, -7.0)


def test_the_table_has_the_percentiles_of_each_phase_and_the_series_are_kept(tmp_path: Path) -> None:
    calm = plan(engines=["flink"], guarantees=["at_least_once"], faults=["none"], repetitions=2)
    wanted = runs(matrix(calm).cells, calm)
    results = {
        run.name: fake(run, latencies={"window_close": {"control": {"results": 7, "p99.999": seconds}}})
        for run, seconds in zip(wanted, (1.0, 2.0), strict=True)
    }
    text = formats.markdown(table(wanted, results, left_out=(), failures=(), headings=(), settings={}))
    assert "| phase | results | p99.999 |" in text
    assert "| control | 7 | 1.5 |" in text
    path = latencies.path_of(tmp_path, "run-1")
    latencies.write(path, latencies._SCHEMA.empty_table())
    assert pq.read_table(path).schema.equals(latencies._SCHEMA)

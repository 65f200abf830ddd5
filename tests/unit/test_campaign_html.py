"""The page of a campaign: figures, the course of each run from its files, and nothing from elsewhere."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from testbed.campaign import counters, figures, formats, html, output_series, sampler
from testbed.campaign.figures import Bars, Boxed
from testbed.campaign.matrix import matrix, runs
from testbed.campaign.result import FaultMeasure
from testbed.campaign.sampler import GROUP, MACHINE, Sample
from testbed.campaign.table import table
from tests.unit.campaign_results import fake, plan
from validator.measure.output import Output, Spread
from validator.publish.atomic import replace_file

PLAN = plan(repetitions=2)
RUNS = runs(matrix(PLAN).cells, PLAN)
START = 1_800_000_000
EVIL = "</script><script>alert(1)</script>"


def cost(seconds: float | None) -> FaultMeasure:
    return FaultMeasure(
        failure_cost_seconds=2.0, downtime_seconds=1.0, recovery_seconds=seconds, recovered=seconds is not None
    )


def output(second: int, contributions: int) -> Output:
    at_us = (START + second) * 1_000_000
    latency = {"window_close": Spread({3: 1, 5: 1}, 500_000, 400_000)}
    return Output(START + second, START + second + 1, 2, contributions, at_us, at_us, 0, latency)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of one run: output in two of three seconds, two samples in the same second."""
    name = RUNS[0].name
    output_series.write(output_series.path_of(tmp_path, name), [output(0, 600), output(2, 1200)])
    samples = [
        Sample(
            (START * 1_000_000) + offset_us,
            process,
            0.25,
            50_000_000,
            1_000_000,
            2_000_000,
            network_sent_bytes=3_000_000,
            heap_bytes=4_000_000,
            collection_seconds=0.125,
        )
        for offset_us in (100_000, 990_000)
        for process in ("worker-0", "worker-1", "broker", "generator", MACHINE)
    ]
    sampler.write(
        tmp_path / "series" / f"{name}.parquet", [*samples, Sample(START * 1_000_000 + 100_000, GROUP, lag_events=7)]
    )
    start = datetime.fromtimestamp(START, UTC).isoformat()
    target = "kafka_streams-worker-1, kafka_streams-0"
    faults = [{"name": EVIL, "kind": "process_kill", "target": target, "start": start, "healed": None}]
    counted = [(START, 0, 100.0), (START, 1, 50.0), (START, 2, 5.0), (START + 1, 0, 160.0), (START + 1, 1, 80.0),
               (START + 1, 2, 12.0), (START + 2, 0, 3.0), (START + 2, 1, 100.0)]  # fmt: skip
    counters.write(
        tmp_path / "series" / f"{name}.counters.parquet",
        [
            *((second * 1_000_000, f"worker-{n}", "process-total", value) for second, n, value in counted),
            ((START + 2) * 1_000_000, "reach", "connect-seconds", 0.5),
        ],
    )
    (tmp_path / "reports").mkdir()
    replace_file(tmp_path / "reports" / f"{name}.json", json.dumps({"faults": faults}))
    return tmp_path


def page(folder: Path, **changes: Any) -> str:
    results = {run.name: fake(run, **changes) for run in RUNS}
    found = table(RUNS, results, left_out=[], failures=(), headings=[], settings={})
    return html.write(folder, found, results).read_text(encoding="utf-8")


def test_the_course_of_a_run_joins_its_output_with_the_samples_by_second(folder: Path) -> None:
    course = html.course(folder, RUNS[0].name)
    assert course is not None
    rows = [dict(zip(course["columns"], row, strict=True)) for row in course["rows"]]
    assert [row["time"] - START for row in rows] == [0, 1, 2]
    assert [row["output_per_second"] for row in rows] == [600, None, 1200]
    assert rows[0] | {"time": 0} == {
        "time": 0, "output_per_second": 600, "latency_p50_seconds": 0.1, "latency_p99_seconds": 0.4, "lag_events": 7,
        "engine_cores": 0.5, "broker_cores": 0.25, "sidecar_cores": None, "generator_cores": 0.25,
        "engine_megabytes": 100.0, "hit_per_second": None, "others_per_second": None, "connect_seconds": None,
        "engine_heap_megabytes": 8, "engine_read_megabytes": 2, "engine_written_megabytes": 4,
        "engine_collection_seconds": 0.25, "network_megabytes": 3,
    }  # fmt: skip
    # Workers 0 and 1 are hit; worker 0 starts again in the third second, and has no rate there.
    assert [(row["hit_per_second"], row["others_per_second"]) for row in rows[1:]] == [(90, 7), (20, None)]
    assert rows[2]["connect_seconds"] == 0.5
    assert rows[1]["engine_cores"] == 0.5, "the second sample of a second is that of the next one"
    assert html.course(folder, RUNS[1].name) is None


def test_the_output_of_a_run_has_its_latencies_by_definition(folder: Path) -> None:
    row, last = pq.read_table(output_series.path_of(folder, RUNS[0].name)).to_pylist()
    assert (row["seconds"], row["contributions"], last["contributions"]) == (1, 600, 1200)
    assert (row["window_close_mean_seconds"], row["window_close_max_seconds"]) == (0.25, 0.4)
    assert row["first_input_p50_seconds"] is None


def test_the_page_has_figures_plots_and_all_tables_and_loads_nothing(folder: Path) -> None:
    drawn = page(folder, cost=cost(9.0))
    for heading in ("Recovery time", "Failure cost", "Throughput by phase", "Latency p99 by phase",
                    "The course of a run", "Guarantees kept, and the cost", "What each failure does"):  # fmt: skip
        assert f"<h2>{heading}" in drawn
    assert not re.search(r'(?:src|href)="(?!data:,")', drawn)
    assert EVIL not in drawn
    [data] = re.findall(r'<script type="application/json" id="runs">(.*?)</script>', drawn)
    assert json.loads(data)[RUNS[0].name]["faults"][0]["name"] == EVIL
    assert page(folder, cost=cost(None)).count(">2 not</text>") == 4, "each cell with a fault has two runs"


def test_a_campaign_without_series_has_no_plots(tmp_path: Path) -> None:
    assert "The course of a run" not in page(tmp_path)


def test_a_box_has_its_quartiles_and_a_dot_for_each_value() -> None:
    drawn = figures.boxes([Boxed("a < b", [1, 2, 3, 4, 5], censored=1), Boxed("none", [])], "s")
    assert drawn.count("<circle") == 5
    assert "a &lt; b: 1 to 5, median 3" in drawn
    assert "none" not in drawn
    [(left, width)] = re.findall(r'<rect x="([\d.]+)" width="([\d.]+)" y="4.0"', drawn)
    per_second = (820 - 360 - 70) / 5
    assert (float(left), float(width)) == pytest.approx((360 + 2 * per_second, 2 * per_second))
    assert figures.boxes([Boxed("a", [])], "s") == ""


def test_bars_leave_out_what_was_not_measured() -> None:
    drawn = figures.bars([Bars("a", [1.0, None]), Bars("b", [None, None])], ("control", "failure"), "s")
    assert drawn.count("<title>") == 1
    assert figures.bars([Bars("b", [None])], ("control",), "s") == ""


def test_what_a_failure_does_is_one_row_for_all_engines() -> None:
    results = {run.name: fake(run, duplicate=int(run.cell.guarantee == "at_least_once")) for run in RUNS}
    found = formats.grids(table(RUNS, results, left_out=[], failures=(), headings=[], settings={}))
    [(_, titles, rows)] = [grid for grid in found if grid[0] == "What each failure does"]
    assert titles == ["failure", *(f"{engine}, {guarantee}" for engine in ("kafka_streams", "flink")
                                   for guarantee in ("at least once", "exactly once"))]  # fmt: skip
    for before, words in ((True, "output before the restart"), (False, "no output before the restart")):
        costs = {name: one.cost.model_copy(update={"output_before_restart": before}) for name, one in results.items()}
        changed = {name: one.model_copy(update={"cost": costs[name]}) for name, one in results.items()}
        of = formats.grids(table(RUNS, changed, left_out=[], failures=(), headings=[], settings={}))
        [effects] = next(grid[2] for grid in of if grid[0] == "What each failure does")
        assert all(f"down 3 s, {words}, recovers" in effect for effect in effects[1:])
    assert rows == [
        ["crash, sst", *["no loss, duplicates, down 3 s, recovers", "no loss, no duplicates, down 3 s, recovers"] * 2]
    ]

"""The page of a campaign in a real browser: its figures are drawn, and the console has no errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from testbed.campaign import counters, html, output_series, sampler
from testbed.campaign.matrix import matrix, runs
from testbed.campaign.result import FaultMeasure
from testbed.campaign.sampler import GROUP, MACHINE, Sample
from testbed.campaign.table import table
from tests.pages import chromium
from tests.pages.chromium import Browser, needs_chromium
from tests.pages.contrast import CONTRAST
from tests.unit.campaign_results import fake, plan
from validator.measure.output import Output, Spread
from validator.publish.atomic import replace_file

pytestmark = needs_chromium
PLAN = plan(repetitions=2)
RUNS = runs(matrix(PLAN).cells, PLAN)
START = 1_800_000_000
SECONDS = 60
FIGURES = ["Recovery time", "Failure cost", "Throughput by phase", "Latency p99 by phase"]
PLOTS = ["Output", "Latency", "Lag", "Processor", "Input of the workers", "Reach", "Memory", "Collections", "Disk",
         "Network"]  # fmt: skip


def instant(second: int) -> str:
    return datetime.fromtimestamp(START + second, UTC).isoformat()


def write_series(folder: Path, name: str) -> None:
    """The files of a run with a fault from second 20 to 30, in which there is no output."""
    outputs = [
        Output(at, at + 1, 2, 600, at * 1_000_000, at * 1_000_000, 0,
               {"window_close": Spread({3: 1, 5: 1}, 500_000, 400_000)})
        for at in range(START, START + SECONDS) if not 20 <= at - START < 30
    ]  # fmt: skip
    output_series.write(output_series.path_of(folder, name), outputs)
    samples: list[Sample] = []
    counted: list[counters.Row] = []
    for second in range(SECONDS):
        at_us = (START + second) * 1_000_000
        samples += [
            Sample(at_us, process, 0.25, 50_000_000, 1000, 2000, heap_bytes=4_000_000, collection_seconds=0.01)
            for process in ("worker-0", "worker-1", "broker", "sidecar", "generator")
        ]
        samples += [Sample(at_us, MACHINE, network_sent_bytes=3_000_000), Sample(at_us, GROUP, lag_events=second)]
        counted += [(at_us, f"worker-{number}", "process-total", 100.0 * second) for number in (0, 1)]
        counted.append((at_us, "reach", "connect-seconds", 0.001))
    sampler.write(folder / "series" / f"{name}.parquet", samples)
    counters.write(folder / "series" / f"{name}.counters.parquet", counted)
    fault = {"name": "crash", "kind": "process_kill", "target": "flink-0", "start": instant(20), "healed": instant(30)}
    (folder / "reports").mkdir(exist_ok=True)
    replace_file(folder / "reports" / f"{name}.json", json.dumps({"faults": [fault]}))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("campaign")
    for run in RUNS[:2]:
        write_series(folder, run.name)
    cost = FaultMeasure(failure_cost_seconds=2.0, downtime_seconds=1.0, recovery_seconds=9.0, recovered=True)
    results = {run.name: fake(run, cost=cost) for run in RUNS}
    return html.write(folder, table(RUNS, results, left_out=[], failures=(), headings=[], settings={}), results)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, file: Path) -> Iterator[Browser]:
    command = chromium.find()
    assert command is not None
    with chromium.browser(command, tmp_path_factory.mktemp("profile")) as browser:
        browser.window(1280, 900, "light")
        browser.open(file.as_uri())
        yield browser


@pytest.mark.full
def test_the_figures_and_the_plots_of_a_run_are_drawn(page: Browser) -> None:
    drawn = page.value("[...document.querySelectorAll('section')].filter((one) => one.querySelector('svg'))"
                       ".map((one) => one.querySelector('h2').textContent)")  # fmt: skip
    assert drawn[: len(FIGURES)] == FIGURES
    labels = page.value("[...document.querySelectorAll('.frame')].map((frame) => frame.getAttribute('aria-label'))")
    assert [label.split(",")[0] for label in labels] == PLOTS
    assert page.value("document.querySelectorAll('.frame canvas').length") == len(PLOTS)


@pytest.mark.full
def test_another_run_can_be_chosen(page: Browser) -> None:
    names = page.value("[...document.querySelectorAll('#which option')].map((one) => one.value)")
    assert names == [run.name for run in RUNS[:2]]
    page.value("which.value = which.options[1].value, which.dispatchEvent(new Event('change'))")
    assert page.value("document.querySelectorAll('.frame canvas').length") == len(PLOTS)


@pytest.mark.full
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_readable_in_both_schemes(page: Browser, scheme: str) -> None:
    page.window(1280, 900, scheme)
    assert page.value("document.documentElement.scrollWidth") <= 1280
    assert page.value(CONTRAST) == []


@pytest.mark.full
def test_the_page_loads_nothing_and_logs_nothing(page: Browser, file: Path) -> None:
    assert set(page.requests) == {file.as_uri()}
    assert page.complaints == []

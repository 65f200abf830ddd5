"""The page of the newest campaign's results: a row a cell, counted recoveries, and figures that stand alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from bench import results
from testbed.campaign import figures, result, search
from testbed.campaign.figures import Course
from testbed.campaign.journal import CampaignJournal, Heading
from testbed.campaign.matrix import matrix, runs
from testbed.campaign.plan import load
from testbed.campaign.search import Trial
from tests.unit.campaign_results import PLAN, fake

SCALES = {"small": {"repetitions": 1, "faults": ["crash"]}}
SEARCH = {
    **PLAN, "engines": ["flink"], "guarantees": ["exactly_once"], "faults": ["none"], "repetitions": 1,
    "search": {"rates": [1000, 2000], "within": 1.0}, "scales": {"small": {}},
}  # fmt: skip


@pytest.fixture
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Plans that repeat a paper; `pgval` has the results of all runs but one, `rates` those of its search."""
    monkeypatch.setattr("bench.campaign.PLANS", tmp_path)
    monkeypatch.setattr(results, "PLANS", tmp_path)
    monkeypatch.setattr(results, "FOLDER", tmp_path / "page")
    given: dict[str, dict[str, Any]] = {
        "pgval": {**PLAN, "scales": SCALES},
        "rates": SEARCH,
        "absent": {**PLAN, "scales": SCALES},
    }
    for name, plan in given.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**plan, "repeats": "A paper."}), encoding="utf-8")
    plan = load(tmp_path / "pgval.yaml", "small")
    *most, last = runs(matrix(plan).cells, plan)
    with CampaignJournal(plan.results, plan).open(resumes=False) as kept:
        kept.begin(Heading("2 cores", "0.1 (commit abc)"))
        kept.append("failed", run=last.name, reason="RunFailed: it ended\nbadly")
    for number, run in enumerate(most):
        cost = fake(run).cost.model_copy(update={"recovery_seconds": number or None})
        result.write(plan.results, run, fake(run, cost=cost, duplicate=1200))
    searched = load(tmp_path / "rates.yaml", "small")
    [run] = runs(matrix(searched).cells, searched)
    trials = [Trial(1000, True, "sustained"), Trial(2000, False, "the lag grew by 0.2 of the load")]
    search.write(searched.results, run.name, trials)
    return tmp_path


def test_the_page_has_a_row_a_cell_the_searches_and_what_failed(plans: Path) -> None:
    assert results.main(["--scale", "small"]) == 0
    page = (plans / "page" / "README.md").read_text(encoding="utf-8")
    first = "| pgval | kafka_streams | at_least_once | crash | 1,200 duplicate | 7.00; PGVal 2, ratio 3.5 | 3.00 | – |"
    assert next(line for line in page.splitlines() if line.startswith("| pgval")) == first
    for said in (
        "scripts/bench campaign pgval rates --scale small", "2 cores, streamproof 0.1 (commit abc)",
        "2026-01-01: 3 of 4 runs, 1 of 1 search have a result; not run: absent.",
        "A recovery time: 2 of 3 runs whose faults healed; not kafka_streams-sst-at_least_once-crash-1.",
        "| flink-sst-exactly_once-none-1 | 1,000 | 2,000 | 1.00 | 2 | the lag grew by 0.2 of the load |",
        "- flink-sst-exactly_once-crash-1: RunFailed: it ended badly",
        "- flink: before you take a result for lost, wait 7 s longer",
    ):  # fmt: skip
        assert said in page
    assert page.count("A recovery time") == 1
    for name in ("recovery", "failure-cost"):
        assert f"]({name}.svg)" in page
        ElementTree.fromstring((plans / "page" / f"{name}.svg").read_text(encoding="utf-8"))
    assert "output.svg" not in page, "no run has series"


def test_a_page_without_results_is_refused(plans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(plans / "pgval-results-small")
    assert results.main(["pgval", "absent", "--scale", "small"]) == 2
    assert "no plan has a result" in capsys.readouterr().err
    assert not (plans / "page").exists()


def test_the_output_of_a_crash_is_drawn_from_its_rows() -> None:
    course = {
        "columns": ["time", "output_per_second"], "rows": [[100, 5.0], [102, 10.0], [103, None]],
        "faults": [{"start": "1970-01-01T00:01:41+00:00", "healed": "1970-01-01T00:01:42.5+00:00"},
                   {"start": "1970-01-01T00:01:43+00:00", "healed": None}],
    }  # fmt: skip
    found = results._course("a", course)
    assert (found.values, found.faults) == ([5.0, None, 10.0, None], [(1.0, 2.5)])
    drawn = ElementTree.fromstring(figures.standalone(figures.courses([found], "1/s"), ""))
    [line] = [one.get("points", "") for one in drawn.iter("{http://www.w3.org/2000/svg}polyline")]
    assert len(line.split()) == 4, "a second without output is a zero"
    assert figures.courses([Course("b", [None])], "1/s") == ""

"""Rates that are a share of what a search found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.campaign import command, search
from testbed.campaign.journal import CampaignJournal, Heading
from testbed.campaign.matrix import matrix, runs
from testbed.campaign.plan import CampaignPlan, PlanError, load
from testbed.campaign.search import Trial
from testbed.campaign.sustained import plan_of, resolved
from validator.cli.parser import parse

pytestmark = pytest.mark.unit

SEARCHED: dict[str, Any] = {
    "engines": ["flink", "kafka_streams"],
    "guarantees": ["at_least_once"],
    "faults": ["none"],
    "repetitions": 1,
    "axes": {"parallelism": [1, 2]},
    "search": {"rates": [500, 8000], "within": 1.0},
}
WANTED: dict[str, Any] = {
    "engines": ["flink"],
    "guarantees": ["at_least_once"],
    "faults": ["none", "crash"],
    "of_sustained": {"share": 0.8, "search": "found.yaml"},
}


def written(folder: Path, name: str, plan: dict[str, Any]) -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump(plan), encoding="utf-8")
    return path


def found(folder: Path, engine: str, sustained: dict[int, int], **changes: Any) -> None:
    """Keep the trials of a search that ended, for each number of workers: ``sustained`` has its rate, 0: none."""
    searched = load(written(folder, "found.yaml", SEARCHED | changes))
    for run in runs(matrix(searched).cells, searched):
        rate = sustained.get(searched.on(run.cell.axes).parallelism)
        if run.cell.engine == engine and rate is not None:
            # Twice the lowest rate is tried, then its double, and so on.
            tried = [500 * 2**power for power in range(5)]
            trials = [Trial(one, one <= rate, "") for one in tried]
            search.write(searched.results, run.name, trials)


def wanted(folder: Path, **changes: Any) -> CampaignPlan:
    return resolved(load(written(folder, "night.yaml", WANTED | changes)), folder)


def test_each_number_of_workers_has_a_share_of_its_own_rate(tmp_path: Path) -> None:
    found(tmp_path, "flink", {1: 1000, 2: 4000})
    plan = wanted(tmp_path, axes={"parallelism": [1, 2], "window": ["1s", "2s"]})
    rates = {(one.parallelism, one.window): one.rate for one in (plan_of(plan, cell) for cell in matrix(plan).cells)}
    assert rates == {(1, 1.0): 800, (1, 2.0): 800, (2, 1.0): 3200, (2, 2.0): 3200}
    assert plan_of(plan, matrix(plan).cells[0]).of_sustained is None
    assert "rate" not in plan.same_in_all
    alone = wanted(tmp_path)
    assert {plan_of(alone, cell).rate for cell in matrix(alone).cells} == {3200}


def test_a_search_without_an_end_or_of_another_cell_gives_no_rate(tmp_path: Path) -> None:
    found(tmp_path, "flink", {1: 1000, 2: 0})
    with pytest.raises(PlanError, match=r"no sustained rate of flink with sst, at_least_once and parallelism 2; run"):
        wanted(tmp_path)
    found(tmp_path, "flink", {2: 4000})
    for changes, sentence in (
        ({"engines": ["flink", "kafka_streams"]}, "no sustained rate of kafka_streams with sst"),
        ({"guarantees": ["exactly_once"]}, "no sustained rate of flink with sst, exactly_once"),
        ({"workloads": ["mst"]}, "no sustained rate of flink with mst"),
        ({"engine_options": {"flink": {"a": "b"}}}, "no sustained rate of flink"),
    ):
        with pytest.raises(PlanError, match=sentence):
            wanted(tmp_path, **changes)
    assert wanted(tmp_path).sustained


def test_an_axis_of_the_search_must_have_the_value_of_the_plan(tmp_path: Path) -> None:
    found(tmp_path, "flink", {2: 4000}, axes={"commit_interval": ["1s"]})
    with pytest.raises(PlanError, match="no sustained rate of flink"):
        wanted(tmp_path, commit_interval="2s")
    assert set(wanted(tmp_path, commit_interval="1s").sustained.values()) == {3200}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"rate": 1000}, "of_sustained sets the rate of each cell; remove rate"),
        ({"axes": {"rate": [1000, 2000]}}, "of_sustained sets the rate of each cell; remove rate"),
        ({"faults": ["none"], "search": {"rates": [500, 1000]}}, "a search sets the rate of its trials"),
        ({"sustained": {"a": 1}}, "sustained: a campaign finds these rates; write of_sustained."),
        ({"of_sustained": {"share": 1.5, "search": "found.yaml"}}, "of_sustained.share"),
        ({"of_sustained": {"share": 0.8, "search": "none.yaml"}}, "none.yaml: cannot be read"),
        ({"of_sustained": {"share": 0.8, "search": "night.yaml"}}, "night.yaml searches no rate"),
        ({"of_sustained": {"share": 0.8, "search": "found.yaml", "scale": "tiny"}}, "it has no scale tiny"),
        ({"keys": 4000}, r"rate \(flink-sst-at_least_once-none\).*rate is too low"),
    ],
)
def test_a_share_that_cannot_be_used_is_refused(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    found(tmp_path, "flink", {2: 4000})
    with pytest.raises(PlanError, match=sentence):
        command.run(parse(["campaign", str(written(tmp_path, "night.yaml", WANTED | changes)), "--dry-run"]))


def test_a_dry_run_shows_the_rates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found(tmp_path, "flink", {2: 4000})
    assert command.run(parse(["campaign", str(written(tmp_path, "night.yaml", WANTED)), "--dry-run"])) == 0
    assert capsys.readouterr().out.count("repetitions 1, 2, 3, 3,200 events/s") == 2


def test_a_campaign_is_not_resumed_at_another_rate(tmp_path: Path) -> None:
    found(tmp_path, "flink", {1: 1000, 2: 4000})
    plan = wanted(tmp_path)
    with CampaignJournal(plan.results, plan).open(resumes=False) as kept:
        kept.begin(Heading("a machine", "1"))
    with CampaignJournal(plan.results, wider := wanted(tmp_path, axes={"window": ["1s"]})).open(resumes=True):
        assert wider.sustained
    found(tmp_path, "flink", {2: 2000})
    with pytest.raises(PlanError, match=r"sustained.flink-sst-at_least_once-none: .* made with 3200, not 1600"):
        CampaignJournal(plan.results, wanted(tmp_path)).open(resumes=True)

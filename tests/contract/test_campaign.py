"""``streamproof campaign``: its output, files and exit status. A kill in the middle loses no completed run."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from testbed.campaign import command, formats, journal
from testbed.campaign.counters import Row
from testbed.campaign.journal import CUT_OFF
from testbed.campaign.matrix import Run
from testbed.campaign.one_run import OutOfTime
from testbed.campaign.plan import CampaignPlan
from testbed.campaign.result import RunResult
from testbed.campaign.sampler import GROUP, Sample
from testbed.checkout import ROOT, python_path
from tests.unit.campaign_results import PLAN, fake
from validator.cli.main import main

CELLS = 2 * 2 * 2
RUNS = 2 * CELLS
CAPACITY = 3_210


class FakeEnvironment:
    """Replaces broker, engines and sidecars. The tests set ``makes``."""

    makes: Callable[[Run], RunResult]

    def __init__(self, *_: Any, **__: Any) -> None:
        self.run = type(self).makes

    def trial(self, run: Run, plan: CampaignPlan) -> tuple[RunResult, list[Sample], list[Row]]:
        """An engine that consumes `CAPACITY` events a second, and far above it writes no result."""
        if plan.rate > 5 * CAPACITY:
            raise OutOfTime("The engine wrote no result within 120 s of the load.")
        beyond = max(0, plan.rate - CAPACITY)
        samples = [Sample(s * 1_000_000, GROUP, lag_events=50 + beyond * s) for s in range(int(plan.phases.seconds))]
        return fake(run, offered_per_second=float(plan.rate)), samples, []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


@pytest.fixture(autouse=True)
def stage(monkeypatch: pytest.MonkeyPatch) -> type[FakeEnvironment]:
    monkeypatch.setattr(command, "CampaignEnvironment", FakeEnvironment)
    monkeypatch.setattr(command, "_prepare", lambda chosen: None)
    monkeypatch.setattr(FakeEnvironment, "makes", staticmethod(fake), raising=False)
    return FakeEnvironment


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "night.yaml"
    path.write_text(yaml.safe_dump(PLAN), encoding="utf-8")
    return path


def results(plan: Path) -> Path:
    return plan.parent / "night-results"


def run_names(plan: Path) -> set[str]:
    return {path.stem for path in (results(plan) / "runs").glob("*.json")}


def test_a_dry_run_shows_the_matrix_and_writes_nothing(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", str(plan), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{RUNS} runs, 0 done; about 76m 30s remaining (4m 47s per run")
    assert sum(line.endswith("repetitions 1, 2") for line in said.splitlines()) == CELLS
    assert not results(plan).exists()


def test_a_campaign_leaves_a_result_a_run_and_three_tables(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", str(plan)]) == 0
    assert len(run_names(plan)) == RUNS
    assert all((results(plan) / name).exists() for name in formats.FILES)
    said = capsys.readouterr().out
    assert f"{RUNS} of {RUNS}: flink-sst-exactly_once-crash-2: pass, 0 duplicate, 0 missing, 0 incorrect" in said
    assert f"Complete: all {RUNS} runs are done." in said


def test_a_search_finds_the_rate_says_how_long_it_takes_and_is_resumed(
    plan: Path, stage: type[FakeEnvironment], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    searched = {**PLAN, "engines": ["flink"], "guarantees": ["exactly_once"], "faults": ["none"], "repetitions": 1}
    plan.write_text(yaml.safe_dump({**searched, "search": {"rates": [500, 20_000]}}), encoding="utf-8")
    assert main(["campaign", str(plan), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("1 search, at most 9 trials each; at most 43m 30s")
    working, tried = stage.trial, []

    def dies(self: FakeEnvironment, run: Run, plan: CampaignPlan) -> tuple[RunResult, list[Sample], list[Row]]:
        tried.append(run.rate)
        if len(tried) == 4:
            raise OSError("no space left")
        return working(self, run, plan)

    monkeypatch.setattr(stage, "trial", dies)
    assert main(["campaign", str(plan)]) == 3
    assert "no space left" in capsys.readouterr().err
    assert main(["campaign", str(plan), "--resume"]) == 0
    assert tried[3] == tried[4]
    assert len(tried) == len(set(tried)) + 1 <= 10
    line = (results(plan) / "search.md").read_text().splitlines()[-1]
    sustained = int(line.split(" | ")[1].replace(",", ""))
    assert 0.95 * CAPACITY <= sustained <= 1.05 * CAPACITY


def test_names_and_errors_contain_no_control_characters(
    plan: Path, stage: type[FakeEnvironment], capsys: pytest.CaptureFixture[str]
) -> None:
    def one_fails(run: Run) -> RunResult:
        if run.name == "flink-sst-exactly_once-crash-2":
            raise OSError("cannot reach \x1b[2J")
        return fake(run)

    stage.makes = staticmethod(one_fails)
    plan.write_text(yaml.safe_dump({**PLAN, "results": "odd\x1b[2J"}), encoding="utf-8")
    assert main(["campaign", str(plan)]) == 3
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "cannot reach \\x1b[2J" in said
    assert "odd\\x1b[2J/table.md" in said


def test_existing_results_are_not_overwritten_and_their_runs_not_repeated(
    plan: Path, stage: type[FakeEnvironment], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["campaign", str(plan), "--only", "engine=flink", "--only", "repetition=1"]) == 0
    assert len(run_names(plan)) == 4
    assert (results(plan) / "table.md").read_text().startswith(f"**NOT COMPLETE: 4 of {RUNS} runs are done.**\n")
    assert main(["campaign", str(plan)]) == 2
    assert "add --resume" in capsys.readouterr().err
    before, again = run_names(plan), []
    stage.makes = staticmethod(lambda run: again.append(run.name) or fake(run))  # type: ignore[assignment]
    assert main(["campaign", str(plan), "--resume"]) == 0
    assert set(again) == run_names(plan) - before
    assert len(again) == RUNS - 4


def test_a_run_without_a_result_is_status_3_and_a_row(plan: Path, stage: type[FakeEnvironment]) -> None:
    def one_fails(run: Run) -> RunResult:
        if run.name == "flink-sst-exactly_once-crash-2":
            raise OSError("no space left")
        return fake(run)

    stage.makes = staticmethod(one_fails)
    assert main(["campaign", str(plan)]) == 3
    text = (results(plan) / "table.md").read_text()
    assert text.startswith(f"**NOT COMPLETE: {RUNS - 1} of {RUNS} runs are done; 1 attempt failed ")
    assert "| flink | sst | exactly_once | crash | 1 of 2, 1 failed |" in text
    assert "OSError: no space left" in text


def test_an_interrupted_campaign_exits_with_130_and_a_table_that_says_so(
    plan: Path, stage: type[FakeEnvironment]
) -> None:
    def interrupted(run: Run) -> RunResult:
        raise KeyboardInterrupt

    stage.makes = staticmethod(interrupted)
    assert main(["campaign", str(plan)]) == 130
    text = (results(plan) / "table.md").read_text()
    assert text.startswith(f"**NOT COMPLETE: 0 of {RUNS} runs are done; 1 attempt failed ")
    assert "interrupted during this run" in text


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["absent.yaml"], "absent.yaml: cannot be read (No such file or directory)"),
        (["{plan}", "--only", "engine=spark"], "the plan has no engine spark"),
    ],
)
def test_bad_usage_is_status_2(plan: Path, capsys: pytest.CaptureFixture[str], given: list[str], sentence: str) -> None:
    assert main(["campaign", *(part.format(plan=plan) for part in given)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("streamproof: ")
    assert sentence in error
    assert len(error.splitlines()) == 1


CHILD = """
import sys
from pathlib import Path
from testbed.campaign import journal
from testbed.campaign.journal import Heading, CampaignJournal
from testbed.campaign.matrix import matrix, runs
from testbed.campaign.plan import load
from tests.unit.campaign_results import fake

def blocks(run):
    if run.name == sys.argv[2]:
        print("in", run.name, flush=True)
        sys.stdin.read()
    return fake(run)

plan = load(Path(sys.argv[1]))
with CampaignJournal(plan.results, plan).open(resumes=True) as kept:
    kept.begin(Heading("a machine", "0"))
    journal.work(kept, plan.results, runs(matrix(plan).cells, plan), blocks, lambda *_: None)
"""


def test_a_killed_campaign_is_resumed_and_reports_the_interrupted_run(
    plan: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for cut in ("flink-sst-at_least_once-none-1", "flink-sst-exactly_once-crash-1"):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(plan), cut], cwd=ROOT, env={**os.environ, **python_path()},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == f"in {cut}\n"
            assert main(["campaign", str(plan), "--resume"]) == 2, "the folder is the child's"
            child.kill()
    assert len(run_names(plan)) == CELLS - 1
    capsys.readouterr()
    assert main(["campaign", str(plan), "--dry-run"]) == 0
    assert f"{RUNS} runs, {CELLS - 1} done" in capsys.readouterr().out
    assert main(["campaign", str(plan), "--resume"]) == 0
    lines = journal.read_lines(results(plan))
    assert [(f.run, f.reason) for f in journal.failures(lines)] == [
        ("flink-sst-at_least_once-none-1", CUT_OFF),
        ("flink-sst-exactly_once-crash-1", CUT_OFF),
    ]
    assert sum(line["event"] == "started" for line in lines) == RUNS + 2
    assert len(run_names(plan)) == RUNS
    assert "2 attempts failed and are listed" in (results(plan) / "table.md").read_text().splitlines()[0]

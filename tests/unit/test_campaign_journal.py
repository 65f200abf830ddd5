"""The campaign's journal: a run counts once its result is complete, and no failure is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.campaign import journal, result
from testbed.campaign.journal import CUT_OFF, FAILED_MOST, FILE, CampaignBroken, CampaignJournal, Failure, Heading
from testbed.campaign.matrix import Run, matrix, runs
from testbed.campaign.plan import PlanError
from testbed.campaign.result import RunResult, result_of
from tests.unit.campaign_results import fake, plan, report

HEADING = Heading("a machine", "0")
PLAN = plan(engines=["flink"], guarantees=["exactly_once"], repetitions=2)
RUNS = runs(matrix(PLAN).cells, PLAN)


def work(folder: Path, run_one: object = fake, *, resumes: bool = True) -> list[tuple[str, RunResult | Failure]]:
    ends: list[tuple[str, RunResult | Failure]] = []
    with CampaignJournal(folder, PLAN).open(resumes=resumes) as kept:
        kept.begin(HEADING)
        journal.work(kept, folder, RUNS, run_one, lambda run, end: ends.append((run.name, end)))  # type: ignore[arg-type]
    return ends


def events(folder: Path) -> list[str]:
    return [line["event"] for line in journal.read_lines(folder)]


def test_every_run_is_done_once(tmp_path: Path) -> None:
    assert [name for name, _ in work(tmp_path, resumes=False)] == [run.name for run in RUNS]
    assert work(tmp_path) == []
    assert events(tmp_path) == ["campaign", *["started", "done"] * 4, "campaign"]
    assert [result.read(tmp_path, run) for run in RUNS] == [fake(run) for run in RUNS]


def test_a_run_that_raises_is_a_failure_and_not_the_end(tmp_path: Path) -> None:
    def second_fails(run: Run) -> RunResult:
        if run == RUNS[1]:
            raise OSError("the broker is gone")
        return fake(run)

    ends = work(tmp_path, second_fails, resumes=False)
    assert [isinstance(end, Failure) for _, end in ends] == [False, True, False, False]
    (failure,) = journal.failures(journal.read_lines(tmp_path))
    assert (failure.run, failure.reason) == (RUNS[1].name, "OSError: the broker is gone")
    assert [name for name, _ in work(tmp_path)] == [RUNS[1].name]
    assert len(journal.failures(journal.read_lines(tmp_path))) == 1, "the failure stays, also when the run is done"


def test_only_consecutive_failures_end_a_campaign(tmp_path: Path) -> None:
    def odd_fail(run: Run) -> RunResult:
        if RUNS.index(run) % 2:
            raise OSError("now and then")
        return fake(run)

    assert len(work(tmp_path / "some", odd_fail, resumes=False)) == 4

    tried: list[str] = []

    def all_fail(run: Run) -> RunResult:
        tried.append(run.name)
        raise OSError("no module\nnamed so")

    with pytest.raises(CampaignBroken, match=r"^3 runs .*: OSError: no module named so; .*--resume"):
        work(tmp_path / "all", all_fail, resumes=False)
    assert tried == [run.name for run in RUNS[:FAILED_MOST]]
    assert [name for name, _ in work(tmp_path / "all")] == [run.name for run in (RUNS[3], *RUNS[:3])]


def test_a_reason_has_no_frames_of_a_traceback(tmp_path: Path) -> None:
    def breaks(run: Run) -> RunResult:
        if run != RUNS[0]:
            return fake(run)
        raise OSError('it ended:\nTraceback (most recent call last):\n  File "/home/me/x.py", line 2\nKeyError: 7\n')

    work(tmp_path, breaks, resumes=False)
    (failure,) = journal.failures(journal.read_lines(tmp_path))
    assert failure.reason == "OSError: it ended:\nKeyError: 7"


def test_an_interruption_ends_the_campaign_and_is_recorded(tmp_path: Path) -> None:
    def interrupted(run: Run) -> RunResult:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work(tmp_path, interrupted, resumes=False)
    assert [f.run for f in journal.failures(journal.read_lines(tmp_path))] == [RUNS[0].name]
    assert len(work(tmp_path)) == 4


@pytest.mark.parametrize("torn", ["", "{", '{"schema":1}', '{"schema":1,"run":"x"}'])
def test_an_incomplete_result_does_not_count(tmp_path: Path, torn: str) -> None:
    work(tmp_path, resumes=False)
    result.path_of(tmp_path, RUNS[2]).write_text(torn, encoding="utf-8")
    assert [name for name, _ in work(tmp_path)] == [RUNS[2].name]


def test_a_result_of_another_schema_is_refused_and_kept(tmp_path: Path) -> None:
    work(tmp_path, resumes=False)
    path = result.path_of(tmp_path, RUNS[2])
    other = json.loads(path.read_text(encoding="utf-8")) | {"schema": 2, "new": 1}
    path.write_text(json.dumps(other), encoding="utf-8")
    with pytest.raises(PlanError, match=r"schema is 2 and this version of streamproof reads 1; use the version that"):
        work(tmp_path)
    assert json.loads(path.read_text(encoding="utf-8")) == other


def test_a_result_under_the_name_of_another_run_does_not_count(tmp_path: Path) -> None:
    result.write(tmp_path, RUNS[0], fake(RUNS[1]))
    assert result.read(tmp_path, RUNS[0]) is None


def test_a_torn_line_loses_only_itself(tmp_path: Path) -> None:
    work(tmp_path, resumes=False)
    path = tmp_path / FILE
    text = path.read_text(encoding="utf-8")
    path.write_text(text[:-20], encoding="utf-8")
    assert work(tmp_path) == []
    # The torn line recorded the end of the last run. The run's result is complete, so the run counts.
    assert events(tmp_path)[-2:] == ["campaign", "done"]
    assert journal.failures(journal.read_lines(tmp_path)) == ()


def test_a_run_that_was_cut_off_is_a_failure(tmp_path: Path) -> None:
    with CampaignJournal(tmp_path, PLAN).open(resumes=False) as kept:
        kept.begin(HEADING)
        kept.append("started", run=RUNS[0].name)
    half = tmp_path / "runs" / ".x.json.1.tmp"
    half.parent.mkdir()
    half.touch()
    work(tmp_path)
    assert [(f.run, f.reason) for f in journal.failures(journal.read_lines(tmp_path))] == [(RUNS[0].name, CUT_OFF)]
    assert not half.exists()


def test_a_folder_that_is_in_use_or_another_campaigns_is_refused(tmp_path: Path) -> None:
    work(tmp_path, resumes=False)
    with pytest.raises(PlanError, match="add --resume"):
        CampaignJournal(tmp_path, PLAN).open(resumes=False)
    with pytest.raises(PlanError, match=r"rate: .* 3000, not 50;"):
        CampaignJournal(tmp_path, plan(rate=50)).open(resumes=True)
    with (
        CampaignJournal(tmp_path, plan(repetitions=7, engines=["flink", "storm"])).open(resumes=True),
        pytest.raises(PlanError, match="is running"),
    ):
        CampaignJournal(tmp_path, PLAN).open(resumes=True)


def test_a_campaign_that_is_resumed_may_gain_schedules_and_not_change_them(tmp_path: Path) -> None:
    def opened(**schedules: str) -> None:
        wanted = plan(schedules={name: {"plan": {"name": kills}} for name, kills in schedules.items()})
        with CampaignJournal(tmp_path, wanted).open(resumes=True) as kept:
            kept.begin(HEADING)

    opened()
    opened(one="vogel-kill-1")
    opened(two="vogel-kill-2")
    opened(one="vogel-kill-1", two="vogel-kill-2")
    with pytest.raises(PlanError, match=r"schedules\.one: .*vogel-kill-1.*, not .*vogel-kill-4.*restore"):
        opened(one="vogel-kill-4")


def test_a_campaign_of_a_version_without_some_keys_is_resumed(tmp_path: Path) -> None:
    """The earlier version had neither `preload` nor `search.instances`, which the journal of today's has."""
    given: dict[str, Any] = {"faults": ["none"], "search": {"rates": [500, 2000], "trial": "24s"}}
    searching = plan(**given)
    settings = searching.same_in_all
    del settings["preload"], settings["search"]["instances"], settings["phases"]["control_at_most"]
    with CampaignJournal(tmp_path, searching).open(resumes=False) as kept:
        kept.append("campaign", settings=settings, machine="", version="")
    CampaignJournal(tmp_path, searching).open(resumes=True).close()
    for name, change in (
        ("search", {"search": {"rates": [500, 2000], "trial": "60s"}}),
        ("preload", {"preload": "5s"}),
        (r"phases\.control_at_most", {"phases": {"control_at_most": "60s"}}),
    ):
        with pytest.raises(PlanError, match=f"^{name}: the runs"):
            CampaignJournal(tmp_path, plan(**{**given, **change})).open(resumes=True)


def test_the_same_run_has_the_same_seed_in_a_larger_campaign() -> None:
    larger = plan(engines=["kafka_streams", "flink"], repetitions=5)
    assert set(RUNS) < set(runs(matrix(larger).cells, larger))


def test_a_report_without_the_fault_gives_no_result() -> None:
    crashed = next(run for run in RUNS if run.cell.fault == "crash")
    without_faults = {**report(), "faults": []}
    with pytest.raises(ValueError, match="has no fault"):
        result_of(crashed, without_faults, started="", seconds=1, sent=1, settled=True, read_back=None)


def test_the_baseline_is_the_first_control_phase() -> None:
    crashed = next(run for run in RUNS if run.cell.fault == "crash")
    assert [(p.phase, p.throughput_per_second) for p in fake(crashed).phases] == [
        ("control", 3000.0),
        ("failure", 100.0),
        ("recovery", 3100.0),
    ]

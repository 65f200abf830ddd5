"""``scripts/bench campaign``: it runs detached and can be resumed."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from bench import campaign
from tests.process_end import await_end, needs_pidfd
from tests.unit.campaign_results import PLAN


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(campaign, "PLANS", tmp_path)
    monkeypatch.setattr(campaign, "ROOT", tmp_path)
    path = tmp_path / "night.yaml"
    path.write_text(yaml.safe_dump(PLAN), encoding="utf-8")
    return path


def test_an_absent_plan_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign.main(["absent"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bench: ")
    assert len(error.splitlines()) == 1


@needs_pidfd
def test_the_campaign_leads_its_own_session_and_is_resumed(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = "import os, sys; print(os.getpid(), os.getsid(0), *sys.argv[1:])"
    monkeypatch.setattr(campaign, "streamproof", lambda *given: [sys.executable, "-c", script, *map(str, given)])
    assert campaign.main(["night", "--only", "engine=flink"]) == 0
    said = capsys.readouterr().out
    pid = int(re.search(r"process (\d+) ", said)[1])  # type: ignore[index]
    assert await_end(pid)
    logged = (plan.parent / "night-results" / "campaign.log").read_text().split()
    assert logged == [str(pid), str(pid), "campaign", str(plan), "--resume", "--only", "engine=flink"]
    assert os.getsid(0) != pid

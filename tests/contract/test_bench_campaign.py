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

CHILD = """
import os, sys
from pathlib import Path
from bench import campaign

campaign.PLANS = campaign.ROOT = Path({folder!r})
script = "import os, sys; print(os.getsid(0), *sys.argv[1:]); sys.exit(3)"
campaign.streamproof = lambda *given: [sys.executable, "-c", script, *map(str, given)]
sys.exit(campaign.main(sys.argv[2:]))
"""


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(campaign, "PLANS", tmp_path)
    monkeypatch.setattr(campaign, "ROOT", tmp_path)
    path = tmp_path / "night.yaml"
    path.write_text(yaml.safe_dump({**PLAN, "scales": {"small": {"repetitions": 1}}}), encoding="utf-8")
    return path


def test_an_absent_plan_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert campaign.main(["absent"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bench: ")
    assert len(error.splitlines()) == 1


@needs_pidfd
def test_campaigns_run_in_turn_in_a_session_of_their_own_and_are_resumed(
    plan: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (day := plan.with_name("day.yaml")).write_text(plan.read_text().replace("small", "tiny"), encoding="utf-8")
    assert campaign.main([str(plan), str(day), "--scale", "small"]) == 2
    assert "has no scale small; its scales are tiny" in capsys.readouterr().err
    day.write_text(plan.read_text(), encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    made = CHILD.format(folder=str(plan.parent))
    monkeypatch.setattr(campaign, "COMMAND", [sys.executable, "-c", made])
    assert campaign.main(["night", "day", "--scale", "small", "--only", "engine=flink"]) == 0
    pid = int(re.search(r"process (\d+) ", capsys.readouterr().out)[1])  # type: ignore[index]
    assert await_end(pid)
    logged = (plan.parent / "night-results-small" / "campaign.log").read_text().splitlines()
    options = "--resume --only engine=flink --scale small"
    assert logged == [f"{pid} campaign {path} {options}" for path in (plan, day)]
    assert os.getsid(0) != pid

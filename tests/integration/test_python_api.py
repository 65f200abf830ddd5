"""The Python API and the pytest fixture on a real broker: what they return, what they raise, and a build that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.sidecar_fixtures import _CONFIG, Pipeline, answer, click, pipeline, spark
from validator.api import ConfigError, GuaranteeBroken, NotVerified, Verdict, read_report, verify

__all__ = ["pipeline", "spark"]
pytestmark = pytest.mark.timeout(600)
OF_A_USER = """
import pytest

def test_it_keeps_its_guarantee(streamproof):
    streamproof({config!r}, state={state!r})

def test_it_does_so_in_a_state_of_its_own(streamproof):
    assert streamproof({config!r}).contributions["processed"] == 3

def test_calls_have_states_of_their_own_and_share_the_process(streamproof, streamproof_process, tmp_path):
    from validator.api import read_report

    processes = []
    for _ in range(2):
        with pytest.raises(AssertionError):
            streamproof({config!r})
        processes.append(streamproof_process._process.pid)
    assert processes[0] == processes[1]
    first, second = (read_report(tmp_path / f"streamproof-{{number}}") for number in (1, 2))
    assert first.contributions == second.contributions
"""


@pytest.mark.full
def test_validate_returns_a_report_and_raises_on_a_broken_guarantee(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.create()
    config = tmp_path / "pipeline.yaml"
    config.write_text(_CONFIG.format(name=pipeline.name, servers=pipeline.servers, state="state"))
    pipeline.clicks(*(click(number, number) for number in range(3)), click(9, 25))
    pipeline.answers(answer(range(3), 0), answer([9], 2))
    kept = verify(config).require()
    assert (kept.verdict, kept.reasons) == (Verdict.PASS, ())
    assert kept.state == tmp_path / "state"

    # Continue in the same state.
    pipeline.answers(answer([1], 0), answer([77], 2))
    with pytest.raises(GuaranteeBroken, match="duplicate") as broken:
        verify(config, settings={"pipeline": pipeline.name}).require()
    report = broken.value.report
    counts = report.contributions
    assert (counts["duplicate"], counts["unknown_id"]) == (1, 1)
    assert {violation["class"] for violation in report.violations} == {"duplicate", "unknown_id"}
    assert read_report(tmp_path / "state") == report
    assert str(broken.value) == report.summary()

    with pytest.raises(NotVerified, match="within 2 s"):
        verify(config, timeout_seconds=2)
    with pytest.raises(ConfigError, match="guarante"):
        verify(config, settings={"guarante": "x"})
    with pytest.raises(FileNotFoundError):
        read_report(tmp_path / "nowhere")

    test = tmp_path / "test_orders.py"
    test.write_text(OF_A_USER.format(config=str(config), state=str(tmp_path / "state")))
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "validator.pytest_plugin", str(test)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert done.stdout.count("GuaranteeBroken: ") >= 2
    assert "What broke" in done.stdout

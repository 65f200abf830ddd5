"""`validate --once` from the wheel, with Spark and its workers, without a checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.integration.sidecar_fixtures import _CONFIG, Pipeline, answer, click, counts, pipeline, read_report, spark

__all__ = ["pipeline", "spark"]
pytestmark = [pytest.mark.timeout(600)]
BUILD = Path(__file__).parents[2] / "scripts" / "lib" / "wheel.py"


@pytest.mark.full
def test_a_wheel_verifies_a_pipeline(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.create()
    pipeline.clicks(*(click(number, number) for number in range(30)))
    pipeline.answers(answer(range(10), 0), answer(range(10, 20), 1), answer([*range(20, 29), "ghost"], 2))
    built = subprocess.run([sys.executable, BUILD, tmp_path], check=True, capture_output=True, text=True)
    site = tmp_path / "site"
    with zipfile.ZipFile(built.stdout.strip()) as packed:
        packed.extractall(site)
    config = tmp_path / "pipeline.yaml"
    config.write_text(_CONFIG.format(name=pipeline.name, servers=pipeline.servers, state="state"))
    command = [sys.executable, "-P", "-m", "streamproof.validator.cli.main", "validate", str(config), "--once"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 1, done.stderr
    assert "What broke" in done.stdout
    report = read_report(tmp_path / "state")
    assert report is not None
    assert counts(report) == {"expected": 30, "processed": 29, "missing": 1, "unknown_id": 1}

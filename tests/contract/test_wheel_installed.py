"""The wheel, installed by pip into a new virtual environment: its command, its types and its pytest fixture."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.sidecar_fixtures import _CONFIG, Pipeline, answer, click, pipeline, spark
from validator import __version__

__all__ = ["pipeline", "spark"]
ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.full,  # 16 packages are installed: minutes
    pytest.mark.timeout(1200),
]
USERS_TEST = """
import streamproof as api
import pytest

def test_it_holds(streamproof):
    assert streamproof("{config}").verdict is api.Verdict.PASS

def test_it_is_broken(streamproof):
    with pytest.raises(api.GuaranteeBroken, match="10 events were lost"):
        streamproof("{config}", settings={{"outputs": '[{{topic: {late}, fields: '
            '{{key: page, window_start: windowStart, ids: [clickIds]}}}}]', "late": "[]"}})
"""
USERS_TYPES = """
import streamproof

report: streamproof.Report = streamproof.read_report("state")
reveal_type(report.contributions["missing"])
"""


def run(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    # The fixture's Spark sets PYSPARK_PYTHON to this interpreter. The installed sidecar has to set its own.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
    return subprocess.run(
        [str(part) for part in command], check=False, capture_output=True, text=True, cwd=folder, env=environment
    )


def test_pip_installs_every_requirement(pipeline: Pipeline, tmp_path: Path) -> None:
    wheel = run(ROOT, sys.executable, ROOT / "scripts" / "lib" / "wheel.py", tmp_path).stdout.strip()
    pins = [line.split()[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line]
    (tmp_path / "pins").write_text("\n".join(pins))
    home = tmp_path / "venv"
    python = home / "bin" / "python"
    for command in (
        (sys.executable, "-m", "venv", home),
        (python, "-m", "pip", "install", "--quiet", "-c", tmp_path / "pins", wheel),
        (python, "-m", "pip", "check"),
    ):
        done = run(tmp_path, *command)
        assert done.returncode == 0, done
    [site] = home.glob("lib/python3*/site-packages")
    installed = {path.name.split("-")[0].lower() for path in site.glob("*.dist-info")}
    size = sum(path.lstat().st_size for path in site.rglob("*") if path.is_file() and "/pip" not in str(path))
    print(f"{size / 1e6:.0f} MB in site-packages, {len(installed)} distributions")
    assert not installed & {"pandas", "delta_spark", "grafana_api", "requests", "pytest"}
    locked = (ROOT / "image" / "requirements.lock").read_text().splitlines()
    names = {line.partition("==")[0].replace("-", "_").lower() for line in locked if re.match(r"[A-Za-z].*==", line)}
    assert installed - {"pip", "setuptools", "streamproof"} == names
    done = run(tmp_path, home / "bin" / "streamproof", "--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"streamproof {__version__}")

    (tmp_path / "users_types.py").write_text(USERS_TYPES)
    done = run(tmp_path, sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "users_types.py")
    assert re.search(r'Revealed type is "(builtins\.)?int"', done.stdout), done
    assert done.returncode == 0, done

    pipeline.create()
    pipeline.clicks(*(click(number, number) for number in range(20)))
    pipeline.answers(answer(range(10), 0), answer(range(10, 20), 1))
    pipeline.put(pipeline.late, answer(range(10), 0))
    config = tmp_path / "pipeline.yaml"
    text = _CONFIG.format(name=pipeline.name, servers=pipeline.servers, state="state")
    config.write_text("\n".join(line for line in text.splitlines() if not line.startswith("late:")))
    (tmp_path / "test_users.py").write_text(USERS_TEST.format(config=config, late=pipeline.late))
    done = run(tmp_path, python, "-m", "pip", "install", "--quiet", "-c", tmp_path / "pins", "pytest")
    assert done.returncode == 0, done
    done = run(tmp_path, python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_users.py")
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout

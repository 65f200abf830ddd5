"""The systemd unit, judged by systemd's own tool."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).parents[2] / "packaging" / "systemd" / "streamproof@.service"
PROGRAM = "/opt/streamproof/bin/streamproof"
EXPOSURE_MOST = 20
"""In tenths: `systemd-analyze security` scores from 0 to 10, and this unit scores 1.5."""

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="the PATH has no systemd-analyze")


def analyzed(folder: Path, text: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Return systemd's verdict on the unit file ``text``, after replacing its program by one of this machine."""
    file = folder / UNIT.name
    file.write_text(text.replace(PROGRAM, sys.executable), encoding="utf-8")
    return subprocess.run(
        ["systemd-analyze", *command, str(file)], check=False, capture_output=True, text=True, timeout=60
    )


def test_systemd_accepts_every_line(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8")
    assert PROGRAM in text
    done = analyzed(tmp_path, text, "verify", "--recursive-errors=no")
    assert (done.returncode, done.stderr) == (0, "")
    assert "ProtectSystemm" in analyzed(tmp_path, text.replace("ProtectSystem=", "ProtectSystemm="), "verify").stderr


def test_the_unit_starts_after_the_clock_is_set() -> None:
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    [after] = [line.partition("=")[2].split() for line in lines if line.startswith("After=")]
    assert "time-sync.target" in after


def test_the_unit_is_sandboxed(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8")
    judge = ("security", "--offline=yes", f"--threshold={EXPOSURE_MOST}")
    done = analyzed(tmp_path, text, *judge)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr
    opened = text.replace("SystemCallFilter=", "#").replace("CapabilityBoundingSet=", "#")
    assert analyzed(tmp_path, opened, *judge).returncode != 0

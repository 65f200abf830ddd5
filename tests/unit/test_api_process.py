"""The process that the Python API starts: its settings stay private, and a timeout says why it waited."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from validator import runs
from validator.api import NotVerified, verify
from validator.config.examples import EXAMPLES

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
SECRET = "planted-4711 \\ü"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "pipeline.yaml"
    file.write_text(EXAMPLES["clickstream"])
    return file


def below(pid: int) -> list[int]:
    """Return the process ``pid`` and its descendants."""
    found = [pid]
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):  # the thread has ended
            for child in (thread / "children").read_text().split():
                found += below(int(child))
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="/proc is Linux's")
def test_settings_are_not_on_a_command_line(config: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent_broker, ThreadPoolExecutor(1) as pool:
        silent_broker.settimeout(60)
        settings = {
            "kafka.bootstrap_servers": f"127.0.0.1:{silent_broker.getsockname()[1]}",
            "kafka.options.security.protocol": "SASL_PLAINTEXT",
            "kafka.options.sasl.mechanism": "PLAIN",
            "kafka.options.sasl.username": "reader",
            "kafka.options.sasl.password": SECRET,
        }
        before = set(below(os.getpid()))
        run = pool.submit(verify, config, settings=settings, state=tmp_path / "state", timeout_seconds=60)
        try:
            # The child has its settings: only they name this broker.
            connection, _ = silent_broker.accept()
            started = set(below(os.getpid())) - before
            assert started
            shown = {
                pid: [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")] for pid in started
            }
            connection.close()
        finally:
            for pid in set(below(os.getpid())) - before:
                os.kill(pid, signal.SIGTERM)
        with pytest.raises(NotVerified) as ended:
            run.result(60)
    assert any(b"--once" in cmdline for cmdline, _ in shown.values())
    assert [pid for pid, texts in shown.items() if any(b"planted-4711" in text for text in texts)] == []
    assert "planted-4711" not in str(ended.value)
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in kept if b"planted-4711" in path.read_bytes()] == []


class Waiting(subprocess.Popen[str]):
    """A process that has written two lines to stderr when its time is over."""

    def communicate(self, *given: Any, **named: Any) -> Any:
        if not given:
            return super().communicate(**named)
        raise subprocess.TimeoutExpired("streamproof", 5, stderr=b"the first line\nwaiting for the brokers\n")


def test_a_timeout_says_why_the_run_waited(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs.subprocess, "Popen", Waiting)
    with pytest.raises(NotVerified, match=r"^streamproof did not end within 5 s: waiting for the brokers$"):
        verify(config, state=tmp_path / "state", timeout_seconds=5)


def test_a_timeout_without_a_message_says_so(config: Path, tmp_path: Path) -> None:
    (tmp_path / "argparse.py").write_text("import signal\nsignal.pause()\n")
    with pytest.raises(NotVerified, match=r"^streamproof did not end within 0.5 s: it wrote no message$"):
        verify(config, state=tmp_path / "state", timeout_seconds=0.5)

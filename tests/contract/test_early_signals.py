"""A signal in the first instants of a start ends the command with a sentence and status 130, in every phase before the
sidecar handles signals itself. Real processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from validator.cli.exits import INTERRUPTED
from validator.config.examples import EXAMPLES

ROOT = Path(__file__).parents[2]
ENDING = [signal.SIGTERM, signal.SIGHUP]
STOPPED_AT = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)
class Slow:
    def find_spec(self, name, *_):
        if name == {module!r}:
            print("importing", flush=True)
            for _ in range(600):
                time.sleep(0.1)  # a signal just before a sleep is handled after it
sys.meta_path.insert(0, Slow())
from validator.cli.main import main
sys.exit(main({arguments!r}))
"""
"""Runs the command, and stops at the import of a module."""


def ended_at(module: str, arguments: list[str], number: signal.Signals) -> tuple[int, str]:
    """Send a signal to a command that imports ``module``. Returns its exit status, and what it wrote to stderr."""
    code = STOPPED_AT.format(module=module, arguments=arguments)
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "importing\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    return process.returncode, said


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("command", ["validate", "report"])
def test_a_signal_during_the_imports_ends_any_command_with_a_sentence(command: str, number: signal.Signals) -> None:
    found = ended_at("validator.cli.command_line", [command, "file"], number)
    assert found == (INTERRUPTED, f"streamproof: {number.name} ended the command before it had begun.\n")


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_before_the_sidecar_has_begun_ends_it_with_a_sentence(number: signal.Signals, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(EXAMPLES["minimal"])
    found = ended_at("validator.stream.sidecar", ["validate", str(file)], number)
    assert found == (INTERRUPTED, f"streamproof: {number.name} ended the command; run the command again to continue.\n")


def test_a_command_that_handles_no_signals_ends_by_them(tmp_path: Path) -> None:
    found = ended_at("validator.cli.reports", ["report", str(tmp_path)], signal.SIGTERM)
    assert found == (-signal.SIGTERM, "")


def test_the_entry_point_imports_nothing_that_takes_time() -> None:
    """Its handlers are set some hundredths of a second after the start of the interpreter."""
    slow = ("argparse", "json", "asyncio", "subprocess", "pydantic", "numpy", "pyarrow", "yaml", "validator.config")
    code = (
        f"import sys; bare = set(sys.modules); import validator.cli.main; print(set({slow}) & set(sys.modules) - bare)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "set()\n"

"""scripts/test: its totals, its exit status and its budgets are correct."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.process_end import await_end, needs_pidfd

SOURCE = Path(__file__).parents[2] / "scripts" / "lib" / "run_tests.py"
MIXED = """
import pytest
def test_good(): pass
def test_bad(): assert False
def test_no_kernel(): pytest.skip("no such kernel")
@pytest.fixture
def broken(): raise RuntimeError
def test_error(broken): pass
"""

Suite = Callable[..., ModuleType]


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Makes a project with the given tests; returns its runner."""

    def make(**files: str) -> ModuleType:
        for part, text in files.items():
            folder = tmp_path / "tests" / part
            folder.mkdir(parents=True)
            (folder / f"test_{part}.py").write_text(text)
        script = tmp_path / "scripts" / "lib" / "run_tests.py"
        script.parent.mkdir(parents=True)
        script.write_bytes(SOURCE.read_bytes())
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
        spec = importlib.util.spec_from_file_location("run_tests", script)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "run_tests", module)  # its dataclasses look up names here
        spec.loader.exec_module(module)
        return module

    return make


def closing_line(capfd: pytest.CaptureFixture[str]) -> str:
    return capfd.readouterr().out.splitlines()[-1]


def test_outcomes_are_totalled_over_the_parts(suite: Suite, capfd: pytest.CaptureFixture[str]) -> None:
    runner = suite(unit=MIXED, contract="def test_good(): pass")
    assert runner.main([]) == 1
    said = capfd.readouterr().out
    assert said.splitlines()[-1] == "2 passed, 2 failed, 1 skipped"
    assert "no such kernel" in said, "a skipped test gives its reason"
    assert "property: skipped, " in said
    assert said.index("==> unit") < said.index("==> contract")


def test_passed_tests_are_a_success(suite: Suite, capfd: pytest.CaptureFixture[str]) -> None:
    assert suite(unit="def test_good(): pass").main([]) == 0
    assert closing_line(capfd) == "1 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [(["unit"], 2), (["unit", "-k", "one"], 1), (["-k", "one"], 2), (["tests/unit/test_unit.py::test_one"], 1)],
)
def test_arguments_select(suite: Suite, capfd: pytest.CaptureFixture[str], arguments: list[str], passed: int) -> None:
    text = "def test_one(): pass\ndef test_two(): pass"
    assert suite(unit=text, crash=text).main(arguments) == 0
    assert closing_line(capfd) == f"{passed} passed, 0 failed, 0 skipped"


@pytest.mark.parametrize("arguments", [[], ["unit", "-k", "no_such_test"]])
def test_a_run_without_tests_is_a_failure(
    suite: Suite, capfd: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert suite(**({"unit": "def test_one(): pass"} if arguments else {})).main(arguments) == 1
    assert closing_line(capfd) == "0 passed, 0 failed, 0 skipped"


def test_a_part_that_aborts_counts_as_failed(suite: Suite, capfd: pytest.CaptureFixture[str]) -> None:
    assert suite(unit="import os\ndef test_exit(): os._exit(3)").main([]) == 1
    assert closing_line(capfd) == "0 passed, 1 failed, 0 skipped"


@needs_pidfd
def test_a_part_over_its_budget_is_stopped_with_its_processes(
    suite: Suite, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    runner = suite(
        unit="def test_good(): pass\n"
        "def test_endless():\n"
        "    import pathlib, subprocess\n"
        "    process = subprocess.Popen(['sleep', '600'])\n"
        f"    pathlib.Path({str(tmp_path)!r}, 'pid').write_text(str(process.pid))\n"
        "    process.wait()\n"
    )
    runner.BUDGET_SECONDS = {"unit": 3}
    assert runner.main([]) == 1
    said = capfd.readouterr().out
    assert "budget of 3 s" in said
    assert said.splitlines()[-1].endswith(" failed, 0 skipped")
    assert await_end(int((tmp_path / "pid").read_text()))

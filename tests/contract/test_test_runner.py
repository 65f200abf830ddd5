"""scripts/test: its totals, its exit status and its budgets are correct."""

from __future__ import annotations

import importlib.util
import os
import subprocess
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

FIELDS = ("NAME", "EMAIL")
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
        (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\nmarkers = full: not in tier 1\n")
        monkeypatch.setenv("STREAMPROOF_TEST_SEED", "1")
        monkeypatch.delenv("STREAMPROOF_WORLDS", raising=False)
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
    runner = suite(e2e=MIXED, faults="def test_good(): pass")
    assert runner.main([]) == 1
    said = capfd.readouterr().out
    assert said.splitlines()[-1] == "2 passed, 2 failed, 1 skipped"
    assert "no such kernel" in said, "a skipped test gives its reason"
    assert "property: skipped, " in said
    assert said.index("==> e2e") < said.index("==> faults")


@pytest.mark.parametrize(("tier", "passed"), [([], 3), (["all"], 4)])
def test_parts_bound_by_the_cpu_run_beside_the_others_and_count(
    suite: Suite, capfd: pytest.CaptureFixture[str], tier: list[str], passed: int
) -> None:
    # Each of the two tests waits for the other one.
    text = """
import pathlib, time
def test_{0}():
    pathlib.Path("{0}").touch()
    while not pathlib.Path("{1}").exists(): time.sleep(0.01)
"""
    long = "\nimport pytest\n@pytest.mark.full\ndef test_long(): pass"
    runner = suite(unit=MIXED + long + text.format("unit", "faults"), faults=text.format("faults", "unit"))
    assert runner.main(tier) == 1
    said = capfd.readouterr().out
    assert said.splitlines()[-1] == f"{passed} passed, 2 failed, 1 skipped"
    assert "no such kernel" in said
    runner.main(["unit"])
    assert "==> beside" not in capfd.readouterr().out, "alone it prints as it runs"


def test_passed_tests_are_a_success(suite: Suite, capfd: pytest.CaptureFixture[str]) -> None:
    assert suite(faults="def test_good(): pass").main([]) == 0
    assert closing_line(capfd) == "1 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [(["faults"], 2), (["faults", "-k", "one"], 1), (["-k", "one"], 2), (["tests/faults/test_faults.py::test_one"], 1)],
)
def test_arguments_select(suite: Suite, capfd: pytest.CaptureFixture[str], arguments: list[str], passed: int) -> None:
    text = "def test_one(): pass\ndef test_two(): pass"
    assert suite(e2e=text, faults=text).main(arguments) == 0
    assert closing_line(capfd) == f"{passed} passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [([], 1), (["all"], 2), (["all", "faults"], 2), (["tests/faults/test_faults.py::test_long"], 1)],
)
def test_full_tests_run_only_in_the_second_tier_or_by_name(
    suite: Suite, capfd: pytest.CaptureFixture[str], arguments: list[str], passed: int
) -> None:
    text = "import pytest\ndef test_short(): pass\n@pytest.mark.full\ndef test_long(): pass"
    assert suite(faults=text).main(arguments) == 0
    assert closing_line(capfd) == f"{passed} passed, 0 failed, 0 skipped"


@pytest.mark.parametrize(("arguments", "worlds"), [([], "250"), (["all"], None)])
def test_the_first_tier_has_an_eighth_of_the_histories_and_their_seed_is_printed(
    suite: Suite, capfd: pytest.CaptureFixture[str], arguments: list[str], worlds: str | None
) -> None:
    text = f"import os\ndef test_it(): assert os.environ.get('STREAMPROOF_WORLDS') == {worlds!r}"
    assert suite(faults=text).main(arguments) == 0
    assert "STREAMPROOF_TEST_SEED=1" in capfd.readouterr().out


def test_the_seed_is_taken_from_the_commit(
    suite: Suite, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner = suite(faults="import os\ndef test_it(): assert os.environ['STREAMPROOF_TEST_SEED'] != '1'")
    monkeypatch.delenv("STREAMPROOF_TEST_SEED")
    environment = {**os.environ, **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in FIELDS}}
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", "-C", tmp_path, *command], env=environment, check=True)
    found = subprocess.run(["git", "-C", tmp_path, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    assert runner.main([]) == 0
    assert f"STREAMPROOF_TEST_SEED={int(found.stdout[:6], 16)} " in capfd.readouterr().out


def test_a_first_tier_above_its_time_is_reported(suite: Suite, capfd: pytest.CaptureFixture[str]) -> None:
    runner = suite(faults="def test_one(): pass")
    runner.FIRST_TIER_SECONDS = 0
    assert runner.main([]) == 0
    assert "WARNING: the first tier may take 0 s" in capfd.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["faults", "-k", "no_such_test"]])
def test_a_run_without_tests_is_a_failure(
    suite: Suite, capfd: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert suite(**({"faults": "def test_one(): pass"} if arguments else {})).main(arguments) == 1
    assert closing_line(capfd) == "0 passed, 0 failed, 0 skipped"


def test_a_part_that_aborts_counts_as_failed(suite: Suite, capfd: pytest.CaptureFixture[str]) -> None:
    assert suite(faults="import os\ndef test_exit(): os._exit(3)").main([]) == 1
    assert closing_line(capfd) == "0 passed, 1 failed, 0 skipped"


@needs_pidfd
def test_a_part_over_its_budget_is_stopped_with_its_processes(
    suite: Suite, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    runner = suite(
        faults="def test_good(): pass\n"
        "def test_endless():\n"
        "    import pathlib, subprocess\n"
        "    process = subprocess.Popen(['sleep', '600'])\n"
        f"    pathlib.Path({str(tmp_path)!r}, 'pid').write_text(str(process.pid))\n"
        "    process.wait()\n"
    )
    runner.PARTS = {"faults": runner.Part(6, 6)}
    assert runner.main([]) == 1
    said = capfd.readouterr().out
    assert "budget of 6 s" in said
    assert said.splitlines()[-1].endswith(" failed, 0 skipped")
    assert await_end(int((tmp_path / "pid").read_text()))

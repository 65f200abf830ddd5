"""Runs the parts of the test suite, each in its own pytest and within its time budget, and adds up their counts.

The last line is ``N passed, N failed, N skipped``. The exit status is 1 if a test failed or none ran.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "test-results"

# Seconds for each part, in the order in which they run: the fastest feedback first.
BUDGET_SECONDS = {
    "unit": 720,
    "property": 1500,
    "contract": 360,
    "crash": 480,
    "integration": 1500,
    "e2e": 660,
    "faults": 900,
    "engines": 720,
    "pages": 720,
}
# Parts that run in two processes, each with one file at a time: unit and property are bound by the CPU, and the tests
# of integration mostly wait. A process that dies counts as a failure.
SPLIT = {"unit", "property", "integration"}
SPLIT_ARGUMENTS = ["-n", "2", "--dist", "loadfile", "--max-worker-restart", "0"]
# A file that takes as long as a third of its part begins first. By default it would run last, beside an idle process.
LONGEST = {"property": "tests/property/test_spark_core.py"}
EXTENDED = "extended"
EXTENDED_SECONDS = 9000  # on request only: long tests, and those not yet seen to pass on a quiet machine
SELECTION_SECONDS = 900  # for files and tests named on the command line
WIND_UP_SECONDS = 30  # for fixtures to stop their processes after their part exceeded its budget
NO_TESTS_COLLECTED = 5


@dataclass(frozen=True, slots=True)
class Counts:
    """Tests by outcome; a part whose pytest did not end normally counts as one more failure."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


def main(arguments: list[str]) -> int:
    """Run the parts that ``arguments`` begin with. Without parts, run the files and tests that they name, or else all
    parts. Returns the exit status."""
    if arguments[:1] == [EXTENDED]:
        counts = run_part(EXTENDED, ["tests"], ["-m", EXTENDED, *arguments[1:]], EXTENDED_SECONDS)
        print(counts, flush=True)
        return int(counts.failed > 0 or counts == Counts())
    parts, rest = split(arguments)
    total = Counts()
    for part in parts:
        paths, split_up = [f"tests/{part}"], SPLIT_ARGUMENTS if part in SPLIT else []
        if part in LONGEST:
            paths, split_up = [LONGEST[part], *paths], [*split_up, "--no-loadscope-reorder"]
        total += run_part(part, paths, ["-m", f"not {EXTENDED}", *split_up, *rest], BUDGET_SECONDS[part])
    if parts == list(BUDGET_SECONDS):
        print(f"==> {EXTENDED}: not run; `scripts/test {EXTENDED}` runs the long tests that are marked so.", flush=True)
    if not parts:
        total += run_part("selection", [], rest, SELECTION_SECONDS)
    nothing_ran = total == Counts()
    if nothing_ran:
        print("No test ran, which counts as a failure.")
    print(total, flush=True)
    return int(nothing_ran or total.failed > 0)


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The parts to run, and the arguments for pytest. Without part names and paths, all parts run."""
    count = next((i for i, argument in enumerate(arguments) if argument not in BUDGET_SECONDS), len(arguments))
    parts, rest = arguments[:count], arguments[count:]
    if not parts and not any((ROOT / argument.partition("::")[0]).exists() for argument in rest if argument[:1] != "-"):
        parts = list(BUDGET_SECONDS)
    return parts, rest


def run_part(name: str, paths: list[str], arguments: list[str], budget_seconds: int) -> Counts:
    """Run one part, print how it went, and count its tests."""
    if paths and not any(ROOT.joinpath(paths[-1]).rglob("test_*.py")):
        print(f"==> {name}: skipped, because there is no test in {paths[-1]} yet.", flush=True)
        return Counts()
    RESULTS.mkdir(parents=True, exist_ok=True)
    report = RESULTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    print(f"==> {name}: pytest {' '.join([*paths, *arguments])} (at most {budget_seconds} s)", flush=True)
    started = time.monotonic()
    status = run_pytest([*paths, *arguments, f"--junit-xml={report}"], budget_seconds)
    took = f"{time.monotonic() - started:.0f} s"
    counts = read_counts(report)
    if status is None:
        counts += Counts(failed=1)
        print(f"==> {name}: stopped, because it was not done within its budget of {budget_seconds} s.")
    elif status == NO_TESTS_COLLECTED:
        print(f"==> {name}: no test of this part was selected.")
    elif status != 0 and counts.failed == 0:
        counts += Counts(failed=1)
        print(f"==> {name}: pytest ended with status {status}.")
    print(f"==> {name}: {counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped in {took}", flush=True)
    return counts


def run_pytest(arguments: list[str], budget_seconds: float) -> int | None:
    """The exit status of pytest, ``None`` if it exceeded its budget. All processes of its group have ended."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *arguments]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return process.wait(budget_seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        # pytest is in its own process group and does not receive a Ctrl-C, so forward it: its fixtures stop processes.
        try:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(WIND_UP_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty, as it should be
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def read_counts(report: Path) -> Counts:
    """The outcomes in a JUnit file; zeros if pytest ended before it wrote the file."""
    if not report.exists():
        return Counts()
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    count = {key: sum(int(suite.get(key, 0)) for suite in suites) for key in ("tests", "failures", "errors", "skipped")}
    failed = count["failures"] + count["errors"]
    return Counts(max(count["tests"] - failed - count["skipped"], 0), failed, count["skipped"])


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # CI cancels a run with SIGTERM
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)

"""Runs the parts of the test suite, each in its own pytest and within its time budget, and adds up their counts.

There are two tiers. The first one has all tests that are not marked ``full``, and an eighth of the random histories.
``all`` before the parts asks for the second one, which has everything. A file or a test that is named runs whatever its
tier. The parts that are bound by the CPU run beside the others, which mostly wait, and so do the engines.

The last line is ``N passed, N failed, N skipped``. The exit status is 1 if a test failed or none ran.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from xml.etree import ElementTree

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "test-results"

ALL = "all"


@dataclass(frozen=True, slots=True)
class Part:
    """Seconds after which a part is stopped, in the first tier and with all its tests: about three times what it takes
    on two quiet cores, for a busy machine."""

    first_seconds: int
    all_seconds: int


# In the order in which they run: the fastest feedback first.
PARTS = {
    "unit": Part(1800, 5400),
    "property": Part(1800, 7200),
    "contract": Part(360, 600),
    "crash": Part(360, 1800),
    "integration": Part(720, 3600),
    "e2e": Part(360, 5400),
    "faults": Part(360, 3600),
    "engines": Part(720, 7200),
    "pages": Part(360, 1200),
}
# What the first tier is allowed to take on two quiet cores. A busy machine takes longer, so it is only reported.
FIRST_TIER_SECONDS = 900
# Parts that run beside the others, each line in turn, and print what they said when they end. Those bound by the CPU
# have a priority that leaves it to the others whenever they need it.
BESIDE = {("unit", "property"): 10, ("engines",): 0}
# Parts that run in several processes, each with one file at a time. Parts that measure times have one. A process that
# dies counts as a failure.
SPLIT_ARGUMENTS = ["--dist", "loadfile", "--max-worker-restart", "0"]
PROCESSES = {"unit": 2, "property": 2, "contract": 2, "crash": 2, "integration": 3}
# A file that takes as long as a third of its part begins first. By default it would run last, beside an idle process.
LONGEST = {"property": "tests/property/test_spark_core.py"}
SEED = "STREAMPROOF_TEST_SEED"  # chooses an eighth of the random histories: tests/worlds.py
WORLDS = "STREAMPROOF_WORLDS"  # size of a run of random histories; 2000 is the full one
# Without compiled modules, each of hundreds of processes compiles all modules again, for a second of CPU.
NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
SELECTION_SECONDS = 900  # for files and tests named on the command line
WIND_UP_SECONDS = 30  # for fixtures to stop their processes after their part exceeded its budget
NO_TESTS_COLLECTED = 5
# The last line of a part, and of the run.
CLOSED = re.compile(r"==> \w+: (\d+ passed|skipped)")
TOTAL = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped\n")


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
    """Run the parts that ``arguments`` begin with, after ``all`` with all their tests. Without parts, run the files and
    tests that they name, or else all parts. Returns the exit status."""
    everything = arguments[:1] == [ALL]
    tier, arguments = arguments[:everything], arguments[everything:]
    parts, rest = split(arguments)
    histories = chosen_histories(first_tier=bool(parts) and not everything)
    started = time.monotonic()

    total, beside = Counts(), []
    with contextlib.ExitStack() as stack:
        others: list[list[Counts]] = []
        for line, priority in BESIDE.items():
            chosen = [part for part in parts if part in line]
            if chosen and len(chosen) < len(parts):
                others.append(stack.enter_context(running_beside(tier, chosen, rest, histories, priority)))
                beside += chosen
        for part in parts:
            if part not in beside:
                budget = PARTS[part].all_seconds if everything else PARTS[part].first_seconds
                chosen = [*selection(part, everything=everything), *rest]
                total += run_part(part, paths_of(part), chosen, histories, budget)
    total = sum(itertools.chain(*others), total)
    if not parts:
        total += run_part("selection", [], rest, histories, SELECTION_SECONDS)
    if parts == list(PARTS) and not everything:
        print(closing(time.monotonic() - started), flush=True)
    nothing_ran = total == Counts()
    if nothing_ran:
        print("No test ran, which counts as a failure.")
    print(total, flush=True)
    return int(nothing_ran or total.failed > 0)


def split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The parts to run, and the arguments for pytest. Without part names and paths, all parts run."""
    count = next((i for i, argument in enumerate(arguments) if argument not in PARTS), len(arguments))
    parts, rest = arguments[:count], arguments[count:]
    if not parts and not any((ROOT / argument.partition("::")[0]).exists() for argument in rest if argument[:1] != "-"):
        parts = list(PARTS)
    return parts, rest


def paths_of(part: str) -> list[str]:
    """The folder of a part, after the file that begins first."""
    return [*([LONGEST[part]] if part in LONGEST else []), f"tests/{part}"]


def selection(part: str, *, everything: bool) -> list[str]:
    """The arguments for pytest that choose the tests of a part, and the processes that they run in."""
    tier = [] if everything else ["-m", "not full"]
    order = ["--no-loadscope-reorder"] if part in LONGEST else []
    processes = ["-n", str(PROCESSES[part]), *SPLIT_ARGUMENTS] if part in PROCESSES else []
    return [*tier, *processes, *order]


def chosen_histories(*, first_tier: bool) -> dict[str, str]:
    """The variables that choose the random histories, unless the environment has them.

    The first tier has an eighth of them, chosen by the commit.
    """
    chosen = {SEED: commit_seed(), WORLDS: "250"} if first_tier else {}
    chosen |= {name: os.environ[name] for name in (SEED, WORLDS) if name in os.environ}
    if chosen:
        print(f"==> random histories: {' '.join(f'{name}={chosen[name]}' for name in chosen)} repeats them", flush=True)
    return chosen


def commit_seed() -> str:
    """A number from the commit's hash; 0 without git."""
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "0"
    return str(int(found.stdout[:6], 16)) if found.returncode == 0 else "0"


def closing(took_seconds: float) -> str:
    """How long the first tier took, and what it has left out."""
    text = f"==> first tier: {took_seconds:.0f} s. `scripts/test {ALL}` has the other tests and histories."
    if took_seconds > FIRST_TIER_SECONDS:
        text += (
            f"\n==> WARNING: the first tier may take {FIRST_TIER_SECONDS} s on two quiet cores. If this machine is"
            " quiet, mark its longest tests `full`."
        )
    return text


@contextlib.contextmanager
def running_beside(
    tier: list[str], parts: list[str], rest: list[str], histories: dict[str, str], priority: int
) -> Iterator[list[Counts]]:
    """Runs ``parts`` in a process of their own and prints what it says part by part. The list has their counts at the
    end. An interruption ends it as Ctrl-C does."""
    print(f"==> beside the other parts: {', '.join(parts)}", flush=True)
    process = subprocess.Popen(
        [sys.executable, __file__, *tier, *parts, *rest],
        env={**os.environ, **histories},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )
    os.setpriority(os.PRIO_PROCESS, process.pid, priority)  # its children inherit it
    counts: list[Counts] = []
    printer = Thread(target=print_by_part, args=(process.stdout, counts))
    printer.start()
    try:
        yield counts
    except BaseException:
        process.send_signal(signal.SIGINT)
        raise
    finally:
        status = process.wait()
        printer.join()
        if not counts:
            print(f"==> {', '.join(parts)}: ended with status {status}.", flush=True)
            counts.append(Counts(failed=1))


def print_by_part(lines: Iterable[str], counts: list[Counts]) -> None:
    """Print the lines of a run of some parts, those of a part at once; its last line is the counts of all."""
    held: list[str] = []
    for line in lines:
        held.append(line)
        if CLOSED.match(line):
            print("".join(held), end="", flush=True)
            held.clear()
    counts += [Counts(*map(int, found.groups())) for found in map(TOTAL.fullmatch, held) if found]
    print("".join(line for line in held if not TOTAL.fullmatch(line)), end="", flush=True)


def run_part(
    name: str, paths: list[str], arguments: list[str], histories: dict[str, str], budget_seconds: int
) -> Counts:
    """Run one part, print how it went, and count its tests."""
    if paths and not any(ROOT.joinpath(paths[-1]).rglob("test_*.py")):
        print(f"==> {name}: skipped, because there is no test in {paths[-1]} yet.", flush=True)
        return Counts()
    RESULTS.mkdir(parents=True, exist_ok=True)
    report = RESULTS / f"{name}.xml"
    report.unlink(missing_ok=True)
    print(f"==> {name}: pytest {' '.join([*paths, *arguments])} (at most {budget_seconds} s)", flush=True)
    started = time.monotonic()
    status = run_pytest([*paths, *arguments, f"--junit-xml={report}"], histories, budget_seconds)
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


def run_pytest(arguments: list[str], histories: dict[str, str], budget_seconds: float) -> int | None:
    """The exit status of pytest, ``None`` if it exceeded its budget. All processes of its group have ended."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != NO_BYTECODE} | histories
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, process_group=0)
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

"""The command ``streamproof campaign``: prints the matrix, does the missing runs and writes the table."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from faults.section import text_of
from testbed import node
from testbed.broker import JARS_LOCK
from testbed.campaign import formats, html, journal, result, scheduled, searches, sustained
from testbed.campaign.environment import CampaignEnvironment
from testbed.campaign.journal import CampaignJournal, Failure, Heading
from testbed.campaign.live import LiveMetrics, LiveServer
from testbed.campaign.matrix import Matrix, Run, matrix, only, runs
from testbed.campaign.one_run import SETTLE_SECONDS_MAX
from testbed.campaign.plan import DELAYS, REFERENCE, CampaignPlan, PlanError, load
from testbed.campaign.result import RunResult
from testbed.campaign.search import Search
from testbed.campaign.table import Table, table
from testbed.checkout import machine, version
from testbed.engines.registry import REGISTRY
from testbed.stop import Stop, stop_on_signals
from validator.model.terminal import plain
from validator.model.wording import plural
from validator.stream.jars import SIDECAR_LOCK, resolve

AROUND_SECONDS: Final = 60.0
"""Estimated time of a run besides its load, until measured runs are available."""
_PASS: Final = 0
_NOT_COMPLETE: Final = 3


def run(given: argparse.Namespace) -> int:
    """Run the campaign; 0 if every selected run has a result, otherwise 3.

    Raises PlanError, PrerequisiteError, and KeyboardInterrupt after a signal, when everything is removed.
    """
    plan = sustained.resolved(load(Path(given.plan), given.scale), Path(given.plan).parent)
    whole = matrix(plan)
    chosen = only(runs(whole.cells, plan), given.only)
    folder = plan.results
    if plan.search is not None:
        around = AROUND_SECONDS + plan.missing_after + SETTLE_SECONDS_MAX
        print(searches.describe(plan, plan.search, chosen, around), flush=True)
    else:
        print(describe(plan, whole, chosen), flush=True)
    if given.dry_run:
        return _PASS
    live = LiveMetrics()
    with (
        stop_on_signals() as stop,
        _served(live, given.metrics_port),  # a port that is refused leaves no folder
        CampaignJournal(folder, plan).open(resumes=given.resume) as kept,
    ):
        with stop.at_once():
            _prepare(chosen)
        kept.begin(Heading(machine(), version()))
        if plan.search is not None:
            return _search(plan, plan.search, chosen, kept, stop, live)
        _run_missing(plan, chosen, kept, stop, live)
    found = build_table(plan)
    files = ", ".join(str(folder / name) for name in (*formats.FILES, html.FILE))
    print(f"{found.first_line}\nThe table: {plain(files)}")
    return _PASS if all(result.read(folder, one) is not None for one in chosen) else _NOT_COMPLETE


@contextmanager
def _served(live: LiveMetrics, port: int | None) -> Iterator[None]:
    """Serve the metrics of the current run at ``port``, if it is given. Raises PlanError if it cannot be used."""
    if port is None:
        yield
        return
    try:
        server = LiveServer(live, port)
    except OSError as error:
        raise PlanError(f"--metrics-port {port}: {error.strerror}; use another port, or 0 for a free one.") from error
    with server:
        print(f"metrics of the current run: {server.url}", flush=True)
        yield


def _search(
    plan: CampaignPlan, rules: Search, chosen: Sequence[Run], kept: CampaignJournal, stop: Stop, live: LiveMetrics
) -> int:
    """Do the searches without an end, and write their table."""
    began = time.monotonic()

    def say(line: str) -> None:
        print(plain(f"{time.monotonic() - began:8.1f} s  {line}"), flush=True)

    with CampaignEnvironment(plan, stop, say, needs_relay=False, live=live) as environment:
        searches.do(plan, rules, chosen, kept, environment, say)
    print(f"The table: {plain(str(searches.write(plan, rules, chosen)))}")
    return _PASS


def _run_missing(
    plan: CampaignPlan, chosen: Sequence[Run], kept: CampaignJournal, stop: Stop, live: LiveMetrics
) -> None:
    """Do the runs without a result, and print and write the table after each."""
    folder = plan.results
    left = [one for one in chosen if result.read(folder, one) is None]
    began, done = time.monotonic(), 0

    def say(line: str) -> None:
        print(plain(f"{time.monotonic() - began:8.1f} s  {line}"), flush=True)

    def one_run(one: Run) -> RunResult:
        say(f"{done + 1} of {len(left)}: {one.name}, {_remaining_time(plan, chosen)}")
        return environment.run(one)

    def report_run(one: Run, end: RunResult | Failure) -> None:
        nonlocal done
        done += 1
        formats.write(folder, build_table(plan))
        say(f"{done} of {len(left)}: {one.name}: {_end(end)}")

    formats.write(folder, build_table(plan))
    try:
        with CampaignEnvironment(
            plan, stop, say, needs_relay=any(one.cell.fault in DELAYS for one in left), live=live
        ) as environment:
            journal.work(kept, folder, left, one_run, report_run)
    finally:
        _write_all(plan)  # an interruption is also a failure and a row of the table


def describe(plan: CampaignPlan, whole: Matrix, chosen: Sequence[Run]) -> str:
    """The matrix, the completed runs, and an estimate of the remaining time."""
    done = {one.name for one in chosen if result.read(plan.results, one) is not None}
    lines = [f"{plural(len(chosen), 'run')}, {len(done)} done; {_remaining_time(plan, chosen)}"]
    lines += [f"repeats: {plan.repeats}"] if plan.repeats else []
    lines += [f"not in the matrix: {sentence}" for sentence in whole.left_out]
    width = max(len(one.cell.name) for one in chosen)
    for cell in dict.fromkeys(one.cell for one in chosen):
        marks = [f"{one.repetition}{' done' if one.name in done else ''}" for one in chosen if one.cell == cell]
        rate = plan.sustained.get(sustained.calm(cell).name)
        at = "" if rate is None else f", {rate:,} events/s"
        lines.append(f"  {cell.name:<{width}}  repetitions {', '.join(marks)}{at}")
    return "\n".join(lines)


def build_table(plan: CampaignPlan) -> Table:
    """The table of the plan from the files in its results folder. Raises PlanError."""
    whole = matrix(plan)
    everything = runs(whole.cells, plan)
    lines = journal.read_lines(plan.results)
    results = results_of(plan)
    return table(
        everything, results, left_out=whole.left_out, failures=journal.failures(lines),
        headings=journal.headings(lines),
        settings=({"repeats": plan.repeats} if plan.repeats else {}) | plan.same_in_all,
    )  # fmt: skip


def results_of(plan: CampaignPlan) -> dict[str, RunResult]:
    """Run -> its result, of the runs that have one. Raises PlanError."""
    of = runs(matrix(plan).cells, plan)
    return {one.name: found for one in of if (found := result.read(plan.results, one)) is not None}


def _write_all(plan: CampaignPlan) -> None:
    """Write the table, and the page with the figures of all runs."""
    found = build_table(plan)
    formats.write(plan.results, found)
    html.write(plan.results, found, results_of(plan))


def _remaining_time(plan: CampaignPlan, of: Sequence[Run]) -> str:
    """Expected time of the runs that are not done, corrected by those that are."""
    estimates = {one.name: _seconds_most(plan, one) for one in of}
    done = {one.name: found.seconds for one in of if (found := result.read(plan.results, one)) is not None}
    share = median(seconds / estimates[name] for name, seconds in done.items()) if done else 1.0
    left = [share * seconds for name, seconds in estimates.items() if name not in done]
    each = text_of(round(median(left))) if left else "0s"
    basis = f"by {len(done)} done" if done else "an estimate"
    return f"about {text_of(round(sum(left), -1))} remaining ({each} per run, {basis})"


def _seconds_most(plan: CampaignPlan, one: Run) -> float:
    """Most seconds of a run, except for the time that healing takes. Raises PlanError."""
    own = sustained.plan_of(plan, one.cell)
    most = own.preload + own.phases.seconds_most + AROUND_SECONDS
    if one.cell.fault in own.schedules:
        most += scheduled.scenario(one.cell, own, one.seed).timeline.seconds - own.phases.failure
    return most


def _end(end: RunResult | Failure) -> str:
    if isinstance(end, Failure):
        return f"FAILED: {' '.join(end.reason.split())[:300]}"
    counts = f"{end.duplicate} duplicate, {end.missing} missing, {end.incorrect} incorrect"
    finding = "" if end.read_back is None or end.read_back.mismatch is None else f"; FINDING: {end.read_back.mismatch}"
    return f"{end.outcome}, {counts}, {text_of(round(end.seconds))}{finding}"


def _prepare(chosen: Sequence[Run]) -> None:
    """Fetch and compile all missing parts before the first run. Raises PlanError, PrerequisiteError."""
    delayed = [one for one in chosen if one.cell.fault in DELAYS]
    if delayed and (why_not := node.why_not_here()) is not None:
        raise PlanError(
            f"{delayed[0].cell.fault}: {why_not}; use pause faults, or select faults without delays: --only fault=NAME."
        )
    resolve(JARS_LOCK)
    resolve(SIDECAR_LOCK)
    for engine in dict.fromkeys(one.cell.engine for one in chosen):
        if engine != REFERENCE:
            REGISTRY[engine].require()
            REGISTRY[engine].prepare()

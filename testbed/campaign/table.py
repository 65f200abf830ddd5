"""The table of a campaign as values: a row per cell, with medians and spread over its repetitions, and the findings."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from statistics import fmean, median, stdev
from typing import Final, Literal

from testbed.campaign.cell import Cell
from testbed.campaign.journal import Failure, Heading
from testbed.campaign.matrix import Run
from testbed.campaign.published import Published, published
from testbed.campaign.result import LATENCY, RunResult
from testbed.campaign.search import OFFERED_LEAST
from validator.model.wording import plural

Unit = Literal["ratio", "count", "seconds", "per_second"]
_INTERVAL_LEAST: Final = 3
_T_975: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t at 97.5 % for 1, 2, 3 ... degrees of freedom. For more than ten the last one gives a wider interval."""
GUARANTEES: Final = ("at_most_once", "at_least_once", "exactly_once")


@dataclass(frozen=True)
class Spread:
    """A measure over the repetitions that have it."""

    median: float
    least: float
    most: float
    runs: int
    mean: float
    half_95: float | None = None
    """Half of the 95 % confidence interval of the mean, by Student's t; None: fewer than three runs."""


@dataclass(frozen=True)
class Column:
    """A measure of the table. ``of``: its value in a run, None if not available."""

    name: str
    title: str
    unit: Unit
    of: Callable[[RunResult], float | None]


def _cost(name: str) -> Callable[[RunResult], float | None]:
    def of(found: RunResult) -> float | None:
        value = getattr(found.cost, name)
        return None if value is None else float(value)

    return of


def _least_hit(found: RunResult) -> float | None:
    # A partition without output until the end of the load is not the least hit one, unless all are.
    known = [seconds for seconds in found.cost.partition_downtimes_seconds if seconds is not None]
    return min(known, default=None)


def _phase(phase: str, name: str) -> Callable[[RunResult], float | None]:
    def of(found: RunResult) -> float | None:
        value = next((getattr(measured, name) for measured in found.phases if measured.phase == phase), None)
        return None if value is None else float(value)

    return of


def _per_phase(
    name: str, title: str, unit: Unit, of: str, phases: Sequence[str] = ("control", "failure", "recovery")
) -> tuple[Column, ...]:
    return tuple(Column(f"{name}_{phase}_{unit}", f"{title}, {phase}", unit, _phase(phase, of)) for phase in phases)


OF_RUN: Final = (
    Column("offered_per_second", "offered", "per_second", lambda found: found.offered_per_second),
    Column("handled_ratio", "reliability", "ratio", lambda found: found.handled_ratio),
    Column("duplicate", "duplicates", "count", lambda found: found.duplicate),
    Column("predicted_duplicates", "duplicates predicted at kills", "count", _cost("predicted_duplicates")),
    Column("missing", "missing", "count", lambda found: found.missing),
    Column("lost_ratio", "lost", "ratio", lambda found: found.lost_ratio),
    Column("incorrect", "incorrect", "count", lambda found: found.incorrect),
    Column("late", "late", "count", lambda found: found.late),
    Column("wrong_median_seconds", "wrong for, median", "seconds", lambda found: found.wrong_median_seconds),
    Column("wrong_most_seconds", "wrong for, most", "seconds", lambda found: found.wrong_most_seconds),
    Column("failure_cost_seconds", "failure cost", "seconds", _cost("failure_cost_seconds")),
    Column("downtime_seconds", "downtime", "seconds", _cost("downtime_seconds")),
    Column("durability_index", "durability index", "ratio", lambda found: found.durability_index),
    Column("recovery_seconds", "recovery time", "seconds", _cost("recovery_seconds")),
    Column("noticed_seconds", "fault noticed", "seconds", _cost("noticed_seconds")),
    Column("restarted_seconds", "all tasks run", "seconds", _cost("restarted_seconds")),
    Column("first_output_seconds", "first output", "seconds", _cost("first_output_seconds")),
    Column("latency_recovery_seconds", "latency as before", "seconds", _cost("latency_recovery_seconds")),
    Column("lag_recovery_seconds", "backlog drained", "seconds", _cost("lag_recovery_seconds")),
    Column("partition_downtime_least_seconds", "downtime of the least hit partition", "seconds", _least_hit),
    Column("peak_latency_p99_seconds", "peak of latency p99", "seconds", _cost("peak_latency_p99_seconds")),
    Column("throughput_penalty_ratio", "TPF, own control phase", "ratio", _cost("throughput_penalty_ratio")),
    Column("latency_penalty_ratio", "LPF, own control phase", "ratio", _cost("latency_penalty_ratio")),
    Column(
        "degraded_throughput_per_second",
        "throughput with the process down",
        "per_second",
        _cost("degraded_throughput_per_second"),
    ),
    Column(
        "degraded_latency_p50_seconds",
        "latency p50 with the process down",
        "seconds",
        _cost("degraded_latency_p50_seconds"),
    ),
    Column("output_before_restart", "output before the restart", "count", _cost("output_before_restart")),
    Column("connect_p50_seconds", "time to connect, p50", "seconds", _cost("connect_p50_seconds")),
    Column("connect_p99_seconds", "time to connect, p99", "seconds", _cost("connect_p99_seconds")),
    Column("unreachable_ratio", "broker unreachable", "ratio", _cost("unreachable_ratio")),
    Column("hit_input_per_second", "input of the hit workers", "per_second", _cost("hit_input_per_second")),
    Column("others_input_per_second", "input of the others", "per_second", _cost("others_input_per_second")),
    Column("faults", "faults", "count", lambda found: max(1, len(found.faults))),
    Column("faults_recovered", "faults recovered", "count", lambda found: found.faults_recovered),
    Column(
        "processor_seconds_per_million",
        "engine's processor time for a million events",
        "seconds",
        lambda found: found.processor_seconds_per_million,
    ),
)
"""The measures of a whole run and of its faults."""
OF_PHASES: Final = (
    *_per_phase("throughput", "throughput", "per_second", "throughput_per_second"),
    *_per_phase("latency_p50", "latency p50", "seconds", "latency_p50_seconds"),
    *_per_phase("latency_p99", "latency p99", "seconds", "latency_p99_seconds"),
    *_per_phase("utilisation", "engine's share of the processors", "ratio", "utilisation_ratio"),
    # Violations are counted by fault, so the control phase has no number.
    *_per_phase("handled", "reliability", "ratio", "handled_ratio", ("failure", "recovery")),
)
COLUMNS: Final = (*OF_RUN, *OF_PHASES)
"""All measures, in the order of the formats."""


@dataclass(frozen=True)
class Row:
    """A row for one cell. ``verdicts``: guarantee -> verdict -> runs. ``failed``: attempts without a result."""

    cell: Cell
    wanted: int
    done: int
    failed: int
    verdicts: Mapping[str, Mapping[str, int]]
    effective: tuple[str, ...]
    """The distinct guarantees that were read back from the engine; empty for the reference engine and the mutant, or
    without a run.
    """
    measures: Mapping[str, Spread | None]
    published: tuple[Published, ...]
    latencies: Mapping[str, Mapping[str, float]]
    """Phase -> number of `testbed.campaign.latencies` -> its median over the runs, by the close of the window."""


@dataclass(frozen=True)
class Table:
    """The content of all formats."""

    rows: tuple[Row, ...]
    wanted: int
    done: int
    left_out: tuple[str, ...]
    findings: tuple[str, ...]
    absent: tuple[str, ...]
    """Why measures are missing."""
    failures: tuple[Failure, ...]
    headings: tuple[Heading, ...]
    settings: Mapping[str, object]

    @property
    def is_complete(self) -> bool:
        """Whether every run of the plan has a result."""
        return self.done == self.wanted

    @property
    def first_line(self) -> str:
        """How complete the table is."""
        how_many = plural(len(self.failures), "attempt failed and is", "attempts failed and are")
        failed = f"; {how_many} listed" if self.failures else ""
        if self.is_complete:
            return f"Complete: {'the only run is' if self.wanted == 1 else f'all {self.wanted} runs are'} done{failed}."
        return f"NOT COMPLETE: {self.done} of {self.wanted} runs are done{failed}."


def table(
    wanted: Sequence[Run], results: Mapping[str, RunResult], *, left_out: Sequence[str], failures: Sequence[Failure],
    headings: Sequence[Heading], settings: Mapping[str, object],
) -> Table:  # fmt: skip
    """The table of the ``wanted`` runs. ``results``: by name of the run; a run without an entry is not done."""
    cells = tuple(dict.fromkeys(run.cell for run in wanted))
    found = [results[run.name] for run in wanted if run.name in results]
    names = {run.name for run in wanted}
    relevant = tuple(failure for failure in failures if failure.run in names)
    rows = []
    for cell in cells:
        runs = [run for run in wanted if run.cell == cell]
        done = [results[run.name] for run in runs if run.name in results]
        failed = Counter(failure.run for failure in relevant)
        rows.append(_row(cell, len(runs), done, sum(failed[run.name] for run in runs)))
    return Table(
        tuple(rows), len(wanted), len(found), tuple(left_out), tuple(_findings(found)), tuple(_absent(found)), relevant,
        tuple(headings), settings,
    )  # fmt: skip


def _row(cell: Cell, wanted: int, done: Sequence[RunResult], failed: int) -> Row:
    return Row(
        cell=cell,
        wanted=wanted,
        done=len(done),
        failed=failed,
        verdicts={name: Counter(str(found.verdicts.get(name)) for found in done) for name in GUARANTEES},
        effective=tuple(dict.fromkeys(found.read_back.guarantee for found in done if found.read_back is not None)),
        measures={column.name: spread([column.of(found) for found in done]) for column in COLUMNS},
        published=published(cell),
        latencies=_latencies([found.latencies.get(LATENCY, {}) for found in done]),
    )


def _latencies(runs: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    by: dict[str, dict[str, list[float]]] = {}
    for phases in runs:
        for phase, numbers in phases.items():
            for name, value in numbers.items():
                by.setdefault(phase, {}).setdefault(name, []).append(value)
    return {phase: {name: median(values) for name, values in of.items()} for phase, of in by.items()}


def spread(values: Sequence[float | None]) -> Spread | None:
    """Median, minimum and maximum of the values that are not None; None if there is no value."""
    there = [value for value in values if value is not None]
    if not there:
        return None
    half = None
    if len(there) >= _INTERVAL_LEAST:
        t = _T_975[min(len(there) - 1, len(_T_975)) - 1]
        half = t * stdev(there) / math.sqrt(len(there))
    return Spread(median(there), min(there), max(there), len(there), fmean(there), half)


def _findings(done: Sequence[RunResult]) -> list[str]:
    """The findings, one sentence each, with the runs that show them."""
    by: dict[str, list[str]] = {}
    for found in done:
        effective = found.read_back
        if effective is not None and effective.mismatch is not None:
            by.setdefault(effective.mismatch.rstrip("."), []).append(found.run)
        # An engine is judged by the guarantee read back from it; the reference engine and the mutant by the configured
        # one.
        kept = effective.guarantee if effective is not None else found.guarantee
        if found.verdicts.get(kept) == "fail":
            by.setdefault(f"{found.engine} has the guarantee {_words(kept)} and broke it", []).append(found.run)
        if not found.settled:
            by.setdefault("Not everything that was sent was judged in time", []).append(found.run)
        if not found.coverage_complete:
            by.setdefault("The sidecar could not account for every record of the topics", []).append(found.run)
        offered, planned = found.offered_per_second, found.planned_per_second
        # A generator without processor time would look like a slower engine.
        if offered is not None and planned is not None and offered < OFFERED_LEAST * planned:
            by.setdefault(f"Offered was less than {100 * OFFERED_LEAST:g} % of the plan's rate", []).append(found.run)
    return [*recoveries(done), *(f"{what} ({', '.join(runs)})." for what, runs in by.items())]


def recoveries(done: Sequence[RunResult]) -> list[str]:
    """How many of the runs whose faults healed have a recovery time, and which have none."""
    healed = [found for found in done if found.fault != "none" and found.cost.healed]
    without = [found.run for found in healed if found.cost.recovery_seconds is None]
    if not healed:
        return []
    share = f"{len(healed) - len(without)} of {plural(len(healed), 'run')} whose faults healed"
    return [f"A recovery time: {share}{'; not ' + ', '.join(without) if without else ''}."]


def _absent(done: Sequence[RunResult]) -> list[str]:
    by: dict[str, list[str]] = {}
    for found in done:
        for reason in found.cost.absent_because:
            by.setdefault(reason.rstrip("."), []).append(found.run)
    return [f"{reason} ({', '.join(runs)})." for reason, runs in by.items()]


@dataclass(frozen=True)
class Order:
    """The engines by a measure, lowest first: in this campaign, and in a paper."""

    paper: str
    measure: str
    cell: str
    here: tuple[str, ...]
    there: tuple[str, ...]


def orders(rows: Sequence[Row]) -> list[Order]:
    """The order of the engines, for each published measure of which at least two engines have a value in both."""
    groups: dict[tuple[str, str, str], list[tuple[str, float, float]]] = {}
    for row in rows:
        cell = row.cell
        name = ", ".join(filter(None, (cell.workload, cell.guarantee, cell.fault, cell.setting)))
        for one in row.published:
            if (here := row.measures[one.measure]) is not None:
                groups.setdefault((one.paper, one.measure, name), []).append((cell.engine, here.median, one.value))
    return [
        Order(*key, *(tuple(engine for engine, *_ in sorted(group, key=itemgetter(at))) for at in (1, 2)))
        for key, group in groups.items()
        if len(group) > 1
    ]


def _words(guarantee: str) -> str:
    return guarantee.replace("_", " ")

"""What one run has shown: the part of its sidecar's report that the table is made of, as a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from testbed.campaign.matrix import Cell, Run
from testbed.campaign.plan import FaultName
from testbed.engines.effective import Effective
from testbed.engines.settings import Guarantee, Workload
from validator.publish.atomic import replace_file

SCHEMA: Final = 1
LATENCY: Final = "window_close"
"""The definition that failure cost is of (SEMANTICS section 6)."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class PhaseMeasure(_Record):
    """One phase of a run, from the report. Latencies are seconds from the close of the window to its result."""

    phase: str
    results: int
    throughput_per_second: float | None
    latency_p50_seconds: float | None
    latency_p99_seconds: float | None


class FaultMeasure(_Record):
    """What the fault cost, from the report; a measure that cannot be had is None, and ``absent_because`` says why."""

    failure_cost_seconds: float | None
    downtime_seconds: float | None
    recovery_seconds: float | None
    recovered: bool | None
    absent_because: tuple[str, ...] = ()


class ReadBack(_Record):
    """What the running engine guarantees, by its own account."""

    guarantee: Guarantee
    evidence: tuple[str, ...]
    commit_interval_seconds: float | None = None
    transaction_timeout_seconds: float | None = None
    checkpoint_mode: str | None = None
    session_timeout_seconds: float | None = None
    heartbeat_interval_seconds: float | None = None
    mismatch: str | None = None
    """One sentence where that is less than what was asked for."""

    @classmethod
    def of(cls, effective: Effective, asked: Guarantee) -> ReadBack:
        """From an engine's answer."""
        return cls(
            guarantee=effective.guarantee,
            evidence=effective.evidence,
            commit_interval_seconds=effective.commit_interval_seconds,
            transaction_timeout_seconds=effective.transaction_timeout_seconds,
            checkpoint_mode=effective.checkpoint_mode,
            session_timeout_seconds=effective.session_timeout_seconds,
            heartbeat_interval_seconds=effective.heartbeat_interval_seconds,
            mismatch=effective.mismatch(asked),
        )


class RunResult(_Record):
    """A run that was done to its end. Counts are contributions of the whole run."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    run: str
    engine: str
    workload: Workload
    guarantee: Guarantee
    fault: FaultName
    repetition: int
    seed: int
    started: str
    """RFC 3339."""
    seconds: float
    """From the first topic to the end of the sidecar."""
    sent: int
    """Events that the broker acknowledged."""
    settled: bool
    """Whether everything sent was judged; otherwise the report has something open."""
    outcome: str
    verdicts: dict[str, str | None]
    reasons: tuple[str, ...]
    handled_ratio: float | None
    exact_ratio: float | None
    duplicate: int | None
    missing: int | None
    incorrect: int | None
    late: int | None
    coverage_complete: bool
    cost: FaultMeasure
    """Without a fault, what the measures show of nothing."""
    phases: tuple[PhaseMeasure, ...]
    read_back: ReadBack | None
    """None: a stand-in of ours, which has nothing to read back."""


def result_of(
    run: Run, report: Mapping[str, Any], *, started: str, seconds: float, sent: int, settled: bool,
    read_back: ReadBack | None,
) -> RunResult:  # fmt: skip
    """From the ``report`` that the sidecar of ``run`` wrote last. Raises ValueError where it tells of no fault, or
    of more than one.
    """
    cell, counts, ratios = run.cell, report["contributions"], report["reliability"]
    if len(faults := report["faults"]) != 1:
        raise ValueError(f"the report of {run.name} tells of {len(faults)} faults")
    return RunResult(
        run=run.name, engine=cell.engine, workload=cell.workload, guarantee=cell.guarantee, fault=cell.fault,
        repetition=run.repetition, seed=run.seed, started=started, seconds=round(seconds, 1), sent=sent,
        settled=settled, outcome=report["outcome"], verdicts=report["verdicts"], reasons=tuple(report["reasons"]),
        handled_ratio=ratios["handled_ratio"], exact_ratio=ratios["exact_ratio"],
        duplicate=counts["duplicate"], missing=counts["missing"], incorrect=counts["incorrect"], late=counts["late"],
        coverage_complete=report["coverage"]["complete"],
        cost=_cost(faults[0]),
        phases=_phases(report["phases"]),
        read_back=read_back,
    )  # fmt: skip


def _cost(fault: Mapping[str, Any]) -> FaultMeasure:
    return FaultMeasure(**{name: fault[name] for name in FaultMeasure.model_fields})


def _phases(phases: list[Mapping[str, Any]]) -> tuple[PhaseMeasure, ...]:
    """The first of each kind: what is a control phase again after recovery is not the baseline."""
    first: dict[str, PhaseMeasure] = {}
    for phase in phases:
        latency = phase["latency_seconds"][LATENCY]
        first.setdefault(
            phase["phase"],
            PhaseMeasure(
                phase=phase["phase"],
                results=phase["results"],
                throughput_per_second=phase["throughput_per_second"],
                latency_p50_seconds=latency["p50"],
                latency_p99_seconds=latency["p99"],
            ),
        )
    return tuple(first.values())


def path_of(folder: Path, run: Run) -> Path:
    """Where the result of ``run`` is."""
    return folder / "runs" / f"{run.name}.json"


def write(folder: Path, run: Run, result: RunResult) -> None:
    """Write it whole or not at all. Raises OSError."""
    path = path_of(folder, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, result.model_dump_json(indent=1, by_alias=True) + "\n")


def read(folder: Path, run: Run) -> RunResult | None:
    """The result of ``run``; None where there is none, it is not whole, or it is another run's."""
    try:
        found = RunResult.model_validate_json(path_of(folder, run).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValidationError, UnicodeDecodeError):
        return None
    cell = Cell(found.engine, found.workload, found.guarantee, found.fault)
    same = (found.schema_, cell, found.repetition, found.seed) == (SCHEMA, run.cell, run.repetition, run.seed)
    return found if same else None

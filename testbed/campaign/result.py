"""The result of one run: the part of its sidecar's report that the table needs, as a separate file."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from testbed.campaign.cell import Cell
from testbed.campaign.matrix import Run
from testbed.campaign.plan import FaultName, PlanError
from testbed.campaign.stages import Stages
from testbed.engines.effective import Effective
from testbed.engines.settings import Guarantee
from validator.publish.atomic import replace_file
from validator.publish.report_types import PhaseOfReport, Report

SCHEMA: Final = 1
LATENCY: Final = "window_close"
"""The latency definition of failure cost (SEMANTICS section 6)."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class PhaseMeasure(_Record):
    """One phase of a run, from the report. Latencies are seconds from the close of the window to its result."""

    phase: str
    results: int
    throughput_per_second: float | None
    latency_p50_seconds: float | None
    latency_p99_seconds: float | None
    utilisation_ratio: float | None = None
    """Share of the machine's processor time that the engine used."""
    handled_ratio: float | None = None
    """Share of the contributions that the results of the phase named, or should have named, and that are in one."""


class FaultMeasure(Stages, _Record):
    """The cost of the fault, from the report, and its stages; a measure that is not available is None, and
    ``absent_because`` has the reason.
    """

    failure_cost_seconds: float | None
    downtime_seconds: float | None
    recovery_seconds: float | None
    recovered: bool | None
    absent_because: tuple[str, ...] = ()
    healed: bool = True
    throughput_penalty_ratio: float | None = None
    latency_penalty_ratio: float | None = None
    """These two are the report's: the failure phase against the control phase of the same run."""
    predicted_duplicates: int | None = None
    """`testbed.campaign.predicted`."""


_MEDIANS: Final = (
    "degraded_throughput_per_second", "degraded_latency_p50_seconds", "hit_input_per_second",
    "others_input_per_second", "connect_p50_seconds", "connect_p99_seconds", "unreachable_ratio",
    "throughput_penalty_ratio", "latency_penalty_ratio",
)  # fmt: skip
"""Measures of several faults of which a run has the median of those that are known."""


class ReadBack(_Record):
    """The guarantee of the running engine, read back from it."""

    guarantee: Guarantee
    evidence: tuple[str, ...]
    commit_interval_seconds: float | None = None
    transaction_timeout_seconds: float | None = None
    checkpoint_mode: str | None = None
    session_timeout_seconds: float | None = None
    heartbeat_interval_seconds: float | None = None
    mismatch: str | None = None
    """One sentence if it is weaker than the configured one."""

    @classmethod
    def of(cls, effective: Effective, asked: Guarantee) -> ReadBack:
        """The read-back ``effective``, compared with the configured guarantee ``asked``."""
        read = {name: getattr(effective, name) for name in cls.model_fields if name != "mismatch"}
        return cls(**read, mismatch=effective.mismatch(asked))


class RunResult(_Record):
    """A completed run. Counts are contributions of the whole run."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    run: str
    engine: str
    workload: str
    guarantee: Guarantee
    fault: FaultName
    repetition: int
    seed: int
    started: str
    """RFC 3339."""
    seconds: float
    """Seconds from the first topic to the end of the sidecar."""
    sent: int
    """Events that the broker acknowledged."""
    settled: bool
    """Whether everything that was sent was judged; otherwise the report has outstanding contributions."""
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
    """In a run without a fault, the values of this field are the baseline for the costs of faults. Of several faults:
    the sums of cost and downtime, and the median of the recovery times."""
    faults: tuple[FaultMeasure, ...] = ()
    """The faults in order, if there are several."""
    phases: tuple[PhaseMeasure, ...]
    read_back: ReadBack | None
    """None for the reference engine and the mutant, which have nothing to read back."""
    axes: tuple[tuple[str, str], ...] = ()
    """The values on the axes of the plan."""
    phases_begin_us: int | None = None
    """When the first result was seen, from which the phases of the plan run."""
    offered_per_second: float | None = None
    """What the load generator sent, in events per second."""
    planned_per_second: float | None = None
    """The rate of the plan; None: it is not constant."""
    passed_on: int | None = None
    """The events that the earlier stages of a chain made of those that were sent; None: the workload has none."""
    latencies: dict[str, dict[str, dict[str, float]]] = {}
    """Definition -> phase -> percentiles and other numbers of the latencies of its results, in seconds."""
    wrong_median_seconds: float | None = None
    wrong_most_seconds: float | None = None
    """How long violations were on record (`testbed.campaign.wrong`); None: there was none."""
    processor_seconds: dict[str, float] = {}
    """Of the engine, the broker, the sidecar, the load generator and the campaign, from the begin of the load until all
    is judged."""

    @property
    def faults_recovered(self) -> int:
        """The number of faults after which the output rate recovered."""
        return sum(one.recovered is True for one in self.faults or (self.cost,))

    @property
    def given(self) -> int:
        """The number of events that the engine was given."""
        return self.sent if self.passed_on is None else self.passed_on

    @property
    def lost_ratio(self) -> float | None:
        """Lopez': lost events, as a share of those that were given."""
        return None if self.missing is None or not self.given else self.missing / self.given

    @property
    def durability_index(self) -> float | None:
        """StreamBench's: the share of the time of the load in which there was output as usual; None: not measured."""
        down, rate = self.cost.downtime_seconds, self.offered_per_second
        return None if down is None or not rate or not self.sent else max(0.0, 1 - down * rate / self.sent)

    @property
    def processor_seconds_per_million(self) -> float | None:
        """Processor seconds of the engine for a million events; None if they were not sampled."""
        used = self.processor_seconds.get("engine")
        return None if used is None or not self.given else used * 1e6 / self.given


def result_of(
    run: Run, report: Report, *, started: str, seconds: float, sent: int, settled: bool,
    read_back: ReadBack | None, processor_seconds: Mapping[str, float] | None = None,
    offered_per_second: float | None = None, planned_per_second: float | None = None,
    phases_begin_us: int | None = None, passed_on: int | None = None,
    latencies: dict[str, dict[str, dict[str, float]]] | None = None, stages: Sequence[Stages] = (),
    predicted: Sequence[int | None] = (), wrong: Sequence[float] = (), utilisation: Mapping[str, float] | None = None,
) -> RunResult:  # fmt: skip
    """The result of ``run`` from its sidecar's last ``report``. Raises ValueError if that has no fault."""
    cell, counts, ratios = run.cell, report["contributions"], report["reliability"]
    of_faults = [*stages, *[Stages()] * (len(report["faults"]) - len(stages))]
    duplicates = [*predicted, *[None] * (len(report["faults"]) - len(predicted))]
    faults = tuple(map(_cost, report["faults"], of_faults, duplicates))
    if not faults:
        raise ValueError(f"the report of {run.name} has no fault")
    return RunResult(
        run=run.name, engine=cell.engine, workload=cell.workload, guarantee=cell.guarantee, fault=cell.fault,
        repetition=run.repetition, seed=run.seed, started=started, seconds=round(seconds, 1), sent=sent,
        settled=settled, outcome=report["outcome"], verdicts=dict(report["verdicts"]), reasons=tuple(report["reasons"]),
        handled_ratio=ratios["handled_ratio"], exact_ratio=ratios["exact_ratio"],
        duplicate=counts["duplicate"], missing=counts["missing"], incorrect=counts["incorrect"], late=counts["late"],
        coverage_complete=report["coverage"]["complete"],
        cost=faults[0] if len(faults) == 1 else _of_all(faults),
        faults=faults if len(faults) > 1 else (),
        phases=_phases(report["phases"], utilisation or {}),
        wrong_median_seconds=median(wrong) if wrong else None, wrong_most_seconds=max(wrong, default=None),
        read_back=read_back, processor_seconds=dict(processor_seconds or {}),
        offered_per_second=offered_per_second, planned_per_second=planned_per_second,
        passed_on=passed_on, phases_begin_us=phases_begin_us, axes=cell.axes, latencies=latencies or {},
    )  # fmt: skip


def _cost(fault: Mapping[str, object], stages: Stages, predicted_duplicates: int | None) -> FaultMeasure:
    own = {**stages.model_dump(), "predicted_duplicates": predicted_duplicates}
    measures = {name: fault[name] for name in FaultMeasure.model_fields if name not in own}
    return FaultMeasure.model_validate({**measures, **own, "healed": fault["healed"] is not None})


def _of_all(faults: Sequence[FaultMeasure]) -> FaultMeasure:
    costs = [one.failure_cost_seconds for one in faults]
    downtimes = [one.downtime_seconds for one in faults]
    known = [one for one in faults if one.recovered is not None]
    known_duplicates = [one.predicted_duplicates for one in faults if one.predicted_duplicates is not None]
    # An output that did not recover would have needed longer than any that did: it is censored, not left out.
    recovery = median([one.recovery_seconds or 0.0 if one.recovered else math.inf for one in known] or [math.inf])
    return FaultMeasure(
        failure_cost_seconds=_total(costs), downtime_seconds=_total(downtimes),
        recovery_seconds=None if math.isinf(recovery) else recovery,
        recovered=all(one.recovered for one in known) if len(known) == len(faults) else None,
        absent_because=tuple(dict.fromkeys(reason for one in faults for reason in one.absent_because)),
        healed=all(one.healed for one in faults),
        outage=None if all(one.outage is None for one in faults) else any(one.outage for one in faults),
        # Where there was no outage, no output was missing: only one that is not known to end is censored.
        first_output_seconds=_middle([one.first_output_seconds for one in faults if one.outage is not False]),
        latency_recovery_seconds=_middle([one.latency_recovery_seconds for one in faults]),
        lag_recovery_seconds=_middle([one.lag_recovery_seconds for one in faults]),
        noticed_seconds=_middle([one.noticed_seconds for one in faults]),
        peak_latency_p99_seconds=max(
            (peak for one in faults if (peak := one.peak_latency_p99_seconds) is not None), default=None
        ),
        output_before_restart=_all([one.output_before_restart for one in faults]),
        restarted_seconds=_middle([one.restarted_seconds for one in faults]),
        predicted_duplicates=sum(known_duplicates) if len(known_duplicates) == len(faults) else None,
    ).model_copy(update={name: _known([getattr(one, name) for one in faults]) for name in _MEDIANS})  # fmt: skip


def _all(values: Sequence[bool | None]) -> bool | None:
    return None if None in values else all(values)


def _known(values: Sequence[float | None]) -> float | None:
    """The median of those that are known."""
    there = [value for value in values if value is not None]
    return median(there) if there else None


def _middle(values: Sequence[float | None]) -> float | None:
    """The median, in which a value that is not known is longer than any other."""
    found = median([math.inf if value is None else value for value in values] or [math.inf])
    return None if math.isinf(found) else found


def _total(values: Sequence[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) if len(there) == len(values) else None


def _phases(phases: list[PhaseOfReport], utilisation: Mapping[str, float]) -> tuple[PhaseMeasure, ...]:
    """The first phase of each kind, because the control phase after recovery is not the baseline."""
    first: dict[str, PhaseMeasure] = {}
    for phase in phases:
        latency = phase["latency_seconds"][LATENCY]
        first.setdefault(
            phase["phase"],
            # Refused by the model if the sidecar did not measure the phase.
            PhaseMeasure.model_validate(
                {
                    "phase": phase["phase"],
                    "results": phase["results"],
                    "throughput_per_second": phase["throughput_per_second"],
                    "latency_p50_seconds": latency["p50"],
                    "latency_p99_seconds": latency["p99"],
                    "utilisation_ratio": utilisation.get(phase["phase"]),
                    "handled_ratio": _handled(phase),
                }
            ),
        )
    return tuple(first.values())


def _handled(phase: PhaseOfReport) -> float | None:
    """The share of a phase; None: its violations are not counted, or it has no contributions."""
    counts, observed = phase["contributions"], phase["observed_contributions"]
    if counts is None or observed is None:
        return None
    missing, repeated, wrong = (counts[name] for name in ("missing", "duplicate", "incorrect"))
    if missing is None or repeated is None or wrong is None:
        return None
    # A duplicate counts in the phase of its cell's last answer, an observation in that of its own result.
    named = observed - repeated - wrong
    return named / (named + missing) if named >= 0 and named + missing > 0 else None


def path_of(folder: Path, run: Run) -> Path:
    """Path of the result of ``run``."""
    return folder / "runs" / f"{run.name}.json"


def write(folder: Path, run: Run, result: RunResult) -> None:
    """Write the result atomically. Raises OSError."""
    path = path_of(folder, run)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, result.model_dump_json(indent=1, by_alias=True) + "\n")


def read(folder: Path, run: Run) -> RunResult | None:
    """The result of ``run``; None if it does not exist, is incomplete or belongs to another run.

    Raises PlanError if it has another schema: the run would be done again, and its result replaced.
    """
    path = path_of(folder, run)
    try:
        content = json.loads(path.read_bytes())
        if isinstance(content, dict) and content.get("schema", SCHEMA) != SCHEMA:
            raise PlanError(
                f"{path}: its schema is {content['schema']} and this version of streamproof reads {SCHEMA}; use the "
                "version that wrote it, or another results folder."
            )
        found = RunResult.model_validate(content)
    except (FileNotFoundError, ValueError):
        return None
    cell = Cell(found.engine, found.workload, found.guarantee, found.fault, found.axes)
    return found if (cell, found.repetition, found.seed) == (run.cell, run.repetition, run.seed) else None

"""The cells of a plan, the combinations that no engine supports, and the runs in their order."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Final

from faults.errors import FaultRefused
from generator.workloads.kinds import built, named
from testbed.campaign import scheduled
from testbed.campaign.cell import Cell
from testbed.campaign.plan import LEADER, REFERENCE, CampaignPlan, FaultName, PlanError
from testbed.engines.real import takes_grace
from testbed.engines.registry import REGISTRY
from testbed.engines.settings import Guarantee

_ONLY_KEYS: Final = ("engine", "workload", "guarantee", "fault", "repetition")


@dataclass(frozen=True)
class Run:
    """One repetition of a cell. ``seed`` is derived from the seed of the plan and the name of the run: the same in each
    campaign. ``rate``: that of a trial of a search, or its number of instances.
    """

    cell: Cell
    repetition: int
    seed: int
    rate: int | None = None

    @property
    def name(self) -> str:
        """Name of the run in the journal, in files and in topics."""
        trial = "" if self.rate is None else f"-at-{self.rate}"
        return f"{self.cell.name}-{self.repetition}{trial}"

    def instant_within(self, seconds: float) -> float:
        """Time of the fault within ``seconds``, different for each repetition so that it meets different points of a
        window and a commit.
        """
        return Random(self.seed).uniform(0, seconds)


@dataclass(frozen=True)
class Matrix:
    """The runs, and one sentence for each excluded combination with the reason."""

    cells: tuple[Cell, ...]
    left_out: tuple[str, ...]


def matrix(plan: CampaignPlan) -> Matrix:
    """The cells of ``plan`` in the order of its lists. Raises PlanError if one of its values has no cell."""
    cells: list[Cell] = []
    left_out: list[str] = []
    for engine, workload in product(plan.engines, plan.workloads):
        known = tuple(built()) if engine == REFERENCE else REGISTRY[engine].workloads
        if named(workload).kind not in known:
            left_out.append(f"{engine} has no {workload} job; its workloads are {' and '.join(known)}.")
            continue
        for guarantee in plan.guarantees:
            if (reason := _cannot(engine, guarantee)) is not None:
                left_out.append(reason)
                continue
            for fault, axes in product(plan.faults, plan.combinations(engine)):
                of = dict(axes)
                reason = (
                    _no_shuffle(engine, workload, plan, of)
                    or _no_standby(engine, plan, of, fault)
                    or _no_target(engine, plan.on(axes), fault)
                    or _no_grace(engine, workload, plan, of)
                )
                if reason is not None:
                    left_out.append(reason)
                    continue
                cell = Cell(engine, workload, guarantee, fault, axes)
                if fault in plan.schedules and (reason := _impossible(cell, plan)) is not None:
                    left_out.append(reason)
                    continue
                cells.append(cell)
    keys = {
        "engine": plan.engines, "workload": plan.workloads, "guarantee": plan.guarantees, "fault": plan.faults,
    }  # fmt: skip
    for key, wanted in keys.items():
        for value in wanted:
            if all(getattr(cell, key) != value for cell in cells):
                reasons = " ".join(dict.fromkeys(left_out))
                raise PlanError(f"{key}s: no combination with {value} is possible; remove {value}. {reasons}")
    return Matrix(tuple(cells), tuple(dict.fromkeys(left_out)))


def runs(cells: Sequence[Cell], plan: CampaignPlan) -> tuple[Run, ...]:
    """All repetitions. The first repetition of every cell precedes any second one, so that an early end has results of
    all cells.
    """
    return tuple(
        Run(cell, repetition, _seed(plan, cell, repetition))
        for repetition in range(1, plan.repetitions + 1)
        for cell in cells
    )


def only(chosen: Sequence[Run], texts: Sequence[str]) -> tuple[Run, ...]:
    """The runs that match all of ``texts`` (``engine=flink,storm``). Raises PlanError."""
    left = tuple(chosen)
    for text in texts:
        key, _, values = text.partition("=")
        keys = (*_ONLY_KEYS, *dict.fromkeys(name for run in chosen for name, _ in run.cell.axes))
        if key not in keys or not values:
            example = "--only engine=flink,storm"
            raise PlanError(f"--only {text}: write KEY=VALUE, as in {example}; keys are {', '.join(keys)}.")
        known = {value for run in chosen if (value := _value(run, key))}
        # A workload with several parameters has commas.
        for value in (wanted := [values] if values in known else values.split(",")):
            if value not in known:
                raise PlanError(f"--only {text}: the plan has no {key} {value}; it has {', '.join(sorted(known))}.")
        left = tuple(run for run in left if _value(run, key) in wanted)
    if not left:
        raise PlanError(f"--only {' --only '.join(texts)}: no run of the plan matches all of them; remove one of them.")
    return left


def _value(run: Run, key: str) -> str:
    if key in _ONLY_KEYS:
        return str(run.repetition if key == "repetition" else getattr(run.cell, key))
    return dict(run.cell.axes).get(key, "")


def _cannot(engine: str, guarantee: Guarantee) -> str | None:
    if engine == REFERENCE or guarantee in REGISTRY[engine].guarantees:
        return None
    return f"{engine} does not support {guarantee}, only {' or '.join(REGISTRY[engine].guarantees)}."


def _impossible(cell: Cell, plan: CampaignPlan) -> str | None:
    try:
        scheduled.scenario(cell, plan.on(cell.axes), plan.seed)
    except FaultRefused as refused:
        return str(refused)
    return None


def _no_shuffle(engine: str, workload: str, plan: CampaignPlan, axes: Mapping[str, str]) -> str | None:
    if engine != REFERENCE or not named(workload).needs_shuffle or max(plan.workers(axes)) == 1:
        return None
    return f"{engine} runs {workload} with parallelism 1 only, because partitions share its keys."


def _no_standby(engine: str, plan: CampaignPlan, axes: Mapping[str, str], fault: FaultName) -> str | None:
    wanted = int(axes.get("standby", plan.standby))
    if wanted > (0 if engine == REFERENCE else REGISTRY[engine].engine.standbys):
        return f"{engine} has no standby instances."
    if wanted and engine == "flink" and fault in plan.schedules:
        return "flink has no standby instance in a run with a schedule of faults."
    if engine == "kafka_streams" and 0 < wanted >= min(plan.workers(axes)):
        return "A standby replica of kafka_streams is on another instance, and with parallelism 1 there is none."
    return None


def _no_target(engine: str, plan: CampaignPlan, fault: FaultName) -> str | None:
    its = None if engine == REFERENCE else REGISTRY[engine].engine
    if fault == LEADER and not (its and its.is_led):
        return f"{engine} has no process that directs the others, as {fault} needs."
    # The targets of schedules are the processes of the demo's engines.
    if fault in plan.schedules and its and (setup := its.setup(plan.engine_options.get(engine, {}))):
        return f"{engine} has no run of a schedule of faults with {' and '.join(setup)}."
    return None


def _no_grace(engine: str, workload: str, plan: CampaignPlan, axes: Mapping[str, str]) -> str | None:
    if plan.grace is None and "grace" not in axes:
        return None
    if engine == REFERENCE or not REGISTRY[engine].engine.has_grace:
        return f"{engine} has no grace period."
    return None if takes_grace(named(workload)) else f"{engine} has no grace period in {workload}."


def _seed(plan: CampaignPlan, cell: Cell, repetition: int) -> int:
    return zlib.crc32(f"{plan.seed}/{cell.name}/{repetition}".encode())

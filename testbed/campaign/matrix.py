"""The cells of a plan, what of its matrix no engine can do, and the runs in the order in which they are made."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Final

from testbed.campaign.plan import REFERENCE, CampaignPlan, FaultName, PlanError
from testbed.engines.registry import REGISTRY
from testbed.engines.settings import WORKLOADS, Guarantee, Workload

_ONLY_KEYS: Final = ("engine", "workload", "guarantee", "fault", "repetition")


@dataclass(frozen=True)
class Cell:
    """A row of the table."""

    engine: str
    workload: Workload
    guarantee: Guarantee
    fault: FaultName

    @property
    def name(self) -> str:
        """Of files, and with a repetition of topics."""
        return f"{self.engine}-{self.workload}-{self.guarantee}-{self.fault}"


@dataclass(frozen=True)
class Run:
    """One repetition of a cell. ``seed`` is drawn from the plan's and the run's name: the same in each campaign."""

    cell: Cell
    repetition: int
    seed: int

    @property
    def name(self) -> str:
        """What the run is called in journal, files and topics."""
        return f"{self.cell.name}-{self.repetition}"

    def instant_within(self, seconds: float) -> float:
        """When in ``seconds`` the fault strikes, so that repetitions meet different points of a window and a commit."""
        return Random(self.seed).uniform(0, seconds)


@dataclass(frozen=True)
class Matrix:
    """What is run, and the sentences that say what is not and why."""

    cells: tuple[Cell, ...]
    left_out: tuple[str, ...]


def matrix(plan: CampaignPlan) -> Matrix:
    """The cells of ``plan`` in the order of its lists. Raises PlanError where one of its values has no cell at all."""
    cells: list[Cell] = []
    left_out: list[str] = []
    for engine, workload in product(plan.engines, plan.workloads):
        known = WORKLOADS if engine == REFERENCE else REGISTRY[engine].workloads
        if workload not in known:
            left_out.append(f"{engine} has no {workload} job yet; only {' and '.join(known)}.")
            continue
        for guarantee in plan.guarantees:
            if (reason := _cannot(engine, guarantee)) is not None:
                left_out.append(reason)
                continue
            cells += [Cell(engine, workload, guarantee, fault) for fault in plan.faults]
    for key, wanted in (("engine", plan.engines), ("workload", plan.workloads), ("guarantee", plan.guarantees)):
        for value in wanted:
            if all(getattr(cell, key) != value for cell in cells):
                reasons = " ".join(dict.fromkeys(left_out))
                raise PlanError(f"{key}s: nothing of this plan can be run with {value}; take it out. {reasons}")
    return Matrix(tuple(cells), tuple(dict.fromkeys(left_out)))


def runs(cells: Sequence[Cell], plan: CampaignPlan) -> tuple[Run, ...]:
    """All repetitions; every cell's first comes before any second one, so that an early end has something of all."""
    return tuple(
        Run(cell, repetition, _seed(plan, cell, repetition))
        for repetition in range(1, plan.repetitions + 1)
        for cell in cells
    )


def only(chosen: Sequence[Run], texts: Sequence[str]) -> tuple[Run, ...]:
    """The runs that all of ``texts`` (``engine=flink,storm``) let through. Raises PlanError."""
    left = tuple(chosen)
    for text in texts:
        key, _, values = text.partition("=")
        if key not in _ONLY_KEYS or not values:
            example = "--only engine=flink,storm"
            raise PlanError(f"--only {text}: write KEY=VALUE, as in {example}; keys are {', '.join(_ONLY_KEYS)}.")
        known = {_value(run, key) for run in chosen}
        for value in (wanted := values.split(",")):
            if value not in known:
                raise PlanError(f"--only {text}: the plan has no {key} {value}; it has {', '.join(sorted(known))}.")
        left = tuple(run for run in left if _value(run, key) in wanted)
    if not left:
        raise PlanError(f"--only {' --only '.join(texts)}: no run of the plan is all of that; leave one out.")
    return left


def _value(run: Run, key: str) -> str:
    return str(run.repetition if key == "repetition" else getattr(run.cell, key))


def _cannot(engine: str, guarantee: Guarantee) -> str | None:
    if engine == REFERENCE or guarantee in REGISTRY[engine].guarantees:
        return None
    return f"{engine} cannot be asked for {guarantee}, only for {' or '.join(REGISTRY[engine].guarantees)}."


def _seed(plan: CampaignPlan, cell: Cell, repetition: int) -> int:
    return zlib.crc32(f"{plan.seed}/{cell.name}/{repetition}".encode())

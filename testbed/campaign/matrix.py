"""The cells of a plan, the combinations that no engine supports, and the runs in their order."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Final

from generator.workloads.kinds import built
from testbed.campaign.plan import REFERENCE, Axes, CampaignPlan, FaultName, PlanError
from testbed.engines.registry import REGISTRY
from testbed.engines.settings import Guarantee

_ONLY_KEYS: Final = ("engine", "workload", "guarantee", "fault", "repetition")
_NAME_MAX: Final = 120


@dataclass(frozen=True)
class Cell:
    """A row of the table."""

    engine: str
    workload: str
    guarantee: Guarantee
    fault: FaultName
    axes: Axes = ()

    @property
    def name(self) -> str:
        """Name in files and, with the repetition, in topics."""
        parts = (self.engine, self.workload, self.guarantee, self.fault, *(f"{key}{value}" for key, value in self.axes))
        return _fitting("-".join(parts))

    @property
    def setting(self) -> str:
        """Its values on the axes of the plan, as text."""
        return ", ".join(f"{key} {value}" for key, value in self.axes)


@dataclass(frozen=True)
class Run:
    """One repetition of a cell. ``seed`` is derived from the seed of the plan and the name of the run: the same in each
    campaign. ``rate``: that of a trial of a search.
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
        if workload not in known:
            left_out.append(f"{engine} has no {workload} job; its workloads are {' and '.join(known)}.")
            continue
        for guarantee in plan.guarantees:
            if (reason := _cannot(engine, guarantee)) is not None:
                left_out.append(reason)
                continue
            for fault, axes in product(plan.faults, plan.combinations(engine)):
                if (reason := _no_standby(engine, plan, dict(axes))) is not None:
                    left_out.append(reason)
                    continue
                cells.append(Cell(engine, workload, guarantee, fault, axes))
    for key, wanted in (("engine", plan.engines), ("workload", plan.workloads), ("guarantee", plan.guarantees)):
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
        for value in (wanted := values.split(",")):
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


def _no_standby(engine: str, plan: CampaignPlan, axes: Mapping[str, str]) -> str | None:
    wanted = int(axes.get("standby", plan.standby))
    workers = int(axes.get("parallelism", plan.parallelism))
    if wanted > (0 if engine == REFERENCE else REGISTRY[engine].engine.standbys):
        return f"{engine} has no standby instances."
    if engine == "kafka_streams" and 0 < wanted >= workers:
        return "A standby replica of kafka_streams is on another instance, and with parallelism 1 there is none."
    return None


def _fitting(name: str) -> str:
    """``name`` as a part of the names of files and topics, which Kafka limits to 249 characters."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    if plain == name and len(name) <= _NAME_MAX:
        return name
    # What was replaced or cut off must still tell two cells apart.
    return f"{plain[:_NAME_MAX]}-{zlib.crc32(name.encode()):08x}"


def _seed(plan: CampaignPlan, cell: Cell, repetition: int) -> int:
    return zlib.crc32(f"{plan.seed}/{cell.name}/{repetition}".encode())

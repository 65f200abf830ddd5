"""Advice that follows from the rows of a campaign, each with its evidence; and StreamBench's penalties by runs with one
worker less.

PGVal advises time-outs above the failure cost, and to remove a worker whose packets are delayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from testbed.campaign.cell import Cell
from testbed.campaign.plan import is_choice
from testbed.campaign.table import Row, Spread
from validator.model.wording import plural

COST: Final = "failure_cost_seconds"
FAULTS: Final = "faults"
UNCLEAR: Final = "no clear difference"
_NEAR: Final = 1.25
"""Costs whose quotient is below this, or whose ranges overlap, do not differ."""
_NEAR_SECONDS: Final = 1.0


@dataclass(frozen=True)
class Penalty:
    """TPF and LPF of a cell (StreamBench): throughput and latency in the failure phase, as a share of those in runs
    without a fault; these are the mean of runs with as many workers and with one less."""

    cell: Cell
    throughput_ratio: float
    latency_ratio: float | None


def advice(rows: Sequence[Row]) -> list[str]:
    """The advice, a sentence each."""
    return [*time_outs(rows), *comparisons(rows)]


def comparisons(rows: Sequence[Row]) -> list[str]:
    """What is cheaper, of cells of one plan that differ in one thing."""
    costly = _costly(rows)
    return [*_axes(costly), *_delayed(costly)]


def _costly(rows: Sequence[Row]) -> list[tuple[Row, Spread]]:
    return [(row, cost) for row in rows if row.cell.fault != "none" and (cost := row.measures[COST]) is not None]


def time_outs(rows: Sequence[Row]) -> Iterator[str]:
    """How long to wait for a result, by engine: a fault costs this in addition to the latency before it."""
    single = [(row, cost) for row, cost in _costly(rows) if (faults := row.measures[FAULTS]) and faults.most == 1]
    for engine in dict.fromkeys(row.cell.engine for row, _ in single):
        row, cost = max(((row, cost) for row, cost in single if row.cell.engine == engine), key=lambda one: one[1].most)
        yield (
            f"{engine}: before you take a result for lost, wait {cost.most:.3g} s longer than results usually take: "
            f"the largest failure cost ({_name(row.cell)})."
        )


def _axes(costly: Sequence[tuple[Row, Spread]]) -> Iterator[str]:
    """The cheapest value of each axis, if it is clearly the cheapest; the cells differ in nothing else."""
    groups: dict[tuple[str, Cell], list[tuple[str, Spread]]] = {}
    for row, cost in costly:
        for axis, value in row.cell.axes:
            if is_choice(axis):
                groups.setdefault((axis, _without(row.cell, axis)), []).append((value, cost))
    for (axis, cell), group in groups.items():
        if len(group) > 1:
            yield _compared(_name(cell), [(f"{axis} {value}", cost) for value, cost in group])


def _delayed(costly: Sequence[tuple[Row, Spread]]) -> Iterator[str]:
    """What a worker that is delayed or paused costs beside one that crashes and starts again after the same time."""
    for row, cost in costly:
        cell = row.cell
        if cell.fault.startswith(("delay_", "pause_")):
            crashed = Cell(cell.engine, cell.workload, cell.guarantee, "crash", cell.axes)
            for other, restart in costly:
                if other.cell == crashed:
                    waiting = f"to keep it ({cell.fault.replace('_', ' ')})"
                    compared = [(waiting, cost), ("a crash and its restart after the failure phase", restart)]
                    yield _compared(f"{_name(cell)}: the worker", compared)


def _compared(what: str, group: Sequence[tuple[str, Spread]]) -> str:
    (best, least), *others = sorted(group, key=lambda one: one[1].median)
    costs = ", ".join(f"{name} {cost.median:.3g} s in {plural(cost.runs, 'run')}" for name, cost in group)
    median, lowest = others[0][1].median, min(cost.least for _, cost in others)
    repeated = all(cost.runs > 1 for _, cost in group)
    differs = repeated and lowest > least.most and median > max(_NEAR * least.median, least.median + _NEAR_SECONDS)
    return f"{what}: {f'prefer {best}' if differs else UNCLEAR} (failure cost: {costs})."


def penalties(rows: Sequence[Row]) -> list[Penalty]:
    """The penalties of the cells whose plan also has runs without a fault, with as many workers and with one less."""
    of = {row.cell: row.measures for row in rows}
    found: list[Penalty] = []
    for row in rows:
        cell, workers = row.cell, dict(row.cell.axes).get("parallelism", "")
        if cell.fault == "none" or not workers.isdecimal():
            continue
        calm = [of.get(_calm(cell, number)) for number in (int(workers), int(workers) - 1)]
        rate = _share("throughput_failure_per_second", row.measures, calm)
        if rate is not None:
            found.append(Penalty(cell, rate, _share("latency_p50_failure_seconds", row.measures, calm)))
    return found


def _share(
    name: str, measures: Mapping[str, Spread | None], calm: Sequence[Mapping[str, Spread | None] | None]
) -> float | None:
    values = [None if one is None else one[name] for one in (measures, *calm)]
    known = [value.median for value in values if value is not None]
    mean = sum(known[1:]) / 2
    return known[0] / mean if len(known) == len(values) and mean > 0 else None


def _calm(cell: Cell, workers: int) -> Cell:
    axes = tuple((axis, str(workers) if axis == "parallelism" else value) for axis, value in cell.axes)
    return Cell(cell.engine, cell.workload, cell.guarantee, "none", axes)


def _without(cell: Cell, axis: str) -> Cell:
    axes = tuple((name, value) for name, value in cell.axes if name != axis)
    return Cell(cell.engine, cell.workload, cell.guarantee, cell.fault, axes)


def _name(cell: Cell) -> str:
    parts = (cell.engine, cell.workload, cell.guarantee, cell.fault, cell.setting)
    return ", ".join(part.replace("_", " ") for part in parts if part)

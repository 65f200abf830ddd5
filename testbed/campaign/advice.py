"""Advice that follows from the rows of a campaign, each with its evidence; and StreamBench's penalties by runs with one
worker less.

PGVal advises time-outs above the failure cost, and to remove a worker whose packets are delayed. OSPBench chooses an
engine by downtime, peak latency, losses and duplicates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from testbed.campaign.cell import Cell
from testbed.campaign.plan import is_choice
from testbed.campaign.table import Row, Spread
from validator.model.wording import plural

COST: Final = "failure_cost_seconds"
FAULTS: Final = "faults"
OWN_PENALTIES: Final = ("throughput_penalty_ratio", "latency_penalty_ratio")
UNCLEAR: Final = "no clear difference"
_NEAR: Final = 1.25
"""Costs whose quotient is below this, or whose ranges overlap, do not differ."""
_NEAR_SECONDS: Final = 1.0
_WHOLE: Final = 1000


@dataclass(frozen=True)
class Penalty:
    """TPF and LPF of a cell (StreamBench): throughput and latency in the failure phase, as a share of those in runs
    without a fault; these are the mean of runs with as many workers and with one less."""

    cell: Cell
    throughput_ratio: float
    latency_ratio: float | None
    own: tuple[float | None, ...] = ()
    """`OWN_PENALTIES`: against the control phase of the same run."""


_CHOSEN_BY: Final = (
    ("downtime_seconds", "shortest downtime", " s", _NEAR_SECONDS),
    ("peak_latency_p99_seconds", "lowest peak of latency p99", " s", _NEAR_SECONDS),
    ("missing", "fewest lost contributions", "", 0.0),
    ("duplicate", "fewest repeated contributions", "", 0.0),
)
"""What an engine is chosen by (OSPBench): measure, its name and unit, and a difference that is none."""
_CALM: Final = (
    ("throughput_control_per_second", "throughput", "/s", 0.0, True),
    ("latency_p50_control_seconds", "latency p50", " s", 0.05, False),
)
"""What a setting is chosen by without a fault: measure, its name and unit, a difference that is none, and whether the
highest is best."""
_CONSUMERS: Final = (
    ("duplicate", "repeated", "let the sink overwrite by key and window, or discard ids that it knows"),
    ("missing", "lost", "do not take a result for complete"),
)


def advice(rows: Sequence[Row]) -> list[str]:
    """The advice, a sentence each."""
    return [*time_outs(rows), *comparisons(rows), *choices(rows), *consumers(rows)]


def choices(rows: Sequence[Row]) -> Iterator[str]:
    """The engine with the clearly smallest value of a measure, of cells that differ in nothing else."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        if row.cell.fault != "none":
            cell = row.cell
            groups.setdefault((cell.workload, cell.guarantee, cell.fault, cell.setting), []).append(row)
    for key, group in groups.items():
        for measure, name, unit, near in _CHOSEN_BY:
            values = [(row.cell.engine, value) for row in group if (value := row.measures[measure]) is not None]
            if len(values) > 1 and (best := _clearly_least(values, near)) is not None:
                shown = ", ".join(f"{engine} {_shown(value, unit)}" for engine, value in values)
                where = ", ".join(part.replace("_", " ") for part in key if part)
                yield f"{where}: {best} has the {name} ({shown})."


def consumers(rows: Sequence[Row]) -> Iterator[str]:
    """What a consumer or sink of an engine's results must expect of its guarantee, by the worst cell."""
    for engine, guarantee in dict.fromkeys((row.cell.engine, row.cell.guarantee) for row in rows):
        own = [row for row in rows if (row.cell.engine, row.cell.guarantee) == (engine, guarantee)]
        for measure, name, remedy in _CONSUMERS:
            found = [(value.most, row) for row in own if (value := row.measures[measure]) is not None and value.most]
            if found:
                most, row = max(found, key=lambda one: one[0])
                yield (
                    f"Consumers of {engine}, {guarantee.replace('_', ' ')}: expect {name} contributions, up to "
                    f"{most:,.0f} in a run ({_name(row.cell)}); {remedy}."
                )


def comparisons(rows: Sequence[Row]) -> list[str]:
    """What is cheaper, of cells of one plan that differ in one thing."""
    costly = _costly(rows)
    return [*_axes(costly), *_delayed(costly), *_calm_axes(rows)]


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


def _calm_axes(rows: Sequence[Row]) -> Iterator[str]:
    """The value of each axis with clearly the highest throughput, or the lowest latency, of runs without a fault: such
    as the parallelism for a number of partitions."""
    groups: dict[tuple[str, Cell], list[tuple[str, Row]]] = {}
    for row in rows:
        for axis, value in row.cell.axes:
            if row.cell.fault == "none" and is_choice(axis):
                groups.setdefault((axis, _without(row.cell, axis)), []).append((f"{axis} {value}", row))
    for (_, cell), group in groups.items():
        for measure, name, unit, near, is_highest in _CALM:
            values = [(value, found) for value, row in group if (found := row.measures[measure]) is not None]
            ranked = [(value, _reciprocal(found) if is_highest else found) for value, found in values]
            if len(ranked) > 1 and (best := _clearly_least(ranked, near)) is not None:
                shown = ", ".join(f"{value} {_shown(found, unit)}" for value, found in values)
                yield f"{_name(cell)}: prefer {best} ({name}: {shown})."


def _reciprocal(of: Spread) -> Spread:
    """Turns the highest value into the lowest one."""
    median, least, most = (1 / value if value else math.inf for value in (of.median, of.most, of.least))
    return replace(of, median=median, least=least, most=most)


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
    best = _clearly_least(group, _NEAR_SECONDS)
    costs = ", ".join(f"{name} {_shown(cost, ' s')}" for name, cost in group)
    return f"{what}: {UNCLEAR if best is None else f'prefer {best}'} (failure cost: {costs})."


def _clearly_least(group: Sequence[tuple[str, Spread]], near: float) -> str | None:
    """The name with the smallest value, if every value was repeated and the difference is clear."""
    (best, least), *others = sorted(group, key=lambda one: one[1].median)
    median, lowest = others[0][1].median, min(value.least for _, value in others)
    repeated = all(value.runs > 1 for _, value in group)
    differs = repeated and lowest > least.most and median > max(_NEAR * least.median, least.median + near)
    return best if differs else None


def _shown(value: Spread, unit: str) -> str:
    number = f"{value.median:,.0f}" if value.median >= _WHOLE else f"{value.median:.3g}"
    return f"{number}{unit} in {plural(value.runs, 'run')}"


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
            own = tuple(None if (of_run := row.measures[name]) is None else of_run.median for name in OWN_PENALTIES)
            found.append(Penalty(cell, rate, _share("latency_p50_failure_seconds", row.measures, calm), own))
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

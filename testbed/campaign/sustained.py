"""Rates that are a share of what a search found for the same engine, workload, guarantee and number of workers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from testbed.campaign import searches
from testbed.campaign.cell import Cell
from testbed.campaign.matrix import Run, matrix, runs
from testbed.campaign.plan import CampaignPlan, PlanError, load

_SAME: Final = ("engine", "workload", "guarantee")


def resolved(plan: CampaignPlan, folder: Path) -> CampaignPlan:
    """``plan`` with the rate of each cell, if it is a share of a search's. ``folder``: that of the plan's file.

    Raises PlanError if a cell has no rate: another engine's would say nothing about it.
    """
    share = plan.of_sustained
    if share is None:
        return plan
    path = folder / share.search
    searching = load(path, share.scale)
    rules = searching.search
    if rules is None or rules.rates is None:
        raise PlanError(f"of_sustained: {path} searches no rate; name a plan with search: {{rates: [LOW, HIGH]}}.")
    ends = [
        (run, end.sustained)
        for run in runs(matrix(searching).cells, searching)
        if (end := searches.found_of(searching, rules, run)) is not None and end.sustained is not None
    ]
    rates: dict[str, int] = {}
    for cell in matrix(plan).cells:
        found = [rate for run, rate in ends if _is_of(searching, run, plan, cell)]
        if not found:
            workers = plan.on(cell.axes).parallelism
            raise PlanError(
                f"of_sustained: {searching.results} has no sustained rate of {cell.engine} with {cell.workload}, "
                f"{cell.guarantee} and parallelism {workers}; run that search first: streamproof campaign {path}."
            )
        # Of several repetitions the lowest, which all of them sustained.
        rates[calm(cell).name] = round(share.share * min(found))
    return plan.model_copy(update={"sustained": rates})


def plan_of(plan: CampaignPlan, cell: Cell) -> CampaignPlan:
    """The plan of a cell, at its own rate. Raises PlanError if that is too low for the plan."""
    own, rate = plan.on(cell.axes), plan.sustained.get(calm(cell).name)
    return own if rate is None else own.at(rate, cell.name)


def calm(cell: Cell) -> Cell:
    """The cell without its fault, which does not change its rate."""
    return replace(cell, fault="none")


def _is_of(searching: CampaignPlan, run: Run, plan: CampaignPlan, cell: Cell) -> bool:
    """Whether a search had the cell's engine, workload, guarantee and workers, and its values on the search's axes."""
    if any(getattr(run.cell, name) != getattr(cell, name) for name in _SAME):
        return False
    theirs, own = searching.on(run.cell.axes), plan.on(cell.axes)
    keys = {"parallelism", *(name for name, _ in run.cell.axes if name in CampaignPlan.model_fields)}
    options = [one.engine_options.get(cell.engine, {}) for one in (theirs, own)]
    return options[0] == options[1] and all(getattr(theirs, name) == getattr(own, name) for name in keys)

"""``scripts/bench results [PLAN ...] [--scale NAME]``: writes docs/results/README.md and its figures.

From the results folders of campaigns; default: of all plans that repeat a paper. A plan without a result is named.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from bench.campaign import PLANS, path_of
from generator.workloads.kinds import DEFAULT
from testbed.campaign import figures, html, search, searches
from testbed.campaign.advice import UNCLEAR, comparisons, penalties, time_outs
from testbed.campaign.command import build_table, results_of
from testbed.campaign.figures import Boxed, Course
from testbed.campaign.formats import share, shown
from testbed.campaign.matrix import matrix, runs
from testbed.campaign.plan import CampaignPlan, PlanError, load
from testbed.campaign.published import Published
from testbed.campaign.result import FaultMeasure, RunResult
from testbed.campaign.search import Found
from testbed.campaign.table import COLUMNS, Row, Table, recoveries
from testbed.checkout import ROOT
from validator.model.wording import plural
from validator.publish.atomic import replace_file
from validator.publish.live_page import resource

FOLDER: Final = ROOT / "docs" / "results"
PAGE: Final = "README.md"
_COSTS: Final = ("failure_cost_seconds", "downtime_seconds", "recovery_seconds")
_VIOLATIONS: Final = ("missing", "duplicate", "incorrect")
_COLUMNS: Final = {column.name: column for column in COLUMNS}
_TITLES: Final = (
    "plan", "engine", "guarantee", "fault", "violations", "failure cost (s)", "downtime (s)", "recovery (s)"
)  # fmt: skip


@dataclass(frozen=True)
class Suite:
    """The campaign of a plan: its table and results, or the ends of its searches. ``courses``: run -> its series."""

    name: str
    plan: CampaignPlan
    table: Table
    results: Mapping[str, RunResult]
    courses: Mapping[str, Mapping[str, Any] | None]
    searches: Sequence[tuple[str, Found | None]]

    @property
    def has_results(self) -> bool:
        """Whether a run has a result, or a search an end."""
        return bool(self.results) or any(found is not None for _, found in self.searches)


def main(arguments: Sequence[str]) -> int:
    """Write the page; 2 if a plan is wrong or none has a result."""
    parser = argparse.ArgumentParser(prog="scripts/bench results", description=__doc__)
    parser.add_argument("plan", nargs="*", help="plans in bench/plans, or files (default: all that repeat a paper)")
    parser.add_argument("--scale", metavar="NAME", help="results of this scale of the plans")
    parser.add_argument("--note", default="", metavar="TEXT", help="a sentence about the runs, such as other load")
    given = parser.parse_args(arguments)
    try:
        suites = [_suite(path, given.scale) for path in map(path_of, given.plan or _published())]
    except PlanError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if not any(one.has_results for one in suites):
        print("bench: no plan has a result; run scripts/bench campaign first.", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in rendered(suites, given.scale, given.note).items():
        replace_file(FOLDER / name, text)
    print(FOLDER / PAGE)
    return 0


def _published() -> list[str]:
    return [path.stem for path in sorted(PLANS.glob("*.yaml")) if load(path).repeats]


def _suite(path: Path, scale: str | None) -> Suite:
    plan = load(path, scale)
    results = results_of(plan)
    rules, everything = plan.search, runs(matrix(plan).cells, plan)
    found = [] if rules is None else [(run.name, searches.found_of(plan, rules, run)) for run in everything]
    courses = {name: html.course(plan.results, name) for name in results}
    return Suite(path.stem, plan, build_table(plan), results, courses, found)


def rendered(suites: Sequence[Suite], scale: str | None, note: str = "") -> dict[str, str]:
    """File -> text: the page and its figures."""
    done = [one for one in suites if one.has_results]
    drawn = {name: figure for name, figure in _figures(done).items() if figure}
    failed = [f"{one.run}: {_brief(one.reason)}" for suite in done for one in suite.table.failures]
    parts = [
        _introduction(suites, done, scale, note), _table(done), *(_picture(name) for name in drawn), _searches(done),
        _penalties(done), _list("Findings", _findings(done)), _list("Advice", _advice(done)),
        _list("Failed attempts", failed),
    ]  # fmt: skip
    style = resource("style.css").partition("* {")[0]
    files = {f"{name}.svg": figures.standalone(figure, style) for name, figure in drawn.items()}
    return {PAGE: "\n\n".join(part for part in parts if part) + "\n", **files}


def _introduction(suites: Sequence[Suite], done: Sequence[Suite], scale: str | None, note: str) -> str:
    option = "" if scale is None else f" --scale {scale}"
    names = " ".join(one.name for one in done)
    headings = list(dict.fromkeys(heading for one in done for heading in one.table.headings))
    where = "; ".join(f"{heading.machine}, streamproof {heading.version}" for heading in headings)
    smaller = f"; their scale `{scale}` has fewer runs and shorter phases" if scale else ""
    absent = "".join(f"; not run: {one.name}" for one in suites if not one.has_results)
    lines = [
        "# Results of the newest campaign",
        "",
        f"`scripts/bench campaign {names}{option}` made these runs ([campaigns](../campaigns.md)),",
        f"and `scripts/bench results{option}` this page.",
        f"The plans in `bench/plans` say what each repeats, and what differs{smaller}.",
        "",
        f"Machine: {where}. Engine, broker, sidecar and load share it.",
        *filter(None, [note]),
        f"{_when(done)}{_ended(done)}{absent}.",
        *recoveries([found for one in done for found in one.results.values()]),
        "",
        "Compare the order of engines with a paper, not the size: rate, windows and phases are smaller here.",
    ]
    return "\n".join(lines)


def _ended(done: Sequence[Suite]) -> str:
    runs_done = sum(one.table.done for one in done)
    wanted = sum(one.table.wanted for one in done if not one.searches)
    ends = [found for one in done for _, found in one.searches]
    searched = (
        f", {sum(found is not None for found in ends)} of {plural(len(ends), 'search', 'searches')}" if ends else ""
    )
    return f"{runs_done} of {plural(wanted, 'run')}{searched} have a result"


def _when(done: Sequence[Suite]) -> str:
    days = sorted({datetime.fromisoformat(found.started).date() for one in done for found in one.results.values()})
    return "" if not days else f"{days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "") + ": "


def _table(done: Sequence[Suite]) -> str:
    rows = [_row(one.name, row) for one in done for row in one.table.rows if row.done]
    return "" if not rows else "\n".join([_line(_TITLES), "|" + "---|" * len(_TITLES), *map(_line, rows)])


def _row(name: str, row: Row) -> list[str]:
    cell = row.cell
    words = (cell.fault, "" if cell.workload == DEFAULT else cell.workload, cell.setting)
    # A plan is named after the paper whose numbers are beside its own.
    there = {one.measure: one for one in row.published if one.paper.lower() == name}
    cost, downtime, recovery = (
        shown(row.measures[column], _COLUMNS[column], row.done) + _beside(row, there.get(column)) for column in _COSTS
    )
    fault = ", ".join(word for word in words if word)
    return [name, cell.engine, cell.guarantee, fault, _violations(row), cost, downtime, recovery]


def _beside(row: Row, one: Published | None) -> str:
    ratio = None if one is None else share(row, one)
    return "" if one is None else f"; {one.paper} {one.value:g}" + ("" if ratio is None else f", ratio {ratio}")


def _violations(row: Row) -> str:
    found = {name: spread for name in _VIOLATIONS if (spread := row.measures[name]) is not None and spread.most}
    return ", ".join(f"{shown(of, _COLUMNS[name], row.done)} {name}" for name, of in found.items()) or "none"


def _line(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


def _figures(done: Sequence[Suite]) -> dict[str, str]:
    """Name -> figure; empty without a value."""
    rows = [(one, row, costs) for one in done for row in one.table.rows if (costs := _costs(one, row))]
    recovery = [
        Boxed(_label(one, row), [c.recovery_seconds for c in costs if c.recovery_seconds is not None],
              sum(c.recovered is False for c in costs))
        for one, row, costs in rows
        if row.cell.fault != "none"
    ]  # fmt: skip
    cost = [
        Boxed(_label(one, row), [c.failure_cost_seconds for c in costs if c.failure_cost_seconds is not None])
        for one, row, costs in rows
    ]
    return {
        "recovery": figures.boxes(recovery, "s"),
        "failure-cost": figures.boxes(cost, "s"),
        "output": figures.courses(_crashes(done), "1/s"),
    }


_PICTURES: Final = {
    "recovery": "Recovery time: each fault is a dot. Right: faults after which the rate did not return.",
    "failure-cost": "Failure cost: each run is a dot; a run without a fault shows the noise.",
    "output": "Output by second, and its maximum, of one crash of each engine. Shaded: the fault is active.",
}


def _picture(name: str) -> str:
    return f"{_PICTURES[name]}\n\n![{_PICTURES[name].partition(':')[0].partition(' by')[0]}]({name}.svg)"


def _costs(one: Suite, row: Row) -> list[FaultMeasure]:
    return [
        cost for found in one.results.values() if html.is_of(found, row.cell) for cost in found.faults or (found.cost,)
    ]


def _label(one: Suite, row: Row) -> str:
    words = (one.name, row.cell.engine, row.cell.guarantee, row.cell.fault, row.cell.setting)
    return ", ".join(word.replace("_", " ") for word in words if word)


def _crashes(done: Sequence[Suite]) -> list[Course]:
    """The first crash of each engine and guarantee that has series."""
    found: dict[tuple[str, str], Course] = {}
    for one in done:
        for name, result in one.results.items():
            key, course = (result.engine, result.guarantee), one.courses.get(name)
            if result.fault == "crash" and course is not None and key not in found:
                found[key] = _course(f"{one.name}, {result.engine}, {result.guarantee}".replace("_", " "), course)
    return list(found.values())


def _course(name: str, course: Mapping[str, Any]) -> Course:
    at = course["columns"].index("output_per_second")
    begin = course["rows"][0][0]
    values: list[float | None] = [None] * (course["rows"][-1][0] - begin + 1)
    for row in course["rows"]:
        values[row[0] - begin] = row[at]
    faults = [
        tuple(datetime.fromisoformat(fault[end]).timestamp() - begin for end in ("start", "healed"))
        for fault in course["faults"]
        if fault["start"] and fault["healed"]
    ]
    return Course(name, values, [(start, healed) for start, healed in faults])


def _searches(done: Sequence[Suite]) -> str:
    found = [ends for one in done for ends in one.searches]
    return "" if not found else f"## Sustainable rates\n{search.markdown(found).rstrip()}"


def _penalties(done: Sequence[Suite]) -> str:
    found = [
        f"- {one.name}: {penalty.cell.engine}, {penalty.cell.fault}, {penalty.cell.setting}: TPF "
        f"{penalty.throughput_ratio:.2f}"
        + ("" if penalty.latency_ratio is None else f", LPF {penalty.latency_ratio:.2f}")
        for one in done
        for penalty in penalties(one.table.rows)
    ]
    return "" if not found else "\n".join(["## StreamBench's penalties", *found])


def _findings(done: Sequence[Suite]) -> list[str]:
    # The recovery times are counted above, over all plans.
    return [
        f"{one.name}: {sentence}"
        for one in done
        for sentence in one.table.findings
        if sentence not in recoveries(list(one.results.values()))
    ]


def _advice(done: Sequence[Suite]) -> list[str]:
    waits = time_outs([row for one in done for row in one.table.rows])
    clear = [(one.name, said) for one in done for said in comparisons(one.table.rows) if UNCLEAR not in said]
    return [*waits, *(f"{name}: {said}" for name, said in clear)]


def _brief(reason: str) -> str:
    return " ".join(reason.split())[:200]


def _list(heading: str, items: Sequence[str]) -> str:
    return "" if not items else "\n".join([f"## {heading}", *(f"- {item}" for item in items)])

"""The table of a campaign as Markdown and CSV. If it is not complete, the first line of each says so."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import Final

from testbed.campaign.advice import OWN_PENALTIES, advice, penalties
from testbed.campaign.journal import Failure
from testbed.campaign.published import EXACTLY_ONCE, MEASURES, PENALTIES, Published
from testbed.campaign.table import COLUMNS, GUARANTEES, OF_PHASES, OF_RUN, Column, Row, Spread, Table, orders
from validator.publish.atomic import replace_file

FILES: Final = ("table.md", "table.csv")
_NONE: Final = "–"
_ENGINES_LEAST: Final = 2
_CELL: Final = ("engine", "workload", "guarantee", "fault", "setting")
"""Of a cell. The setting has its values on the axes of the plan."""
_NOTE: Final = (
    f"Medians over the repetitions, with minimum and maximum in brackets. {_NONE}: no run has that measure; the "
    "reasons are below. Counts are contributions of a whole run; reliability is the share of expected "
    "contributions that was handled; latencies are from the close of a window to its result. For three runs or more, "
    "table.csv has the mean and half of its 95 % interval."
)


def write(folder: Path, table: Table) -> None:
    """Write both formats, each atomically. Raises OSError."""
    for name, text in rendered(table).items():
        replace_file(folder / name, text)


def rendered(table: Table) -> dict[str, str]:
    """File name -> text."""
    return dict(zip(FILES, (markdown(table), csv_text(table)), strict=True))


def shown(spread: Spread | None, column: Column, wanted: int) -> str:
    """A measure in the table: ``median (minimum to maximum)``, with the number of runs if not all have it."""
    if spread is None:
        return _NONE
    text = _number(spread.median, column)
    if spread.least != spread.most:
        text += f" ({_number(spread.least, column)} to {_number(spread.most, column)})"
    return text + (f" in {spread.runs} of {wanted}" if spread.runs < wanted else "")


def _number(value: float, column: Column) -> str:
    if column.unit == "ratio":
        return f"{value:.6g}"  # 0.999996 must not be shown as 1
    if column.unit == "seconds":
        return f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return f"{value:,.0f}"


def _verdicts(row: Row, guarantee: str) -> str:
    counts = row.verdicts[guarantee]
    return ", ".join(f"{verdict} {count}" for verdict, count in sorted(counts.items())) or _NONE


def _runs(row: Row) -> str:
    return f"{row.done} of {row.wanted}" + (f", {row.failed} failed" if row.failed else "")


def _title(column: Column) -> str:
    return {"seconds": f"{column.title} (s)", "per_second": f"{column.title} (1/s)"}.get(column.unit, column.title)


Grid = tuple[str, list[str], list[list[str]]]
"""Heading, column titles and rows, as text."""


def grids(table: Table) -> list[Grid]:
    """The grids of the table."""
    titles = _CELL if any(row.cell.axes for row in table.rows) else _CELL[:-1]
    found: list[Grid] = [
        (
            "Guarantees kept, and the cost",
            [
                *titles,
                "runs",
                "read back",
                *(f"verdict {_words(name)}" for name in GUARANTEES),
                *map(_title, OF_RUN),
            ],
            [
                [*_cell(row, titles), _runs(row), _words(", ".join(row.effective)) or _NONE]
                + [_verdicts(row, name) for name in GUARANTEES]
                + [shown(row.measures[column.name], column, row.done) for column in OF_RUN]
                for row in table.rows
            ],
        ),
        (
            "Throughput and latency by phase",
            [*titles, *map(_title, OF_PHASES)],
            [
                [*_cell(row, titles), *(shown(row.measures[column.name], column, row.done) for column in OF_PHASES)]
                for row in table.rows
            ],
        ),
        *_latencies(table, titles),
        *_by_failure(table),
        *_penalties(table, titles),
        *_exactly_once(table),
    ]
    beside = [
        [*_cell(row, titles), one.paper, _title(column), shown(row.measures[one.measure], column, row.done),
         f"{one.value:.3g}", share(row, one) or _NONE]
        for row in table.rows
        for one in row.published
        for column in COLUMNS
        if column.name == one.measure
    ]  # fmt: skip
    if beside:
        has_pauses = any(row.cell.fault.startswith("pause_") for row in table.rows)
        note = " (a pause replaces the delay and is not equivalent to it)" if has_pauses else ""
        heading = f"Published numbers: other machines, loads and phases{note}"
        found.append((heading, [*titles, "paper", "measure", "here", "published", "here / published"], beside))
    ordered = [
        [one.paper, one.measure.replace("_", " "), one.cell, " < ".join(one.here), " < ".join(one.there),
         "agrees" if one.here == one.there else "differs"]
        for one in orders(table.rows)
    ]  # fmt: skip
    if ordered:
        found.append(
            ("Engines in order, lowest first", ["paper", "measure", "cell", "here", "published", "order"], ordered)
        )
    return found


def _latencies(table: Table, titles: Sequence[str]) -> list[Grid]:
    """Percentiles of each phase. With fewer results than a percentile divides them into, it is the largest value."""
    found = [(row, phase, of) for row in table.rows for phase, of in row.latencies.items()]
    if not found:
        return []
    names = list(found[0][2])
    lines = [[*_cell(row, titles), phase, *(f"{of[name]:,.4g}" for name in names)] for row, phase, of in found]
    return [("Latency from the close of the window, over all results (s)", [*titles, "phase", *names], lines)]


def _penalties(table: Table, titles: Sequence[str]) -> list[Grid]:
    found = penalties(table.rows)
    if not found:
        return []
    heading = "Penalties, against runs without a fault with as many workers and with one less (StreamBench)"
    ratios = [
        [*(getattr(one.cell, key) for key in titles),
         *(_NONE if ratio is None else f"{ratio:.2f}" for ratio in (one.throughput_ratio, one.latency_ratio, *one.own)),
         PENALTIES.get(one.cell.engine, _NONE)]
        for one in found
    ]  # fmt: skip
    own = [column.title for name in OWN_PENALTIES for column in OF_RUN if column.name == name]
    return [(heading, [*titles, "TPF", "LPF (of p50)", *own, "published"], ratios)]


def _exactly_once(table: Table) -> list[Grid]:
    """What exactly once costs beside at least once while there is no fault, and OSPBench's ratios."""
    of = {row.cell: row.measures for row in table.rows}
    names = ("latency_p50_control_seconds", "processor_seconds_per_million")
    lines: list[list[str]] = []
    for row in table.rows:
        cell = replace(row.cell, guarantee="at_least_once")
        if row.cell.guarantee != "exactly_once" or row.cell.fault != "none" or cell not in of:
            continue
        pairs = [(row.measures[name], of[cell][name]) for name in names]
        ratios = [None if a is None or b is None or not b.median else a.median / b.median for a, b in pairs]
        lines.append([cell.engine, ", ".join(filter(None, (cell.workload, cell.setting)))])
        for here, there in zip(ratios, EXACTLY_ONCE.get(cell.engine, (None, None)), strict=True):
            lines[-1] += [_NONE if value is None else f"{value:.2f}" for value in (here, there)]
    titles = [f"{name}, {where}" for name in ("latency p50", "processor time") for where in ("here", "OSPBench")]
    heading = "Exactly once as a multiple of at least once, without a fault"
    return [(heading, ["engine", "cell", *titles], lines)] if lines else []


def _by_failure(table: Table) -> list[Grid]:
    """What each failure does to each engine, as in OSPBench's Table 4. None if there is one engine or no fault."""
    rows = [row for row in table.rows if row.cell.fault != "none"]
    kept = list(dict.fromkeys((row.cell.engine, row.cell.guarantee) for row in rows))
    if len({engine for engine, _ in kept}) < _ENGINES_LEAST:
        return []
    titles = ["failure", *(f"{engine}, {_words(guarantee)}" for engine, guarantee in kept)]
    failures = dict.fromkeys((row.cell.fault, row.cell.workload, row.cell.setting) for row in rows)
    lines: list[list[str]] = []
    for failure in failures:
        fault, workload, setting = failure
        of = {
            (row.cell.engine, row.cell.guarantee): _effect(row)
            for row in rows
            if (row.cell.fault, row.cell.workload, row.cell.setting) == failure
        }
        name = ", ".join(word for word in (_words(fault), workload, setting) if word)
        lines.append([name, *(of.get(one, _NONE) for one in kept)])
    return [("What each failure does", titles, lines)]


def _effect(row: Row) -> str:
    lost, repeated = row.measures["missing"], row.measures["duplicate"]
    if lost is None or repeated is None:
        return _NONE
    down, faults, recovered = (row.measures[name] for name in ("downtime_seconds", "faults", "faults_recovered"))
    parts = ["loses" if lost.most else "no loss", "duplicates" if repeated.most else "no duplicates"]
    parts += [] if down is None else [f"down {down.median:.3g} s"]
    if (before := row.measures["output_before_restart"]) is not None:
        how = "no output" if not before.most else "output" if before.least else "output not always"
        parts.append(f"{how} before the restart")
    if faults is not None and recovered is not None:
        parts.append("recovers" if recovered.least >= faults.most else "not always known to recover")
    return ", ".join(parts)


def share(row: Row, one: Published) -> str | None:
    """The median here as a multiple of a published number; None: not measured, or the number is 0."""
    here = row.measures[one.measure]
    return None if here is None or not one.value else f"{here.median / one.value:.2g}"


def lists(table: Table) -> list[tuple[str, list[str]]]:
    """Headings and items of the lists below the grids."""
    found = [
        ("Findings", list(table.findings)),
        ("Advice", advice(table.rows)),
        ("Not in the matrix", list(table.left_out)),
        ("Why measures are missing", list(table.absent)),
        ("Failed attempts", _failed(table.failures)),
        ("Machine and version", [f"{heading.machine}; streamproof {heading.version}" for heading in table.headings]),
        ("Settings", [f"{name}: {_setting(value)}" for name, value in table.settings.items()]),
    ]
    return [(heading, items) for heading, items in found if items]


def _failed(failures: Sequence[Failure]) -> list[str]:
    """One line per reason, because many attempts often fail for the same reason."""
    by: dict[str, list[Failure]] = {}
    for failure in failures:
        by.setdefault(" ".join(failure.reason.split()), []).append(failure)
    return [
        f"{reason} ({len(alike)} attempts from {alike[0].time} to {alike[-1].time}: {_names(alike)})"
        if len(alike) > 1
        else f"{alike[0].run}, {alike[0].time}: {reason}"
        for reason, alike in by.items()
    ]


def _names(failures: Sequence[Failure]) -> str:
    return ", ".join(dict.fromkeys(failure.run for failure in failures))


def _setting(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_setting(part)}" for name, part in value.items()) or "none"
    return "none" if value is None else str(value)


def markdown(table: Table) -> str:
    """The table as Markdown, for a repository."""
    parts = [table.first_line if table.is_complete else f"**{table.first_line}**", "", _NOTE]
    for heading, titles, rows in grids(table):
        parts += ["", f"## {heading}", "", _line(titles), "|" + "---|" * len(titles), *map(_line, rows)]
    for heading, items in lists(table):
        parts += ["", f"## {heading}", *(f"- {item}" for item in items)]
    return "\n".join(parts) + "\n"


def _line(values: Sequence[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in values) + " |"


def csv_text(table: Table) -> str:
    """The table as CSV, for programs: base units, and empty fields for absent values. The file of an incomplete table
    begins with ``#``."""
    out = io.StringIO()
    if not table.is_complete:
        out.write(f"# {table.first_line}\n")
    writer = csv.writer(out, lineterminator="\n")
    names = [
        f"{column.name}_{part}" for column in COLUMNS for part in ("median", "min", "max", "runs", "mean", "half_95")
    ]
    verdicts = [f"{name}_{verdict}" for name in GUARANTEES for verdict in ("pass", "fail", "unknown")]
    writer.writerow([*_CELL, "runs_wanted", "runs_done", "attempts_failed", "effective_guarantee", *verdicts, *names,
                     *(f"published_{paper.lower()}_{name}" for paper, name in MEASURES)])  # fmt: skip
    for row in table.rows:
        counts = [row.verdicts[name].get(verdict, 0) for name in GUARANTEES for verdict in ("pass", "fail", "unknown")]
        measures: list[object] = []
        for column in COLUMNS:
            found = row.measures[column.name]
            values = (None, None, None, 0, None, None) if found is None else astuple(found)
            measures += ["" if value is None else value for value in values]
        runs = [row.wanted, row.done, row.failed, " ".join(row.effective)]
        there = {(one.paper, one.measure): one.value for one in row.published}
        writer.writerow([*_cell(row, _CELL), *runs, *counts, *measures, *map(there.get, MEASURES)])
    return out.getvalue()


def _cell(row: Row, keys: Sequence[str]) -> list[str]:
    return [getattr(row.cell, key) for key in keys]


def _words(name: str) -> str:
    return name.replace("_", " ")

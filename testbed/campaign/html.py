"""The campaign as one HTML page that loads nothing from elsewhere: tables, figures, and the course of each run.

The plots are those of the sidecar's report, with other rows: output, latency, lag and resources by second.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from testbed.campaign import figures, inputs, output_series, reach
from testbed.campaign.cell import Cell
from testbed.campaign.counters import Row
from testbed.campaign.figures import Bars, Boxed
from testbed.campaign.formats import Grid, grids, lists
from testbed.campaign.result import LATENCY, RunResult
from testbed.campaign.sampler import GROUP, MACHINE, part_of
from testbed.campaign.table import Table
from validator.model.terminal import plain_lines
from validator.publish.atomic import replace_file
from validator.publish.html_sections import UPLOT_NOTICE
from validator.publish.live_page import resource

FILE: Final = "report.html"
_PHASES: Final = ("control", "failure", "recovery")
_FIRST: Final = ("Findings", "Advice")
"""Lists above the figures."""
COLUMNS: Final = (
    "time", "output_per_second", "latency_p50_seconds", "latency_p99_seconds", "lag_events",
    "engine_cores", "broker_cores", "sidecar_cores", "generator_cores", "engine_megabytes", "hit_per_second",
    "others_per_second", "connect_seconds", "engine_heap_megabytes", "engine_read_megabytes",
    "engine_written_megabytes", "engine_collection_seconds", "network_megabytes",
)  # fmt: skip
_PLOTS: Final = (
    ("Output", "contributions per second", (("contributions", "output_per_second", "--c1"),)),
    ("Latency", "seconds from the close of the window", (("p99", "latency_p99_seconds", "--c2"),
                                                         ("p50", "latency_p50_seconds", "--c1"))),
    ("Lag", "events that the engine's group has not committed", (("lag", "lag_events", "--c5"),)),
    ("Processor", "cores", (("engine", "engine_cores", "--c1"), ("broker", "broker_cores", "--c2"),
                            ("sidecar", "sidecar_cores", "--c3"), ("load", "generator_cores", "--c4"))),
    ("Input of the workers", "records per second", (("those that faults hit", "hit_per_second", "--c2"),
                                                    ("the others", "others_per_second", "--c1"))),
    ("Reach", "seconds until the broker accepts a connection", (("connect", "connect_seconds", "--c1"),)),
    ("Memory", "MB of the engine", (("resident", "engine_megabytes", "--c1"),
                                    ("heap after a collection", "engine_heap_megabytes", "--c2"))),
    ("Collections", "seconds in a second", (("of the engine", "engine_collection_seconds", "--c1"),)),
    ("Disk", "MB of the engine per second", (("written", "engine_written_megabytes", "--c1"),
                                             ("read", "engine_read_megabytes", "--c2"))),
    ("Network", "MB that the machine, with its loopback, sent per second", (("sent", "network_megabytes", "--c1"),)),
)  # fmt: skip
_ADDED: Final = (
    ("processor_seconds", "cores", 1.0), ("memory_bytes", "megabytes", 1e6), ("heap_bytes", "heap_megabytes", 1e6),
    ("disk_read_bytes", "read_megabytes", 1e6), ("disk_written_bytes", "written_megabytes", 1e6),
    ("collection_seconds", "collection_seconds", 1.0),
)  # fmt: skip
"""Measure of a sample, end of the column with the sum of the processes of a part, and its unit."""
_DRAW: Final = """
const runs = JSON.parse(document.getElementById("runs").textContent), which = document.getElementById("which");
const plots = JSON.parse(document.getElementById("plotted").textContent);
function show() {
  const run = runs[which.value];
  Timeline.whole({ columns: run.columns, rows: run.rows, restarts: [], definition: null });
  Timeline.add([], [], run.faults, null);
}
which.addEventListener("change", show);
Timeline.start({ place: document.getElementById("plots"), spans: document.getElementById("spans"), lasts: 900, plots });
show();
"""


def write(folder: Path, table: Table, results: Mapping[str, RunResult]) -> Path:
    """Write the page of the campaign in ``folder``, with its series. Raises OSError."""
    path = folder / FILE
    replace_file(path, render(table, results, {name: course(folder, name) for name in results}))
    return path


def render(table: Table, results: Mapping[str, RunResult], courses: Mapping[str, Mapping[str, Any] | None]) -> str:
    """The page. ``courses``: run -> the rows of its plots; None: it has no series."""
    style = "".join(map(resource, ("style.css", "vendor/uPlot.min.css", "report.css")))
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>Campaign</title>',
        f'<link rel="icon" href="data:,"><style>{style}</style></head><body>',
        f"<header><h1>{escape(table.first_line)}</h1></header><main>",
        *(_list(heading, items) for heading, items in lists(table) if heading in _FIRST),
        _figures(table, results),
        _courses({name: of for name, of in courses.items() if of is not None}),
        *map(_grid, grids(table)),
        *(_list(heading, items) for heading, items in lists(table) if heading not in _FIRST),
        "</main></body></html>",
    ]
    return plain_lines("\n".join(part for part in parts if part)) + "\n"


def _figures(table: Table, results: Mapping[str, RunResult]) -> str:
    of = {row.cell: [one for one in results.values() if is_of(one, row.cell)] for row in table.rows}
    names = {cell: _name(cell) for cell in of}
    recovery = [
        Boxed(names[cell], [c.recovery_seconds for c in costs if c.recovered and c.recovery_seconds is not None],
              sum(c.recovered is False for c in costs))
        for cell, runs in of.items()
        if cell.fault != "none" and (costs := [c for one in runs for c in one.faults or (one.cost,)])
    ]  # fmt: skip
    cost = [
        Boxed(names[cell], [c for one in runs if (c := one.cost.failure_cost_seconds) is not None])
        for cell, runs in of.items()
    ]
    throughput = [_bars(row.measures, names[row.cell], "throughput_{}_per_second") for row in table.rows]
    latency = [_bars(row.measures, names[row.cell], "latency_p99_{}_seconds") for row in table.rows]
    drawn = (
        ("Recovery time", "Each fault is a dot. Right: faults after which the rate did not return.",
         figures.boxes(recovery, "s")),
        ("Failure cost", "Each run is a dot; a run without a fault shows the noise.", figures.boxes(cost, "s")),
        ("Throughput by phase", "Medians over the runs.", figures.bars(throughput, _PHASES, "1/s")),
        ("Latency p99 by phase", "Medians over the runs.", figures.bars(latency, _PHASES, "s")),
    )  # fmt: skip
    return "".join(
        f"<section><h2>{title}</h2>{_note(said)}{figure}</section>" for title, said, figure in drawn if figure
    )


def _bars(measures: Mapping[str, Any], name: str, of: str) -> Bars:
    spreads = [measures[of.format(phase)] for phase in _PHASES]
    return Bars(name, [None if spread is None else spread.median for spread in spreads])


def is_of(one: RunResult, cell: Cell) -> bool:
    """Whether a result is of a cell."""
    return Cell(one.engine, one.workload, one.guarantee, one.fault, one.axes) == cell


def _name(cell: Cell) -> str:
    words = (cell.engine, cell.workload, cell.guarantee.replace("_", " "), cell.fault.replace("_", " "), cell.setting)
    return ", ".join(word for word in words if word)


def _courses(courses: Mapping[str, Mapping[str, Any]]) -> str:
    if not courses:
        return ""
    options = "".join(f'<option value="{escape(name)}">{escape(name)}</option>' for name in courses)
    plots = [
        {"title": title, "unit": unit, "lines": lines, "dots": True} for title, unit, lines in _PLOTS
    ]  # fmt: skip
    scripts = (UPLOT_NOTICE + resource("vendor/uPlot.iife.min.js"), resource("plots.js"), _DRAW)
    return (
        "<section><h2>The course of a run</h2>"
        + _note("Times are UTC. Shaded: a fault is active. A second without output has no point of output and latency.")
        + f'<p><label>Run <select id="which">{options}</select></label></p>'
        '<noscript><p class="dim">The plots need JavaScript.</p></noscript><div id="spans" role="group"></div>'
        f'<div id="plots" class="plots"></div>{_data("runs", courses)}{_data("plotted", plots)}'
        + "".join(f"<script>{script}</script>" for script in scripts)
        + "</section>"
    )


def _data(name: str, value: object) -> str:
    # Escaped, so that no name of a fault can end the element.
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def course(folder: Path, run: str) -> dict[str, Any] | None:
    """The rows of the plots of a run, by second, and its faults; None without series."""
    rows: dict[int, dict[str, float]] = {}
    output = output_series.path_of(folder, run)
    if output.exists():
        for row in pq.read_table(output).to_pylist():
            of = rows.setdefault(int(row["time"].timestamp()), {})
            of["output_per_second"] = row["contributions"] / row["seconds"]
            of |= {f"latency_{q}_seconds": row[f"{LATENCY}_{q}_seconds"] for q in ("p50", "p99")}
    samples = folder / "series" / f"{run}.parquet"
    if samples.exists():
        found = pq.read_table(samples).to_pylist()
        seconds = _seconds_of(sorted({row["time"].timestamp() for row in found}))
        for row in found:
            _add(rows.setdefault(seconds[row["time"].timestamp()], {}), row)
    if not rows:
        return None
    report = json.loads((folder / "reports" / f"{run}.json").read_bytes())
    counted = folder / "series" / f"{run}.counters.parquet"
    if counted.exists():
        counts = pq.read_table(counted)
        at_us = counts["time"].cast(pa.int64()).to_pylist()
        others = (counts[name].to_pylist() for name in ("part", "name", "value"))
        _add_counted(rows, list(zip(at_us, *others, strict=True)), inputs.hit(report["faults"]))
    faults = [{"name": one["name"] or one["kind"], "start": one["start"], "healed": one["healed"]}
              for one in report["faults"]]  # fmt: skip
    table = [[second, *(_short(of.get(name)) for name in COLUMNS[1:])] for second, of in sorted(rows.items())]
    return {"columns": COLUMNS, "rows": table, "faults": faults}


def _seconds_of(times: Sequence[float]) -> dict[float, int]:
    """Instant of samples -> its second. Of two instants in a second, the later one gets the next second."""
    found: dict[float, int] = {}
    last = 0
    for time in times:
        last = found[time] = max(last + 1, int(time))
    return found


def _add(of: dict[str, float], sample: Mapping[str, Any]) -> None:
    """Add a sample of a process to its second."""
    process = sample["process"]
    if process == GROUP:
        if sample["lag_events"] is not None:
            of["lag_events"] = sample["lag_events"]
    elif process == MACHINE:
        if sample["network_sent_bytes"] is not None:
            of["network_megabytes"] = sample["network_sent_bytes"] / 1e6
    elif (part := part_of(process)) is not None:
        for name, column, unit in _ADDED:
            if sample[name] is not None:
                of[f"{part}_{column}"] = of.get(f"{part}_{column}", 0.0) + sample[name] / unit


def _add_counted(rows: dict[int, dict[str, float]], counted: Sequence[Row], hit: set[str]) -> None:
    """Add what the workers read, by second: those in ``hit``, and the others; and the time of a connection."""
    for at_us, part, name, value in counted:
        if (part, name) == (reach.PART, reach.CONNECT):
            rows.setdefault(at_us // 1_000_000, {})["connect_seconds"] = value
    for part, begin_us, end_us, records in inputs.reads(counted):
        second, earlier = end_us // 1_000_000, begin_us // 1_000_000
        if second > earlier:
            name = "hit_per_second" if part in hit else "others_per_second"
            of = rows.setdefault(second, {})
            of[name] = of.get(name, 0.0) + records / (second - earlier)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _grid(grid: Grid) -> str:
    heading, titles, rows = grid
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<section><h2>{escape(heading)}</h2><div class="scroll">{table}</div></section>'


def _list(heading: str, items: Iterable[str]) -> str:
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<section><h2>{escape(heading)}</h2><ul>{listed}</ul></section>"


def _note(said: str) -> str:
    return f'<p class="dim">{escape(said)}</p>'

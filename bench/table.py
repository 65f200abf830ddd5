"""The measured figures as a page: ``python -m bench.table`` writes docs/bench/README.md; ``check`` compares it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parent.parent / "docs" / "bench"
PAGE: Final = FOLDER / "README.md"
DESCRIPTIONS: Final = {
    "once": "One run: a plain Spark read of the topics, then `validate --once` on the same topics.",
    "flat": "As `once`, from 3 M to 30 M events.",
    "live": "The live sidecar at a constant rate, with lost and repeated events that it must find.",
    "keys": "As `once`, with a million cells per window.",
    "day": (
        "The sidecar's batches over 24 hours of event time with 100,000 keys a minute, without reading and Spark; "
        "then a start."
    ),
    "restart": "A start with settled cells, from saved cells or from all facts. The start of Spark is not included.",
    "disk": "Bytes in the table `facts` for an event and its id in a result, by kind of id and size of batch.",
    "many": "Several sidecars at 120 events/s each: memory (PSS) at the end, CPU over 40 s.",
    "outage": (
        "The benchmark kills the broker while a live sidecar waits for the result of two events, and starts it again. "
        "Then it writes a result with one of the two events."
    ),
    "idle": "A batch without records, with settled cells and 10,000 open ones: CPU seconds, with all writes to tables.",
    "shapes": "As `once`, for each encoding of ids, times and names in the topics.",
    "formats": "As `once`, of the same events in each format, read with a schema registry; results are JSON.",
    "operations": (
        "As `once`, for a result per event, for windows of which four hold an event, and for joins of two topics."
    ),
    "generator": "The generator's rate with two processes, and its ratio to a plain write.",
    "statements": (
        "What Flink SQL (its TaskManager), Spark SQL (a batch) and the Kafka Streams DSL spend on windows of 5,000 "
        "events with a count, sums over ids, or the ids in their results."
    ),
}


ONLY_IN_JSON: Final = {
    "all_cpu_seconds",
    "lag_events_last",
    "cells",
    "cpu_to_that_of_json",
    "result_to_that_of_ids",
    "outcome",
    "status",
    "write_events_per_second",
    "validate_query_seconds",
    "jvm_cpu_seconds",
    "cells_in_memory",
    "jvm_resident_max_mib",
    "making_seconds",
    "lines_printed_in_the_outage",
    "missing_after_seconds",
    "saved_verified",
    "folded_verified",
    "start_verified",
    "saved_megabytes",
    "ticks",
    "cores_per_sidecar",
    "load_average",
    "seconds_per_batch",
    "writer_cores",
    "rate_written",
    "batches_over_2s",
    "plain_read_events_per_second",
    "readyz_in_the_outage",
    "missing_retracted",
    "whole_events_per_second",
    "driver_resident_max_mib",
    "all_resident_max_mib",
    "batches",
    "validate_whole_seconds",
    "after_warm_up_batches_over_2s",
    "after_warm_up_found_after_5s",
}
"""Rows of the JSON files that answer no question of a user."""

COLUMNS_MOST: Final = 8
"""Of a part with more rows, whose first value is a number, the page has every second one."""
HEAD: Final = """\
# Benchmarks: throughput, memory and disk of the sidecar

<!-- Written by `python -m bench.table` from the JSON files of `scripts/bench`. -->

Each table is one part of `scripts/bench`, with the broker on the same machine (that of the last part that names one).
The suffix of a row is its unit.

| row | meaning |
|---|---|
| `validate_events_per_second` | events over the time of the sidecar's query |
| `ratio_to_plain_read` | the same, over the rate at which Spark's Kafka source reads the topics and only sums \
the lengths of values |
| `dropped`, `missing_found` | ids that the load left out of results, and those that were found (the last window is \
still open at the end) |
| `repeated`, `duplicate_found` | ids that the load repeated in a result, and those that were found |
| `together_max_mib` | largest memory of all processes at one time; a page that n processes share counts as 1/n |"""


def page() -> str:
    """The page, from the JSON files beside it."""
    parts, machine = [HEAD], ""
    for name, what in DESCRIPTIONS.items():
        path = FOLDER / f"{name}.json"
        if not path.exists():
            parts += ["", f"## {name}", "", f"{what} **Not measured yet.**"]
            continue
        kept = json.loads(path.read_text())
        # A part names its machine if the part before it ran on another one.
        measured = "" if kept["machine"] == machine else f" Machine: {kept['machine']}."
        machine = kept["machine"]
        parts += ["", f"## {name}", "", what + measured, "", *_table(kept["rows"])]
    return "\n".join(parts) + "\n"


def _table(rows: list[dict[str, Any]]) -> list[str]:
    is_series = not isinstance(next(iter(rows[0].values())), str)
    rows = rows[:: 2 if is_series and len(rows) > COLUMNS_MOST else 1]
    names = dict.fromkeys(name for row in rows for name in row if name not in ONLY_IN_JSON)
    lines = [f"| {name} | " + " | ".join(_shown(row.get(name, "-")) for row in rows) + " |" for name in names]
    # The first line says what distinguishes the columns.
    return [lines[0], "|---|" + "---:|" * len(rows), *lines[1:]]


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items())
    if isinstance(value, float):
        return f"{value:,.3g}" if value < 100 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def main() -> int:
    """Write the page, or compare it."""
    if sys.argv[1:] == ["check"]:
        if PAGE.exists() and PAGE.read_text() == page():
            return 0
        print("docs/bench/README.md differs from its JSON files; run python -m bench.table", file=sys.stderr)
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

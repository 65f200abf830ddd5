"""Output per second of broker time and its latency under three definitions (SEMANTICS section 6), in one pass.

`last_input`: broker time of the result less that of its cell's last input. `first_input`: less that of the first.
`window_close`: less that of the first input, of any key, whose event time is past the window's end (the instant at
which an engine could first close the window).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.measure.histogram import LATENCY_BOUNDS
from validator.measure.output import Output, Spread
from validator.model.arrays import NEVER, Bools, Ints, field, ints, listed, run_starts
from validator.reconcile.cells import Cells, contributing

DEFINITIONS: Final = ("last_input", "window_close", "first_input")
EVERY_RESULT: Final = "every_result"
"""In addition to the definitions: rows that count all results, also those without a known latency."""

RESULT_COLUMNS: Final = ("kind", "status", "batch", "partition", "window_start_us", "key", "results")
"""The columns of a fact that `latency_buckets` needs."""

_BOUNDS_US: Final = np.array([int(bound * 1_000_000) for bound in LATENCY_BOUNDS], dtype=np.int64)
_NO_BUCKET: Final = -1
_NONE_LEFT: Final = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))


@dataclass(frozen=True)
class ResultTimes:
    """The results among some facts: the rows of their cells, their batches, partitions, broker times and contributions.
    ``since``: definition -> the instant from which the latency counts, and where it is known."""

    rows: Ints
    batch: Ints
    partition: Ints
    result_us: Ints
    contributions: Ints
    since: Mapping[str, tuple[Ints, Bools]]


def result_times(
    facts: pa.Table, cells: Cells, left: tuple[Ints, Ints] = _NONE_LEFT, *, since_us: int = 0
) -> ResultTimes | None:
    """Return the results among ``facts``, which have `RESULT_COLUMNS`; None if there is none. Arguments as those of
    `latency_buckets`."""
    # Most fact rows are of events: their content is not copied.
    facts = facts.select(RESULT_COLUMNS)
    facts = contributing(facts.filter(pc.greater(pc.list_value_length(facts["results"]), 0)))
    parents, results = listed(facts["results"])
    if not len(parents):
        return None
    result_us = ints(field(results, "time_us"))
    count = _lengths(field(results, "ids")) + _lengths(field(results, "text_ids")) + ints(field(results, "count"), 0)
    batch, partition = ints(facts["batch"])[parents], ints(facts["partition"])[parents]
    rows = cells.rows_of_facts(facts)[parents]
    if cells.newest is not None:
        # An id has a latency only in the first result that contains it. The row of the key counts each result itself.
        first = result_us == cells["first_result_time_us"][rows]
        chosen = np.flatnonzero(first | (count == 0))
        rows, batch, partition, result_us, count = (
            column[chosen] for column in (rows, batch, partition, result_us, count)
        )
    first, last = cells["first_input_time_us"][rows], cells["last_input_time_us"][rows]
    closing = _closing(cells, left, cells["end_us"][rows])
    dated = result_us > since_us
    return ResultTimes(rows, batch, partition, result_us, count, {
        "last_input": (last, dated & (last > since_us)),
        "window_close": (closing, dated & (closing > since_us) & (closing != NEVER)),
        "first_input": (first, dated & (first > since_us) & (first != NEVER)),
    })  # fmt: skip


def latency_buckets(
    facts: pa.Table, cells: Cells, left: tuple[Ints, Ints] = _NONE_LEFT, *, since_us: int = 0
) -> list[dict[str, Any]]:
    """Return rows (batch, second, definition, bucket, results, contributions, first_us, last_us, sum_us, max_us) for
    the results among ``facts``, by the second of their broker time (since the epoch).

    A result whose cell has no input yet has no latency. Bucket i counts values up to ``LATENCY_BOUNDS[i]``. Rows of
    `EVERY_RESULT` have bucket None, and 0 as sum and maximum. ``contributions``: number of ids in the results.
    ``first_us``, ``last_us``: broker times. ``left``: starts of cells that left memory, and the broker times of their
    first inputs (`NEVER` without any). ``since_us``: records dated up to this instant have no latency (`RecordTimes`).
    """
    times = result_times(facts, cells, left, since_us=since_us)
    if times is None:
        return []
    batch, result_us, count = times.batch, times.result_us, times.contributions
    nothing, none = np.zeros_like(result_us), np.full_like(times.rows, _NO_BUCKET)
    found = _grouped(EVERY_RESULT, batch, result_us, count, nothing, none)
    for name, (from_us, known) in times.since.items():
        # The brokers' clocks differ: a small negative span counts as 0.
        value = np.maximum(result_us[known] - from_us[known], 0)
        bucket = np.searchsorted(_BOUNDS_US, value, side="left").astype(np.int64)
        found += _grouped(name, batch[known], result_us[known], count[known], value, bucket)
    return found


def outputs(rows: Iterable[Mapping[str, Any]], resolution_us: int | None = 0) -> list[Output]:
    """Return rows of `latency_buckets` as one value per second, in any order; batches are added up.
    ``resolution_us``: precision of the results' instants (None: unknown)."""
    found: dict[int, Output] = {}
    latency: dict[int, dict[str, Spread]] = {}
    for row in rows:
        second = row["second"]
        if row["definition"] == EVERY_RESULT:
            part = Output(
                *(second, second + 1, row["results"], row["contributions"], row["first_us"], row["last_us"]),
                resolution_us=resolution_us,
            )
            found[second] = found[second].plus(part) if second in found else part
        else:
            spreads = latency.setdefault(second, {})
            spread = Spread({row["bucket"]: row["results"]}, row["sum_us"], row["max_us"])
            known = spreads.get(row["definition"])
            spreads[row["definition"]] = spread if known is None else known.plus(spread)
    return [replace(output, latency=latency.get(second, {})) for second, output in found.items()]


def _lengths(lists: pa.Array) -> Ints:
    parents, _ = listed(lists)
    return np.bincount(parents, minlength=len(lists)).astype(np.int64)


def _closing(cells: Cells, left: tuple[Ints, Ints], ends: Ints) -> Ints:
    """Return, for each of ``ends``, the broker time of the first input in all cells that start at or after it; `NEVER`
    if there is none."""
    starts, at = np.unique(np.concatenate([cells.begins_us, left[0]]), return_inverse=True)
    opened = np.full(len(starts) + 1, NEVER, dtype=np.int64)
    np.minimum.at(opened, at, np.concatenate([cells["first_input_time_us"], left[1]]))
    earliest = np.minimum.accumulate(opened[::-1])[::-1]
    found: Ints = earliest[np.searchsorted(starts, ends)]
    return found


def _grouped(
    definition: str, batch: Ints, result_us: Ints, count: Ints, value: Ints, bucket: Ints
) -> list[dict[str, Any]]:
    second = result_us // 1_000_000
    order = np.lexsort((bucket, second, batch))
    keys = [it[order] for it in (batch, second, bucket)]
    starts = np.flatnonzero(run_starts(*keys))
    if not len(starts):
        return []
    columns = {
        "batch": keys[0][starts],
        "second": keys[1][starts],
        "bucket": keys[2][starts],
        "results": np.diff(np.append(starts, len(order))),
        "contributions": np.add.reduceat(count[order], starts),
        "first_us": np.minimum.reduceat(result_us[order], starts),
        "last_us": np.maximum.reduceat(result_us[order], starts),
        "sum_us": np.add.reduceat(value[order], starts),
        "max_us": np.maximum.reduceat(value[order], starts),
    }
    rows = zip(*(column.tolist() for column in columns.values()), strict=True)
    found = [{"definition": definition, **dict(zip(columns, row, strict=True))} for row in rows]
    for row in found:
        if row["bucket"] == _NO_BUCKET:
            row["bucket"] = None
    return found

"""Aggregates of a field of the events that results state, beside their count or without one."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np

from validator.cli.proposal.columns import Columns
from validator.cli.proposal.matches import FEW
from validator.config.model import Config
from validator.model.arrays import ABSENT
from validator.model.stated_values import FUNCTIONS
from validator.settings.explode import Explode
from validator.settings.formats.guesses import ENOUGH

_OF: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "sum": math.fsum,
    "min": min,
    "max": max,
    "avg": lambda of: math.fsum(of) / len(of),
}
_RELATIVE: Final = 1e-9
_DIGITS: Final = 9
"""Digits of a floating-point number that are surely right."""
_CELLS_MOST: Final = 200


Found = tuple[str, str, str, float]
"""The name, the path and the aggregate of a value, and a tolerance for engines that compute with floating-point
numbers."""


def further_values(inputs: Sequence[Columns], output: Columns, document: Mapping[str, Any]) -> Iterator[Found]:
    """Yield further values that results may state. ``document``: a configuration with one that the sample proves."""
    [[name, first]] = document["outputs"][0]["fields"]["values"].items()
    path = first if isinstance(first, str) else first["path"]
    has_count = document["oracle"]["values"][name] == "count"
    yield from _aggregates(inputs, output, document, {path}, path if has_count else None)


def values_alone(inputs: Sequence[Columns], output: Columns, document: Mapping[str, Any]) -> Iterator[Found]:
    """Yield the values that results without a count may state. ``document``: a configuration with any value."""
    for found in _aggregates(inputs, output, document, set(), None):
        # Any windows have the same extremes as any others, if these are always the same.
        if len(set(output.texts[found[1]])) >= FEW:
            yield found


def numbers_of(one: Columns) -> list[str]:
    """The fields that only have numbers, and are no times."""
    times = {time.path for time in one.times}
    return [path for path in one.texts if path not in times and _numbers(one, path) is not None]


def _aggregates(
    inputs: Sequence[Columns], output: Columns, document: Mapping[str, Any], but: set[str], count: str | None
) -> Iterator[Found]:
    """``but``: paths of results that have another meaning. ``count``: that of the number of events."""
    config = Config.model_validate(document, context={"folder": Path()})
    at = document["outputs"][0]["fields"]
    keys = [at["key"]] if isinstance(at["key"], str) else list(at["key"])
    used = {*but, *keys, *(time.path for time in output.times)}
    cells = _cells(inputs, config, document)
    rows = _rows(output, config, document, keys)
    if count is not None:
        complete = [cell for cell, row in rows.items() if output.texts[count][row] == str(len(cells.get(cell, ())))]
    else:
        # The sample may lack events of the first windows.
        earliest = min((start for start, _ in cells if start != ABSENT), default=None)
        complete = [cell for cell in rows if cell in cells and cell[0] != earliest]
    some = complete[-_CELLS_MOST:]
    if sum(len(cells[cell]) > 1 for cell in some) < FEW:
        return
    for path in output.texts:
        if path in used or (stated := _numbers(output, path)) is None:
            continue
        for name, function in product(_common(inputs), FUNCTIONS):
            columns = [_numbers(one, name) for one in inputs]
            if any(column is None for column in columns):
                continue
            right = 0
            for cell in some:
                of = [columns[source][row] for source, row in cells[cell]]  # type: ignore[index]
                known = [number for number in of if number is not None]
                found = stated[rows[cell]]
                if found is not None and len(known) == len(of):
                    right += math.isclose(_OF[function](known), found, rel_tol=_RELATIVE)
            if right >= ENOUGH * len(some):
                largest = max(abs(number) for number in stated if number is not None)
                tolerance = 10.0 ** (math.ceil(math.log10(max(largest, 1))) - _DIGITS)
                yield path.rpartition(".")[2], path, f"{function}({name})", tolerance
                break


def _common(inputs: Sequence[Columns]) -> list[str]:
    first, *others = inputs
    return [path for path in first.texts if all(path in one.texts for one in others) and not path.startswith("$")]


def _numbers(one: Columns, path: str) -> list[float | None] | None:
    """The numbers of a field; None if it has anything else."""
    found: list[float | None] = []
    for value in one.scalars[path]:
        if isinstance(value, bool) or (type(value) is str):
            return None
        try:
            found.append(None if value is None else float(str(value)))
        except ValueError:
            return None
    return found


def _cells(
    inputs: Sequence[Columns], config: Config, document: Mapping[str, Any]
) -> dict[tuple[int, tuple[str | None, ...]], list[tuple[int, int]]]:
    """Cell -> its events, as number of the input and row."""
    found: dict[tuple[int, tuple[str | None, ...]], list[tuple[int, int]]] = defaultdict(list)
    for source, (one, entry) in enumerate(zip(inputs, document["inputs"], strict=True)):
        at = entry["fields"]
        keys = [at["key"]] if isinstance(at["key"], str) else list(at["key"])
        time = next(it for it in one.times if it.setting == at["event_time"])
        known = [row for row, instant in enumerate(time.instants) if instant is not None]
        instants = np.array([time.instants[row] for row in known], dtype=np.int64)
        rows, starts = config.oracle.assigned(instants)
        rows = np.arange(len(known)) if rows is None else rows
        words = Explode.model_validate(entry["explode"]).words if "explode" in entry else None
        for row, start in zip(rows.tolist(), starts.tolist(), strict=True):
            texts = tuple(one.texts[key][known[row]] for key in keys)
            for values in [texts] if words is None else [(word,) for text in texts for word in words(text or "")]:
                found[start, values].append((source, known[row]))
    return found


def _rows(
    output: Columns, config: Config, document: Mapping[str, Any], keys: Sequence[str]
) -> dict[tuple[int, tuple[str | None, ...]], int]:
    """Cell -> the row of its newest result."""
    at = document["outputs"][0]["fields"]
    setting, back = at.get("window_start"), 0
    if setting is None and (setting := at.get("window_end")) is not None:
        back = config.oracle.result_span_us or 0
    if setting is None:
        return {
            (ABSENT, tuple(output.texts[key][row] for key in keys)): row for row in range(len(output.texts[keys[0]]))
        }
    time = next(it for it in output.times if it.setting == setting)
    found = {}
    for row, instant in enumerate(time.instants):
        if instant is not None:
            start = int(config.oracle.starts_of_results(np.array([instant - back], dtype=np.int64))[0])
            found[start, tuple(output.texts[key][row] for key in keys)] = row
    return found

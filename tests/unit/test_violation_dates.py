"""A violation is dated by when it happened, not by when it was read: a sidecar may lag, be down, or start
afterwards.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.judged_run import Cell
from tests.unit.reconcile_rows import MINUTE_US, fact

SECOND = 1_000_000
READ = 600 * SECOND
"""The instant at which everything was read."""


def at(row: dict[str, Any], second: int) -> dict[str, Any]:
    """``row``, appended by the broker at ``second``."""
    return {**row, "first_time_us": second * SECOND, "last_time_us": second * SECOND}


def dated_us(tmp_path: Path, *rows: dict[str, Any]) -> dict[str, int]:
    """Class -> the instant at which the violation is dated, in microseconds."""
    cell = Cell(tmp_path)
    moved = [*cell.absorb(READ, *rows), *cell.absorb(READ + SECOND)]
    return {one.violation_class: one.at_us for one in moved}


INPUT = at(fact("input", [1, 2, 3], batch=0, lookup_us=READ), 100)
TWICE = at(fact("output", [1, 1, 2, 3], batch=0, lookup_us=READ), 200)


def test_a_duplicate_is_dated_by_its_result(tmp_path: Path) -> None:
    assert dated_us(tmp_path, INPUT, TWICE) == {"duplicate": 200 * SECOND}


@pytest.mark.parametrize("side", ["late", "rejected"])
def test_a_duplicate_set_aside_after_its_result_is_dated_by_that_record(tmp_path: Path, side: str) -> None:
    once = at(fact("output", [1, 2, 3], batch=0, lookup_us=READ), 200)
    again = at(fact(side, [1, 2], batch=0, lookup_us=READ), 300)
    assert dated_us(tmp_path, INPUT, once, again) == {"duplicate": 300 * SECOND}


def test_a_loss_is_dated_at_most_one_window_after_its_input(tmp_path: Path) -> None:
    when = dated_us(tmp_path, INPUT)["missing"]
    assert 100 * SECOND <= when <= 100 * SECOND + MINUTE_US

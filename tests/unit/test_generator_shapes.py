"""Rate shapes as integrals over time."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest

from generator.shapes import Burst, Constant, Max, Ramp, RateShape, share_of

pytestmark = pytest.mark.unit


def due_after(shape: RateShape, *steps_ms: int) -> list[float]:
    return [shape.events_by(elapsed_ms / 1000) for elapsed_ms in accumulate(steps_ms)]


def test_a_constant_rate_is_linear() -> None:
    assert due_after(Constant(200), 0, 500, 500) == [0, 100, 200]


def test_max_is_always_due() -> None:
    assert due_after(Max(), 1) == [math.inf]


def test_ramp_ends_in_its_last_rate() -> None:
    assert due_after(Ramp(100, 300, 10), 0, 5_000, 5_000, 1_000) == [0, 750, 2000, 2300]


def test_burst_is_the_end_of_each_period() -> None:
    shape = Burst(base_events_per_second=10, burst_events_per_second=100, every_seconds=10, burst_seconds=2)
    assert due_after(shape, 8_000, 1_000, 1_000, 8_000, 2_000) == pytest.approx([80, 180, 280, 360, 560])


@pytest.mark.parametrize("shape", [Constant(7), Ramp(5, 1, 3), Burst(3, 20, 4, 1)])
def test_the_number_of_due_events_never_falls(shape: RateShape) -> None:
    due = due_after(shape, *[37] * 500)
    assert due == sorted(due)


@pytest.mark.parametrize("total", [0, 1, 7, 100.9])
def test_shares_of_producers_add_up(total: float) -> None:
    assert sum(share_of(total, k, 3) for k in range(3)) == int(total)

"""Rate shapes as integrals over time."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate, count
from types import SimpleNamespace
from typing import Any, Final, get_args

import pytest

from generator import config, producer
from generator.sections import AnyRate
from generator.seed import draw
from generator.shapes import Burst, Constant, Max, Ramp, RateShape, share_of
from tests.unit.sent_records import sent

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


RATES: Final[dict[str, tuple[dict[str, Any], Callable[[float], float]]]] = {
    "constant": ({"events_per_second": 70}, lambda t: 70),
    "ramp": (
        {"from_events_per_second": 50, "to_events_per_second": 10, "over": "3s"}, lambda t: max(10, 50 - t * 40 / 3),
    ),
    "burst": (
        {"events_per_second": 30, "burst_events_per_second": 200, "every": "4s", "burst": "1s"},
        lambda t: 200 if t % 4 >= 3 else 30,
    ),
    "single_burst": (
        {"events_per_second": 30, "burst_events_per_second": 200, "burst": "3s"}, lambda t: 200 if t < 3 else 30,
    ),
    "cosine": (
        {"from_events_per_second": 20, "to_events_per_second": 80, "every": "4s"},
        lambda t: 50 + 30 * math.cos(t / 4 * 2 * math.pi),
    ),
    "random": (
        {"from_events_per_second": 20, "to_events_per_second": 80, "every": "500ms", "seed": 3},
        lambda t: 20 + 60 * draw(3, "rate", int(t * 2)),
    ),
    "increase": (
        {"from_events_per_second": 10, "to_events_per_second": 90, "every": "2s"}, lambda t: 10 + 20 * min(4, t // 2),
    ),
    "decrease": (
        {"from_events_per_second": 10, "to_events_per_second": 90, "every": "2s"}, lambda t: 90 - 20 * min(4, t // 2),
    ),
    "spiking": (
        {"events_per_second": 30, "spike_events_per_second": 300, "every": "4s", "spike": "1s", "seed": 3},
        lambda t: 300 if 0 <= t % 4 - 3 * draw(3, "spike", int(t // 4)) < 1 else 30,
    ),
    "micro_batches": ({"events_per_second": 70}, lambda t: 70),
}  # fmt: skip
"""Shape -> its settings, and its rate at a time by its definition."""
LOAD: Final[dict[str, Any]] = {
    "kafka": {"bootstrap_servers": "b:1"}, "creation_timestamp": "event_time", "events_per_window": 50,
}  # fmt: skip
SLICE_SECONDS: Final = 1 / 200


def due(shape: str) -> RateShape:
    settings = config.parse({**LOAD, "rate": {"shape": shape, **RATES[shape][0]}})
    return settings.rate.build(settings.events_per_event_second)


def test_the_rates_are_those_of_all_shapes() -> None:
    union, _ = get_args(AnyRate)
    shapes = [name for one in get_args(union) for name in get_args(one.model_fields["shape"].annotation)]
    assert set(shapes) == {"max", "event_time", *RATES}


@pytest.mark.parametrize("shape", RATES)
def test_the_number_of_due_events_is_the_integral_of_the_rate(shape: str) -> None:
    middles = (SLICE_SECONDS * (number + 0.5) for number in range(4_000))
    by_definition = list(accumulate(RATES[shape][1](t) * SLICE_SECONDS for t in middles))
    built = due(shape)
    found = [built.events_by((number + 1) * SLICE_SECONDS) for number in range(4_000)]
    assert found == sorted(found)
    # Micro-batches are up to one batch behind the rate; a slice that holds a step has the rate of its middle.
    behind = 7 if shape == "micro_batches" else 0
    assert all(-2 - behind < one - other < 2 for one, other in zip(found, by_definition, strict=True))


@pytest.mark.parametrize("shape", RATES)
def test_the_number_sent_is_the_integral_of_the_rate(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "time", SimpleNamespace(monotonic=count(0, 0.01).__next__))
    rate = {"shape": shape, **RATES[shape][0]}
    [records] = sent(monkeypatch, {"events_per_window": 50, "rate": rate, "limit": {"duration": "10s"}})
    # The clock advances at each look; the last ones before the end are at 9.98 s to 10 s.
    assert due(shape).events_by(9.97) - 1 <= len(records) <= due(shape).events_by(10) + 1
    assert len(records) > 100


@pytest.mark.parametrize("total", [0, 1, 7, 100.9])
def test_shares_of_producers_add_up(total: float) -> None:
    assert sum(share_of(total, k, 3) for k in range(3)) == int(total)

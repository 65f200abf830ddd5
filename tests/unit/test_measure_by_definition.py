"""The cost of faults on random outputs, against a computation by the definitions that shares no code with it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.costs_by_definition import Cost, Fault, Measures, Result, S, costs
from validator.measure.cost import CostRules, FaultCost
from validator.measure.histogram import LATENCY_BOUNDS
from validator.measure.latency import EVERY_RESULT, outputs
from validator.measure.ledger import Ledger
from validator.measure.recovery import Detector
from validator.model.snapshot import FaultWindow

pytestmark = pytest.mark.unit

SECONDS = 160


def us(seconds: float) -> int:
    return round((1_000_000 + seconds) * 1_000) * 1_000


def drawn_faults(draw: Random) -> list[Fault]:
    """One to three faults, apart or overlapping. Some are never healed, some are healed at the instant of injection."""
    found, at = [], draw.uniform(12, 50)
    for _ in range(draw.choice([1, 1, 2, 3])):
        lasts = draw.choice([0.3, 2, 5, 10, 30]) * draw.uniform(0.8, 1.2)
        healed = draw.choices([at + lasts, None, at], [8, 1, 1])[0]
        found.append(Fault(us(at), None if healed is None else us(healed)))
        at += draw.choice([3, 20, 60]) * draw.uniform(0.5, 1.2)
    return [fault for fault in found if fault.injected_us < us(SECONDS)]


def drawn_results(draw: Random, faults: Sequence[Fault]) -> list[Result]:
    """An output that pauses (and catches up), slows down, never recovers, or is not affected. Sometimes the brokers'
    clock steps."""
    every, jitter, burst = draw.choice([0.25, 0.4, 0.7, 1.0, 2.0, 5.0]), draw.choice([0, 0.2, 0.9]), draw.choice([1, 3])
    disturbances = []
    for fault in faults:
        begin = fault.injected_us / S - 1_000_000 + draw.uniform(0, 3)
        end = draw.choices([begin + draw.uniform(0, 30), SECONDS * 2.0], [8, 1])[0]
        disturbances.append((begin, end, draw.choice([0.0, 0.0, 0.3, 0.8, 1.0])))
    steps_at, step = draw.choices([(SECONDS, 0.0), (draw.uniform(0, SECONDS), draw.uniform(-5, 5))], [9, 1])[0]
    found, at = [], draw.uniform(0, 1)
    while at < SECONDS:
        instant, latency = at + every * jitter * draw.uniform(0, 0.5), draw.uniform(0.1, 0.6)
        for begin, end, share in disturbances:
            if begin <= instant < end and draw.random() >= share:
                late = end + draw.uniform(0, 4)
                instant, latency = late, latency + late - instant
        instant += step if at > steps_at else 0.0
        known = None if draw.random() < 0.05 else round(latency * S)
        found += [Result(us(max(0.0, instant)), draw.choice([8, 10, 10]), known)] * burst
        at += every
    return found


def rows_of(results: Sequence[Result]) -> list[dict[str, object]]:
    """As rows of `latency_buckets`."""
    rows: list[dict[str, object]] = []
    for at, contributions, latency in results:
        row = {"second": at // S, "results": 1, "contributions": contributions, "first_us": at, "last_us": at}
        rows.append({**row, "definition": EVERY_RESULT, "bucket": None, "sum_us": 0, "max_us": 0})
        if latency is not None:
            bucket = bisect_left(LATENCY_BOUNDS, latency / S)
            rows.append({**row, "definition": "window_close", "bucket": bucket, "sum_us": latency, "max_us": latency})
    return rows


def measured(
    results: Sequence[Result], faults: Sequence[Fault], instants: Sequence[int], given: Measures
) -> list[FaultCost]:
    """The ledger's costs at the last of ``instants``. At each instant it receives all results until then."""
    rules = CostRules(
        "window_close", given.warm_up, given.control_least, given.control_most, given.give_up_after,
        Detector(given.moving_rate, given.band_ratio, given.stable_for),
    )  # fmt: skip
    ledger, before = Ledger(), 0
    found: dict[str, FaultCost] = {}
    for until in instants:
        for output in outputs(rows_of([r for r in results if before < r.at_us <= until])):
            ledger.series.add(output)
        _, found = ledger.measure(windows(faults, until), rules, until_us=until)
        before = until
    return [found[str(i)] for i in range(len(faults))]


def windows(faults: Sequence[Fault], until: int) -> list[FaultWindow]:
    """The fault windows that are known at an instant."""
    known = [(str(i), f, f.healed_us) for i, f in enumerate(faults) if f.injected_us <= until]
    return [
        FaultWindow(
            name, name, "process_kill", "engine", f.injected_us, None, None,
            None if healed is None or healed > until else healed,
        )
        for name, f, healed in known
    ]  # fmt: skip


def plain(cost: FaultCost) -> Cost:
    return Cost(
        cost.failure_cost_seconds, cost.downtime_seconds, cost.recovery_seconds, cost.recovered,
        cost.throughput_penalty_ratio, cost.latency_penalty_ratio,
    )  # fmt: skip


@given(st.integers(0, 2**32))
@settings(deadline=None, max_examples=60)
def test_costs_equal_their_definitions_in_one_batch_and_in_many(seed: int) -> None:
    draw = Random(seed)
    faults = drawn_faults(draw)
    results = drawn_results(draw, faults)
    given = Measures(
        warm_up=draw.choice([0, 5]), moving_rate=draw.choice([2, 5, 8]), band_ratio=draw.choice([0.15, 0.4]),
        stable_for=draw.choice([2, 8, 20]), give_up_after=draw.choice([10, 30, 300]),
    )  # fmt: skip
    until = us(SECONDS)
    results = [r for r in results if r.at_us <= until]
    expected = costs(results, faults, until, given)
    at_once = measured(results, faults, [until], given)
    for found, cost in zip(at_once, expected, strict=True):
        assert plain(found) == pytest.approx(cost)
    batches = sorted(us(draw.uniform(0, SECONDS)) for _ in range(draw.choice([3, 20])))
    assert measured(results, faults, [*batches, until], given) == at_once

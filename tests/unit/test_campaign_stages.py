"""The stages of a recovery, on series whose recovery is known by construction."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from testbed.campaign import latencies
from testbed.campaign.matrix import matrix, runs
from testbed.campaign.result import result_of
from testbed.campaign.sampler import GROUP, Sample
from testbed.campaign.stages import Span, Stages, _first_output, stages
from testbed.campaign.table import _least_hit
from tests.unit.campaign_results import fake, plan, report

pytestmark = pytest.mark.unit
STABLE = 8.0
INJECTED, HEALED, END = 100, 110, 200
RUN = runs(matrix(plan()).cells, plan())[0]


def instant(second: float) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


def fault(start: int = INJECTED, healed: int = HEALED) -> dict[str, Any]:
    return {"kind": "process_kill", "target": "flink-0", "start": instant(start), "healed": instant(healed),
            "control_start": instant(50), "control_end": instant(INJECTED)}  # fmt: skip


def results(latency: Callable[[int, int], float | None]) -> pa.Table:
    """A result in each second and partition that has a ``latency``, until a second after the load's end."""
    rows = [(second, partition, latency(second, partition)) for second in range(50, END + 1) for partition in (0, 1)]
    there = [row for row in rows if row[2] is not None]
    nothing = pa.nulls(len(there), pa.float64())
    columns = {
        "time": pa.array([int((second + 0.1) * 1e6) for second, _, _ in there], latencies._SCHEMA.field("time").type),
        "partition": pa.array([partition for _, partition, _ in there]),
        "contributions": pa.array([1] * len(there)),
        "window_close_seconds": pa.array([value for *_, value in there], pa.float64()),
    }
    return pa.table([columns.get(name, nothing) for name in latencies._SCHEMA.names], schema=latencies._SCHEMA)


def lags(lag: Callable[[int], int]) -> list[Sample]:
    return [
        Sample(second * 1_000_000, GROUP, lag_events=lag(second), produced_events=10) for second in range(50, END + 1)
    ]


def test_each_stage_has_its_time_and_a_partition_that_no_fault_hit_no_downtime() -> None:
    """Partition 0 is silent from 100 to 120 and slow until 130; the backlog is drained at 140."""

    def latency(second: int, partition: int) -> float | None:
        if partition == 1 or second < INJECTED:
            return 1.0
        return None if second < 120 else 20.0 if second < 130 else 1.1

    [found] = stages([fault()], results(latency), lags(lambda second: 900 if 102 <= second < 140 else 100), STABLE)
    assert (found.outage, found.first_output_seconds) == (False, None), "the other partition went on"
    assert found.latency_recovery_seconds == pytest.approx(30.1)
    assert found.lag_recovery_seconds == 40
    assert found.partition_downtimes_seconds == pytest.approx((19.1, 0.0))


def test_an_outage_of_all_partitions_ends_with_the_first_output() -> None:
    [found] = stages([fault()], results(lambda s, _: None if 100 <= s < 125 else 1.0), lags(lambda _: 5), STABLE)
    assert found.outage
    assert found.first_output_seconds == pytest.approx(25.1)
    assert found.latency_recovery_seconds == pytest.approx(25.1), "without output the latency is not as before"
    assert found.lag_recovery_seconds == 0


@pytest.mark.parametrize(
    ("silent_until", "is_measured", "before_restart"), [(115, True, True), (125, False, True), (131, False, False)]
)
def test_without_the_killed_worker_the_output_is_measured_once_each_partition_has_it_again(
    silent_until: int, *, is_measured: bool, before_restart: bool
) -> None:
    """Partition 0 is silent from 100. The other one goes on. The healing begins at 130, and changes the latency."""

    def latency(second: int, partition: int) -> float | None:
        if partition == 0 and INJECTED <= second < silent_until:
            return None
        return 1.0 if second < INJECTED else 3.0 if second < 130 else 7.0

    killed = fault(healed=135) | {"heal_started": instant(130)}
    [found] = stages([killed], results(latency), lags(lambda _: 5), STABLE)
    rate, median = found.degraded_throughput_per_second, found.degraded_latency_p50_seconds
    assert (rate, median) == ((pytest.approx(2, rel=0.05), 3.0) if is_measured else (None, None))
    assert found.output_before_restart is before_restart
    [paused] = stages([killed | {"kind": "process_pause"}], results(latency), lags(lambda _: 5), STABLE)
    assert (paused.degraded_throughput_per_second, paused.degraded_latency_p50_seconds) == (None, None)
    assert paused.output_before_restart is None


def test_the_input_of_the_workers_that_were_hit_is_beside_that_of_the_others_until_the_healing() -> None:
    """Each worker reads 10 records a second. Worker 0 is killed at 100 and counts from 0 when it is back."""
    counted = [
        (second * 1_000_000, part, "read-records", value)
        for second in range(90, 120)
        for part, value in (("worker-0", 10.0 * (second - (90 if second < 100 else 110))), ("worker-1", 10.0 * second))
        if part == "worker-1" or not INJECTED <= second < HEALED
    ]
    [found] = stages([fault()], results(lambda *_: 1.0), lags(lambda _: 5), STABLE, counted)
    assert found.hit_input_per_second == 0
    assert found.others_input_per_second == pytest.approx(10)
    [delayed] = stages([fault() | {"target": "node"}], results(lambda *_: 1.0), lags(lambda _: 5), STABLE, counted)
    assert delayed.hit_input_per_second == 0, "the network of the first worker"
    [unknown] = stages([fault()], results(lambda *_: 1.0), lags(lambda _: 5), STABLE)
    assert (unknown.hit_input_per_second, unknown.others_input_per_second) == (None, None)


@pytest.mark.parametrize(("silence", "is_outage"), [(1.003, False), (2.9, False), (3.1, True)])
def test_a_silence_that_is_hardly_longer_than_before_is_no_outage(silence: float, *, is_outage: bool) -> None:
    at = [*range(50, 105), *(104 + silence + second for second in range(END - 110))]
    found = _first_output(at, Span(50, INJECTED), Span(INJECTED, END - 10))
    assert found == (pytest.approx(4 + silence) if is_outage else None)


def test_a_run_without_a_change_has_recovered_at_once_and_one_that_stays_bad_has_not() -> None:
    def found(late: float) -> Stages:
        return stages([fault()], results(lambda s, _: late if s >= 105 else 1.0), lags(lambda _: 5), STABLE)[0]

    calm, bad = found(1.0), found(9.0)
    assert (calm.first_output_seconds, calm.latency_recovery_seconds) == (None, 0)
    assert bad.latency_recovery_seconds is None
    silent = stages([fault()], results(lambda s, _: None if s >= 105 else 1.0), lags(lambda _: 5), STABLE)
    assert (silent[0].first_output_seconds, silent[0].latency_recovery_seconds) == (None, None)
    assert silent[0].partition_downtimes_seconds == (None, None), "no output ended the silence"


@pytest.mark.parametrize("end", ["the load's", "the next fault's"])
def test_a_partition_without_output_until_the_end_has_no_downtime(end: str) -> None:
    def latency(second: int, partition: int) -> float | None:
        return None if partition == 0 and 105 <= second < (150 if end == "the next fault's" else 999) else 1.0

    faults = [fault(), fault(150, 155)] if end == "the next fault's" else [fault()]
    found = stages(faults, results(latency), lags(lambda _: 5), STABLE)[0]
    silent, going_on = found.partition_downtimes_seconds
    assert silent is None
    assert going_on == pytest.approx(0, abs=1e-6)
    one = fake(RUN)
    hit = one.cost.model_copy(update={"partition_downtimes_seconds": found.partition_downtimes_seconds})
    assert _least_hit(one.model_copy(update={"cost": hit})) == pytest.approx(0, abs=1e-6)
    hit = one.cost.model_copy(update={"partition_downtimes_seconds": (None, None)})
    assert _least_hit(one.model_copy(update={"cost": hit})) is None


def test_a_latency_that_rises_again_within_the_stable_time_was_not_as_before() -> None:
    def latency(second: int, _: int) -> float:
        return 9.0 if 101 <= second < 112 or second == 117 else 1.0

    [found] = stages([fault()], results(latency), lags(lambda _: 5), STABLE)
    assert found.latency_recovery_seconds == pytest.approx(18.1)


@pytest.mark.parametrize(("usual", "again"), [(0, 1), (0, 0), (100, 114)])
def test_a_lag_and_a_latency_return_to_values_of_0_and_below(usual: int, again: int) -> None:
    """A load of 10 events a second. The brokers' clocks differ by 0.6 s, so that latencies are negative."""

    def lag(second: int) -> int:
        return usual if second < INJECTED else 900 if second < 130 else again

    def latency(second: int, _: int) -> float:
        return 8.0 if INJECTED <= second < 125 else -0.6 + second % 2 / 10

    [found] = stages([fault()], results(latency), lags(lag), STABLE)
    assert found.lag_recovery_seconds == 30
    assert found.latency_recovery_seconds == pytest.approx(25.1)


@pytest.mark.parametrize(("usual", "again"), [(0, 2), (100, 116)])
def test_a_lag_above_the_band_has_not_returned(usual: int, again: int) -> None:
    [found] = stages([fault()], results(lambda *_: 1.0), lags(lambda s: usual if s < 100 else again), STABLE)
    assert found.lag_recovery_seconds is None


def test_a_fault_is_followed_until_the_next_one() -> None:
    def latency(second: int, _: int) -> float:
        return 9.0 if 101 <= second < 150 or 152 <= second < 160 else 1.0

    first, second = stages([fault(), fault(150, 155)], results(latency), lags(lambda _: 5), STABLE)
    assert first.latency_recovery_seconds is None
    assert second.latency_recovery_seconds == pytest.approx(10.1)
    unknown = stages([fault() | {"control_start": None}], results(latency), [], STABLE)
    assert unknown == [Stages()]


def test_without_samples_of_the_load_the_last_fault_has_no_stages() -> None:
    output = results(lambda s, _: None if 120 <= s < 140 or s >= 160 else 1.0)
    first, last = stages([fault(110, 115), fault(150, 155)], output, [], STABLE)
    assert first.first_output_seconds == pytest.approx(30.1)
    assert first.partition_downtimes_seconds == pytest.approx((20, 20))
    assert last == Stages()


def outage_with(first: float | None, latency: float | None = None, lag: float | None = None) -> Stages:
    """The stages of an outage."""
    return Stages(
        outage=True, first_output_seconds=first, latency_recovery_seconds=latency, lag_recovery_seconds=lag
    )  # fmt: skip


def test_the_stages_of_several_faults_are_medians_and_one_that_is_not_known_is_the_longest() -> None:
    several = report()
    several["faults"] = [several["faults"][0]] * 3
    of = [outage_with(1.0, 7.0, None), outage_with(2.0, None, None), outage_with(9.0, 5.0, 3.0)]
    found = result_of(RUN, several, started="", seconds=1, sent=1, settled=True, read_back=None, stages=of)  # type: ignore[arg-type]
    assert [one.lag_recovery_seconds for one in found.faults] == [None, None, 3.0]
    cost = found.cost
    assert (cost.first_output_seconds, cost.latency_recovery_seconds, cost.lag_recovery_seconds) == (2.0, 7.0, None)


@pytest.mark.parametrize(
    ("of", "middle"),
    [
        ([Stages(outage=False)] * 4 + [outage_with(5.0), outage_with(6.0)], 5.5),
        ([Stages(outage=False), outage_with(5.0), outage_with(None)], None),
        ([Stages(outage=False), outage_with(5.0), outage_with(8.0), outage_with(None)], 8.0),
        ([Stages(outage=False)] * 2, None),
    ],
)
def test_a_fault_without_an_outage_has_no_part_in_the_median_of_the_first_outputs(
    of: list[Stages], middle: float | None
) -> None:
    several = report()
    several["faults"] = [several["faults"][0]] * len(of)
    found = result_of(RUN, several, started="", seconds=1, sent=1, settled=True, read_back=None, stages=of)  # type: ignore[arg-type]
    assert found.cost.first_output_seconds == middle

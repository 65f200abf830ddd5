"""What a campaign advises, and its penalties: only what its runs show, with the numbers that show it."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.campaign import formats
from testbed.campaign.advice import advice, penalties
from testbed.campaign.matrix import Run, matrix, runs
from testbed.campaign.result import FaultMeasure, PhaseMeasure
from testbed.campaign.table import Table, table
from tests.unit.campaign_results import fake, plan


def built(costs: dict[str, Any], **changes: Any) -> Table:
    """The table of a plan whose cells have the failure costs ``costs``: a part of the cell's name -> cost of each
    repetition. Throughput and latency of the failure phase are the cost, too."""
    wanted = plan(**{"engines": ["flink"], "guarantees": ["exactly_once"], "faults": ["crash"], **changes})
    everything = runs(matrix(wanted).cells, wanted)

    def result(run: Run) -> Any:
        seconds = next(of for name, of in costs.items() if name in run.cell.name)[run.repetition - 1]
        cost = FaultMeasure(
            failure_cost_seconds=seconds, downtime_seconds=1.0, recovery_seconds=seconds, recovered=True
        )
        failing = PhaseMeasure(
            phase="failure", results=1, throughput_per_second=seconds, latency_p50_seconds=2 * seconds,
            latency_p99_seconds=seconds,
        )  # fmt: skip
        return fake(run, cost=cost, phases=(failing,))

    results = {run.name: result(run) for run in everything}
    return table(everything, results, left_out=(), failures=(), headings=(), settings={})


STANDBY = {"axes": {"standby": [0, 1]}}


@pytest.mark.parametrize(
    ("restart", "said"),
    [
        ((19.0, 21.0), "prefer standby 1 (failure cost: standby 0 20 s in 2 runs, standby 1 5 s in 2 runs)."),
        ((5.5, 20.0), "no clear difference (failure cost: standby 0 12.8 s in 2 runs, standby 1 5 s in 2 runs)."),
        ((6.1, 6.2), "no clear difference (failure cost: standby 0 6.15 s in 2 runs, standby 1 5 s in 2 runs)."),
    ],
)
def test_a_value_of_an_axis_is_preferred_only_if_it_is_clearly_the_cheapest(
    restart: tuple[float, float], said: str
) -> None:
    found = advice(built({"standby0": restart, "standby1": (4.0, 6.0)}, **STANDBY).rows)
    assert found[-1] == f"flink, sst, exactly once, crash: {said}"


def test_time_outs_are_above_the_largest_cost_of_an_engine_and_a_delayed_worker_is_compared_with_a_killed_one() -> None:
    found = built(
        {"flink-sst-exactly_once-delay": (8.0, 9.0), "flink": (40.0, 44.0), "storm": (3.0, 3.5)},
        engines=["flink", "storm"], guarantees=["at_least_once", "exactly_once"],
        faults=["none", "delay_above_timeout", "crash"],
    )  # fmt: skip
    said = advice(found.rows)
    which = "the largest failure cost ({}, sst, at least once, delay above timeout)."
    assert said[:2] == [
        f"{engine}: before you take a result for lost, wait {seconds} s longer than results usually take: "
        + which.format(engine)
        for engine, seconds in (("flink", 44), ("storm", 3.5))
    ]
    [kept] = [sentence for sentence in said if "prefer" in sentence]
    crash = "a crash and its restart after the failure phase 42 s in 2 runs"
    costs = f"to keep it (delay above timeout) 8.5 s in 2 runs, {crash}"
    preferred = "flink, sst, exactly once, delay above timeout: the worker: prefer to keep it (delay above timeout)"
    assert kept == f"{preferred} (failure cost: {costs})."
    assert "## Advice" in formats.markdown(found)


def test_penalties_compare_with_runs_without_a_fault_with_as_many_workers_and_one_less() -> None:
    axes = {"axes": {"parallelism": [1, 2], "rate": [600, 1200]}}
    found = built(
        {"none-parallelism2": (90.0, 110.0), "none": (50.0, 50.0), "crash": (60.0, 60.0)},
        faults=["none", "crash"],
        **axes,
    )
    assert [(one.cell.setting, one.throughput_ratio, one.latency_ratio) for one in penalties(found.rows)] == [
        ("parallelism 2, rate 600", 0.8, 0.8), ("parallelism 2, rate 1200", 0.8, 0.8),
    ]  # fmt: skip
    assert "| parallelism 2, rate 600 | 0.80 | 0.80 |" in formats.markdown(found)
    assert penalties(built({"crash": (1.0, 1.0)}, **axes).rows) == []


def chosen(downtimes: dict[str, tuple[float, ...]], duplicates: dict[str, int]) -> list[str]:
    """Advice of a plan with a crash of two engines, whose runs have these values in turn."""
    wanted = plan(guarantees=["at_least_once"], faults=["none", "crash"])
    everything = runs(matrix(wanted).cells, wanted)

    def result(run: Run) -> Any:
        down = 0.0 if run.cell.fault == "none" else downtimes[run.cell.engine][run.repetition - 1]
        cost = FaultMeasure(failure_cost_seconds=None, downtime_seconds=down, recovery_seconds=None, recovered=None)
        return fake(run, cost=cost, duplicate=duplicates[run.cell.engine] * (run.cell.fault != "none") * run.repetition)

    results = {run.name: result(run) for run in everything}
    return advice(table(everything, results, left_out=(), failures=(), headings=(), settings={}).rows)


def test_an_engine_is_chosen_by_what_is_clearly_least_and_its_consumers_hear_what_to_expect() -> None:
    down = "kafka_streams has the shortest downtime (kafka_streams 3.5 s in 2 runs, flink 10 s in 2 runs)."
    repeated = "flink has the fewest repeated contributions (kafka_streams 60 in 2 runs, flink 0 in 2 runs)."
    consumers = (
        "Consumers of kafka_streams, at least once: expect repeated contributions, up to 80 in a run (kafka streams, "
        "sst, at least once, crash); let the sink overwrite by key and window, or discard ids that it knows."
    )
    where = "sst, at least once, crash: "
    said = chosen({"flink": (9.0, 11.0), "kafka_streams": (3.0, 4.0)}, {"flink": 0, "kafka_streams": 40})
    assert said == [where + down, where + repeated, consumers]
    assert chosen({"flink": (3.5, 11.0), "kafka_streams": (3.0, 4.0)}, {"flink": 0, "kafka_streams": 0}) == []
    assert chosen({"flink": (4.0, 4.1), "kafka_streams": (3.7, 3.9)}, {"flink": 0, "kafka_streams": 0}) == []


@pytest.mark.parametrize(
    ("rates", "latencies", "said"),
    [
        (
            {"1": (900.0, 950.0), "3": (1900.0, 2000.0)}, {"1": (0.5, 0.5), "3": (0.5, 0.5)},
            ["prefer parallelism 3 (throughput: parallelism 1 925/s in 2 runs, parallelism 3 1,950/s in 2 runs)."],
        ),
        (
            {"1": (1000.0, 1000.0), "3": (1000.0, 1000.0)}, {"1": (0.2, 0.3), "3": (0.8, 0.9)},
            ["prefer parallelism 1 (latency p50: parallelism 1 0.25 s in 2 runs, parallelism 3 0.85 s in 2 runs)."],
        ),
        ({"1": (900.0, 1900.0), "3": (1000.0, 2000.0)}, {"1": (0.2, 0.3), "3": (0.23, 0.3)}, []),
    ],
    ids=["throughput", "latency", "no clear difference"],
)  # fmt: skip
def test_parallelism_is_chosen_by_throughput_and_latency_without_a_fault(
    rates: dict[str, tuple[float, ...]], latencies: dict[str, tuple[float, ...]], said: list[str]
) -> None:
    wanted = plan(engines=["flink"], guarantees=["exactly_once"], faults=["none"], partitions=3,
                  axes={"parallelism": [1, 3]})  # fmt: skip
    everything = runs(matrix(wanted).cells, wanted)

    def result(run: Run) -> Any:
        workers, number = dict(run.cell.axes)["parallelism"], run.repetition - 1
        control = PhaseMeasure(
            phase="control", results=1, throughput_per_second=rates[workers][number],
            latency_p50_seconds=latencies[workers][number], latency_p99_seconds=None,
        )  # fmt: skip
        return fake(run, phases=(control,))

    results = {run.name: result(run) for run in everything}
    found = advice(table(everything, results, left_out=(), failures=(), headings=(), settings={}).rows)
    assert found == [f"flink, sst, exactly once, none: {one}" for one in said]


def test_a_rate_is_no_choice() -> None:
    assert len(advice(built({"rate600": (1.0, 1.0), "rate1200": (9.0, 9.0)}, axes={"rate": [600, 1200]}).rows)) == 1

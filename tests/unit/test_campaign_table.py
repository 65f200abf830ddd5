"""The table of a campaign in its three forms: medians, missing results, and warnings."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Any

import pytest

from testbed.campaign import formats
from testbed.campaign.journal import Failure, Heading
from testbed.campaign.matrix import matrix, runs
from testbed.campaign.result import FaultMeasure, ReadBack, RunResult, result_of
from testbed.campaign.table import Spread, Table, spread, table
from tests.unit.campaign_results import fake, plan, report

PLAN = plan(faults=["crash"], repetitions=3)
RUNS = runs(matrix(PLAN).cells, PLAN)
FLINK = [run for run in RUNS if run.cell.engine == "flink" and run.cell.guarantee == "exactly_once"]
FAILURE = Failure(FLINK[2].name, "2026-01-01T00:00:00+00:00", "EngineError: no <answer>\nat all | here")


def build_table(results: list[RunResult], failures: tuple[Failure, ...] = ()) -> Table:
    return table(
        RUNS, {found.run: found for found in results}, left_out=["storm cannot."], failures=failures,
        headings=[Heading("2 cores", "0.1")], settings=PLAN.same_in_all,
    )  # fmt: skip


def cost(seconds: float | None, *reasons: str) -> dict[str, Any]:
    return {
        "cost": FaultMeasure(
            failure_cost_seconds=seconds, downtime_seconds=None, recovery_seconds=None, recovered=None,
            absent_because=reasons,
        )
    }  # fmt: skip


ALL = [fake(run) for run in RUNS]


def test_median_least_and_most_are_of_the_runs_that_have_the_measure() -> None:
    found = spread([3.0, None, 1.0, 8.0])
    assert found is not None
    # Student's t for two degrees of freedom, times the standard error.
    assert found == Spread(3.0, 1.0, 8.0, 3, 4.0, pytest.approx(4.303 * 13**0.5 / 3**0.5))
    assert spread([4.0, 1.0]) == Spread(2.5, 1.0, 4.0, 2, 2.5)
    assert spread([None]) is None


def test_several_faults_are_one_row_and_a_fault_that_did_not_recover_is_censored() -> None:
    several = report()
    several["faults"] = [
        {**several["faults"][0], "recovery_seconds": seconds, "recovered": seconds is not None}
        for seconds in (9.0, None, 4.0)
    ]
    found = result_of(RUNS[0], several, started="", seconds=1, sent=1, settled=True, read_back=None)  # type: ignore[arg-type]
    cost = found.cost
    assert (cost.failure_cost_seconds, cost.downtime_seconds, cost.recovery_seconds) == (21.0, 9.0, 9.0)
    assert (cost.recovered, len(found.faults), found.faults_recovered) == (False, 3, 2)
    several["faults"][0].update(recovery_seconds=None, recovered=False)
    most = result_of(RUNS[0], several, started="", seconds=1, sent=1, settled=True, read_back=None)  # type: ignore[arg-type]
    assert most.cost.recovery_seconds is None
    (row, *_) = csv.DictReader(formats.csv_text(build_table([found])).splitlines()[1:])
    assert (row["faults_median"], row["faults_recovered_median"]) == ("3", "2")


def test_a_table_that_is_not_complete_says_so_in_its_first_line() -> None:
    found = build_table(ALL[:5], (FAILURE,))
    first = "NOT COMPLETE: 5 of 12 runs are done; 1 attempt failed and is listed."
    assert formats.markdown(found).splitlines()[0] == f"**{first}**"
    assert formats.csv_text(found).splitlines()[0] == f"# {first}"


def test_attempts_that_failed_for_one_reason_are_one_line() -> None:
    times = [f"2026-01-01T00:00:0{second}+00:00" for second in (1, 2)]
    alike = tuple(replace(FAILURE, run=run.name, time=time) for run, time in zip(FLINK, times, strict=False))
    text = formats.markdown(build_table(ALL, (*alike, replace(FAILURE, reason="another"))))
    assert f"(2 attempts from {times[0]} to {times[1]}: {FLINK[0].name}, {FLINK[1].name})" in text
    assert f"- {FAILURE.run}, {FAILURE.time}: another" in text


def test_a_complete_table_says_so() -> None:
    found = build_table(ALL)
    assert formats.markdown(found).splitlines()[0] == "Complete: all 12 runs are done."
    assert formats.csv_text(found).startswith("engine,workload")


def test_a_cell_without_a_run_is_a_row_of_absent_values() -> None:
    rows = list(csv.DictReader(formats.csv_text(build_table([])).splitlines()[1:]))
    assert len(rows) == 4
    assert {(row["runs_done"], row["duplicate_median"], row["missing_median"]) for row in rows} == {("0", "", "")}
    assert "| flink | sst | exactly_once | crash | 0 of 3 | – | – | – | – | – |" in formats.markdown(build_table([]))


def test_csv_and_markdown_have_the_same_numbers() -> None:
    results = [fake(FLINK[0], duplicate=0, **cost(2.0)), fake(FLINK[1], duplicate=3000, **cost(4.0))]
    found = build_table(results, (FAILURE,))
    row = next(
        row for row in csv.DictReader(formats.csv_text(found).splitlines()[1:])
        if (row["engine"], row["guarantee"]) == ("flink", "exactly_once")
    )  # fmt: skip
    assert (row["duplicate_median"], row["duplicate_min"], row["duplicate_max"]) == ("1500.0", "0", "3000")
    assert (row["runs_wanted"], row["runs_done"], row["attempts_failed"]) == ("3", "2", "1")
    assert (row["failure_cost_seconds_median"], row["published_pgval_failure_cost_seconds"]) == ("3.0", "65")
    of_papers = {name: value for name, value in row.items() if name.startswith("published_")}
    assert of_papers == {
        "published_pgval_failure_cost_seconds": "65", "published_ospbench_recovery_seconds": "58",
        "published_ospbench_downtime_seconds": "", "published_lopez_lost_ratio": "",
    }  # fmt: skip
    text = formats.markdown(found)
    assert "| 2 of 3, 1 failed |" in text
    assert "1,500 (0 to 3,000)" in text
    assert "| 3.00 (2.00 to 4.00) | 65 | 0.046 |" in text


def test_a_measure_of_some_runs_has_their_number() -> None:
    reason = "bursts have no rate"
    text = formats.markdown(build_table([fake(FLINK[0], **cost(2.0)), fake(FLINK[1], **cost(None, reason))]))
    assert "2.00 in 1 of 2" in text
    assert f"- {reason} ({FLINK[1].name})." in text


def test_a_share_just_below_one_is_not_shown_as_one() -> None:
    assert "0.999996" in formats.markdown(build_table([fake(FLINK[0], handled_ratio=0.999996)]))


def test_failures_are_listed_in_full() -> None:
    found = build_table(ALL[:1], (FAILURE, replace(FAILURE, run="of-another-plan-1")))
    assert f"- {FAILURE.run}, {FAILURE.time}: EngineError: no <answer> at all | here" in formats.markdown(found)
    assert "of-another-plan" not in formats.markdown(found)


BROKEN = {"at_most_once": "fail", "at_least_once": "pass", "exactly_once": "fail"}
LESS = ReadBack(guarantee="at_least_once", evidence=("no transactions",), mismatch="flink runs less than declared.")
KEPT = ReadBack(guarantee="exactly_once", evidence=("transactions",))


@pytest.mark.parametrize(
    ("changes", "finding"),
    [
        ({"read_back": LESS, "verdicts": BROKEN}, "flink runs less than declared"),
        ({"read_back": KEPT, "verdicts": BROKEN}, "flink has the guarantee exactly once and broke it"),
        ({"settled": False}, "Not everything that was sent was judged in time"),
        ({"coverage_complete": False}, "The sidecar could not account for every record of the topics"),
        (
            {"offered_per_second": 949.0, "planned_per_second": 1000.0},
            "Offered was less than 95 % of the plan's rate",
        ),
        ({"offered_per_second": 950.0, "planned_per_second": 1000.0}, None),
        ({"offered_per_second": 10.0}, None),
        ({"read_back": KEPT}, None),
    ],
)
def test_important_differences_are_findings(changes: dict[str, Any], finding: str | None) -> None:
    _, *findings = build_table([fake(FLINK[0], **changes)]).findings
    assert findings == ([] if finding is None else [f"{finding} ({FLINK[0].name})."])


def test_the_findings_count_the_recovery_times_of_the_runs_whose_faults_healed() -> None:
    unknown, lasting = (fake(FLINK[0]).cost.model_copy(update=of) for of in (
        {"recovery_seconds": None, "recovered": None}, {"recovery_seconds": None, "healed": False}
    ))  # fmt: skip
    results = [fake(FLINK[0]), fake(FLINK[1], cost=unknown), fake(FLINK[2], cost=lasting)]
    assert build_table(results).findings == (f"A recovery time: 1 of 2 runs whose faults healed; not {FLINK[1].name}.",)
    assert build_table([fake(FLINK[0], fault="none", cost=unknown)]).findings == ()


def test_the_durability_index_is_the_share_of_the_load_without_downtime() -> None:
    assert fake(FLINK[0], sent=60_000, offered_per_second=1000.0).durability_index == pytest.approx(57 / 60)
    assert fake(FLINK[0]).durability_index is None


def test_a_phase_has_its_share_of_handled_contributions() -> None:
    found = fake(FLINK[0])
    assert [phase.handled_ratio for phase in found.phases] == [100 / 125] * 3
    uncounted = report()
    for phase in uncounted["phases"]:
        phase["contributions"] = None
    one = result_of(FLINK[0], uncounted, started="", seconds=1, sent=1, settled=True, read_back=None)  # type: ignore[arg-type]
    assert [phase.handled_ratio for phase in one.phases] == [None] * 3


def test_engines_are_ordered_beside_pgval() -> None:
    streams = next(run for run in RUNS if run.cell.engine == "kafka_streams" and run.cell.guarantee == "exactly_once")
    cheap_streams = [fake(streams, **cost(1.0)), fake(FLINK[0], **cost(5.0))]
    cheap_flink = [fake(streams, **cost(6.0)), fake(FLINK[0], **cost(5.0))]
    line = "| sst, exactly_once, crash | {} | kafka_streams < flink | {} |"
    assert line.format("kafka_streams < flink", "agrees") in formats.markdown(build_table(cheap_streams))
    assert line.format("flink < kafka_streams", "differs") in formats.markdown(build_table(cheap_flink))


def test_published_downtimes_losses_and_orders_are_beside_ours() -> None:
    runs_of = {engine: next(run for run in RUNS if run.cell.engine == engine and run.cell.guarantee == "at_least_once")
               for engine in ("kafka_streams", "flink")}  # fmt: skip
    times = fake(FLINK[0]).cost.model_copy(update={"downtime_seconds": 25.0})
    results = [fake(runs_of["flink"], missing=64, cost=times), fake(runs_of["kafka_streams"])]
    text = formats.markdown(build_table(results))
    cell = "| flink | sst | at_least_once | crash |"
    assert f"{cell} OSPBench | downtime (s) | 25.0 | 50 | 0.5 |" in text
    assert f"{cell} Lopez | lost | 0.064 | 0.128 | 0.5 |" in text
    order = (
        "| OSPBench | downtime seconds | sst, at_least_once, crash | kafka_streams < flink | kafka_streams < flink |"
    )
    assert f"{order} agrees |" in text
    assert "| Lopez | lost ratio |" not in text, "one engine has no order"


def test_the_cost_of_exactly_once_is_a_multiple_of_that_of_at_least_once() -> None:
    calm = plan(engines=["kafka_streams"], faults=["none"], repetitions=1)
    of = {run.cell.guarantee: run for run in runs(matrix(calm).cells, calm)}
    slow = fake(of["exactly_once"], processor_seconds={"engine": 3.0})
    slow = slow.model_copy(update={"phases": tuple(
        one.model_copy(update={"latency_p50_seconds": 2 * (one.latency_p50_seconds or 0)}) for one in slow.phases
    )})  # fmt: skip
    fast = fake(of["at_least_once"], processor_seconds={"engine": 1.5})
    found = table(list(of.values()), {one.run: one for one in (slow, fast)}, left_out=(), failures=(), headings=(),
                  settings={})  # fmt: skip
    assert "| kafka_streams | sst | 2.00 | 3.29 | 2.00 | 1.50 |" in formats.markdown(found)

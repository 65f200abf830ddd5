"""Measures of a run that are one function over its series, on series whose values are known by construction."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from testbed.campaign import formats, html, latencies, reach, wrong
from testbed.campaign.counters import Row
from testbed.campaign.matrix import matrix, runs
from testbed.campaign.predicted import predicted
from testbed.campaign.result import result_of
from testbed.campaign.sampler import GROUP, INPUT, MACHINE, Sample
from testbed.campaign.stages import Span, Stages, _noticed, _peak, _restarted
from testbed.campaign.table import COLUMNS, table
from testbed.campaign.utilisation import utilisation
from testbed.campaign.wrong import durations
from testbed.run_files import SidecarFile
from tests.unit.campaign_results import fake, plan, report
from validator.state.tables import VIOLATIONS_SCHEMA, StateTables, Table

pytestmark = pytest.mark.unit
KILL = 100.25
"""Between two samples: those of a second are at its begin."""
RATE = 100


def instant(second: float) -> str:
    return datetime.fromtimestamp(second, UTC).isoformat()


def partition(number: int, commits: list[int], silent: tuple[int, int] = (0, 0)) -> list[Sample]:
    """A partition with `RATE` events a second, whose offsets are committed at the begin of the seconds ``commits``."""
    found: list[Sample] = []
    committed = 0
    for second in range(90, 120):
        ends = (second - 90) * RATE
        consumed = ends - committed if second in commits and second not in range(*silent) else 0
        committed += consumed
        appended = RATE if second > 90 else 0
        found.append(
            Sample(second * 1_000_000, f"{INPUT}click {number}", lag_events=ends - committed, produced_events=appended,
                   consumed_events=consumed)
        )  # fmt: skip
    return found


def killed(**changes: Any) -> dict[str, Any]:
    return {"kind": "process_kill", "start": instant(KILL), **changes}


def test_the_events_that_the_killed_worker_had_not_committed_are_predicted_as_duplicates() -> None:
    """Partition 0 is committed at 98 and then not before 108, when another worker has it; partition 1 each second."""
    samples = [*partition(0, [98, 108, 110, 112]), *partition(1, list(range(90, 120)))]
    [found] = predicted([killed()], samples, "at_least_once", 2.0)
    assert found == pytest.approx(2.25 * RATE, abs=1)
    assert predicted([killed()], samples, "exactly_once", 2.0) == [0]
    assert predicted([killed(kind="process_pause")], samples, "at_least_once", 2.0) == [None]
    assert predicted([killed(start=None), killed()], [], "at_least_once", 2.0) == [None, None]
    assert predicted([killed(start=instant(80))], samples, "at_least_once", 2.0) == [None], "before the first sample"


def test_a_job_that_restarts_as_a_whole_repeats_what_all_of_its_partitions_had_not_committed() -> None:
    """The last checkpoint before the kill is at 99, the next one later than usual, or sooner."""
    slow = [*partition(0, [95, 99, 112]), *partition(1, [95, 99, 112])]
    quick = [*partition(0, [95, 99, 102]), *partition(1, [95, 99, 102])]
    for samples in (slow, quick):
        [found] = predicted([killed()], samples, "at_least_once", 5.0)
        assert found == pytest.approx(2 * 1.25 * RATE, abs=1)


def test_a_violation_is_wrong_from_its_first_sight_to_its_retraction_or_the_end() -> None:
    rows = [
        ("short", 10, 5), ("short", 13, 0), ("open", 11, 2), ("open", 15, 3),
        ("again", 10, 1), ("again", 12, 0), ("again", 20, 1),
    ]  # fmt: skip
    of = {"violation": [name for name, *_ in rows], "lookup_us": [at * 1_000_000 for _, at, _ in rows],
          "count": [count for *_, count in rows]}  # fmt: skip
    assert sorted(durations(pa.table(of), 30_000_000)) == [3, 12, 19]


def test_the_violations_of_a_state_are_those_of_its_table(tmp_path: Path) -> None:
    file = SidecarFile("p", "at_least_once", "reference", 60_000, 1000, 2000).write("127.0.0.1:1", tmp_path)
    tables = StateTables(tmp_path / "state")
    assert wrong.of_state(file, 0) == []
    for batch, count in enumerate((3, 2, 0), 1):
        row = {"violation": "a", "batch": batch, "lookup_us": batch * 2_000_000, "count": count}
        tables.append(pa.Table.from_pylist([row], VIOLATIONS_SCHEMA), Table.VIOLATIONS, writer="w", version=batch)
    assert wrong.of_state(file, 10_000_000) == [4.0]


def counts(part: str, name: str, values: dict[int, float]) -> list[Row]:
    return [(second * 1_000_000, part, name, value) for second, value in values.items()]


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [
        (counts("worker-1", "rebalance-total", {98: 1, 99: 2, 101: 2, 107: 3, 109: 4}), 7),
        (counts("worker-0", "rebalance-total", {99: 3, 105: 0, 106: 1}), None),
        (counts("job", "running-tasks", {99: 4, 101: 4, 102: 2, 104: 0}), 2),
        (counts("job", "running-tasks", {99: 4, 101: 5}), None),
        (counts("worker-1", "rebalance-total", {99: 2, 111: 3}), None),
        (counts("worker-1", "commit-total", {99: 2, 101: 3}), None),
        ([], None),
    ],
    ids=["a rebalance", "a worker that started again", "tasks", "more tasks", "healed before", "another", "none"],
)
def test_a_fault_is_noticed_at_the_first_rebalance_or_loss_of_a_task(rows: list[Row], seconds: float | None) -> None:
    assert _noticed(rows, Span(100, 110)) == seconds


@pytest.mark.parametrize(
    ("tasks", "seconds"),
    [
        ({99: 4, 101: 4, 102: 2, 103: 0, 109: 3, 112: 4, 120: 4}, 12),
        ({99: 4, 102: 2, 103: 3}, None),
        ({99: 4, 101: 4, 110: 4}, None),
        ({102: 2, 103: 4}, None),
    ],
    ids=["all run again", "fewer", "none was lost", "not counted before"],
)
def test_an_engine_has_restarted_when_as_many_tasks_run_as_before(tasks: dict[int, float], seconds: float) -> None:
    assert _restarted(counts("job", "running-tasks", tasks), Span(100, 150)) == seconds


def test_the_time_to_connect_is_that_of_the_fault_and_failed_connections_are_a_share() -> None:
    seconds = {98: 9.0, **{100 + i: i / 100 for i in range(1, 7)}, 110: 8.0}
    rows = counts("reach", "connect-seconds", seconds)
    rows += counts("reach", "unreachable", {**dict.fromkeys(seconds, 0.0), 107: 1.0, 108: 1.0})
    assert reach.during(rows, 100_000_000, 110_000_000) == (0.035, 0.06, 0.25)
    assert reach.during(counts("reach", "unreachable", {101: 1.0}), 0, 200_000_000) == (None, None, 1.0)
    assert reach.during(rows, 0, 50_000_000) == (None, None, None)


def test_the_peak_is_the_highest_p99_of_a_second() -> None:
    many = [(3 + i / 1000, 1.0 + i / 1000) for i in range(200)]
    assert _peak([(1.5, 0.5), *many, (3.9, 9.0), (3.95, 8.0), (4.0, 2.0)]) == pytest.approx(2.0)
    assert _peak([(1.5, 0.5), (1.9, 7.0), (2.0, 1.0)]) == 7.0
    assert _peak([]) is None


def test_the_engine_uses_a_share_of_the_processors_in_each_phase() -> None:
    samples = [
        Sample(second * 1_000_000, name, processor_seconds=used)
        for second in range(10, 40)
        for name, used in (("worker-0", 0.5), ("worker-1", 0.25 if second < 20 else 0.75), ("broker", 1.0))
    ] + [Sample(second * 1_000_000, name) for second in range(10, 40) for name in (GROUP, MACHINE, f"{INPUT}click 0")]
    phases: Any = [
        {"phase": "control", "start": instant(10), "end": instant(20)},
        {"phase": "failure", "start": instant(20), "end": instant(30)},
        {"phase": "recovery", "start": instant(30), "end": None},
        {"phase": "control", "start": instant(39), "end": None},
    ]
    assert utilisation(phases, samples, 40_000_000, 2) == {"control": 0.375, "failure": 0.625, "recovery": 0.625}
    assert utilisation(phases, samples, 35_000_000, 2)["recovery"] == 0.625, "the load ended earlier"
    assert utilisation(phases, [], 40_000_000, 2) == {}


def test_the_last_seconds_of_the_load_are_phases_if_it_lasted_that_long() -> None:
    at = pa.array([second * 1_000_000 for second in range(100)], latencies._SCHEMA.field("time").type)
    values = pa.array([float(second) for second in range(100)])
    columns = {"time": at, "window_close_seconds": values}
    nothing = pa.nulls(100, pa.float64())
    of = pa.table({name: columns.get(name, nothing) for name in latencies._SCHEMA.names})
    found = latencies.by_phase(of, [], (0, 90_000_000))["window_close"]
    assert list(found) == ["last 20 s"]
    assert (found["last 20 s"]["results"], found["last 20 s"]["p50"]) == (20, 79)
    assert latencies.by_phase(of, [], (80_000_000, 90_000_000)) == {}


def test_every_measure_is_in_the_table_the_csv_file_and_the_report() -> None:
    wanted = plan(engines=["flink"], guarantees=["at_least_once"], faults=["crash"], repetitions=1)
    [run] = runs(matrix(wanted).cells, wanted)
    stages = Stages(
        outage=True, first_output_seconds=4.5, latency_recovery_seconds=5.25, lag_recovery_seconds=6.5,
        partition_downtimes_seconds=(1.5,), noticed_seconds=2.25, peak_latency_p99_seconds=8.75,
        restarted_seconds=3.25, degraded_throughput_per_second=2900.0, degraded_latency_p50_seconds=0.75,
        hit_input_per_second=12.0, others_input_per_second=1500.0,
        output_before_restart=True, connect_p50_seconds=0.25, connect_p99_seconds=6.25, unreachable_ratio=0.125,
    )  # fmt: skip
    of_run: Any = report()
    shares = dict.fromkeys(("control", "failure", "recovery"), 0.375)
    found = result_of(
        run, of_run, started="2026-01-01T00:00:00+00:00", seconds=100.0, sent=1000, settled=True, read_back=None,
        stages=[stages], predicted=[17], wrong=[1.0, 3.75, 20.5], utilisation=shares,
        processor_seconds={"engine": 3.0}, offered_per_second=500.0,
    )  # fmt: skip
    content = table([run], {run.name: found}, left_out=(), failures=(), headings=(), settings={})
    row = content.rows[0]
    assert [name for name, value in row.measures.items() if value is None] == []
    of = {name: spread.median for name, spread in row.measures.items() if spread is not None}
    assert of["predicted_duplicates"] == 17
    assert (of["wrong_median_seconds"], of["wrong_most_seconds"]) == (3.75, 20.5)
    assert (of["noticed_seconds"], of["peak_latency_p99_seconds"]) == (2.25, 8.75)
    assert of["utilisation_failure_ratio"] == 0.375
    texts = (*formats.rendered(content).values(), html.render(content, {run.name: found}, {}))
    for column in COLUMNS:
        names = (column.title, f"{column.name}_median", escape(column.title))
        assert [name for name, text in zip(names, texts, strict=True) if name not in text] == []


def test_losses_and_processor_time_of_a_stage_are_of_the_events_that_it_had() -> None:
    of = plan()
    first = fake(runs(matrix(of).cells, of)[0], missing=5, processor_seconds={"engine": 2.0})
    assert (first.lost_ratio, first.processor_seconds_per_million) == (0.005, 2000.0)
    later = first.model_copy(update={"passed_on": 500})
    assert (later.lost_ratio, later.processor_seconds_per_million) == (0.01, 4000.0)

"""Measures from a batch's rows to the report: each result counts once, is saved, and counts the same after a kill."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import Row

from tests.unit.measure_series import BEGIN, fault, second, series, us
from tests.unit.publish_snapshots import config
from validator.config.model import Config
from validator.measure.latency import EVERY_RESULT
from validator.measure.ledger import Ledger
from validator.measure.output import SECOND_US
from validator.measure.series import COARSE_SECONDS, FINE_SECONDS
from validator.model.frontier import Frontier, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.stream import counters, measuring
from validator.stream.run_record import RunRecord

pytestmark = pytest.mark.unit


def rows(batch: int, at: int, results: int = 2) -> list[Row]:
    """The rows of one batch in one second: some results, half of them with a latency."""
    start = (BEGIN + at) * SECOND_US
    same = {"batch": batch, "second": BEGIN + at, "first_us": start, "last_us": start + 9}
    every = {"definition": EVERY_RESULT, "bucket": None, "results": results, "contributions": 50 * results}
    half = {"definition": "window_close", "bucket": 7, "results": results // 2, "contributions": 25 * results}
    return [
        Row(**same, **every, sum_us=0, max_us=0),
        Row(**same, **half, sum_us=1_000_000 * (results // 2), max_us=1_000_000),
    ]


def frontier(side: str, last: float | None, through: float | None) -> tuple[PartitionId, Frontier]:
    place = PartitionId(f"{side}-topic", 0)
    known = Frontier(side, place.topic, 0, "id", 0, 1, 0, 1, 1, last_data_us=0)
    times = [None if t is None else us(t) for t in (last, through)]
    return place, replace(known, last_time_us=times[0], read_through_us=times[1])


def progress(output: tuple[float | None, float | None], read: float | None = None) -> IngestProgress:
    return IngestProgress(TimeRules(0, 0), frontiers=dict([frontier("output", *output), frontier("input", read, None)]))


def test_a_batch_is_counted_once() -> None:
    record = RunRecord(ledger=Ledger())
    record.latency_measured(rows(3, 0))
    record.latency_measured(rows(3, 0))
    record.latency_measured(rows(4, 0))
    assert record.ledger is not None
    total = record.ledger.series.total(0, BEGIN * 2)
    assert total is not None
    assert (total.results, total.contributions, record.latency["window_close"].frozen().count) == (4, 200, 2)


def test_results_without_latency_count_as_output() -> None:
    record = RunRecord(ledger=Ledger())
    record.latency_measured(rows(0, 0)[:1])
    assert record.ledger is not None
    assert len(record.ledger.series.outputs) == 1
    assert record.latency["window_close"].frozen().count == 0


def test_latency_belongs_to_the_phase_of_its_result() -> None:
    record = RunRecord(ledger=Ledger(), faults=(fault("kill", 5, 8),))
    for batch, at in enumerate((0, 6, 9, 9)):
        record.latency_measured(rows(batch, at))
    counted = {place: tally.frozen().count for place, tally in record.latency_by_phase.items()}
    assert counted == {
        ("window_close", "control"): 1, ("window_close", "failure"): 1, ("window_close", "recovery"): 2,
    }  # fmt: skip


def test_a_kill_between_the_two_files_counts_nothing_twice(tmp_path: Path) -> None:
    record = RunRecord(ledger=Ledger())
    record.latency_measured(rows(0, 0))
    measuring.LedgerWriter(tmp_path).write_now(record)
    record.latency_measured(rows(1, 1))
    counters.write(tmp_path, record)
    again = RunRecord(ledger=measuring.read_ledger(tmp_path))
    counters.restore(tmp_path, again)
    assert again.ledger is not None
    assert (again.measured_batch, again.ledger.batch) == (1, 0)
    # After a restart the facts supply every batch that one of the two files lacks.
    again.latency_measured([*rows(1, 1), *rows(2, 2)])
    assert [output.results for output in again.ledger.series.outputs.values()] == [2, 2, 2]
    assert again.latency["window_close"].frozen().count == 3
    assert again.latency_by_phase[("window_close", "control")].frozen().count == 3


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', '{"schema": 1, "outputs": [[1]], "batch": 7}'])
def test_a_damaged_file_is_reported_and_replaced_by_an_empty_ledger(tmp_path: Path, text: str) -> None:
    (tmp_path / measuring.FILE).write_text(text)
    said: list[str] = []
    assert measuring.read_ledger(tmp_path, said.append) == Ledger()
    [sentence] = said
    assert sentence.startswith(f"{tmp_path / measuring.FILE} is damaged ")


def test_the_file_is_written_periodically(tmp_path: Path) -> None:
    keeper, record = measuring.LedgerWriter(tmp_path), RunRecord(ledger=Ledger())
    for at, kept in ((0, 0), (9, 0), (10, 2)):
        record.measured_through(at // 5)
        keeper.write(record, us(at))
        assert measuring.read_ledger(tmp_path).batch == kept


def test_silence_counts_while_there_is_input() -> None:
    assert measuring.known_until_us(progress((50, 90), 80), 0) == us(80)
    assert measuring.known_until_us(progress((50, 90), 20), 0) == us(50)
    assert measuring.known_until_us(progress((50, 70), 80), 1_000_000) == us(69)
    assert measuring.known_until_us(progress((50, None), 80), 0) == us(50)
    assert measuring.known_until_us(progress((None, None), 80), 0) is None


def settings(tmp_path: Path) -> Config:
    return config(tmp_path)


def test_a_fault_is_published_with_its_measures(tmp_path: Path) -> None:
    record = RunRecord(ledger=Ledger(), faults=(fault("kill", 60, 70),))
    for at in range(150):
        if not 62 <= at < 80:
            record.latency_measured(rows(at, at))
    record.add_confirmed("duplicate", "recovery", 7, 2, us(75), fault="kill")
    record.add_confirmed("duplicate", "control", 1, 0, us(140), fault="kill")  # after the recovery was known
    found = measuring.measured(settings(tmp_path), progress((149.9, 150), 150), record)
    assert found.faults["kill"]["downtime_seconds"] == pytest.approx(18.0, abs=0.01)
    assert found.faults["kill"]["recovered"] == 1.0
    control, failure, recovery, after = found.phases
    assert (control.throughput_per_second, control.results, control.latency["window_close"].count) == (100.0, 120, 60)
    assert failure.throughput_per_second == pytest.approx(20.0)
    assert recovery.contributions == {"missing": 0, "duplicate": 6, "misplaced": 0, "unknown_id": 0}
    assert (after.phase, after.contributions) == ("control", {}), (
        "violations of a later control phase are not counted separately"
    )


def test_without_a_fault_the_kept_output_stays_bounded(tmp_path: Path) -> None:
    record = RunRecord(ledger=Ledger(series(second(at) for at in range(7_200))))
    assert measuring.measured(settings(tmp_path), progress((7_200, 7_200)), record) == measuring.Measured()
    assert record.ledger is not None
    assert len(record.ledger.series.outputs) < FINE_SECONDS + 7_200 // COARSE_SECONDS + COARSE_SECONDS


def test_faults_of_one_name_share_no_violations(tmp_path: Path) -> None:
    record = RunRecord(ledger=Ledger(), faults=(fault("kill", 60, 70), replace(fault("kill", 100, 110), id="other")))
    for at in range(150):
        record.latency_measured(rows(at, at))
    record.add_confirmed("duplicate", "failure", 7, 0, us(65), fault="kill")
    found = measuring.measured(settings(tmp_path), progress((149.9, 150), 150), record)
    assert [p.contributions for p in found.phases if p.fault] == [{}] * 4
    assert set(found.faults) == {"kill", "other"}


def test_a_phase_and_a_fault_have_the_coarsest_resolution_of_their_output(tmp_path: Path) -> None:
    record = RunRecord(ledger=Ledger(), faults=(fault("kill", 60, 70),))
    for at in range(150):
        record.latency_measured(rows(at, at), None if at > 120 else 400_000 + at)
    found = measuring.measured(settings(tmp_path), progress((149.9, 150), 150), record)
    assert [phase.resolution_seconds for phase in found.phases] == [0.400059, 0.400069, None]
    # The recovery phase ends before the backlog.
    assert found.faults["kill"]["resolution_seconds"] == pytest.approx(0.4, abs=0.001)


def test_rules_are_whole_seconds(tmp_path: Path) -> None:
    made = measuring.rules_of(settings(tmp_path))
    assert (made.detector.moving_seconds, made.detector.stable_seconds, made.give_up_seconds) == (5, 40, 300)

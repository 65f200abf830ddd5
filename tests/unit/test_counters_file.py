"""Counters and histograms have the same values after a restart as before a kill."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.unit.publish_snapshots import config
from validator.core.totals import CellTotals
from validator.measure.histogram import Tally
from validator.model.progress import IngestProgress, TimeRules
from validator.publish.metrics import SnapshotCollector
from validator.publish.report import REPORT_FILE
from validator.state.tables import StateTables, Table, rows_of
from validator.stream import counters
from validator.stream.recovery import restore_record
from validator.stream.reporting import results_of, snapshot_of
from validator.stream.run_record import RunRecord


def test_histograms_are_restored(tmp_path: Path) -> None:
    record = RunRecord()
    record.latency["last_input"].add(0.2, 3)
    record.durations.add(4.5)
    record.detection.add(700.0)
    counters.write(tmp_path, record)
    # Recovery derives detection delays from tables that have no publishing times.
    restored = RunRecord(detection=Tally())
    restored.detection.add(1.0)
    counters.restore(tmp_path, restored)
    assert restored.latency == record.latency
    assert restored.durations == record.durations
    assert restored.detection == record.detection


def test_a_cell_judged_again_after_a_restart_decreases_no_counter(tmp_path: Path) -> None:
    progress = IngestProgress(TimeRules(0, 0))

    def scraped(record: RunRecord, processed: int, correct: int) -> dict[str, float]:
        """The values that a new process shows, from the current sums and from the last process's file."""
        sums = CellTotals.empty()
        sums = replace(
            sums, counts={**sums.counts, "processed": processed}, results={**sums.results, "correct": correct}
        )
        record.raise_totals(results_of(config(tmp_path), progress, sums), processed)
        counters.write(tmp_path, record)
        snapshot = snapshot_of(config(tmp_path), progress, sums, record)
        assert (snapshot.results["correct"], snapshot.contributions["processed"]) == (correct, processed)
        collector = SnapshotCollector("clickstream")
        collector.update(snapshot)
        samples = [sample for family in collector.collect() for sample in family.samples]
        names = {"streamproof_reliable_events_total": "reliable", "streamproof_results_total": "correct"}
        return {
            names[one.name]: one.value
            for one in samples
            if one.name in names and one.labels.get("class", "correct") == "correct"
        }

    record = RunRecord()
    assert scraped(record, 40, 9) == {"reliable": 40, "correct": 9}
    assert scraped(record, 31, 7) == {"reliable": 40, "correct": 9}
    again = RunRecord()
    counters.restore(tmp_path, again)
    assert scraped(again, 31, 7) == {"reliable": 40, "correct": 9}
    assert scraped(again, 44, 11) == {"reliable": 44, "correct": 11}


def test_a_start_that_was_killed_before_its_first_report_is_counted(tmp_path: Path) -> None:
    tables = StateTables(tmp_path)
    for started_us in (10, 20):
        row = {"generation": 1, "started_us": started_us}
        tables.append(rows_of(Table.RUNS, [row]), Table.RUNS, writer=f"run-{started_us}", version=0)
    record = RunRecord()
    restore_record(tables, record)
    counters.restore(tmp_path, record)
    assert record.restarts == 2


def _without(name: str) -> str:
    plain = json.loads(counters_text())
    del plain[name]
    return json.dumps(plain)


def _with(**odd: object) -> str:
    return json.dumps({**json.loads(counters_text()), **odd})


def counters_text() -> str:
    """The file of a process that has counted something."""
    record = RunRecord()
    record.classified({"expected": 5, "processed": 5})
    record.durations.add(4.5)
    return written(record)


def written(record: RunRecord) -> str:
    """The file of a record."""
    with TemporaryDirectory() as folder:
        counters.write(Path(folder), record)
        return (Path(folder) / counters.FILE).read_text()


DAMAGES: dict[str, bytes] = {
    **{name: name.encode() for name in ("", "{", "[]", "{}", "null", '"x"', "[" * 100_000)},
    "no UTF-8": b"\xff\xfe",
    "zeros": bytes(300),
    "cut": counters_text().encode()[:-40],
    **{f"without {name}": _without(name).encode() for name in ("classified", "moves", "counts", "batches", "tallies")},
    "a list": _with(classified=[]).encode(),
    "text": _with(batches="many").encode(),
    "infinite": _with(processed_most=float("inf")).encode(),
    "half a histogram": _with(tallies={"durations": {"bounds": [1.0], "counts": [1]}}).encode(),
    "a bucket too few": _with(tallies={"durations": {**asdict(Tally()), "counts": [1]}}).encode(),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=[name[:20] for name in DAMAGES])
def test_a_damaged_file_is_reported_and_ignored(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / counters.FILE).write_bytes(damage)
    record = RunRecord()
    said = counters.restore(tmp_path, record)
    assert said is not None
    assert said.startswith(f"{tmp_path / counters.FILE} is damaged ")
    assert "may be lower than before" in said
    assert written(record) == written(RunRecord())
    # The file is rewritten, and is valid at the next start.
    record.classified({"expected": 9, "processed": 9})
    counters.write(tmp_path, record)
    again = RunRecord()
    assert counters.restore(tmp_path, again) is None
    assert again.classified_total == {"expected": 9, "processed": 9}


def test_a_missing_file_is_reported_if_its_counters_were_published(tmp_path: Path) -> None:
    assert counters.restore(tmp_path, RunRecord()) is None
    (tmp_path / REPORT_FILE).write_text("{}")
    said = counters.restore(tmp_path, RunRecord())
    assert said is not None
    assert said.startswith(f"{tmp_path / counters.FILE} does not exist ")


def test_a_histogram_with_other_bounds_starts_at_zero(tmp_path: Path) -> None:
    record = RunRecord(durations=Tally(bounds=(1.0, 2.0)))
    counters.write(tmp_path, record)
    restored = RunRecord()
    counters.restore(tmp_path, restored)
    assert restored.durations == Tally()

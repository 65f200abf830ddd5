"""What a histogram showed before a kill it shows after the restart."""

from __future__ import annotations

import json
from pathlib import Path

from validator.measure.histogram import Tally
from validator.state.tables import StateTables, Table, rows_of
from validator.stream import counters
from validator.stream.recovery import restore_record
from validator.stream.run_record import RunRecord


def test_histograms_come_back_as_they_were(tmp_path: Path) -> None:
    record = RunRecord()
    record.latency["last_input"].add(0.2, 3)
    record.durations.add(4.5)
    record.detection.add(700.0)
    counters.write(tmp_path, record)
    # Recovery derives detection delays from tables that know no publishing times.
    restored = RunRecord(detection=Tally())
    restored.detection.add(1.0)
    counters.restore(tmp_path, restored)
    assert restored.latency == record.latency
    assert restored.durations == record.durations
    assert restored.detection == record.detection


def test_a_file_of_before_that_knows_no_histograms_is_taken(tmp_path: Path) -> None:
    counters.write(tmp_path, RunRecord())
    path = tmp_path / counters.FILE
    kept = json.loads(path.read_text())
    del kept["tallies"]
    path.write_text(json.dumps(kept))
    restored = RunRecord()
    restored.detection.add(1.0)
    counters.restore(tmp_path, restored)
    assert sum(restored.detection.counts) == 1


def test_a_start_that_was_killed_before_its_first_report_is_counted(tmp_path: Path) -> None:
    tables = StateTables(tmp_path)
    for started_us in (10, 20):
        row = {"generation": 1, "started_us": started_us}
        tables.append(rows_of(Table.RUNS, [row]), Table.RUNS, writer=f"run-{started_us}", version=0)
    record = RunRecord()
    restore_record(tables, record)
    counters.restore(tmp_path, record)
    assert record.restarts == 2


def test_a_histogram_with_other_bounds_begins_anew(tmp_path: Path) -> None:
    record = RunRecord(durations=Tally(bounds=(1.0, 2.0)))
    counters.write(tmp_path, record)
    restored = RunRecord()
    counters.restore(tmp_path, restored)
    assert restored.durations == Tally()

"""Classes per window: summed from the verdicts table, and listed beside the faults."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.publish_snapshots import NOON_US, SECOND, broken, clean
from validator.cli.main import main
from validator.model.snapshot import FaultWindow
from validator.publish import html, report
from validator.publish.html_windows import ROWS_MAX, classes_by_window
from validator.publish.report import build
from validator.reconcile.judge import CONTRIBUTIONS, RESULTS
from validator.state.judged_windows import judged_windows
from validator.state.tables import StateTables, Table, rows_of

MINUTE = 60 * SECOND
FAULT = FaultWindow("f", "kill", "process_kill", "w", NOON_US + 90 * SECOND, None, None, NOON_US + 130 * SECOND)
Counts = dict[str, int]


def judged(state: Path, batch: int, *cells: tuple[int, str, Counts]) -> None:
    """Append a batch's verdicts on the cells (window start, key)."""
    zeros = dict.fromkeys((*CONTRIBUTIONS, *RESULTS), 0)
    rows = [{"batch": batch, "window_start_us": start, "key": key, **zeros, **counts} for start, key, counts in cells]
    StateTables(state).append(rows_of(Table.VERDICTS, rows), Table.VERDICTS, writer="test", version=batch)


def right(count: int) -> Counts:
    return {"expected": count, "processed": count}


def lost(count: int, of: int) -> Counts:
    return {"expected": of, "processed": of - count, "missing": count}


def ten(**bad: int) -> dict[int, Counts]:
    """Ten windows of a minute from noon on, the third one with ``bad``."""
    windows = {NOON_US + n * MINUTE: right(100) for n in range(10)}
    windows[NOON_US + 2 * MINUTE] |= bad
    return windows


def listed_rows(section: str) -> list[list[str]]:
    body = section.partition("<tbody>")[2]
    return [re.findall(r"<td[^>]*><span>([^<]*)</span></td>", row) for row in re.findall(r"<tr>.*?</tr>", body)]


def test_the_newest_verdict_of_each_cell_counts_in_its_window(tmp_path: Path) -> None:
    assert judged_windows(tmp_path) == {}
    judged(tmp_path, 1, (MINUTE, "a", lost(3, of=10)), (MINUTE, "b", right(5)), (0, "a", right(7)))
    judged(tmp_path, 2, (MINUTE, "a", lost(1, of=10)), (-MINUTE, "a", right(2)))
    classes = judged_windows(tmp_path)
    assert list(classes) == [-MINUTE, 0, MINUTE]
    assert {name: n for name, n in classes[MINUTE].items() if n} == {
        "expected": 15,
        "processed": 14,
        "missing": 1,
    }
    assert classes[-MINUTE]["missing"] == 0


def test_many_batches_in_many_files_are_summed_like_few(tmp_path: Path) -> None:
    for batch in range(1, 8):
        judged(tmp_path, batch, *[(n * MINUTE, "a", lost(batch, of=10)) for n in range(3)])
    assert [counts["missing"] for counts in judged_windows(tmp_path).values()] == [7, 7, 7]


def test_windows_with_violations_are_listed_with_the_active_fault() -> None:
    section = classes_by_window(build(replace(broken(), faults=(FAULT,))), ten(missing=3, duplicate=2))
    assert "3 missing, 2 duplicate in 1 of 10 windows, from 2026-01-31 12:02:00" in section
    assert listed_rows(section) == [["2026-01-31 12:02:00", "3", "2", "100", "kill"]]


def test_a_fault_that_is_not_healed_is_active_up_to_now_and_one_before_the_window_is_not() -> None:
    lasting = replace(FAULT, healed_us=None)
    run = build(replace(clean(), taken_us=NOON_US + 9 * MINUTE + SECOND, faults=(lasting,)))
    assert listed_rows(classes_by_window(run, ten(missing=1)))[0][-1] == "kill"
    before = replace(FAULT, injected_us=NOON_US - 2 * MINUTE, healed_us=NOON_US - MINUTE)
    section = classes_by_window(build(replace(clean(), faults=(before,))), ten(missing=1))
    assert listed_rows(section)[0][-1] == "-"


def test_a_run_without_violations_says_so() -> None:
    assert "10 windows, none with a violation." in classes_by_window(build(clean()), ten())
    assert classes_by_window(build(clean()), {}) == ""


def test_of_many_windows_the_worst_are_listed_in_the_order_of_time() -> None:
    windows = {NOON_US + n * MINUTE: lost(1 + n % 7, of=50) for n in range(1000)}
    section = classes_by_window(build(broken()), windows)
    listed = listed_rows(section)
    assert len(listed) == ROWS_MAX
    assert {row[1] for row in listed} == {"7"}
    assert [row[0] for row in listed] == sorted(row[0] for row in listed)
    assert "980 further windows with violations" in section


def test_times_outside_the_calendar_do_not_stop_the_report() -> None:
    section = classes_by_window(build(broken()), {-(2**62): right(1), NOON_US: lost(1, of=2), 2**62: right(1)})
    assert listed_rows(section)[0][:2] == ["2026-01-31 12:00:00", "1"]


def test_the_report_of_a_state_has_the_classes_per_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report.write(tmp_path, broken())
    judged(tmp_path, 1, (NOON_US, "a", lost(4, of=10)))
    assert main(["report", str(tmp_path), "--format", "html"]) == 1
    page = capsys.readouterr().out
    assert listed_rows(page.partition("<h2>Classes per window</h2>")[2])[0][:2] == ["2026-01-31 12:00:00", "4"]
    assert "Classes per window" not in html.render(build(broken()))

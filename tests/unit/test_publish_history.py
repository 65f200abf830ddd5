"""The bounded history and the rows that plots draw from it."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.pages.story import INJECTED, LOST, SECONDS, at, story
from tests.unit.publish_snapshots import NOON_US, broken, clean, config
from validator.model.snapshot import Histogram
from validator.publish import series
from validator.publish.history import (
    HISTORY_FILE,
    TIERS,
    History,
    Point,
    point_of,
    quantile,
    read,
    thinned,
)
from validator.publish.publisher import HISTORY_EVERY_SECONDS, Publisher

pytestmark = pytest.mark.unit


def history_of_story() -> History:
    history = History()
    for snapshot in story():
        history = history.add(snapshot)
    return history


@pytest.mark.full
def test_the_history_of_a_day_stays_bounded_and_dense_where_recent() -> None:
    points: tuple[Point, ...] = ()
    for second in range(0, 90_000, 20):
        points = thinned([*points, Point(float(second))], float(second))
    for second in range(90_000, 90_700):
        points = thinned([*points, Point(float(second))], float(second))
    assert len(points) <= sum(age / step for age, step in TIERS) + 3
    assert points[-1].time == 90_699
    assert points[-1].time - points[0].time <= TIERS[-1][0]
    newest = [p.time for p in points if points[-1].time - p.time <= 590]
    assert max(b - a for a, b in pairwise(newest)) <= 2


def test_thinning_keeps_totals_of_the_last_and_peaks_of_all() -> None:
    old = [Point(0.0, read=1, pending=9, missing=0), Point(1.0, read=5, pending=2, missing=3)]
    (kept,) = thinned(old, 1000.0)
    assert (kept.time, kept.read, kept.pending, kept.missing) == (1.0, 5, 9, 3)


def test_a_restart_is_not_thinned_away() -> None:
    assert len(thinned([Point(0.0), Point(1.0, restarts=1)], 1000.0)) == 2


def test_the_same_or_an_earlier_instant_adds_nothing() -> None:
    history = History().add(clean())
    assert history.add(clean()) is history
    assert history.add(replace(clean(), taken_us=NOON_US - 1)) is history
    assert History().add(replace(clean(), taken_us=0)).points == ()


def test_a_written_history_is_read_back(tmp_path: Path) -> None:
    history = history_of_story()
    (tmp_path / HISTORY_FILE).write_text(history.to_json())
    assert read(tmp_path) == history
    assert read(tmp_path / "nothing") == History()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 2}', '{"schema": 1, "columns": ["time"], "points": [[1]]}']
)
def test_a_history_of_another_version_starts_empty(tmp_path: Path, text: str) -> None:
    (tmp_path / HISTORY_FILE).write_text(text)
    assert read(tmp_path) == History()


@pytest.mark.parametrize(
    "damaged", [[1, 2, 3, None], [None] * 16 + [[]], ["1"] * 16 + [[]], [float("nan")] * 16 + [[]]]
)
def test_a_damaged_row_is_ignored(tmp_path: Path, damaged: list[object]) -> None:
    plain = json.loads(History().add(clean()).to_json())
    plain["points"] = [damaged]
    (tmp_path / HISTORY_FILE).write_text(json.dumps(plain))
    assert read(tmp_path).add(clean()) == History().add(clean())


def test_rates_are_differences_and_break_at_a_restart() -> None:
    history = History((Point(0.0, read=10), Point(2.0, read=110, processed=50), Point(9.0, read=500, restarts=1)))
    rows = series.rows(history)
    rate = series.COLUMNS.index("read_per_second")
    assert [row[rate] for row in rows] == [None, 50.0, None, None]
    assert rows[2] == [5.5, *[None] * (len(series.COLUMNS) - 1)]
    assert series.restarts(history) == [9.0]
    assert series.rows(history, 2) == rows[2:]


def test_a_total_that_falls_gives_no_negative_rate() -> None:
    rows = series.rows(History((Point(0.0, processed=9), Point(1.0, processed=4))))
    assert rows[1][series.COLUMNS.index("processed_per_second")] == 0


def test_the_latency_between_two_points_is_of_the_results_between_them() -> None:
    before = Histogram((0.1, 1.0), (5, 0, 0), 0.5, 0.1)
    after = Histogram((0.1, 1.0), (5, 9, 1), 9.0, 3.0)
    history = History().add(replace(broken(), latency={"last_input": before}))
    history = history.add(replace(broken(), taken_us=NOON_US + 2_000_000, latency={"last_input": after}))
    row = dict(zip(series.COLUMNS, series.rows(history)[1], strict=True))
    assert (row["latency_p50_seconds"], row["latency_p99_seconds"]) == (1.0, 1.0)
    assert history.definition == "last_input"


def test_quantiles_of_nothing_are_absent() -> None:
    assert quantile((1.0, 2.0), (0, 0, 0), 0.5) is None
    assert quantile((1.0, 2.0), (0, 0, 4), 0.5) == 2.0
    assert quantile((1.0, 2.0), (1, 1, 0), 0.5) == 1.0


def test_a_point_counts_what_the_snapshot_counts() -> None:
    last = story()[-1]
    point = point_of(last)
    assert point.time == NOON_US / 1e6
    assert (point.missing, point.read) == (LOST, last.inputs["read"])
    assert point.input_lag == sum(p.lag_events for p in last.coverage if p.role == "input")


def test_an_outage_has_a_processed_rate_of_0() -> None:
    rows = series.rows(history_of_story())
    processed = series.COLUMNS.index("processed_per_second")
    down = [r[processed] for r in rows if at(INJECTED + 4) <= (r[0] or 0) * 1e6 <= at(INJECTED + 36)]
    assert down
    assert set(down) == {0.0}
    assert rows[-1][0] == at(SECONDS) / 1e6


def test_the_publisher_keeps_the_history_over_a_restart_and_writes_it_periodically(tmp_path: Path) -> None:
    now = [0.0]
    publisher = Publisher(config(tmp_path), tmp_path, lambda: now[0])
    publisher.start()
    for second in (1, 5, 9):
        now[0] = float(second)
        publisher.publish(replace(clean(), taken_us=NOON_US + second * 1_000_000))
    assert len(read(tmp_path).points) == 1
    now[0] = 1 + HISTORY_EVERY_SECONDS
    publisher.publish(replace(clean(), taken_us=NOON_US + 11_000_000))
    assert len(read(tmp_path).points) == 4
    publisher.publish(replace(clean(), taken_us=NOON_US + 13_000_000))
    publisher.stop()
    assert [p.time - NOON_US / 1e6 for p in read(tmp_path).points] == [1, 5, 9, 11, 13]
    again = Publisher(config(tmp_path), tmp_path)
    # A sidecar that was killed early has no count of its restart, but the history must still show the gap.
    again.publish(replace(clean(), taken_us=NOON_US + 20_000_000, restarts=0))
    assert [p.restarts for p in read(tmp_path).points] == [0, 0, 0, 0, 0, 1]

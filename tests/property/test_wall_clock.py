"""Windows in real time zones against a twin that asks `zoneinfo` for every quarter of an hour around a change."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from tests.worlds import scaled
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.model.wall_clock import WallClock, wall_clock
from validator.model.zones import zone, zone_names
from validator.oracles.sliding_window import SlidingWindow
from validator.oracles.tumbling_window import TumblingWindow
from validator.oracles.windows import Windows
from validator.state.identity import StateMismatch, check_or_write

pytestmark = pytest.mark.property

PAGE: Final = Path(__file__).parents[2] / "docs" / "oracles" / "time_zone.md"

QUARTER_US: Final = 15 * 60_000_000
HOUR_US: Final = 4 * QUARTER_US
DAY_US: Final = 24 * HOUR_US
CHANGES: Final = {
    "Europe/Copenhagen": ("2026-03-29T01:00", "2026-10-25T01:00", "2090-10-29T01:00"),
    "America/New_York": ("2026-03-08T07:00", "2026-11-01T06:00"),
    "Australia/Lord_Howe": ("2026-04-04T15:00", "2026-10-03T15:30"),
    "Asia/Kathmandu": ("1985-12-31T18:30", "2026-06-01T00:00"),
    "Pacific/Apia": ("2011-12-30T10:00", "2012-03-31T14:00"),
    "America/Sao_Paulo": ("2018-11-04T03:00", "2018-02-18T02:00"),
    "America/Havana": ("2026-03-08T05:00", "2026-11-01T05:00"),
    "America/St_Johns": ("2010-11-07T02:31", "2026-11-01T04:30"),
    "Asia/Tokyo": ("2026-01-01T00:00",),
}
"""Zone -> instants of changes, or others of zones that have none: midnight that is skipped or shown twice, changes of
30 minutes, a day that is left out, and clocks set back from 00:01 to 23:01."""
SIZES: Final = (
    *(QUARTER_US, 2 * QUARTER_US, HOUR_US, 3 * HOUR_US, 5 * QUARTER_US, 12 * HOUR_US),
    *(DAY_US, DAY_US, 2 * DAY_US, 7 * DAY_US),
)


@dataclass(frozen=True)
class Twin:
    """All windows around an instant, each as the list of instants in steps of ``step_us`` that it contains."""

    oracle: Windows
    zone: ZoneInfo
    step_us: int

    def shown_at(self, instant_us: int) -> int:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant_us)
        local = at.astimezone(self.zone).replace(tzinfo=UTC)
        return (local - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)

    def windows(self, around_us: int) -> dict[int, list[int]]:
        """Number of a window on the grid -> its instants."""
        every_us = getattr(self.oracle, "slide", self.oracle.size)
        around_us -= around_us % self.step_us
        reach_us = 3 * self.oracle.size + 3 * DAY_US
        found: dict[int, list[int]] = {}
        for instant in range(around_us - reach_us, around_us + reach_us, self.step_us):
            wall = self.shown_at(instant) - self.oracle.offset
            for number in range((wall - self.oracle.size) // every_us + 1, wall // every_us + 1):
                found.setdefault(number, []).append(instant)
        return found


def oracles(rng: Random, name: str) -> Windows:
    size_us = rng.choice(SIZES)
    if rng.random() < 0.6:
        return TumblingWindow.of(size_us, rng.randrange(0, size_us, QUARTER_US), time_zone=name)
    gap_us = wall_clock(name).longest_gap_us
    slides = [slide for slide in range(QUARTER_US, size_us + 1, QUARTER_US) if slide > gap_us and size_us / slide < 30]
    slide_us = rng.choice(slides or [size_us])
    return SlidingWindow.of(size_us, rng.randrange(0, slide_us, QUARTER_US), slide=slide_us, time_zone=name)


@pytest.mark.parametrize("name", CHANGES)
def test_windows_of_a_zone_are_those_of_its_wall_clock(name: str) -> None:
    rng = Random(name)
    for _ in range(scaled(10)):
        change = datetime.fromisoformat(rng.choice(CHANGES[name])).replace(tzinfo=UTC)
        around_us = int(change.timestamp()) * 1_000_000
        oracle = oracles(rng, name)
        # St. John's changed its clock a minute after midnight.
        twin = Twin(oracle, zone(name), QUARTER_US if around_us % QUARTER_US == 0 else QUARTER_US // 15)
        if twin.step_us < QUARTER_US and oracle.size > DAY_US:
            continue
        windows = twin.windows(around_us)
        first, last = windows[min(windows)][0], windows[max(windows)][-1]
        spans = {number: (of[0], of[-1] + twin.step_us) for number, of in windows.items()}
        # Others are cut off.
        inside = [span for span in spans.values() if first < span[0] and span[1] <= last]
        starts = np.array([start for start, _ in inside])
        assert oracle.ends_us(starts).tolist() == [end for _, end in inside]
        reach_us = rng.choice((0, 1, QUARTER_US, 3 * HOUR_US))
        times = [around_us + rng.randrange(-DAY_US, DAY_US) for _ in range(60)]
        times += [around_us + shift for shift in (-1, 0, 1, -HOUR_US, HOUR_US, HOUR_US - 1)]
        array = np.array(times)
        rows, found = oracle.assigned(array)
        of_time: dict[int, list[int]] = {row: [] for row in range(len(times))}
        for row, start in zip(range(len(times)) if rows is None else rows.tolist(), found.tolist(), strict=True):
            of_time[row].append(start)
        for row, time in enumerate(times):
            at = time - time % twin.step_us
            expected = [instants[0] for instants in windows.values() if at in instants]
            assert sorted(of_time[row]) == sorted(expected), (oracle, time)
            assert len(set(expected)) == len(expected), "each start names one window"
        past = [max(end for _, end in inside if end <= time - reach_us) for time in times]
        assert oracle.reaches_us(array, reach_us).tolist() == past
        last = oracle.latest_reaches_us(starts, reach_us)
        assert last.tolist() == oracle.reaches_us(oracle.ends_us(starts) - 1, reach_us).tolist()
        for boundaries in (found, oracle.reaches_us(array, reach_us)):
            assert not ((boundaries - found.min()) % oracle.grid_us).any(), "fact rows are numbered by this grid"
        assert (oracle.ends_us(found) - array[rows if rows is not None else slice(None)]).max() <= oracle.span_us


def test_a_wall_time_names_the_window_that_starts_when_the_clock_first_shows_it() -> None:
    oracle = TumblingWindow.of(HOUR_US, time_zone="Europe/Copenhagen", named="wall_time")
    wall = [
        datetime.fromisoformat(at + "+00:00") for at in ("2026-10-25T02:00", "2026-03-29T03:00", "2026-07-01T00:00")
    ]
    starts = oracle.starts_of_results(np.array([int(at.timestamp()) * 1_000_000 for at in wall]))
    assert [datetime.fromtimestamp(int(start) // 1_000_000, UTC).isoformat() for start in starts] == [
        "2026-10-25T00:00:00+00:00",
        "2026-03-29T01:00:00+00:00",
        "2026-06-30T22:00:00+00:00",
    ]
    [twice] = oracle.ends_us(starts[:1]) - starts[:1]
    assert twice == 2 * HOUR_US, "both passes of 02:00 to 03:00"


def test_the_table_of_the_page_is_right() -> None:
    row = r"^\| (\S+ \S+) \| (\S+) \| from (\S+ \S+) \| from (\S+ \S+) \|$"
    rows = re.findall(row, PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == 5

    def instant(text: str) -> int:
        return int(datetime.fromisoformat(f"2026-{text}:00+00:00").timestamp()) * 1_000_000

    name = "Europe/Copenhagen"
    times = np.array([instant(time) for time, *_ in rows])
    shown = [datetime.fromtimestamp(at // 1_000_000, UTC) for at in wall_clock(name).shown_at(times).tolist()]
    assert [at.strftime("%H:%M") for at in shown] == [on_clock for _, on_clock, _, _ in rows]
    for size_us, column in ((DAY_US, 2), (HOUR_US, 3)):
        starts = TumblingWindow.of(size_us, time_zone=name).assigned(times).starts
        assert starts.tolist() == [instant(row[column]) for row in rows]


def test_every_zone_shows_the_times_of_the_zone_data() -> None:
    rng = Random(7)
    instants = [rng.randrange(0, 130 * 365) * DAY_US + rng.randrange(DAY_US) for _ in range(40)]
    for name in rng.sample(sorted(zone_names()), scaled(40)):
        twin = Twin(TumblingWindow.of(DAY_US), zone(name), QUARTER_US)
        assert wall_clock(name).shown_at(np.array(instants)).tolist() == [twin.shown_at(at) for at in instants], name


def test_a_state_with_other_zone_data_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = loads(EXAMPLES["minimal"], tmp_path, ["oracle.time_zone=Europe/Copenhagen"], {})
    check_or_write(tmp_path, config)
    check_or_write(tmp_path, config)
    newer = WallClock.of([1_800_000_000_000_000], [HOUR_US, 2 * HOUR_US])
    monkeypatch.setattr("validator.model.wall_clock.wall_clock", lambda _: newer)
    with pytest.raises(StateMismatch, match=r"oracle\.time_zone_data was .* now"):
        check_or_write(tmp_path, config)


def test_absent_instants_do_not_wrap() -> None:
    oracle = TumblingWindow.of(DAY_US, time_zone="America/New_York")
    far = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    assert (np.sign(oracle.ends_us(far)) == [-1, 1]).all()
    assert (np.sign(oracle.latest_reaches_us(far, DAY_US)) == [-1, 1]).all()

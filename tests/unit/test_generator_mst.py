"""The updates of PGVal's MST: their number, times and ids, and their independence from batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator import config
from generator.grid import GridPlan, GridSequence
from generator.sends import LATE, SECOND_COPY
from generator.workloads import mst

pytestmark = pytest.mark.unit

CLICKS = GridPlan(producer=0, producers=1, keys=3, step_ms=700, start_ms=0, events=600)
PLAN = mst.UpdatePlan(CLICKS, window_ms=60_000, per_window=4)


def followed(plan: mst.UpdatePlan, sizes: list[int]) -> list[tuple[int, int, int, int]]:
    """All updates of a plan whose clicks are taken in batches of the given sizes, in rotation."""
    clicks, updates, taken = GridSequence(plan.clicks), mst.Updates(plan), []
    turn = 0
    while len(batch := clicks.take(sizes[turn % len(sizes)])):
        taken.append(updates.after(max(batch.times_ms)))
        turn += 1
    taken.append(updates.drain())
    return [row for batch in taken for row in zip(batch.numbers, batch.keys, batch.times_ms, batch.kinds, strict=True)]


def test_each_window_has_exactly_its_updates_at_the_first_click_past_its_half() -> None:
    rows = followed(PLAN, [50])
    windows = Counter((time_ms // 60_000, key) for _, key, time_ms, _ in rows)
    # 200 rounds of 700 ms: two windows, and a part of a third one. The last click, at 139.3 s, is before its middle.
    assert windows == {(window, key): 4 for window in (0, 1) for key in range(3)}
    times = sorted({time_ms for _, _, time_ms, _ in rows})
    clicks = [1 + 700 * number for number in range(200)]
    assert times == [next(t for t in clicks if t >= half) for half in (30_000, 90_000)]


def test_keys_take_turns_and_numbers_have_no_gap() -> None:
    rows = followed(PLAN, [7])
    assert [number for number, *_ in rows] == list(range(1, 25))
    assert [key for _, key, *_ in rows[:6]] == [0, 1, 2, 0, 1, 2]


def test_producers_share_the_numbers() -> None:
    parts = [followed(replace(PLAN, clicks=replace(CLICKS, producer=k, producers=2)), [9]) for k in range(2)]
    assert sorted(number for part in parts for number, *_ in part) == list(range(1, 49))


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5), late=st.booleans())
def test_updates_do_not_depend_on_how_clicks_are_batched(sizes: list[int], late: bool) -> None:
    plan = replace(PLAN, clicks=replace(CLICKS, late_share=0.3, late_by_ms=20_000)) if late else PLAN
    # A late click may be at any position of a batch: only the newest time of the batch matters.
    assert sorted(followed(plan, sizes)) == sorted(followed(plan, [1]))


def test_late_updates_are_late_and_nothing_is_lost() -> None:
    plan = replace(PLAN, clicks=replace(CLICKS, late_share=0.5, late_by_ms=20_000, duplicate_share=0.2))
    kinds = Counter(kind for *_, kind in followed(plan, [20]))
    assert kinds[LATE] > 3
    assert kinds[SECOND_COPY] > 0
    assert sorted({number for number, *_ in followed(plan, [20])}) == list(range(1, 25))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"update_percent": 0}, "workload mst .*raise update_percent or events_per_window"),
        ({"update_percent": 2, "update_topic": "click"}, "update_topic"),
    ],
)
def test_settings_without_a_second_stream_are_refused(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises(config.GeneratorConfigError, match=sentence):
        config.parse({"kafka": {"bootstrap_servers": "b:1"}, "workload": "mst", **settings})

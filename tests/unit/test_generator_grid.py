"""The click sequence against PGVal's rules, and the bounds of its disorder."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator import grid
from generator.grid import GridPlan, GridSequence
from generator.sends import DELAYED, LATE, PLAIN, SECOND_COPY, SendBatch

pytestmark = pytest.mark.unit

PLAN = GridPlan(producer=0, producers=1, keys=6, step_ms=12, start_ms=0, events=600)


def rows(batch: SendBatch) -> list[tuple[int, int, int, int]]:
    return list(zip(batch.numbers, batch.keys, batch.times_ms, batch.kinds, strict=True))


def all_rows(plan: GridPlan, cut: int = 1000) -> list[tuple[int, int, int, int]]:
    sequence, taken = GridSequence(plan), []
    while len(batch := sequence.take(cut)):
        taken += rows(batch)
    return taken


def test_the_first_clicks_equal_those_of_pgval() -> None:
    taken = all_rows(PLAN)
    assert taken[:7] == [(n, n - 1, 1, PLAIN) for n in range(1, 7)] + [(7, 0, 13, PLAIN)]


@pytest.mark.parametrize(
    ("events", "update_percent", "step"),
    [(5000, 0, 12), (5000, 2, 12), (500, 0.2, 120), (500, 10, 133), (7, 0, 8571), (60_000, 0, 1), (60_001, 0, 0)],
)
def test_the_step_is_the_integer_quotient_of_the_window(events: int, update_percent: float, step: int) -> None:
    assert grid.step_ms(60_000, events, update_percent) == step


@pytest.mark.parametrize(("events", "clicks"), [(7, 8), (5000, 5000), (59_999, 59_999), (1, 1)])
def test_clicks_in_the_first_window_if_the_division_leaves_a_remainder(events: int, clicks: int) -> None:
    # With 7 clicks the step is 8571 ms, and an eighth click at 59998 ms is inside the window. The window has no
    # millisecond 0, hence 59999 clicks of 1 ms fit, and no more.
    assert grid.rounds_before(60_000, 1, grid.step_ms(60_000, events)) == clicks


def test_producers_share_the_ids_without_gap_and_restart_event_time() -> None:
    parts = [all_rows(replace(PLAN, producer=k, producers=3, events=10)) for k in range(3)]
    assert sorted(n for part in parts for n, *_ in part) == list(range(1, 31))
    assert {part[0][2] for part in parts} == {1}


@given(cuts=st.lists(st.integers(1, 50), min_size=1, max_size=30), irregular=st.booleans())
def test_the_sequence_does_not_depend_on_batch_sizes(cuts: list[int], irregular: bool) -> None:
    plan = replace(PLAN, events=300)
    if irregular:
        plan = replace(plan, disorder_share=0.3, disorder_ms=60, late_share=0.1, late_by_ms=100, duplicate_share=0.2)
    sequence, taken = GridSequence(plan), []
    for cut in cuts:
        taken += rows(sequence.take(cut))
    while len(batch := sequence.take(7)):
        taken += rows(batch)
    assert taken == all_rows(plan)


BURSTS = replace(PLAN, keys=5, step_ms=10, burst_events=4, silent_steps=7, events=400)


def times_by_key(plan: GridPlan) -> dict[int, list[int]]:
    times: dict[int, list[int]] = {key: [] for key in range(plan.keys)}
    for _, key, time_ms, kind in all_rows(plan):
        if kind != SECOND_COPY:
            times[key].append(time_ms)
    return {key: sorted(found) for key, found in times.items()}


@pytest.mark.parametrize(("burst", "silent", "keys"), [(4, 7, 5), (1, 1, 6), (3, 40, 2), (9, 2, 1), (2, 3, 13)])
def test_keys_alternate_between_bursts_and_silence(burst: int, silent: int, keys: int) -> None:
    plan = replace(BURSTS, burst_events=burst, silent_steps=silent, keys=keys)
    starts = set()
    for times in times_by_key(plan).values():
        pauses = [after - before for before, after in pairwise(times)]
        assert set(pauses) <= {10, 10 * (silent + 1)}
        silences = [i for i, pause in enumerate(pauses) if pause > 10]
        assert all(after - before == burst for before, after in pairwise(silences))
        starts |= {times[i + 1] % (10 * (burst + silent)) for i in silences[:1]}
    assert len(starts) == min(keys, burst + silent), "the keys do not begin together"
    times_ms = [time_ms for _, _, time_ms, _ in all_rows(plan)]
    assert times_ms == sorted(times_ms)
    assert [number for number, *_ in all_rows(plan)] == list(range(1, 401))


@given(
    seed=st.integers(0, 1000),
    share=st.floats(0.01, 0.5),
    disorder_ms=st.integers(10, 200),
    silent=st.integers(0, 60),
    keys=st.integers(1, 5),
    cut=st.integers(1, 50),
)
def test_bursts_out_of_order_stay_within_the_bounds_and_lose_nothing(
    seed: int, share: float, disorder_ms: int, silent: int, keys: int, cut: int
) -> None:
    in_order = replace(BURSTS, keys=keys, silent_steps=silent, events=200)
    late = replace(in_order, late_share=0.1, late_by_ms=150)
    plan = replace(late, seed=seed, disorder_share=share, disorder_ms=disorder_ms)
    taken, newest = all_rows(plan, cut), -1
    assert sorted((n, k, t) for n, k, t, _ in taken) == [(n, k, t) for n, k, t, _ in all_rows(in_order)]
    for _, _, time_ms, kind in taken:
        delay = newest - time_ms
        assert kind == (PLAIN if delay <= 0 else DELAYED if delay <= disorder_ms else LATE)
        newest = max(newest, time_ms)
    end = max(t for *_, t, _ in taken)
    newest = -1
    for _, _, time_ms, kind in taken:
        # A delay above the disorder bound is above the lateness too, except at the end of the run.
        assert kind != LATE or newest - time_ms >= disorder_ms + 150 or newest > end - disorder_ms - 150
        newest = max(newest, time_ms)


def test_the_number_of_events_before_a_round_counts_all_earlier_rounds() -> None:
    for plan in (BURSTS, replace(BURSTS, silent_steps=30), PLAN):
        taken = all_rows(plan)
        for rounds in range(30):
            assert grid.events_before(plan, rounds) == sum(t <= rounds * plan.step_ms for _, _, t, _ in taken)


def test_shares_of_zero_give_the_regular_sequence() -> None:
    # A share too small to select an event still takes the other path through the code.
    assert all_rows(replace(PLAN, duplicate_share=1e-12)) == all_rows(PLAN)


@given(
    seed=st.integers(0, 1000),
    share=st.floats(0.01, 1),
    disorder_ms=st.integers(12, 200),
    events=st.integers(1, 400),
)
def test_disorder_stays_within_its_bound_and_loses_nothing(
    seed: int, share: float, disorder_ms: int, events: int
) -> None:
    plan = replace(PLAN, seed=seed, disorder_share=share, disorder_ms=disorder_ms, events=events)
    taken, newest = all_rows(plan), 0
    for _, _, time_ms, kind in taken:
        assert newest - time_ms <= disorder_ms
        assert kind == (DELAYED if time_ms < newest else PLAIN)
        newest = max(newest, time_ms)
    assert sorted(n for n, *_ in taken) == list(range(1, events + 1))


def test_late_events_are_late_by_at_least_the_configured_time() -> None:
    plan = replace(PLAN, disorder_ms=60, late_share=0.05, late_by_ms=1000, events=6000)
    newest, late = 0, 0
    taken = all_rows(plan)
    for number, _, time_ms, kind in taken:
        if kind == LATE:
            late += 1
            held_to_the_end = (number - 1) // 6 * 12 + 1060 > 999 * 12
            assert newest - time_ms >= 1060 or held_to_the_end
        newest = max(newest, time_ms)
    assert 200 < late < 400
    assert len(taken) == 6000


def test_second_copies_follow_the_first_with_the_same_content() -> None:
    taken = all_rows(replace(PLAN, duplicate_share=0.5))
    copies = [i for i, row in enumerate(taken) if row[3] == SECOND_COPY]
    assert 200 < len(copies) < 400
    assert all(taken[i - 1][:3] == taken[i][:3] for i in copies)
    assert len(taken) == 600 + len(copies)


def test_another_seed_gives_another_order_of_the_same_events() -> None:
    one, two = (all_rows(replace(PLAN, seed=s, disorder_share=0.5, disorder_ms=60)) for s in (1, 2))
    assert one != two
    assert sorted(r[:3] for r in one) == sorted(r[:3] for r in two)


def test_drain_releases_held_events() -> None:
    plan = replace(PLAN, events=None, disorder_share=0.5, disorder_ms=120)
    sequence = GridSequence(plan)
    taken = rows(sequence.take(100)) + rows(sequence.drain())
    assert sorted(n for n, *_ in taken) == list(range(1, len(taken) + 1))
    assert sequence.next_number > len(taken)

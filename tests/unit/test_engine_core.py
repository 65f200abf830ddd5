"""Edges of the window core: closing, lateness, several partitions, idleness, recovery."""

from __future__ import annotations

import pytest

from testbed.engines.core import BEGINNING_MS, LateEvent, PartitionId, PartitionProgress, Record, Result, WindowCore

pytestmark = pytest.mark.unit

P0, P1 = ("click", 0), ("click", 1)
FRESH = PartitionProgress(0, 0, BEGINNING_MS)
A, B = ("/a",), ("/b",)


def core(*partitions: PartitionId, disorder: int = 0, lateness: int = 0) -> WindowCore:
    made = WindowCore(60_000, disorder, lateness)
    for partition in partitions or (P0,):
        made.assign(partition, FRESH)
    return made


def feed(to: WindowCore, *events: tuple[int, int], key: tuple[str, ...] = A, partition: PartitionId = P0) -> None:
    """Process events (id, time). The id is also the offset."""
    to.process(partition, [(event_id, key, time_ms, event_id) for event_id, time_ms in events])


def brief(answers: list[Result | LateEvent]) -> list[tuple[object, ...]]:
    return [("late", a.id) if isinstance(a, LateEvent) else (a.window_start_ms, a.key[0], *a.ids) for a in answers]


def test_a_window_is_left_closed_and_right_open() -> None:
    c = core()
    feed(c, (1, 0), (2, 59_999), (3, 60_000))
    assert brief(c.take()) == [(0, "/a", 1, 2)]


def test_a_window_stays_open_until_its_end_is_reached() -> None:
    c = core()
    feed(c, (1, 1), (2, 59_999))
    assert c.take() == []


def test_an_event_for_an_emitted_window_is_late_and_keeps_its_fields() -> None:
    c = core()
    feed(c, (1, 1), (2, 60_000), (3, 59_999))
    assert c.take()[1:] == [LateEvent(A, 3, 59_999)]


def test_an_old_event_in_the_same_window_is_not_late() -> None:
    c = core()
    feed(c, (1, 50_000), (2, 1), (3, 60_000))
    assert brief(c.take()) == [(0, "/a", 1, 2)]


def test_an_event_is_late_for_a_window_that_was_empty() -> None:
    c = core()
    feed(c, (1, 200_000), (2, 1))
    assert brief(c.take()) == [("late", 2)]


@pytest.mark.parametrize(("disorder", "lateness"), [(500, 0), (0, 500)])
def test_disorder_and_lateness_delay_the_result(disorder: int, lateness: int) -> None:
    c = core(disorder=disorder, lateness=lateness)
    feed(c, (1, 1), (2, 60_499), (3, 59_000))
    assert c.take() == []
    feed(c, (4, 60_500), (5, 59_000))
    assert brief(c.take()) == [(0, "/a", 1, 3), ("late", 5)]


def test_events_before_the_epoch_are_assigned_to_their_windows() -> None:
    c = core()
    feed(c, (1, -1), (2, -60_000), (3, 0))
    assert brief(c.take()) == [(-60_000, "/a", 1, 2)]


def test_results_of_a_window_are_emitted_together_and_ordered_by_key() -> None:
    c = core()
    feed(c, (1, 1), key=B)
    feed(c, (2, 1))
    feed(c, (3, 60_001), key=B)
    feed(c, (4, 120_000))
    assert brief(c.take()) == [(0, "/a", 2), (0, "/b", 1), (60_000, "/b", 3)]


def test_the_slowest_partition_holds_back_the_watermark() -> None:
    c = core(P0, P1)
    feed(c, (1, 1), (2, 500_000))
    assert c.take() == []
    feed(c, (3, 30_000), partition=P1)
    assert c.take() == []
    feed(c, (4, 60_000), partition=P1)
    assert brief(c.take()) == [(0, "/a", 1, 3)]


def test_an_idle_partition_leaves_the_minimum_until_its_next_record() -> None:
    c = core(P0, P1)
    feed(c, (1, 1), (2, 60_000))
    c.set_idle(P1)
    assert brief(c.take()) == [(0, "/a", 1)]
    feed(c, (3, 1), partition=P1)
    assert brief(c.take()) == [("late", 3)]
    feed(c, (4, 500_000))
    assert c.take() == [], "P1 has spoken, and holds the watermark again"


def test_with_all_partitions_idle_the_watermark_stays() -> None:
    c = core(P0, P1, disorder=1000)
    feed(c, (1, 1), (2, 60_500))
    c.set_idle(P0)
    c.set_idle(P1)
    assert c.take() == []


def test_close_all_emits_open_windows_and_closes_them() -> None:
    c = core(lateness=100)
    feed(c, (1, 1), (2, 60_001))
    c.close_all()
    assert brief(c.take()) == [(0, "/a", 1), (60_000, "/a", 2)]
    feed(c, (3, 119_999))
    assert brief(c.take()) == [("late", 3)]


def test_progress_points_at_the_oldest_event_of_an_open_window() -> None:
    c = core()
    feed(c, (0, 1), (1, 59_000), (2, 61_000), (3, 62_000))
    with pytest.raises(AssertionError, match="lose"):
        c.progress()
    c.take()
    assert c.progress() == {P0: PartitionProgress(4, 2, 61_000)}
    c.read_through(P0, 9)
    assert c.progress()[P0].next_offset == 9


def recovered(progress: PartitionProgress, records: list[Record]) -> WindowCore:
    c = WindowCore(60_000)
    c.assign(P0, progress)
    c.process(P0, records)
    return c


def test_recovery_restores_open_windows_and_drops_emitted_ones() -> None:
    log: list[Record] = [(0, A, 1, 0), (1, A, 61_000, 1), (2, A, 5, 2), (3, A, 62_000, 3)]
    c = core()
    c.process(P0, log)
    assert brief(c.take()) == [(0, "/a", 0), ("late", 2)]
    again = recovered(c.progress()[P0], log[1:])
    assert again.take() == []
    assert again.recovering
    feed(again, (4, 120_000))
    assert brief(again.take()) == [(60_000, "/a", 1, 3)]


def test_recovery_ends_at_offsets_without_a_record() -> None:
    c = recovered(PartitionProgress(10, 1, 0), [(1, A, 61_000, 1), (7, A, 120_000, 7)])
    assert c.recovering
    assert c.take() == []
    c.read_through(P0, 10)
    assert not c.recovering
    assert brief(c.take()) == [(60_000, "/a", 1)]


def test_no_window_closes_while_another_partition_recovers() -> None:
    c = WindowCore(60_000)
    c.assign(P0, PartitionProgress(3, 1, 0))
    c.assign(P1, FRESH)
    c.process(P1, [(0, A, 500_000, 10)])
    c.process(P0, [(1, A, 1, 1), (2, A, 61_000, 2)])
    assert c.take() == []
    c.read_through(P0, 3)
    assert brief(c.take()) == [(0, "/a", 1)]


def test_a_recovering_partition_commits_its_earlier_progress() -> None:
    had = PartitionProgress(10, 1, 5)
    assert recovered(had, [(1, A, 61_000, 1)]).progress() == {P0: had}


def test_the_events_of_a_revoked_partition_are_dropped() -> None:
    c = core(P0, P1)
    feed(c, (1, 1))
    feed(c, (2, 1), partition=P1)
    c.revoke(P1)
    feed(c, (3, 60_000))
    assert brief(c.take()) == [(0, "/a", 1)]


def test_closed_windows_stay_closed_for_a_partition_assigned_with_less_progress() -> None:
    c = core()
    feed(c, (1, 200_000))
    c.assign(P1, PartitionProgress(5, 5, 60_000))
    c.process(P1, [(5, A, 61_000, 5), (6, A, 1, 6)])
    assert brief(c.take()) == [("late", 6)]


def test_a_partition_assigned_with_less_progress_reopens_no_window_of_the_others() -> None:
    c = core()
    feed(c, (1, 200_000))
    c.assign(P1, FRESH)
    feed(c, (0, 61_000), partition=P1)
    feed(c, (2, 70_000))
    assert brief(c.take()) == [("late", 2)]

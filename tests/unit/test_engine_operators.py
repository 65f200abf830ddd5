"""Edge cases of the sliding, session and passthrough operators, and of the settings that choose between them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from testbed.engines import wire
from testbed.engines.core import BEGINNING_MS, Core, LateEvent, PartitionId, PartitionProgress, WindowCore
from testbed.engines.job import core_of
from testbed.engines.passthrough import PassthroughCore
from testbed.engines.sessions import SessionCore
from testbed.engines.settings import EngineSettings, EventFilter
from testbed.engines.sinks import DeliveryError, from_offset, to_offsets

pytestmark = pytest.mark.unit

P0, P1 = ("click", 0), ("click", 1)
FRESH = PartitionProgress(0, 0, BEGINNING_MS)
A, B = ("/a",), ("/b",)


def settings(**more: Any) -> EngineSettings:
    return EngineSettings(bootstrap_servers="b:1", **more)


def core(*partitions: PartitionId, **more: Any) -> Core:
    made = core_of(settings(**more))
    for partition in partitions or (P0,):
        made.assign(partition, FRESH)
    return made


def sessions(*partitions: PartitionId, **more: Any) -> Core:
    return core(*partitions, operator="session", gap_ms=10, **more)


def feed(to: Core, *events: tuple[int, int], key: tuple[str, ...] = A, partition: PartitionId = P0) -> None:
    """Process events (id, time). The id is also the offset."""
    to.process(partition, [(event_id, key, time_ms, event_id) for event_id, time_ms in events])


def brief(of: Core) -> list[tuple[object, ...]]:
    return [
        ("late", a.id) if isinstance(a, LateEvent) else (a.window_start_ms, a.window_end_ms, a.key[0], *a.ids)
        for a in of.take()
    ]


def test_an_event_is_in_every_window_that_holds_it() -> None:
    c = core(operator="sliding", window_ms=10, slide_ms=5)
    feed(c, (1, 7), (2, 10), (3, 25))
    assert brief(c) == [(0, 10, "/a", 1), (5, 15, "/a", 1, 2), (10, 20, "/a", 2)]


def test_if_the_size_is_not_a_multiple_of_the_slide_the_number_of_windows_of_an_event_varies() -> None:
    c = core(operator="sliding", window_ms=10, slide_ms=4)
    feed(c, (1, 9), (2, 10), (3, 50))
    assert brief(c) == [(0, 10, "/a", 1), (4, 14, "/a", 1, 2), (8, 18, "/a", 1, 2)]


def test_an_event_before_the_epoch_is_in_its_sliding_windows() -> None:
    c = core(operator="sliding", window_ms=10, slide_ms=5)
    feed(c, (1, -1), (2, 20))
    assert brief(c) == [(-10, 0, "/a", 1), (-5, 5, "/a", 1)]


def test_an_event_late_for_some_windows_is_in_the_others_and_not_set_aside() -> None:
    c = core(operator="sliding", window_ms=10, slide_ms=5)
    feed(c, (1, 12), (2, 7), (3, 15), (4, 7), (5, 20))
    assert brief(c) == [(5, 15, "/a", 1, 2), ("late", 4), (10, 20, "/a", 1, 3)]


def test_recovery_restores_an_event_to_the_open_windows() -> None:
    c = core(operator="sliding", window_ms=10, slide_ms=5)
    feed(c, (0, 7), (1, 11))
    assert brief(c) == [(0, 10, "/a", 0)]
    progress = c.progress()[P0]
    assert progress == PartitionProgress(2, 0, 11)
    again = core_of(settings(operator="sliding", window_ms=10, slide_ms=5))
    again.assign(P0, progress)
    feed(again, (0, 7), (1, 11), (2, 30))
    assert brief(again) == [(5, 15, "/a", 0, 1), (10, 20, "/a", 1)]


def test_a_pause_as_long_as_the_gap_continues_a_session_and_a_longer_one_ends_it() -> None:
    c = sessions()
    feed(c, (1, 0), (2, 10), (3, 21))
    assert brief(c) == [(0, 20, "/a", 1, 2)]


def test_a_session_is_emitted_when_its_end_is_reached() -> None:
    c = sessions()
    feed(c, (1, 0))
    feed(c, (2, 9), key=B)
    assert brief(c) == []
    feed(c, (3, 10), key=B)
    assert brief(c) == [(0, 10, "/a", 1)]


def test_an_event_between_two_open_sessions_merges_them() -> None:
    c = sessions(max_disorder_ms=100)
    feed(c, (1, 0), (2, 20), (3, 10), (4, 200))
    assert brief(c) == [(0, 30, "/a", 1, 2, 3)]


def test_an_event_whose_window_has_ended_is_late_unless_it_touches_an_open_session() -> None:
    c = sessions()
    feed(c, (1, 15))
    feed(c, (2, 20), key=B)
    feed(c, (3, 4), (4, 5), (5, 4))
    feed(c, (6, 50), key=B)
    assert brief(c) == [("late", 3), (5 - 1, 25, "/a", 1, 4, 5), (20, 30, "/b", 2)]


def test_a_late_event_beside_an_emitted_session_opens_its_own() -> None:
    c = sessions()
    feed(c, (1, 0))
    feed(c, (2, 12), key=B)
    assert brief(c) == [(0, 10, "/a", 1)]
    feed(c, (3, 5), (4, 25))
    assert brief(c)[0] == (5, 15, "/a", 3)


def test_a_session_has_events_of_all_partitions() -> None:
    c = sessions(P0, P1)
    feed(c, (1, 0), (2, 20))
    feed(c, (1, 10), (9, 100), partition=P1)
    assert brief(c) == []
    feed(c, (3, 100))
    assert brief(c) == [(0, 30, "/a", 1, 2, 1)]


def test_lateness_holds_a_session_open() -> None:
    c = sessions(allowed_lateness_ms=5)
    feed(c, (1, 0))
    feed(c, (2, 14), key=B)
    feed(c, (3, 1))
    feed(c, (4, 16), key=B)
    assert brief(c) == [(0, 11, "/a", 1, 3)]


def test_recovery_omits_events_that_only_a_late_event_joined_to_a_session() -> None:
    """Event 1 was answered and 3 came late. Event 4 opens a session that is behind the watermark and touches both."""
    log = [(0, B, 1, 0), (1, A, 0, 1), (2, B, 10, 2), (3, A, 0, 3), (4, A, 9, 4), (5, B, 14, 5)]
    c = sessions()
    c.process(P0, log)
    assert brief(c) == [(0, 10, "/a", 1), ("late", 3)]
    progress = c.progress()[P0]
    assert progress == PartitionProgress(6, 0, 14, ((4, 10),))
    again = core_of(settings(operator="session", gap_ms=10))
    again.assign(P0, progress)
    again.process(P0, [*log, (6, B, 100, 6)])
    assert brief(again) == [(9, 19, "/a", 4), (1, 24, "/b", 0, 2, 5)]


def test_the_events_of_a_revoked_partition_leave_sessions() -> None:
    c = sessions(P0, P1)
    feed(c, (1, 0), (2, 20))
    feed(c, (3, 10), partition=P1)
    c.revoke(P1)
    feed(c, (4, 100))
    assert brief(c) == [(0, 10, "/a", 1), (20, 30, "/a", 2)]


def test_a_passthrough_emits_each_event_at_once_and_none_is_late() -> None:
    c = core(operator="passthrough")
    feed(c, (1, 100), (2, 0), (2, 0))
    assert brief(c) == [(100, 100, "/a", 1), (0, 0, "/a", 2), (0, 0, "/a", 2)]
    assert c.progress()[P0] == PartitionProgress(3, 3, 100)


def test_a_running_aggregate_emits_new_ids_or_all_ids_if_cumulative() -> None:
    for emission, answers in (
        ("incremental", [[(0, 0, "/a", 1, 2), (0, 0, "/b", 3)], [], [(0, 0, "/a", 4)]]),
        ("cumulative", [[(0, 0, "/a", 1, 2), (0, 0, "/b", 3)], [], [(0, 0, "/a", 1, 2, 4), (0, 0, "/b", 3)]]),
    ):
        c = core(operator="running_aggregate", emission=emission)
        feed(c, (1, 100), (2, 0))
        feed(c, (3, 7), key=B)
        found = [brief(c), brief(c)]
        feed(c, (4, 1))
        assert [*found, brief(c)] == answers
        assert c.progress()[P0] == PartitionProgress(5, 1 if emission == "cumulative" else 5, 100)


def test_distinct_emits_each_id_once() -> None:
    c = core(operator="distinct", window_ms=10)
    feed(c, (1, 0), (2, 1), (1, 2), (3, 10), (1, 3))
    assert brief(c) == [(0, 10, "/a", 1, 2), ("late", 1)]


def test_the_settings_select_the_operator() -> None:
    assert isinstance(core(), WindowCore)
    assert isinstance(sessions(), SessionCore)
    assert isinstance(core(operator="passthrough"), PassthroughCore)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"operator": "sliding"}, "slide_ms goes with operator sliding"),
        ({"slide_ms": 5}, "slide_ms goes with operator sliding"),
        ({"operator": "session"}, "gap_ms goes with operator session"),
        ({"gap_ms": 5}, "gap_ms goes with operator session"),
        ({"operator": "sliding", "window_ms": 5, "slide_ms": 6}, "slide_ms is above window_ms"),
        ({"operator": "sliding", "slide_ms": 0}, "greater than 0"),
        ({"where": {"field": "page", "one_of": ["/a"]}}, "`where` needs operator passthrough"),
        ({"operator": "passthrough", "where": {"field": "page", "one_of": []}}, "at least 1"),
        ({"operator": "session", "gap_ms": 5, "join": "inner", "inputs": ["a", "b"]}, "join .* operator tumbl"),
        ({"operator": "sliding", "slide_ms": 5, "mutations": {"late_route": 0.1}}, "leave late_route out"),
        ({"operator": "passthrough", "mutations": {"swap": 0.1}}, "leave swap out"),
        ({"emission": "cumulative"}, "emission cumulative .* operator running_aggregate"),
        ({"operator": "running_aggregate", "mutations": {"withdraw": 0.1}}, "withdraw .* emission cumulative"),
    ],
)
def test_contradictory_settings_are_refused(more: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        settings(**more)


@pytest.mark.parametrize(
    ("one_of", "value", "through"),
    [
        (("/a", "/b"), "/b", True), (("/a",), "/c", False), ((1,), 1, True), ((1,), 1.0, True), ((1,), True, False),
        ((True,), 1, False), ((1,), "1", False), (("/a",), None, False), (("/a",), ["/a"], False),
    ],
)  # fmt: skip
def test_a_filter_lets_the_listed_values_through(one_of: tuple[Any, ...], value: object, through: bool) -> None:
    decoder = wire.Decoder(where=EventFilter(field="f", one_of=one_of))
    event = {"id": 7, "timestamp": "1970-01-01T00:00:00.013", "page": "/a", "f": value}
    found = decoder.decode(3, json.dumps(event).encode())
    assert found == ((3, A, 13, 7) if through else wire.FilteredOut(3))


def test_an_event_without_the_filter_field_is_left_out() -> None:
    decoder = wire.Decoder(where=EventFilter(field="f", one_of=("x",)))
    assert decoder.decode(3, b'{"id":7,"timestamp":"1970-01-01T00:00:00.013","page":"/a"}') == wire.FilteredOut(3)


def test_a_passthrough_emits_the_fields_of_its_event() -> None:
    assert wire.event_bytes(7, ("/a",), 13) == b'{"id":7,"timestamp":"1970-01-01T00:00:00.013","page":"/a"}'


def test_stragglers_are_stored_in_the_offset_up_to_a_limit() -> None:
    progress = PartitionProgress(10_000, 4, 70_000, ((5, 60_000), (900, 69_999)))
    assert [from_offset(o, 0) for o in to_offsets({P0: progress})] == [progress]
    many = PartitionProgress(10_000, 4, 70_000, tuple((n, 60_000) for n in range(1000)))
    with pytest.raises(DeliveryError, match=r"1000 events .* raise max_disorder_ms"):
        to_offsets({P0: many})

"""Edge cases of the join core: the sides that a window needs, repeats, lateness, and the watermarks of two inputs."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from testbed.engines.core import BEGINNING_MS, LateEvent, PartitionId, PartitionProgress, Result
from testbed.engines.job import core_of
from testbed.engines.join import Join, JoinCore
from testbed.engines.mutations import Mutation, Rates, mutate
from testbed.engines.settings import EngineSettings

pytestmark = pytest.mark.unit

CLICK, UPDATE = ("click", 0), ("update", 0)
A = ("/a",)


def core(join: Join = "inner") -> JoinCore:
    made = core_of(EngineSettings(bootstrap_servers="b:1", inputs=("click", "update"), join=join))
    assert isinstance(made, JoinCore)
    for partition in (CLICK, UPDATE):
        made.assign(partition, PartitionProgress(0, 0, BEGINNING_MS))
    return made


def feed(to: JoinCore, partition: PartitionId, *events: tuple[int | str, int]) -> None:
    to.process(partition, [(at, A, time_ms, event_id) for at, (event_id, time_ms) in enumerate(events)])


def end(to: JoinCore) -> list[tuple[object, ...]]:
    to.close_all()
    return [("late", a.id) if isinstance(a, LateEvent) else (a.window_start_ms, *a.ids) for a in to.take()]


def test_a_join_emits_both_sides_with_each_id_once() -> None:
    c = core()
    feed(c, CLICK, (1, 5), (2, 6), (1, 5))
    feed(c, UPDATE, ("update/1", 30_000))
    assert end(c) == [(0, 1, 2, "update/1")]


@pytest.mark.parametrize(("join", "answers"), [("inner", []), ("left", [(0, 1)])])
def test_a_left_join_emits_the_left_side_alone(join: Join, answers: list[tuple[object, ...]]) -> None:
    c = core(join)
    feed(c, CLICK, (1, 5))
    assert end(c) == answers


@pytest.mark.parametrize("join", ["inner", "left"])
def test_no_join_emits_the_right_side_alone(join: Join) -> None:
    c = core(join)
    feed(c, UPDATE, ("update/1", 5))
    assert end(c) == []


def test_a_window_waits_for_both_inputs() -> None:
    c = core()
    feed(c, UPDATE, ("update/1", 30_000))
    feed(c, CLICK, (1, 5), (2, 60_000))
    assert c.take() == []
    feed(c, UPDATE, ("update/1", 30_000), ("update/2", 60_000))
    assert [a.ids for a in c.take() if isinstance(a, Result)] == [(1, "update/1")]


def test_a_late_update_is_set_aside() -> None:
    c = core()
    feed(c, CLICK, (1, 5), (2, 60_000))
    feed(c, UPDATE, ("update/1", 30_000), ("update/2", 60_000), ("update/3", 30_000))
    assert end(c)[1] == ("late", "update/3")


def test_an_invented_update_counts_as_an_update() -> None:
    result = Result(0, 60_000, A, ("update/1", 7), (1, 2))
    outcome = mutate([result], Rates({Mutation.ALTER: 1.0}), seed=1)
    invented = [deed.id for deed in outcome.applied if deed.violation_class == "unknown_id"]
    assert len(invented) == 2
    assert [isinstance(id_, str) and id_.startswith("update/invented-") for id_ in invented] == [True, False]


def test_a_join_needs_two_inputs() -> None:
    with pytest.raises(ValidationError, match="join needs two inputs"):
        EngineSettings(bootstrap_servers="b:1", join="inner")

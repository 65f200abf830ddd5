"""Kill the pure engine at random points, under each order of output and commit, and count every id.

The model is a log per partition, a core, and two durable things: outputs and progress. Each step is drawn by
hypothesis; what is not durable is gone with a kill.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.engines.core import BEGINNING_MS, LateEvent, PartitionId, Progress, Record, Result, WindowCore

pytestmark = pytest.mark.property

PARTITIONS: tuple[PartitionId, ...] = (("click", 0), ("click", 1), ("other", 0))
SIZE_MS = 100


@dataclass
class Engine:
    """An engine on a model of Kafka; ``order`` is its guarantee."""

    logs: dict[PartitionId, list[Record]]
    order: str
    disorder_ms: int
    produced: Counter[int] = field(default_factory=Counter)
    progress: dict[PartitionId, Progress] = field(default_factory=dict)
    core: WindowCore = field(init=False)
    position: dict[PartitionId, int] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.core = WindowCore(SIZE_MS, self.disorder_ms)
        self.kill()

    def kill(self) -> None:
        self.core = WindowCore(SIZE_MS, self.disorder_ms)
        self.waiting = []
        for partition in PARTITIONS:
            at = self.progress.get(partition, Progress(0, 0, BEGINNING_MS))
            if self.order == "at_most_once":
                at = Progress(at.next_offset, at.next_offset, at.closed_through_ms)
            self.core.assign(partition, at)
            self.position[partition] = at.rebuild_from

    def read(self, partition: PartitionId, count: int) -> None:
        low = self.position[partition]
        records = [r for r in self.logs[partition] if r[0] >= low][:count]
        self.core.process(partition, records)
        self.position[partition] = records[-1][0] + 1 if records else low
        if not any(r[0] >= self.position[partition] for r in self.logs[partition]):
            self.core.read_through(partition, 10_000)
        self.answer()

    def idle(self, partition: PartitionId) -> None:
        self.core.set_idle(partition)
        self.answer()

    def answer(self) -> None:
        for answer in self.core.take():
            ids = answer.ids if isinstance(answer, Result) else [answer.id]
            if self.order == "at_least_once":
                self.produced.update(int(i) for i in ids)
            else:
                self.waiting += [int(i) for i in ids]

    def commit(self, *, dies_between: bool = False) -> None:
        if self.order == "exactly_once" and dies_between:
            return
        self.progress = self.core.progress()
        if not dies_between:
            self.produced.update(self.waiting)
        self.waiting = []

    def finish(self) -> None:
        for partition in PARTITIONS:
            self.read(partition, 10_000)
        self.core.close_all()
        self.answer()
        self.commit()


events = st.lists(
    st.tuples(st.sampled_from(PARTITIONS), st.sampled_from(["/a", "/b"]), st.integers(0, 600), st.integers(1, 3)),
    max_size=60,
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.sampled_from(PARTITIONS), st.integers(1, 8)),
        st.tuples(st.just("idle"), st.sampled_from(PARTITIONS), st.just(0)),
        st.tuples(st.sampled_from(["commit", "kill", "die in commit"]), st.just(PARTITIONS[0]), st.just(0)),
    ),
    max_size=40,
)


def run(order: str, made: list[tuple[PartitionId, str, int, int]], todo: list[tuple[str, PartitionId, int]],
        disorder_ms: int) -> Counter[int]:  # fmt: skip
    logs: dict[PartitionId, list[Record]] = {p: [] for p in PARTITIONS}
    for number, (partition, page, time_ms, gap) in enumerate(made):
        last = logs[partition][-1][0] if logs[partition] else -1
        logs[partition].append((last + gap, (page,), time_ms, number))
    engine = Engine(logs, order, disorder_ms)
    for verb, partition, count in todo:
        if verb == "read":
            engine.read(partition, count)
        elif verb == "idle":
            engine.idle(partition)
        elif verb == "commit":
            engine.commit()
        else:
            if verb == "die in commit":
                engine.commit(dies_between=True)
            engine.kill()
    engine.finish()
    return engine.produced


@settings(max_examples=500, deadline=None)
@given(made=events, todo=steps, disorder_ms=st.sampled_from([0, 50]))
def test_any_kill_points_exactly_once(made, todo, disorder_ms) -> None:  # type: ignore[no-untyped-def]
    assert run("exactly_once", made, todo, disorder_ms) == Counter(range(len(made)))


@settings(max_examples=200, deadline=None)
@given(made=events, todo=steps, disorder_ms=st.sampled_from([0, 50]))
def test_any_kill_points_at_least_once(made, todo, disorder_ms) -> None:  # type: ignore[no-untyped-def]
    produced = run("at_least_once", made, todo, disorder_ms)
    assert set(produced) == set(range(len(made)))


@settings(max_examples=200, deadline=None)
@given(made=events, todo=steps, disorder_ms=st.sampled_from([0, 50]))
def test_any_kill_points_at_most_once(made, todo, disorder_ms) -> None:  # type: ignore[no-untyped-def]
    produced = run("at_most_once", made, todo, disorder_ms)
    assert set(produced.values()) <= {1}
    assert set(produced) <= set(range(len(made)))


def test_the_model_can_fail() -> None:
    """At most once does lose where it is killed between commit and output: the test has teeth."""
    made = [(PARTITIONS[0], "/a", 1, 1)]
    todo = [("read", PARTITIONS[0], 1), ("die in commit", PARTITIONS[0], 0)]
    assert run("at_most_once", made, todo, 0) == Counter()
    assert run("exactly_once", made, todo, 0) == Counter([0])


def test_late_events_are_counted_like_answers() -> None:
    made = [(p, "/a", t, 1) for p in PARTITIONS for t in (500, 1)]
    todo: list[tuple[str, PartitionId, int]] = [("read", p, 1) for p in PARTITIONS]
    assert run("exactly_once", made, todo, 0) == Counter(range(6))
    assert LateEvent(("/a",), 1, 1) != LateEvent(("/a",), 2, 1)

"""Kill the pure engine at random points, under each order of output and commit, and count every id.

The model has a log per partition, a core, and two durable things: outputs and progress. Hypothesis draws each step. A
kill loses everything that is not durable. After each commit another core is built from the progress: it must have the
same open windows as the first one.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.engines.core import (
    BEGINNING_MS,
    Core,
    LateEvent,
    PartitionId,
    PartitionProgress,
    Record,
    Result,
    WindowCore,
)
from testbed.engines.distinct import DistinctCore
from testbed.engines.passthrough import PassthroughCore
from testbed.engines.running import ChangedCore, CumulativeCore, RunningCore
from testbed.engines.sessions import SessionCore
from testbed.engines.sinks import from_offset, to_offsets

pytestmark = pytest.mark.property

PARTITIONS: tuple[PartitionId, ...] = (("click", 0), ("click", 1), ("other", 0))
SIZE_MS = 100
MAKERS: dict[str, Callable[[int, int], Core]] = {
    "tumbling": lambda disorder, lateness: WindowCore(SIZE_MS, disorder, lateness),
    "sliding": lambda disorder, lateness: WindowCore(SIZE_MS, disorder, lateness, slide_ms=40),
    "session": lambda disorder, lateness: SessionCore(SIZE_MS // 2, disorder, lateness),
    "passthrough": PassthroughCore,
    "running_aggregate": RunningCore,
}
MORE_MAKERS = MAKERS | {
    "cumulative": CumulativeCore,
    "changed": ChangedCore,
    "every third": partial(ChangedCore, every=3),
    "distinct": lambda *bounds: DistinctCore(SIZE_MS, *bounds),
}
"""Includes the cores that do not answer each event exactly once."""
Cell = tuple[int, int, tuple[str, ...], tuple[int | str, ...]]


@dataclass
class Engine:
    """An engine on a model of Kafka. ``order``: its guarantee."""

    logs: dict[PartitionId, list[Record]]
    order: str
    make: Callable[[], Core]
    produced: Counter[int] = field(default_factory=Counter)
    progress: dict[PartitionId, PartitionProgress] = field(default_factory=dict)
    aside: Counter[int] = field(default_factory=Counter)
    cells: Counter[Cell] = field(default_factory=Counter)
    newest: dict[tuple[str, ...], Counter[int]] = field(default_factory=dict)
    stragglers: int = 0
    core: Core = field(init=False)
    position: dict[PartitionId, int] = field(default_factory=dict)
    waiting: list[Result | LateEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kill()

    def kill(self) -> None:
        self.core = self.make()
        self.waiting = []
        for partition in PARTITIONS:
            at = self.progress.get(partition, PartitionProgress(0, 0, BEGINNING_MS))
            if self.order == "at_most_once":
                at = PartitionProgress(at.next_offset, at.next_offset, at.closed_through_ms)
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
        answers = self.core.take()
        if self.order == "at_least_once":
            self.produce(answers)
        else:
            self.waiting += answers

    def produce(self, answers: list[Result | LateEvent]) -> None:
        for answer in answers:
            if isinstance(answer, LateEvent):
                self.aside[int(answer.id)] += 1
                self.produced[int(answer.id)] += 1
            else:
                self.cells[cell(answer)] += 1
                self.newest[answer.key] = Counter(int(i) for i in answer.ids)
                self.produced.update(self.newest[answer.key])

    def commit(self, *, dies_between: bool = False) -> None:
        if self.order == "exactly_once" and dies_between:
            return
        self.progress = self.core.progress()
        self.stragglers += sum(len(p.stragglers) for p in self.progress.values())
        if not dies_between:
            self.produce(self.waiting)
        self.waiting = []
        if not self.core.recovering and self.order != "at_most_once":
            assert self.open_in_another() == open_in(self.core)

    def open_in_another(self) -> Counter[Cell]:
        """The open windows of a core built from the progress, which is passed through Kafka's offsets."""
        another = self.make()
        offsets = {(o.topic, o.partition): from_offset(o, 0) for o in to_offsets(self.progress)}
        for partition, progress in offsets.items():
            another.assign(partition, progress)
        for partition, progress in reversed(offsets.items()):
            low, high = progress.rebuild_from, progress.next_offset
            another.process(partition, [r for r in self.logs[partition] if low <= r[0] < high])
            another.read_through(partition, high)
        assert not another.recovering
        assert another.take() == []
        assert another.progress() == self.progress
        return open_in(another)

    def finish(self) -> None:
        for partition in PARTITIONS:
            self.read(partition, 10_000)
        self.core.close_all()
        self.answer()
        self.commit()


def cell(result: Result) -> Cell:
    """A result with its ids sorted, since the order of reading does not matter."""
    return result.window_start_ms, result.window_end_ms, result.key, tuple(sorted(result.ids))


def open_in(core: Core) -> Counter[Cell]:
    """The results that the core would emit at the end of all input."""
    copied = copy.deepcopy(core)
    copied.close_all()
    return Counter(cell(answer) for answer in copied.take() if isinstance(answer, Result))


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


Made = list[tuple[PartitionId, str, int, int]]
Todo = list[tuple[str, PartitionId, int]]


def run(
    order: str,
    made: Made,
    todo: Todo,
    disorder_ms: int,
    lateness_ms: int = 0,
    operator: str = "tumbling",
    copies: int = 1,
) -> Engine:
    logs: dict[PartitionId, list[Record]] = {p: [] for p in PARTITIONS}
    for number, (partition, page, time_ms, gap) in enumerate(made):
        last = logs[partition][-1][0] if logs[partition] else -1
        logs[partition].append((last + gap, (page,), time_ms, number // copies))
    engine = Engine(logs, order, lambda: MORE_MAKERS[operator](disorder_ms, lateness_ms))
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
    return engine


def windows(made: Made) -> set[tuple[int, int]]:
    """(Number of an event, start of a sliding window) for all windows that hold the event."""
    return {(n, start) for n, (_, _, time_ms, _) in enumerate(made) for start in range(-200, 601, 40)
            if start <= time_ms < start + SIZE_MS}  # fmt: skip


anyhow = given(made=events, todo=steps, disorder_ms=st.sampled_from([0, 50]), lateness_ms=st.sampled_from([0, 0, 30]))


@pytest.mark.parametrize("operator", ["tumbling", "session", "passthrough", "running_aggregate"])
@settings(max_examples=250, deadline=None)
@anyhow
def test_exactly_once_holds_at_any_kill_points(operator, made, todo, disorder_ms, lateness_ms) -> None:  # type: ignore[no-untyped-def]
    engine = run("exactly_once", made, todo, disorder_ms, lateness_ms, operator)
    assert engine.produced == Counter(range(len(made)))
    if operator == "passthrough":
        assert engine.cells == Counter((t, t, (page,), (n,)) for n, (_, page, t, _) in enumerate(made))


@pytest.mark.parametrize("operator", ["cumulative", "changed"])
@pytest.mark.parametrize("order", ["exactly_once", "at_least_once"])
@settings(max_examples=100, deadline=None)
@anyhow
def test_at_any_kill_points_the_newest_table_has_every_event_once(
    order, operator, made, todo, disorder_ms, lateness_ms
) -> None:  # type: ignore[no-untyped-def]
    engine = run(order, made, todo, disorder_ms, lateness_ms, operator)
    of_page = {(page,): Counter(n for n, event in enumerate(made) if event[1] == page) for _, page, *_ in made}
    assert engine.newest == of_page


@pytest.mark.parametrize("order", ["exactly_once", "at_least_once"])
@settings(max_examples=100, deadline=None)
@anyhow
def test_at_any_kill_points_the_newest_result_has_every_whole_number_of_events(
    order, made, todo, disorder_ms, lateness_ms
) -> None:  # type: ignore[no-untyped-def]
    engine = run(order, made, todo, disorder_ms, lateness_ms, "every third")
    assert all(len(ids) % 3 == 0 for _, _, _, ids in engine.cells)
    for page in ("/a", "/b"):
        events = {n for n, event in enumerate(made) if event[1] == page}
        newest = engine.newest.get((page,), Counter())
        assert set(newest) <= events
        assert (len(newest), newest.total()) == (len(events) // 3 * 3,) * 2


@settings(max_examples=100, deadline=None)
@anyhow
def test_at_any_kill_points_repeats_are_emitted_once_or_set_aside(made, todo, disorder_ms, lateness_ms) -> None:  # type: ignore[no-untyped-def]
    """Every event is in its partition twice. It is answered once in its window, or set aside if it is too late."""
    twice = [event for event in made for _ in range(2)]
    engine = run("exactly_once", twice, todo, disorder_ms, lateness_ms, "distinct", copies=2)
    answered = engine.produced - engine.aside
    assert set(answered.values()) <= {1}
    assert set(answered) | set(engine.aside) == set(range(len(made)))


def test_sessions_are_restored_with_their_events() -> None:
    """Dense times, many behind the watermark: some extend a session backwards, some lie beside an answered one."""
    listed = 0
    for seed in range(200):
        rng = Random(seed)
        parts = PARTITIONS[: rng.choice([1, 1, 2, 3])]
        spread, now = rng.choice([100, 200, 400]), 0
        made: Made = []
        for _ in range(rng.randint(3, 40)):
            now += rng.choice([0, 5, 10, 25, 45, 60])
            time_ms = max(0, now - rng.choice([0, rng.randint(0, spread)]))
            made.append((rng.choice(parts), rng.choice("ab"), time_ms, rng.randint(1, 2)))
        todo: Todo = [("idle", p, 0) for p in PARTITIONS if p not in parts]
        for _ in range(rng.randint(5, 60)):
            verb = rng.choices(["read", "idle", "commit", "kill", "die in commit"], [60, 5, 20, 7, 7])[0]
            todo.append((verb, rng.choice(parts), rng.randint(1, 3)))
        engine = run("exactly_once", made, todo, rng.choice([0, 0, 25]), rng.choice([0, 0, 20]), "session")
        assert engine.produced == Counter(range(len(made)))
        listed += engine.stragglers
    assert listed > 100, "hardly a late event was in an open session at a commit"


@settings(max_examples=250, deadline=None)
@anyhow
def test_exactly_once_holds_at_any_kill_points_with_overlapping_windows(made, todo, disorder_ms, lateness_ms) -> None:  # type: ignore[no-untyped-def]
    engine = run("exactly_once", made, todo, disorder_ms, lateness_ms, "sliding")
    answered = Counter((int(i), c[0]) for c, n in engine.cells.items() for i in c[3] for _ in range(n))
    assert set(answered.values()) <= {1}
    assert set(engine.aside.values()) <= {1}
    assert set(answered) <= windows(made)
    # Each event is either in some of its windows or set aside, never both.
    assert {i for i, _ in answered} | set(engine.aside) == set(range(len(made)))
    assert not {i for i, _ in answered} & set(engine.aside)


@pytest.mark.parametrize("operator", MAKERS)
@settings(max_examples=80, deadline=None)
@anyhow
def test_at_least_once_holds_at_any_kill_points(operator, made, todo, disorder_ms, lateness_ms) -> None:  # type: ignore[no-untyped-def]
    engine = run("at_least_once", made, todo, disorder_ms, lateness_ms, operator)
    assert set(engine.produced) == set(range(len(made)))


@pytest.mark.parametrize("operator", MAKERS)
@settings(max_examples=80, deadline=None)
@anyhow
def test_at_most_once_holds_at_any_kill_points(operator, made, todo, disorder_ms, lateness_ms) -> None:  # type: ignore[no-untyped-def]
    engine = run("at_most_once", made, todo, disorder_ms, lateness_ms, operator)
    assert set(engine.produced) <= set(range(len(made)))
    if operator == "sliding":
        assert set(Counter((i, c[0]) for c, n in engine.cells.items() for i in c[3] for _ in range(n)).values()) <= {1}
    else:
        assert set(engine.produced.values()) <= {1}


def test_the_model_detects_a_loss() -> None:
    """An at-most-once engine loses an event if the kill is between commit and output. The model must show this loss."""
    made = [(PARTITIONS[0], "/a", 1, 1)]
    todo = [("read", PARTITIONS[0], 1), ("die in commit", PARTITIONS[0], 0)]
    assert run("at_most_once", made, todo, 0).produced == Counter()
    assert run("exactly_once", made, todo, 0).produced == Counter([0])


def test_late_events_are_counted_like_results() -> None:
    made = [(p, "/a", t, 1) for p in PARTITIONS for t in (500, 1)]
    todo: Todo = [("read", p, 1) for p in PARTITIONS]
    engine = run("exactly_once", made, todo, 0)
    assert engine.produced == Counter(range(6))
    assert engine.aside == Counter([1, 3, 5])

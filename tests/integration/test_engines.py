"""The engines against a real broker: they are killed repeatedly, and their results are counted id by id."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from generator import config, run
from testbed.broker import EmbeddedBroker
from testbed.engines import truth
from testbed.engines.base import EngineError, MutantEngine, ReferenceEngine
from testbed.engines.mutations import Mutation
from testbed.engines.settings import EngineSettings, Guarantee

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

_serial = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@dataclass
class Bench:
    """Topics, load and engine of one test."""

    broker: EmbeddedBroker
    folder: Path
    name: str = field(default_factory=lambda: f"t{next(_serial)}")

    def __post_init__(self) -> None:
        self.broker.create_topics({self.topic(t): 3 for t in ("click", "output", "late", "rejected")})

    def topic(self, role: str) -> str:
        return f"{self.name}-{role}"

    def settings(self, **more: Any) -> EngineSettings:
        return EngineSettings(
            bootstrap_servers=self.broker.bootstrap_servers,
            inputs=(self.topic("click"),),
            output=self.topic("output"),
            late=self.topic("late"),
            group=self.name,
            **{"commit_interval_seconds": 0.2, **more},
        )

    def load(self, **more: Any) -> config.GeneratorConfig:
        return config.parse(
            {
                "kafka": {"bootstrap_servers": self.broker.bootstrap_servers},
                "topic": self.topic("click"),
                "events_per_window": 500,
                "delivery": {"linger": "5ms"},
                **more,
            }
        )

    def finish(self, settings: EngineSettings, instances: int = 1) -> None:
        flags = ("--stop-at-end", "--close-at-end")
        with ReferenceEngine(settings, self.folder / "finish", instances=instances, arguments=flags) as engine:
            engine.start()
            assert engine.wait() == (0,) * instances

    def records(self, role: str, isolation: str = "read_committed") -> list[dict[str, Any]]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap_servers,
                "group.id": "reader",
                "enable.partition.eof": True,
                "isolation.level": isolation,
            }
        )
        consumer.assign([TopicPartition(self.topic(role), p, 0) for p in range(3)])
        found: list[dict[str, Any]] = []
        ended: set[Any] = set()
        while len(ended) < 3:
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    found.append(json.loads(message.value() or b""))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF
                    ended.add(message.partition())
        consumer.close()
        return found

    def handled(self, isolation: str = "read_committed") -> Counter[Any]:
        """Return how often each id occurs in results and late records together."""
        found: Counter[Any] = Counter()
        for result in self.records("output", isolation):
            found.update(result["clickIds"])
        found.update(late["clickId"] for late in self.records("late", isolation))
        return found


@pytest.fixture
def bench(broker: EmbeddedBroker, tmp_path: Path) -> Bench:
    return Bench(broker, tmp_path)


def killed_under_load(bench: Bench, settings: EngineSettings, kills: int, instances: int = 1, **more: Any) -> int:
    """Generate load and send SIGKILLs at seeded progress points; return the number of events."""
    draw = random.Random(bench.name)
    events = 15_000 * kills
    points = sorted(draw.randrange(events // 10, events) for _ in range(kills))
    due = threading.Semaphore(0)
    reached = iter([*points, None])
    next_point = [next(reached)]

    def on_progress(progress: run.GenerationProgress) -> None:
        while next_point[0] is not None and progress.sent >= next_point[0]:
            next_point[0] = next(reached)
            due.release()

    load = bench.load(
        limit={"events": events}, rate={"shape": "constant", "events_per_second": 10_000}, flush_windows=True,
        **{"disorder": {"share": 0.1, "within": "1s"}, "lateness": {"share": 0.01, "beyond": "70s"}, **more},
    )  # fmt: skip
    with ReferenceEngine(settings, bench.folder / "engine", instances=instances) as engine:
        engine.start()
        engine.ready()
        generating = threading.Thread(target=run.generate, args=(load,), kwargs={"on_progress": on_progress})
        generating.start()
        for _ in range(kills):
            assert due.acquire(timeout=60)
            victim = draw.randrange(instances)
            engine.kill(victim)
            assert not engine.instances[victim].alive
            engine.restart(victim)
            engine.ready()
        generating.join()
        engine.stop()
    bench.finish(settings, instances)
    return events + 6


@pytest.mark.full
@pytest.mark.parametrize("instances", [1, 2])
def test_exactly_once_through_kills(bench: Bench, instances: int) -> None:
    settings = bench.settings(guarantee="exactly_once", max_disorder_ms=1000)
    events = killed_under_load(bench, settings, 5, instances)
    assert bench.handled() == Counter(range(1, events + 1))


@pytest.mark.full
def test_exactly_once_through_kills_in_each_sliding_window(bench: Bench) -> None:
    settings = bench.settings(operator="sliding", window_ms=60_000, slide_ms=20_000, max_disorder_ms=1000)
    events = killed_under_load(bench, settings, 2, 2, lateness={"share": 0.01, "beyond": "30s"})
    found = Counter((result["windowStart"], i) for result in bench.records("output") for i in result["clickIds"])
    assert set(found.values()) == {1}
    windows = Counter(i for _, i in found)
    aside = Counter(late["clickId"] for late in bench.records("late"))
    assert set(aside.values()) <= {1}
    assert windows.keys() | aside.keys() == set(range(1, events + 1))
    assert not windows.keys() & aside.keys()
    assert set(windows.values()) == {1, 2, 3}, "late for some of their windows"


@pytest.mark.full
def test_exactly_once_through_kills_in_sessions(bench: Bench) -> None:
    settings = bench.settings(operator="session", gap_ms=200, max_disorder_ms=1000)
    late = {"share": 0.02, "beyond": "100ms"}
    sessions = {"events": 20, "gap": "200ms"}
    events = killed_under_load(bench, settings, 2, 2, lateness=late, sessions=sessions)
    assert bench.handled() == Counter(range(1, events + 1))


@pytest.mark.full
def test_exactly_once_through_kills_in_a_passthrough(bench: Bench) -> None:
    where = {"field": "page", "one_of": ["/help", "/jobs"]}
    events = killed_under_load(bench, bench.settings(operator="passthrough", where=where), 2, 2)
    found = bench.records("output")
    assert Counter(one["page"] for one in found).keys() == {"/help", "/jobs"}
    # The pages alternate, and so do the events that close windows.
    assert Counter(one["id"] for one in found) == Counter(n for n in range(1, events + 1) if n % 6 in (1, 4))


@pytest.mark.full
def test_exactly_once_through_the_death_of_the_broker(tmp_path: Path) -> None:
    with EmbeddedBroker() as mortal:
        bench = Bench(mortal, tmp_path)
        settings = bench.settings(guarantee="exactly_once", transaction_timeout_seconds=5)
        stop, progressed = threading.Event(), threading.Semaphore(0)
        summaries: list[run.GenerationSummary] = []

        def generate() -> None:
            load = bench.load(rate={"shape": "constant", "events_per_second": 5000}, flush_windows=True)
            summaries.append(run.generate(load, stop=stop, on_progress=lambda _: progressed.release()))

        with ReferenceEngine(settings, tmp_path / "engine") as engine:
            engine.start()
            engine.ready()
            generating = threading.Thread(target=generate)
            generating.start()
            for _ in range(4):
                assert progressed.acquire(timeout=60)
            mortal.kill()
            mortal.restart()
            stop.set()
            generating.join()
            # The engine may continue, give up, or hang in librdkafka until its watchdog ends it. Only progress counts.
            engine.stop(timeout=12)
        bench.finish(settings)
        assert summaries[0].acknowledged == summaries[0].events
        assert bench.handled() == Counter(range(1, summaries[0].events + 1))


@pytest.mark.full
def test_at_least_once_only_repeats(bench: Bench) -> None:
    # It commits only at a clean shutdown: after a kill, it writes again every result since the start.
    settings = bench.settings(guarantee="at_least_once", max_disorder_ms=1000, commit_interval_seconds=600)
    events = killed_under_load(bench, settings, 4)
    found = bench.handled()
    assert set(found) == set(range(1, events + 1))
    assert found.total() > events, "no kill fell between output and commit"


@pytest.mark.full
def test_at_most_once_only_loses(bench: Bench) -> None:
    events = killed_under_load(bench, bench.settings(guarantee="at_most_once", max_disorder_ms=1000), 4)
    found = bench.handled()
    assert set(found.values()) == {1}
    assert set(found) < set(range(1, events + 1))


@pytest.mark.full
def test_an_instance_that_stays_dead_is_replaced(bench: Bench) -> None:
    settings = bench.settings(static_membership=False, idle_after_seconds=None)
    run.generate(bench.load(limit={"events": 12_000}))
    with ReferenceEngine(settings, bench.folder / "engine", instances=2) as engine:
        engine.start()
        engine.ready()
        engine.kill(0)
        run.generate(bench.load(limit={"events": 6}, start=10_000_000))
        engine.stop()
    bench.finish(settings)
    found = bench.handled()
    assert set(found) == set(range(1, 12_001))
    assert found.total() == 12_006, "the second load repeats six ids in another window"


@pytest.mark.full
@pytest.mark.parametrize("guarantee", get_args(Guarantee))
def test_an_idle_instance_that_is_fenced_ends(bench: Bench, guarantee: Guarantee) -> None:
    # Brokers also fence a member that they take for two, after one of them was away.
    settings = bench.settings(guarantee=guarantee)
    with ReferenceEngine(settings, bench.folder / "old") as old, ReferenceEngine(settings, bench.folder / "new") as new:
        old.start()
        old.ready()
        new.start()
        assert old.wait() == (1,)
        new.ready()


def test_results_are_those_of_the_input(bench: Bench) -> None:
    run.generate(bench.load(limit={"windows": 3}, events_per_window=7))
    bench.finish(bench.settings(idle_after_seconds=None))
    results = bench.records("output")
    assert len(results) == 18
    first = next(r for r in results if r["page"] == "/help" and r["windowStart"] == "1970-01-01T00:00:00.000")
    assert first["clickIds"] == [1, 7, 13, 19, 25, 31, 37, 43], "8571 ms apart: eight in the first minute"
    assert first["windowEnd"] == "1970-01-01T00:01:00.000"


@pytest.mark.full
def test_windows_left_open_are_emitted_by_the_next_run(bench: Bench) -> None:
    settings = bench.settings(idle_after_seconds=None)
    run.generate(bench.load(limit={"events": 6000}))
    with ReferenceEngine(settings, bench.folder / "engine", arguments=["--stop-at-end"]) as engine:
        engine.start()
        assert engine.wait() == (0,)
    assert len(bench.records("output")) == 6 * 1
    bench.finish(settings)
    assert bench.handled() == Counter(range(1, 6001))


def test_undecodable_input_goes_to_the_rejected_topic(bench: Bench) -> None:
    producer = Producer({"bootstrap.servers": bench.broker.bootstrap_servers})
    producer.produce(bench.topic("click"), b"{no json", b"k")
    assert producer.flush(10) == 0
    run.generate(bench.load(limit={"events": 60}))
    bench.finish(bench.settings(rejected=bench.topic("rejected")))
    assert bench.handled() == Counter(range(1, 61))
    consumer = Consumer({"bootstrap.servers": bench.broker.bootstrap_servers, "group.id": "rejected"})
    ends = [consumer.get_watermark_offsets(TopicPartition(bench.topic("rejected"), p))[1] for p in range(3)]
    consumer.close()
    assert sum(ends) > 0


def test_an_engine_that_cannot_start_gives_the_reason(bench: Bench) -> None:
    settings = bench.settings().model_copy(update={"window_ms": 0})
    with ReferenceEngine(settings, bench.folder / "engine") as engine:
        engine.start()
        with pytest.raises(EngineError, match="window_ms"):
            engine.ready()


# Withdrawals need emission `cumulative`; tests/e2e covers them.
@pytest.mark.full
@pytest.mark.parametrize("mutation", [mutation for mutation in Mutation if mutation is not Mutation.WITHDRAW])
def test_the_output_of_the_mutant_agrees_with_its_truth_file(bench: Bench, mutation: Mutation) -> None:
    settings = bench.settings(
        mutations={mutation: 0.1}, mutation_seed=3, truth=bench.folder / "truth", delay_seconds=0.3,
        delay_beyond_seconds=0.6, idle_after_seconds=None,
    )  # fmt: skip
    run.generate(bench.load(limit={"windows": 20}, events_per_window=50))
    flags = ("--stop-at-end", "--close-at-end")
    with MutantEngine(settings, bench.folder / "engine", arguments=flags) as engine:
        engine.start()
        assert engine.wait() == (0,)
    classes = Counter(truth.summarise(bench.folder / "truth"))
    assert any(True for _ in truth.read(bench.folder / "truth"))
    assert classified(bench) == classes


def classified(bench: Bench) -> Counter[str]:
    """Classify by SEMANTICS section 2 with brute force, from the topics."""
    expected = Counter((_minute(e["timestamp"]), e["page"], e["id"]) for e in bench.records("click"))
    known = {i for _, _, i in expected}
    seen = Counter((r["windowStart"][:16], r["page"], i) for r in bench.records("output") for i in r["clickIds"])
    aside = Counter((_minute(r["clickTimestamp"]), r["page"], r["clickId"]) for r in bench.records("late"))
    classes: Counter[str] = Counter()
    for at in expected.keys() | seen.keys() | aside.keys():
        e, p, late = expected[at], seen[at], aside[at]
        if e == 0:
            classes["misplaced" if at[2] in known else "unknown_id"] += p + late
            continue
        handled = min(e - min(e, p), late)
        classes["late"] += handled
        classes["missing"] += e - min(e, p) - handled
        classes["duplicate"] += max(0, p + late - e)
    return +classes


def _minute(timestamp: str) -> str:
    return timestamp[:16]


def test_an_aborted_result_is_visible_to_read_uncommitted(bench: Bench) -> None:
    settings = bench.settings(mutations={Mutation.ABORT: 1.0}, truth=bench.folder / "truth")
    run.generate(bench.load(limit={"events": 600}))
    with MutantEngine(settings, bench.folder / "e", arguments=("--stop-at-end", "--close-at-end")) as engine:
        engine.start()
        assert engine.wait() == (0,)
    assert bench.handled() == Counter()
    assert bench.handled("read_uncommitted") == Counter(range(1, 601))
    assert truth.summarise(bench.folder / "truth") == {"missing": 600}


@pytest.mark.full
def test_the_truth_file_of_a_killed_mutant_stays_correct(bench: Bench) -> None:
    """If it is killed between writing the truth and committing, it repeats the mutation: repeated lines count once."""
    settings = bench.settings(
        mutations={Mutation.DROP: 0.05, Mutation.DUPLICATE: 0.05}, truth=bench.folder / "truth", idle_after_seconds=None
    )
    load = bench.load(limit={"events": 40_000}, rate={"shape": "constant", "events_per_second": 10_000})
    progressed = threading.Semaphore(0)
    generating = threading.Thread(
        target=run.generate, args=(load,), kwargs={"on_progress": lambda _: progressed.release()}
    )
    with MutantEngine(settings, bench.folder / "engine") as engine:
        engine.start()
        engine.ready()
        generating.start()
        for _ in range(3):
            for _ in range(2):
                assert progressed.acquire(timeout=60)
            engine.kill()
            engine.restart()
            engine.ready()
        generating.join()
        engine.stop()
    with MutantEngine(settings, bench.folder / "engine", arguments=("--stop-at-end", "--close-at-end")) as engine:
        engine.start()
        assert engine.wait() == (0,)
    assert classified(bench) == Counter(truth.summarise(bench.folder / "truth"))

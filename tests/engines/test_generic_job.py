"""Workloads beside PGVal's on the generic jobs of the real engines: a worker is SIGKILLed between a result and its
commit, and restarted.

No event of the topics is missing from the results, by the workload's offline count and by the sidecar. Exactly once,
none is repeated. Spark repeats the results of a batch that it had not committed, as many as the sidecar says.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message, Producer

from generator import config, run
from generator.workloads.kinds import named
from generator.workloads.seam import Stream
from testbed.broker import EmbeddedBroker
from testbed.engines.base import ReferenceEngine
from testbed.engines.effective import Effective
from testbed.engines.real import RealEngine, operator_of
from testbed.engines.registry import REGISTRY
from testbed.engines.settings import Guarantee
from testbed.run_files import Topics
from tests.engines.judged import judged
from tests.engines.killed_run import (
    EVENTS_PER_WINDOW,
    LOAD_SECONDS,
    PARTITIONS,
    SETTLE_SECONDS_MAX,
    WINDOW_MS,
    KilledRun,
)
from tests.engines.killed_workloads import ALONE, JOINED, PAIRS, STAGES
from tests.engines.reading import messages
from tests.workload_count import (
    Cell,
    Event,
    cells_of,
    deviations,
    event_of,
    ids_in,
    results_of,
    wrong_fields,
    wrong_pairs,
)

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

WINDOWS = ("tumbling", "distinct", "sliding", "session")
PARAMETERS: dict[tuple[str, str], dict[str, Any]] = {
    ("kafka_streams", "shufflebench"): {"rules": 200, "selectivity": 0.9, "zipf": 0.4, "output_rate": 10},
    ("flink", "shufflebench"): {"selectivities": "0.01=80 0.2=2", "matching": "hashes", "output_rate": 10},
}
"""Of workloads whose default values suit longer loads."""
AT_LEAST_ONCE = ("spark", "spark_dstreams")
"""Engines whose sinks have no transactions."""
ROUNDED = ("traffic_join",)
"""Their times are rounded, so that events out of order would be late by up to a window."""
STAGED_EVENTS = 20_000
"""Events of the first stage of a chain."""


class WorkloadRun(KilledRun):
    """Topics, load and count of a workload with one stream on an engine. ``output_mode``: of Spark's windows."""

    def __init__(
        self,
        broker: EmbeddedBroker,
        topic_names: Callable[[str], str],
        name: str,
        kind: str,
        output_mode: str = "append",
    ) -> None:
        super().__init__(broker, topic_names)
        self.parameters = PARAMETERS.get((name, kind), {})
        self.name, self.output_mode = name, output_mode
        self.workload = named(kind).model_copy(update=self.parameters)
        disorder_ms = self.workload.operator(WINDOW_MS).get("max_disorder_ms", 0)
        self.max_disorder_ms = max(self.max_disorder_ms, disorder_ms)
        self.guarantee: Guarantee = "at_least_once" if name in AT_LEAST_ONCE else "exactly_once"
        self.operator = operator_of(self.workload)
        self.waits = self.operator in WINDOWS and output_mode == "append"
        """Whether results are written when windows close."""

    def killed(self, folder: Path) -> Effective:
        """Run the load, with a kill. Return the engine's effective guarantee."""
        return self.through_a_kill(self.name, folder, self.guarantee)

    def engine(self, name: str, folder: Path, **more: Any) -> RealEngine:
        """Return the engine ``name`` with two workers that run the workload, not started."""
        mode = {"output_mode": self.output_mode} if name == "spark" else {}
        return super().engine(name, folder, workload=self.workload.kind, parameters=self.parameters, **mode, **more)

    def load(self) -> dict[str, Any]:
        """The load, in which no event is late."""
        first = self.workload.stages[0]
        given = {**super().load(), "workload": {"kind": first.kind, **self.parameters}}
        given.pop("lateness", None)
        if first.kind in ROUNDED:
            given.pop("disorder")
        return given | first.settings(WINDOW_MS, EVENTS_PER_WINDOW)

    def events(self) -> list[Event]:
        """The events whose results are due: without a filter's others, and without those that only close windows."""
        [stream] = self.workload.streams
        found = [event_of(stream, message.value() or b"") for message in messages(self.bootstrap_servers, self.input)]
        newest = max((at for _, at, _, _ in found), default=0)
        where = self.workload.operator(WINDOW_MS).get("where", {})
        return [event for event in found if passes(where, event[3]) and (event[1] < newest or not self.waits)]

    def cells(self) -> Mapping[Cell, Sequence[Event]]:
        """The due events of each cell."""
        if self.operator == "session":
            return sessions(self.events(), self.workload.operator(WINDOW_MS)["gap_ms"])
        return cells_of(self.workload, self.events(), WINDOW_MS)

    def output_section(self) -> dict[str, Any]:
        """The sidecar's settings of the output topic."""
        found = REGISTRY[self.name].output(self.workload, self.inputs)
        return found | ({"emission": "cumulative"} if self.output_mode == "update" else {})

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input topics."""
        return (self.input,)

    def deviating(self) -> dict[Any, int]:
        """Class and cell of what the results lack or have too often."""
        results = messages(self.bootstrap_servers, self.output)
        newest = newest_of([cell for cell, _ in results_of(self.workload, results)], results)
        if self.output_section().get("emission") == "cumulative":
            results = newest
        if not self.workload.has_ids:
            found = Counter(deviations(self.workload, self.events(), newest, WINDOW_MS))
            return dict(found + self._again(results))
        due = Counter((cell, event[2]) for cell, its in self.cells().items() for event in its)
        if self.operator == "distinct":
            due = Counter(dict.fromkeys(due, 1))
        stated = ids_in(self.workload, results)
        wrong = wrong_fields(self.workload, self.events(), results) if self.operator == "passthrough" else {}
        return (
            {("missing", *one): n for one, n in (due - stated).items()}
            | {("duplicate", *one): n for one, n in (stated - due).items()}
            | wrong
        )

    def _again(self, results: Iterable[Message]) -> Counter[tuple[str, Cell]]:
        """The events in results that a later one of their cell repeats."""
        [count] = [name for name, what in self.workload.aggregates.items() if what == "count"]
        stated, newest = Counter[tuple[str, Cell]](), dict[Cell, int]()
        for cell, fields in results_of(self.workload, results):
            stated["duplicate", cell] += newest.get(cell, 0)
            newest[cell] = fields[count]
        return stated

    def finish(self, *, settle: bool = True) -> None:
        """Wait until the load has ended and no result is outstanding."""
        assert settle
        self._load.join()
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while any(name == "missing" for name, *_ in self.deviating()) and time.monotonic() < deadline:
            pass  # reading the topics paces this loop

    def validate(self, folder: Path, effective: Effective) -> tuple[int, dict[str, Any]]:
        """Run ``streamproof validate --once`` on the topics at rest; return its status and its report."""
        has_ids = self.workload.has_ids
        streams = zip(self.workload.streams, self.inputs, strict=True)
        given = {
            "pipeline": self.workload.kind,
            "guarantee": self.guarantee,
            "inputs": [stream.input(topic, has_ids=has_ids) for stream, topic in streams],
            "outputs": [{"topic": self.output, **self.output_section()}],
            "oracle": self.workload.oracle(self.inputs, WINDOW_MS),
            "timing": {"max_disorder": f"{self.max_disorder_ms}ms"},
        }
        return judged(folder, self.bootstrap_servers, given, effective, leaves_open=self.waits)


class PairedRun(WorkloadRun):
    """The same with two streams, whose pairs have results."""

    def __init__(self, broker: EmbeddedBroker, topic_names: Callable[[str], str], name: str, kind: str) -> None:
        super().__init__(broker, topic_names, name, kind)
        self.right, self.late_right = topic_names("right"), topic_names("late-right")
        broker.create_topics(dict.fromkeys((self.right, self.late_right), PARTITIONS))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The input topics."""
        return (self.input, self.right)

    def engine(self, name: str, folder: Path, **more: Any) -> RealEngine:
        """Return the engine, with both inputs."""
        return super().engine(name, folder, update_input=self.right, late_updates=self.late_right, **more)

    def load(self) -> dict[str, Any]:
        """The load of both streams."""
        return {**super().load(), "update_topic": self.right}

    def deviating(self) -> dict[Any, int]:
        """Class and cell of the pairs that have no result, or several."""
        topics = zip(self.workload.streams, self.inputs, strict=True)
        streams = [[event_of(stream, one) for one in self.values(topic)] for stream, topic in topics]
        return dict(wrong_pairs(self.workload, streams, self.values(self.output), WINDOW_MS))

    def values(self, topic: str) -> list[bytes]:
        """The records of a topic."""
        return [message.value() or b"" for message in messages(self.bootstrap_servers, topic)]


class WindowedRun(PairedRun):
    """The same with two streams that are joined in windows."""

    def deviating(self) -> dict[Any, int]:
        """Class, side, cell and id of the events that are in too few or too many results."""
        due = Counter[tuple[int, Cell, str]]()
        sides = [self._of_side(side) for side in range(2)]
        for cell in sides[0].keys() & sides[1].keys():
            due.update((side, cell, event[2]) for side, cells in enumerate(sides) for event in cells[cell])
        due = Counter(dict.fromkeys(due, 1))
        results = results_of(self.workload, messages(self.bootstrap_servers, self.output))
        stated = Counter(
            (side, cell, str(one))
            for cell, found in results
            for side, name in enumerate(self.workload.id_lists)
            for one in found[name]
        )
        return {("missing", *one): n for one, n in (due - stated).items()} | {
            ("duplicate", *one): n for one, n in (stated - due).items()
        }

    def _of_side(self, side: int) -> Mapping[Cell, Sequence[Event]]:
        """The events of a side that are joined, without those that only close windows."""
        where = self.workload.operator(WINDOW_MS).get("where" if side == 0 else "where_right", {})
        stream = self.workload.streams[side]
        found = [event_of(stream, value) for value in self.values(self.inputs[side])]
        newest = max((at for _, at, _, _ in found), default=0)
        return cells_of(self.workload, [one for one in found if passes(where, one[3]) and one[1] < newest], WINDOW_MS)


class StageRun(WorkloadRun):
    """The same for a stage of a chain: reference engines run the stages before it, and their results are the load."""

    def __init__(self, broker: EmbeddedBroker, topic_names: Callable[[str], str], name: str, kind: str) -> None:
        super().__init__(broker, topic_names, name, kind)
        self._stages = Topics(self.workload, topic_names("stage") + "-").stages
        broker.create_topics({topic: PARTITIONS for stage in self._stages for topic in stage.inputs})
        self._sent = 0

    def prepare(self, folder: Path) -> None:
        """Run the stages before."""
        first, *_ = self._stages
        load = {
            **self.load(), "topic": first.inputs[0], "update_topic": first.inputs[-1], "rate": {"shape": "max"},
            "limit": {"events": STAGED_EVENTS}, "start": "epoch",
        }  # fmt: skip
        # The first stage reads its partitions one after the other.
        load.pop("disorder", None)
        run.generate(config.parse(load))
        for number, stage in enumerate(self._stages[:-1]):
            settings = stage.engine(self.bootstrap_servers, WINDOW_MS, group=stage.output)
            with ReferenceEngine(
                settings, folder / f"stage-{number}", arguments=("--stop-at-end", "--close-at-end")
            ) as engine:
                engine.start()
                assert engine.wait() == (0,)

    def sent(self) -> int:
        return self._sent

    def _generate(self) -> None:
        """Write the results of the stage before at an even rate, and then records that close all windows."""
        stored = messages(self.bootstrap_servers, self._stages[-1].inputs[0])
        of = [[message for message in stored if message.partition() == number] for number in range(PARTITIONS)]
        load = sorted((place / len(one), number) for number, one in enumerate(of) for place in range(len(one)))
        nexts = [iter(one) for one in of]
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5, "log_level": 0})
        began = time.monotonic()
        for share, number in load:
            while time.monotonic() < began + share * LOAD_SECONDS:
                producer.poll(0.01)
            message = next(nexts[number])
            producer.produce(self.input, message.value(), message.key(), number)
            if share >= 0.5:
                self._half_way.set()
        [stream] = self.workload.streams
        path = stream.fields["event_time"]
        newest = max(datetime.fromisoformat(json.loads(message.value() or b"")[path]) for message in stored)
        for number, one in enumerate(of):
            closing = moved(stream, one[-1].value() or b"", newest + timedelta(hours=1), number)
            producer.produce(self.input, closing, one[-1].key(), number)
        assert producer.flush(30) == 0
        self._sent = len(stored) + PARTITIONS


def moved(stream: Stream, value: bytes, at: datetime, number: int) -> bytes:
    """A record of a stream, with another time and another id."""
    fields = json.loads(value) | {stream.fields["event_time"]: at.isoformat(timespec="milliseconds")}
    for name in (path.partition(".")[0] for path in stream.id_paths):
        if isinstance(fields[name], list):
            fields[name] = [1_000_000_000 + number]
    return json.dumps(fields).encode()


def passes(where: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Whether an event passes a workload's filter."""
    if not where:
        return True
    value = fields[where["field"]]
    if "one_of" in where:
        return value in where["one_of"]
    return where["contains"] in value if "contains" in where else int(str(value)) < where["below"]


def sessions(events: Iterable[Event], gap_ms: int) -> Mapping[Cell, Sequence[Event]]:
    """The events of each session: of a key, without a pause longer than the gap."""
    cells: dict[Cell, list[Event]] = {}
    newest: dict[str, tuple[int, Cell]] = {}
    for event in sorted(events, key=lambda event: event[1]):
        key, at = event[:2]
        last, cell = newest.get(key, (0, (at, key)))
        if at > last + gap_ms:
            cell = (at, key)
        cells.setdefault(cell, []).append(event)
        newest[key] = (at, cell)
    return cells


def newest_of(cells: Iterable[Cell], results: Iterable[Message]) -> list[Message]:
    """The newest result of each cell."""
    return list(dict(zip(cells, results, strict=True)).values())


@pytest.mark.parametrize(
    ("name", "kind", "output_mode"),
    [
        *((name, kind, "append") for name, kind in ALONE),
        ("spark", "nexmark_q7", "update"),
        ("spark", "nexmark_q12", "update"),
    ],
)
def test_a_killed_worker_costs_what_the_guarantee_allows(
    broker: EmbeddedBroker,
    topic_names: Callable[[str], str],
    tmp_path: Path,
    name: str,
    kind: str,
    output_mode: str,
) -> None:
    run = WorkloadRun(broker, topic_names, name, kind, output_mode)
    repeated = agreed(run, tmp_path)
    assert run.sent() > 6_000
    assert name in AT_LEAST_ONCE or repeated == 0


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_a_killed_worker_loses_no_pair(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path, name: str, kind: str
) -> None:
    run = PairedRun(broker, topic_names, name, kind)
    repeated = agreed(run, tmp_path)
    assert len(run.values(run.output)) > 2_000
    assert name in AT_LEAST_ONCE or repeated == 0


@pytest.mark.parametrize(("name", "kind"), JOINED)
def test_a_killed_worker_loses_no_event_of_a_join(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path, name: str, kind: str
) -> None:
    # Query 3 joins few events.
    assert agreed(WindowedRun(broker, topic_names, name, kind), tmp_path, at_least=50) == 0


@pytest.mark.parametrize(("name", "kind"), STAGES)
def test_a_killed_worker_loses_no_result_of_the_stage_before(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path, name: str, kind: str
) -> None:
    run = StageRun(broker, topic_names, name, kind)
    run.prepare(tmp_path)
    assert agreed(run, tmp_path) == 0
    assert run.sent() > 500


def agreed(run: WorkloadRun, folder: Path, *, at_least: int = 500) -> int:
    """Run the load, with a kill. Assert that nothing is missing, by the count and by the sidecar; return the number of
    contributions that both find repeated."""
    effective = run.killed(folder / "engine")
    assert effective.guarantee == run.guarantee
    found = run.deviating()
    assert {name for name, *_ in found} <= {"duplicate"}, found
    repeated = sum(found.values())
    status, report = run.validate(folder / "sidecar", effective)
    contributions = report["contributions"]
    print(run.name, run.workload.kind, run.output_mode, contributions)
    assert (status, report["verdicts"][run.guarantee]) == (0, "pass"), report["reasons"]
    assert (contributions["missing"], contributions["incorrect"], contributions["duplicate"]) == (0, 0, repeated)
    assert contributions["processed"] > at_least
    return repeated

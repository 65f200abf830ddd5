"""Every workload from end to end: generator, broker, reference engine or mutant, sidecar.

The reference engine must pass, with as many contributions as a count of the input topics finds. A mutant with an error
of each class, and one with further errors, must be found in exactly their cells and ids.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from generator import config as generator_config
from generator.run import generate
from generator.workloads.kinds import built, named
from generator.workloads.seam import Workload
from testbed.engines import truth
from testbed.engines.base import MutantEngine, ReferenceEngine
from testbed.engines.mutations import AppliedMutation, Mutation
from testbed.run_files import SidecarFile, Topics
from tests.integration.sidecar_fixtures import read_report
from tests.tiers import full
from tests.workload_count import Cell, Event, cells_of, deviations, event_of, pairs_of, violations, wrong_pairs
from tests.workload_errors import NO_ERRORS, WINDOW_MS, Errors, first_errors, further_errors, has_late_events, share_of
from validator.config.load import load
from validator.state.tables import StateTables
from validator.stream.sidecar import Sidecar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from testbed.broker import EmbeddedBroker

pytestmark = pytest.mark.timeout(900)

EVENTS: Final = 1_200
AT_END: Final = ("--stop-at-end", "--close-at-end")
CLASSES: Final = ("missing", "duplicate", "misplaced", "unknown_id")
LATE: Final = {"lateness": {"share": 0.02, "beyond": "10s"}}
FIRST_TIER: Final = ("nexmark_q8",)
LONGER: Final = {
    "nexmark_q3": 5 * EVENTS, "nexmark_q7": 3 * EVENTS, "nexmark_q20": 2 * EVENTS,
    **dict.fromkeys(("nexmark_q4_bids", "nexmark_q4_winners", "nexmark_q4"), 6 * EVENTS),
}  # fmt: skip
"""Number of events where few of them are owed."""
PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "shufflebench": {"rules": 60, "selectivity": 0.9, "zipf": 0.4, "output_rate": 3}
}
"""Of workloads whose default values suit longer loads, and in which a result per event is a special case."""


@dataclass(frozen=True)
class Case:
    """A workload, its loaded input topics, and their events by stream."""

    workload: Workload
    inputs: Topics
    broker: EmbeddedBroker
    spark: SparkSession
    folder: Path

    def run(self, name: str, mutations: Errors) -> tuple[int, dict[str, Any]]:
        """Run an engine over the input topics and the sidecar over all. Return exit status and report."""
        folder, topics = self.folder / name, Topics(self.workload, f"{name}-{self.workload.kind}-")
        folder.mkdir()
        self.broker.create_topics({topics.output: 2, **dict.fromkeys((*topics.late, topics.faults), 1)})
        settings = topics.engine(
            self.broker.bootstrap_servers, WINDOW_MS, inputs=self.inputs.inputs, group=topics.output,
            commit_interval_seconds=0.2,
            mutations={mutation: share_of(self.workload, mutation) for mutation in mutations},
            mutation_seed=11, truth=folder / "truth" if mutations else None,
        )  # fmt: skip
        with (MutantEngine if mutations else ReferenceEngine)(settings, folder / "engine", arguments=AT_END) as engine:
            engine.start()
            assert engine.wait() == (0,)
        return self._judge(folder, topics)

    def _judge(self, folder: Path, topics: Topics) -> tuple[int, dict[str, Any]]:
        file = SidecarFile(
            pipeline=topics.output, guarantee="exactly_once", engine="reference", window_ms=WINDOW_MS,
            overdue_after_ms=1_000, missing_after_ms=2_000, topics=topics,
        ).write(self.broker.bootstrap_servers, folder)  # fmt: skip
        text = file.read_text()
        for own, loaded in zip(topics.inputs, self.inputs.inputs, strict=True):
            text = text.replace(own, loaded)
        file.write_text(text)
        said: list[str] = []
        status = Sidecar(load(file), once=True, say=said.append, session=self.spark).run()
        report = read_report(folder / "state")
        assert report is not None, said
        return status, report

    def events(self) -> list[list[Event]]:
        """The events of each stream, decoded without the engine's code."""
        return [
            [event_of(stream, value) for value in records(self.broker, topic)]
            for stream, topic in zip(self.workload.streams, self.inputs.inputs, strict=True)
        ]


def records(broker: EmbeddedBroker, topic: str) -> Iterator[bytes]:
    """Yield the value of every record."""
    return (message.value() or b"" for message in messages(broker, topic))


def messages(broker: EmbeddedBroker, topic: str, partitions: int = 2) -> Iterator[Message]:
    """Yield every record, by partition in the order of offsets."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "count", "enable.partition.eof": True}
    with closing(Consumer(options)) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        ended = 0
        while ended < partitions:
            message = consumer.poll(30)
            assert message is not None, f"the end of {topic} was not reached within 30 s"
            if (error := message.error()) is None:
                yield message
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1


def passes_query_3(event: Event) -> bool:
    """Whether NexMark's query 3 reads the person or the auction."""
    return event[3].get("state") in ("OR", "ID", "CA") or event[3].get("category") == 10


def owed(workload: Workload, streams: list[list[Event]]) -> int:
    """Count the contributions that the oracle of a workload owes, one by one."""
    oracle = workload.oracle([stream.name for stream in workload.streams], WINDOW_MS)
    if oracle["kind"] == "interval_join":
        return 2 * len(pairs_of(workload, streams, WINDOW_MS))
    if oracle["kind"] == "windowed_join":
        if workload.kind == "nexmark_q3":
            streams = [[event for event in events if passes_query_3(event)] for events in streams]
        sides = [defaultdict[Any, int](int) for _ in streams]
        for side, events in zip(sides, streams, strict=True):
            for key, at, *_ in events:
                side[at // WINDOW_MS, key] += 1
        return sum(side[cell] for side in sides for cell in sides[0].keys() & sides[1].keys())
    [events] = streams
    if not workload.has_ids:
        every = oracle.get("every", 1)
        return sum(len(its) // every * every for its in cells_of(workload, events, WINDOW_MS).values())
    if workload.kind == "grep":
        return sum("ck" in fields["word"] for *_, fields in events)
    if workload.kind == "sample":
        return sum(int(fields["draw"]) < 100_000 for *_, fields in events)
    if oracle["kind"] == "distinct":
        return len({(key, at // WINDOW_MS, event_id) for key, at, event_id, _ in events})
    return sum(map(len, cells_of(workload, events, WINDOW_MS).values())) if "slide" in oracle else len(events)


CAUSES: Final = {
    "missing": {Mutation.DROP, Mutation.DROP_CELL, Mutation.MISPLACE, Mutation.ALTER, Mutation.SWAP, Mutation.ABORT},
    "duplicate": {Mutation.DUPLICATE, Mutation.DUPLICATE_RESULT, Mutation.SWAP},
    "misplaced": {Mutation.MISPLACE, Mutation.MISPLACE_COPY},
    "unknown_id": {Mutation.INVENT, Mutation.ALTER},
}
COUNTED: Final = {
    Mutation.DROP: "missing", Mutation.ABORT: "missing",
    Mutation.DUPLICATE: "duplicate", Mutation.INVENT: "duplicate", Mutation.MISPLACE_COPY: "duplicate",
}  # fmt: skip
"""The classes of errors in results without ids."""


def cell_of(workload: Workload, deed: AppliedMutation) -> Cell:
    """Return the cell of a mutation as the sidecar names it."""
    operator, [key] = workload.operator(WINDOW_MS).get("operator"), deed.key
    if operator == "running_aggregate":
        return None, json.dumps([key, str(deed.id)], separators=(",", ":"))
    # Results name other starts than the sidecar: the time of their event, or of the first one of their session.
    grid_ms = {"passthrough": WINDOW_MS, "session": workload.operator(WINDOW_MS).get("gap_ms", 0)}.get(str(operator), 1)
    return deed.window_start_ms // grid_ms * grid_ms, key


KINDS: Final = list(built())


@pytest.fixture
def case(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Case:
    workload = named(request.param).model_copy(update=PARAMETERS.get(request.param, {}))
    topics = Topics(workload, f"{workload.kind}-loaded-")
    first = topics.stages[0]
    broker.create_topics({name: 2 for stage in topics.stages for name in stage.inputs})
    settings = {
        "kafka": {"bootstrap_servers": broker.bootstrap_servers},
        "workload": {"kind": first.workload.kind, **PARAMETERS.get(workload.kind, {})}, "topic": first.inputs[0],
        "update_topic": first.inputs[-1], "window": "10s", "events_per_window": 40,
        "limit": {"events": LONGER.get(workload.kind, EVENTS)},
        "seed": 7, "delivery": {"linger": "5ms"}, **(LATE if has_late_events(workload) else {}),
        **first.workload.settings(WINDOW_MS, 40),
    }  # fmt: skip
    summary = generate(generator_config.parse(settings))
    assert summary.acknowledged == summary.sends > 0
    for number, stage in enumerate(topics.stages[:-1]):
        of_stage = stage.engine(broker.bootstrap_servers, WINDOW_MS, group=stage.output, commit_interval_seconds=0.2)
        with ReferenceEngine(of_stage, tmp_path / f"stage-{number}", arguments=AT_END) as engine:
            engine.start()
            assert engine.wait() == (0,)
    return Case(workload, topics, broker, spark, tmp_path)


@pytest.mark.parametrize(
    "case", [kind if kind in FIRST_TIER else full(kind) for kind in KINDS], indirect=True, ids=KINDS
)
def test_a_correct_engine_passes_and_each_error_is_found_where_it_is(case: Case) -> None:
    due_in_all = owed(case.workload, case.events())
    assert due_in_all > 100
    status, report = case.run("honest", ())
    counts = report["contributions"]
    assert (status, report["verdicts"]["exactly_once"]) == (0, "pass"), report["reasons"]
    assert counts["expected"] == counts["processed"] + counts["late"] == due_in_all
    assert (counts["late"] > 0) is has_late_events(case.workload)
    assert {name: counts[name] for name in CLASSES} == dict.fromkeys(CLASSES, 0)

    each_is_found(case, "mutant", first_errors(case.workload))
    each_is_found(case, "further", (*further_errors(case.workload), *NO_ERRORS))


def each_is_found(case: Case, name: str, damage: Errors) -> None:
    """Run a mutant with errors. Assert that the sidecar finds all of them, and nothing else."""
    status, report = case.run(name, damage)
    found = violations(StateTables(case.folder / name / "state"))
    classes = {one for one, causes in CAUSES.items() if causes & set(damage)}
    if not case.workload.has_ids:
        results = messages(case.broker, Topics(case.workload, f"{name}-{case.workload.kind}-").output)
        deviating = deviations(case.workload, case.events()[0], results, WINDOW_MS)
        assert {name for name, _ in deviating} >= {COUNTED[one] for one in damage if one in COUNTED}
        assert found == deviating
        assert (status, report["verdicts"]["exactly_once"]) == (1, "fail")
        return
    if case.workload.operator(WINDOW_MS).get("operator") == "interval":
        values = records(case.broker, Topics(case.workload, f"{name}-{case.workload.kind}-").output)
        wrong = wrong_pairs(case.workload, case.events(), values, WINDOW_MS)
        assert {name for name, _ in wrong} == classes
        assert found == wrong
        assert (status, report["verdicts"]["exactly_once"]) == (1, "fail")
        return
    due: Counter[tuple[str, Cell]] = Counter()
    routed = 0
    for deed in truth.read(case.folder / name / "truth"):
        if deed.violation_class == "late":
            routed += deed.count
        elif deed.violation_class is not None:
            due[deed.violation_class, cell_of(case.workload, deed)] += deed.count
    assert {name for name, _ in due} == classes
    assert found == dict(due)
    # How many others are late depends on which partition an engine reads first.
    late = Topics(case.workload, f"{name}-{case.workload.kind}-").late
    assert (
        report["contributions"]["late"] == sum(1 for topic in late for _ in messages(case.broker, topic, 1)) >= routed
    )
    assert (routed > 0) is (Mutation.LATE_ROUTE in damage)
    assert (status, report["verdicts"]["exactly_once"]) == (1, "fail")

"""A windowed join on a real broker: PGVal's MST from the generator, an engine that joins, and `validate --once`.

The counts are compared with the mutant's own truth, and with the topics as a plain consumer reads them.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from generator import config as generator_config
from generator.run import generate
from testbed.engines import truth
from testbed.engines.base import MutantEngine, ProcessEngine, ReferenceEngine
from testbed.engines.join import Join
from testbed.engines.mutations import Mutation
from testbed.engines.settings import EngineSettings
from tests.integration.sidecar_fixtures import Report, read_report
from tests.tiers import full
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.reconcile.evidence.seam import IDS_KEPT
from validator.state.tables import StateTables, Table
from validator.stream.sidecar import Sidecar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from testbed.broker import EmbeddedBroker

pytestmark = [pytest.mark.timeout(900)]

WINDOW_MS: Final = 10_000
PARTITIONS: Final = 2
CLASSES: Final = ("missing", "duplicate", "misplaced", "unknown_id")
IDS: Final = (
    Mutation.DROP,
    Mutation.DUPLICATE,
    Mutation.ALTER,
    Mutation.MISPLACE,
    Mutation.MISPLACE_COPY,
    Mutation.INVENT,
    Mutation.LATE_ROUTE,
)
RESULTS: Final = (Mutation.DROP_CELL, Mutation.DUPLICATE_RESULT, Mutation.ABORT, Mutation.ABORT_RETRY)
MUTATIONS: Final = {**dict.fromkeys(IDS, 0.02), **dict.fromkeys(RESULTS, 0.08)}
CLICKS: Final = 2310
"""Ten windows of 45 clicks per page, and the start of one window without updates."""

Cell = tuple[int, str]
Place = tuple[str, int, str]


@dataclass(frozen=True)
class Load:
    """The two input topics and their content: cell -> ids in the sidecar's notation, left and right."""

    click: str
    update: str
    cells: dict[Cell, tuple[set[str], set[str]]]


@pytest.fixture(scope="module")
def load(broker: EmbeddedBroker) -> Load:
    """The input of all engines. Both sides have late events and duplicates."""
    click, update = "join-click", "join-update"
    broker.create_topics({click: PARTITIONS, update: PARTITIONS})
    summary = generate(
        generator_config.parse(
            {
                "kafka": {"bootstrap_servers": broker.bootstrap_servers},
                "workload": "mst",
                "topic": click,
                "update_topic": update,
                "keys": {"pages": 5},
                "window": "10s",
                "events_per_window": 50,
                "update_percent": 10,
                "lateness": {"share": 0.02, "beyond": "20s"},
                "duplicates": {"share": 0.02},
                "limit": {"events": CLICKS},
                "delivery": {"linger": "5ms"},
                "seed": 7,
            }
        )
    )
    assert summary.acknowledged == summary.sends
    cells: dict[Cell, tuple[set[str], set[str]]] = defaultdict(lambda: (set(), set()))
    for side, topic in enumerate((click, update)):
        for event in records(broker, topic, PARTITIONS):
            id_ = str(event["id"]) if side == 0 else f"{update}/{event['id']}"
            cells[cell_of(event["timestamp"], event["page"])][side].add(id_)
    # Five updates per page in each of ten windows. The last clicks of five pages have no update.
    assert Counter(len(rights) for _, rights in cells.values()) == {5: 50, 0: 5}
    return Load(click, update, dict(cells))


def cell_of(text: str, page: str) -> Cell:
    """Return the cell of an event, or of a result by its window's start."""
    from testbed.engines.wire import time_ms

    return time_ms(text) // WINDOW_MS * WINDOW_MS, page


def records(broker: EmbeddedBroker, topic: str, partitions: int) -> list[dict[str, Any]]:
    """Return every record that a read_committed consumer sees."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "count", "enable.partition.eof": True}
    consumer = Consumer(options)
    found, ended = [], set()
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        while len(ended) < partitions:
            message = consumer.poll(30)
            assert message is not None, f"the end of {topic} was not reached within 30 s"
            if message.error() is None:
                found.append(json.loads(message.value() or b""))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
    finally:
        consumer.close()
    return found


@dataclass(frozen=True)
class Joined:
    """One engine's topics, and the sidecars that read them."""

    name: str
    join: Join
    load: Load
    broker: EmbeddedBroker
    spark: SparkSession
    folder: Path

    def settings(self, **more: Any) -> EngineSettings:
        topics = {f"{self.name}-{end}": PARTITIONS for end in ("out", "late", "late-updates")}
        self.broker.create_topics(topics)
        return EngineSettings(
            bootstrap_servers=self.broker.bootstrap_servers,
            inputs=(self.load.click, self.load.update),
            output=f"{self.name}-out",
            late=f"{self.name}-late",
            late_updates=f"{self.name}-late-updates",
            join=self.join,
            group=self.name,
            window_ms=WINDOW_MS,
            commit_interval_seconds=0.2,
            **more,
        )

    def finish(self, engine: ProcessEngine) -> None:
        with engine:
            engine.start()
            assert engine.wait() == (0,)

    def validate(self) -> tuple[int, Report]:
        """Run `validate --once` with the example's configuration on these topics."""
        config = loads(
            EXAMPLES["join"],
            self.folder,
            [
                f"pipeline={self.name}",
                f"kafka.bootstrap_servers={self.broker.bootstrap_servers}",
                f"inputs.0.topic={self.load.click}",
                f"inputs.1.topic={self.load.update}",
                f"outputs.0.topic={self.name}-out",
                f"outputs.0.fields.ids.0.input={self.load.click}",
                f"outputs.0.fields.ids.1.input={self.load.update}",
                "outputs.0.fields.window_end=windowEnd",
                f"late.0.topic={self.name}-late",
                f"late.0.input={self.load.click}",
                f"late.1.topic={self.name}-late-updates",
                f"late.1.input={self.load.update}",
                f"oracle.join={self.join}",
                f"oracle.left={self.load.click}",
                f"oracle.right={self.load.update}",
                "oracle.size=10s",
                "state.path=state",
                "metrics.port=0",
            ],
            {},
        )
        said: list[str] = []
        status = Sidecar(config, once=True, say=said.append, session=self.spark).run()
        report = read_report(self.folder / "state")
        assert report is not None, said
        return status, report

    def answered(self) -> Counter[tuple[Cell, str]]:
        """Return (cell, id) -> number of results that carry the id."""
        found: Counter[tuple[Cell, str]] = Counter()
        for result in records(self.broker, f"{self.name}-out", PARTITIONS):
            cell = cell_of(result["windowStart"], result["page"])
            found.update((cell, str(id_)) for id_ in result["clickIds"])
            found.update((cell, f"{self.load.update}/{id_}") for id_ in result["updateIds"])
        return found

    def set_aside(self) -> Counter[tuple[Cell, str]]:
        """Return (cell, id) -> number of late records that carry the id."""
        found: Counter[tuple[Cell, str]] = Counter()
        for late in records(self.broker, f"{self.name}-late", PARTITIONS):
            found[cell_of(late["clickTimestamp"], late["page"]), str(late["clickId"])] += 1
        for late in records(self.broker, f"{self.name}-late-updates", PARTITIONS):
            cell = cell_of(late["updateTimestamp"], late["page"])
            found[cell, f"{self.load.update}/{late['updateId']}"] += 1
        return found

    def found(self) -> dict[Place, tuple[int, tuple[str, ...]]]:
        """Return the place of each violation -> number of contributions, and the ids kept as evidence."""
        newest: dict[str, tuple[Place, int, tuple[str, ...]]] = {}
        rows = [row for part in StateTables(self.folder / "state").scan(Table.VIOLATIONS) for row in part.to_pylist()]
        for row in sorted(rows, key=itemgetter("batch")):
            assert row["state"] in ("confirmed", "retracted")
            place = (row["class"], row["window_start_us"] // 1000, row["key"])
            newest[row["violation"]] = (place, row["count"], tuple(row["ids"]))
        return {place: (count, ids) for place, count, ids in newest.values() if count}


@pytest.mark.full
@pytest.mark.parametrize("join", [full("inner"), "left"])
def test_a_correct_join_passes_through_kills(
    join: Join, load: Load, broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    joined = Joined(f"join-honest-{join}", join, load, broker, spark, tmp_path)
    settings = joined.settings()
    with ReferenceEngine(settings, tmp_path / "killed") as engine:
        engine.start()
        engine.ready()
        engine.kill()
    flags = ("--stop-at-end", "--close-at-end")
    joined.finish(ReferenceEngine(settings, tmp_path / "engine", arguments=flags))
    status, report = joined.validate()

    answered, aside = joined.answered(), joined.set_aside()
    assert set(answered.values()) == {1}
    assert aside, "the load has late events"
    counts = report["contributions"]
    assert counts["processed"] == answered.total()
    assert counts["late"] == aside.total()
    assert counts["expected"] == counts["processed"] + counts["late"]
    # Only a left join answers clicks without an update.
    alone = {cell for cell, (_, rights) in load.cells.items() if not rights}
    assert any(cell in alone for cell, _ in answered) is (join == "left")
    assert {name: counts[name] for name in CLASSES} == dict.fromkeys(CLASSES, 0)
    assert report["verdicts"]["exactly_once"] == "pass"
    assert status == 0
    assert report["coverage"]["complete"]


@pytest.mark.full
@pytest.mark.parametrize("join", ["inner", "left"])
def test_every_mutation_of_a_join_is_found_in_exactly_its_cells_and_ids(
    join: Join, load: Load, broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path
) -> None:
    joined = Joined(f"join-mutant-{join}", join, load, broker, spark, tmp_path)
    notes = tmp_path / "truth"
    settings = joined.settings(mutations=MUTATIONS, mutation_seed=11, truth=notes)
    flags = ("--stop-at-end", "--close-at-end")
    joined.finish(MutantEngine(settings, tmp_path / "engine", arguments=flags))
    status, report = joined.validate()

    due: dict[Place, Counter[str]] = defaultdict(Counter)
    done = set()
    for deed in truth.read(notes):
        done.add(deed.mutation)
        if deed.violation_class in CLASSES:
            due[deed.violation_class, deed.window_start_ms, deed.key[0]][str(deed.id)] += deed.count
    assert done == set(MUTATIONS), "the mutant did all that it was asked to"
    assert any("/" in id_ for ids in due.values() for id_ in ids), "and did it to updates, too"
    found = joined.found()
    assert {place: count for place, (count, _) in found.items()} == {place: ids.total() for place, ids in due.items()}
    for place, (_, ids) in found.items():
        assert len(set(ids)) == len(ids) == min(len(due[place]), IDS_KEPT)
        assert set(ids) <= set(due[place])
    assert report["contributions"]["late"] == joined.set_aside().total()
    assert report["verdicts"] == dict.fromkeys(("at_most_once", "at_least_once", "exactly_once"), "fail")
    assert status == 1

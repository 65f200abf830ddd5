"""Several runs on one state without Kafka and Spark: the sidecar's own `BatchRunner`, with fake brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import pyarrow as pa

from tests.unit.publish_snapshots import NOON_US
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.core.judging import Judging
from validator.model.classes import Verdict
from validator.model.frontier import Lookup, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.model.snapshot import Snapshot
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables, Table
from validator.stream.batch import BatchRunner
from validator.stream.brokers import Brokers, Topic
from validator.stream.commit_rows import epoch_of, frontier_rows
from validator.stream.generations import _rules_of
from validator.stream.recovery import recover, time_rules_of
from validator.stream.reporting import snapshot_of
from validator.stream.run_record import RunRecord
from validator.stream.sources import sources_of
from validator.stream.start_offsets import first_frontier

INPUT, OUTPUT, LATE = (PartitionId(topic, 0) for topic in ("click", "output", "lateOutput"))
ENDS: Final = {INPUT: 4, OUTPUT: 1, LATE: 0}
MISSING_AFTER_US: Final = 2 * MINUTE_US


class FakeBrokers:
    """Three topics of one partition each. ``committed``: the offset of the engine's group."""

    def __init__(self) -> None:
        self.committed: int | None = None

    def topics(self, names: Iterable[str], optional: object = ()) -> dict[str, Topic]:
        """The topics of ``names`` that exist."""
        del optional
        there = {place.topic for place in ENDS}
        return {name: Topic(name, f"id-{name}", (0,)) for name in names if name in there}

    def lookup(self, topics: Mapping[str, Topic]) -> dict[PartitionId, Lookup]:
        """Their ends, which never change."""
        return {
            place: Lookup(f"id-{place.topic}", 0, end, end, self.committed if place == INPUT else None)
            for place, end in ENDS.items()
            if place.topic in topics
        }

    def policies(self, topics: Iterable[str]) -> dict[str, str]:
        """No topic is compacted."""
        return dict.fromkeys(topics, "delete")


class RunsOfOneState:
    """A state whose runs have read all records. Ids 1 and 2 are answered, and the watermark has passed their window.
    Ids 3 and 4 are not answered, and their window is still open. The caller advances ``now_us``."""

    def __init__(self, state: Path) -> None:
        given = ["metrics.port=0", f"state.path={state}", "state.retention=48h", "engine.consumer_group=g"]
        self.config = loads(EXAMPLES["clickstream"], state, given, environment={})
        self.tables = StateTables(state)
        self.fake_brokers = FakeBrokers()
        self.brokers = cast("Brokers", self.fake_brokers)
        self.now_us = NOON_US
        self.rests = self.fake_brokers.lookup(self.fake_brokers.topics(place.topic for place in ENDS))
        self._generation = 1
        self._read_all()

    @property
    def moving(self) -> dict[PartitionId, Lookup]:
        """The lookup before the last event was appended."""
        return {**self.rests, INPUT: replace(self.rests[INPUT], high_watermark=3, last_stable_offset=3)}

    def _read_all(self) -> None:
        sides = {source.topic: source.side for source in sources_of(self.config)}
        frontiers = {
            place: first_frontier(sides[place.topic], place, lookup, 0, self.now_us - 1)
            for place, lookup in self.rests.items()
        }
        begun = IngestProgress(self._time_rules, lookup_us=self.now_us - 1, frontiers=frontiers)
        progress = begun.looked_up(0, self.now_us, self.rests, ENDS)
        retention = self.config.state.retention_us
        shared: dict[str, Any] = {"batch": 0, "lookup_us": self.now_us, "epoch": epoch_of(self.now_us, retention)}
        later = {**fact("input", [3, 4], **shared, window_us=MINUTE_US), "first_offset": 2, "last_offset": 3}
        later["ids"] = [{"id": 3, "offset": 2}, {"id": 4, "offset": 3}]
        rows = facts(
            {**fact("input", [1, 2], **shared), "topic": INPUT.topic, "last_offset": 1},
            {**later, "topic": INPUT.topic},
            {**fact("output", [1, 2], **shared), "last_offset": 0},
        )
        whole = pa.concat_tables([rows, frontier_rows(progress, None, retention)])
        self.tables.append(whole, Table.FACTS, writer="generation-0", version=0)

    @property
    def _time_rules(self) -> TimeRules:
        return time_rules_of(self.config)

    def start(self, publish: Callable[[], None] = lambda: None) -> BatchRunner:
        """A runner of a new process on the state."""
        found = recover(self.tables, self._time_rules, self.config.oracle)
        known = KnownFacts(self.tables, first_batch=found.progress.batch + 1)
        self._generation += 1
        return BatchRunner(
            config=self.config,
            sources=sources_of(self.config),
            brokers=self.brokers,
            progress=found.progress,
            judging=Judging(known, _rules_of(self.config), cells=found.cells, retired=found.retired.sums),
            record=RunRecord(),
            tables=self.tables,
            generation=self._generation,
            checkpoint=self.tables.state / "checkpoint",
            starts={},
            retired=found.retired,
            positions=found.positions,
            read_faults=lambda: None,
            publish=publish,
            now_us=lambda: self.now_us,
        )


def shown(runner: BatchRunner) -> Snapshot:
    """The snapshot that the runner would publish."""
    return snapshot_of(runner.config, runner.progress, runner.judging.sums, runner.record)


def verdict(runner: BatchRunner) -> Verdict:
    """The verdict on the declared guarantee."""
    return shown(runner).verdicts[runner.config.guarantee]

"""Tables whose records replace the row of their record key: random logs, an engine, and a sidecar without Spark.

Only the records, the brokers and the tables are replaced: the bytes of each record are decoded and grouped by the code
of a batch's stage. Compaction removes records that later ones replace, whether they were read or not. The reference
applies the records that were read to a dictionary (SEMANTICS 2.35).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from tests.unit.fed_run import FedRun
from tests.unit.memory_tables import MemoryTables
from validator.codecs.batches import columns_of
from validator.model.coverage import RangeCount
from validator.model.frontier import Lookup, PartitionId
from validator.model.progress import IngestProgress
from validator.model.snapshot import Snapshot
from validator.reconcile.facts import GROUPED
from validator.stream.batch import BatchRunner
from validator.stream.brokers import Topic
from validator.stream.coverage_sums import failed_sums
from validator.stream.kafka_reading import Range
from validator.stream.sources import sources_of
from validator.stream.topic_settings import TopicSettings
from validator.stream.workers import FactsRead

ROWS: Final = "rows"
MORE: Final = "more"
RESULTS: Final = "results"
SECOND_US: Final = 1_000_000
MISSING_AFTER_US: Final = 60 * SECOND_US
DELETIONS_KEPT_US: Final = 86_400 * SECOND_US
GROUPS: Final = ("new", "paid", "sent")
BINARY: Final = b"\x00\x00\xc3"

Row = dict[str, Any]


class Written(NamedTuple):
    """A record. ``value``: None deletes the row of ``key``."""

    offset: int
    time_us: int
    key: bytes | None
    value: bytes | None


def row(group: str | None, amount: object, **more: object) -> bytes:
    """The value of a record with a row."""
    return json.dumps({"status": group, "amount": amount, **more}).encode()


@dataclass
class Brokers:
    """Topics with ``partitions`` each. ``removed``: records that compaction removed, by position."""

    partitions: dict[str, int]
    logs: dict[PartitionId, list[Written]] = field(default_factory=lambda: defaultdict(list))
    removed: set[tuple[PartitionId, int]] = field(default_factory=set)
    policy: str = "compact"
    deletions_kept_us: int = DELETIONS_KEPT_US

    @property
    def ends(self) -> dict[str, int]:
        """As the brokers of `FedRun`."""
        return dict.fromkeys(self.partitions, 0)

    def put(self, topic: str, partition: int, time_us: int, key: bytes | None, value: bytes | None) -> None:
        """Append a record."""
        log = self.logs[PartitionId(topic, partition)]
        log.append(Written(len(log), time_us, key, value))

    def visible(self, place: PartitionId, start: int, end: int) -> list[Written]:
        """The records that a reader of a range finds."""
        return [one for one in self.logs[place][start:end] if (place, one.offset) not in self.removed]

    def compact(self, rng: Random) -> None:
        """Remove some records that later ones of their key replace."""
        for place, log in self.logs.items():
            if place.topic == RESULTS:
                continue
            newest = {one.key: one.offset for one in log}
            for one in log:
                if one.offset < newest[one.key] and rng.random() < 0.6:
                    self.removed.add((place, one.offset))

    def topics(self, names: Iterable[str], optional: object = ()) -> dict[str, Topic]:
        del optional
        return {
            name: Topic(name, f"id-{name}", tuple(range(self.partitions[name])))
            for name in names
            if name in self.partitions
        }

    def lookup(self, topics: Iterable[str]) -> dict[PartitionId, Lookup]:
        places = [PartitionId(name, number) for name in topics for number in range(self.partitions.get(name, 0))]
        return {at: Lookup(f"id-{at.topic}", 0, len(self.logs[at]), len(self.logs[at])) for at in places}

    def policies(self, topics: Iterable[str]) -> dict[str, str]:
        return {topic: self.policy if topic != RESULTS else "delete" for topic in topics}

    def settings(self, topics: Iterable[str]) -> dict[str, TopicSettings]:
        return {
            topic: TopicSettings(policy, True, None, None, self.deletions_kept_us)
            for topic, policy in self.policies(topics).items()
        }


class _Runner(BatchRunner):
    tasks: int = 1

    def _read_ranges(self, ranges: Sequence[Range], progress: IngestProgress) -> FactsRead:
        stage = self._stage(progress, self._schemas)
        parts, counts = [GROUPED.empty_table()], []
        for one in ranges:
            place = PartitionId(one.topic, one.partition)
            found = cast("Brokers", self.brokers).visible(place, one.start, one.end)
            decoder = stage.readers[one.source].decoder
            names = columns_of(decoder)
            for some in np.array_split(np.arange(len(found)), self.tasks):
                batches = [
                    _batch([found[at] for at in few], one.partition, decoder.most_of_key or 0).select(names)
                    for few in np.array_split(some, 2)
                ]
                parts += stage.facts(one.source, iter(batches))
            counts.append(RangeCount(one.topic, one.partition, one.end - one.start - len(found)))
        return FactsRead(pa.concat_tables(parts), tuple(counts))


def _batch(records: Sequence[Written], partition: int, most_of_key: int) -> pa.RecordBatch:
    """The records as workers read them: without keys that are too long."""
    keys = [one.key for one in records]
    columns = {
        "value": pa.array([one.value for one in records], pa.binary()),
        "partition": pa.array([partition] * len(records), pa.int32()),
        "offset": pa.array([one.offset for one in records], pa.int64()),
        "time_us": pa.array([one.time_us for one in records], pa.int64()),
        "key": pa.array([None if key is None or len(key) > most_of_key else key for key in keys], pa.binary()),
        "key_size": pa.array([None if key is None else len(key) for key in keys], pa.int32()),
    }
    return pa.RecordBatch.from_pydict(columns)


@dataclass
class UpsertRun(FedRun):
    """A sidecar on tables of ``topics``, with two partitions each."""

    runs = _Runner
    topics: tuple[str, ...] = (ROWS,)
    where: str = ""
    retention: str = "7d"

    def __post_init__(self) -> None:
        fields = "fields: {key: status, event_time: $timestamp}"
        inputs = ", ".join(f"{{topic: {one}, table: true, tombstone: delete, {fields}}}" for one in self.topics)
        stated = "fields: {key: $key, values: {orders: n, total: total}}"
        self.settings = (
            f"oracle={{kind: running_aggregate, values: {{orders: count, total: sum(amount)}}{self.where}}}",
            f"inputs=[{inputs}]",
            f"outputs=[{{topic: {RESULTS}, evidence: values, emission: cumulative, {stated}}}]",
            *("late=[]", "rejected=[]", "start=earliest", f"state.retention={self.retention}"),
            "timing={max_disorder: 0s, allowed_lateness: 0s, idle_after: 5s, overdue_after: 30s, missing_after: 60s}",
            *self.settings,
        )
        self._configure()
        self.sides = {source.topic: source.side for source in sources_of(self.config)}
        self.logs = Brokers({**dict.fromkeys(self.topics, 2), RESULTS: 1})  # type: ignore[assignment]
        self.restart()

    @property
    def brokers(self) -> Brokers:
        """The brokers."""
        return cast("Brokers", self.logs)

    def batch(self, after_us: int = SECOND_US, *, share: float = 1.0, tasks: int = 1) -> Snapshot:
        """Run a batch, which reads this share of what is unread of each input."""
        self.now_us += after_us
        cast("_Runner", self.runner).tasks = tasks
        ends = {}
        for place, frontier in self.runner.progress.frontiers.items():
            unread = len(self.brokers.logs[place]) - frontier.next_offset
            ends[place] = frontier.next_offset + (unread if place.topic == RESULTS else round(share * unread))
        self.runner.advance(ends)
        assert list(failed_sums(self.runner.progress, self.runner.judging.sums)) == []
        return self.shown()

    def rows_read(self) -> Counter[str]:
        """How many rows each group has by the records that were read and not removed before."""
        found: dict[tuple[PartitionId, bytes | None], str] = {}
        for place, log in self.brokers.logs.items():
            if place.topic == RESULTS:
                continue
            for one in log[: self.runner.progress.frontiers[place].next_offset]:
                if one.value is None or not self.counts(json.loads(one.value)):
                    found.pop((place, one.key), None)
                else:
                    found[place, one.key] = json.loads(one.value)["status"]
        return Counter(found.values())

    def counts(self, value: Row) -> bool:
        """Whether the condition of the oracle holds."""
        return not self.where or value.get("kind") == "order"

    def net(self) -> Counter[str]:
        """How many rows each group has by the facts."""
        cells = self.runner.judging.cells
        return Counter(
            {key: count for key, count in zip(cells.keys().to_pylist(), cells["net"].tolist(), strict=True) if count}
        )


def new_run(folder: Path, **settings: Any) -> UpsertRun:
    """A sidecar with its tables in memory."""
    folder.mkdir(exist_ok=True, parents=True)
    return UpsertRun(folder, tables=MemoryTables(folder), **settings)


class Engine:
    """Counts the rows of each group, and sums their amounts. ``loses``: the numbers of the changes that it loses."""

    def __init__(self, run: UpsertRun, rng: Random, loses: frozenset[int] = frozenset()) -> None:
        self.run, self.rng, self.loses = run, rng, loses
        self.at: Counter[PartitionId] = Counter()
        self.rows: dict[tuple[PartitionId, bytes | None], Row] = {}
        self.used = 0
        self.said: dict[str, bytes | None] = {}

    def poll(self, share: float = 1.0) -> None:
        """Use some of the records that are unread, and write the results that change."""
        for place, log in sorted(self.run.brokers.logs.items()):
            if place.topic == RESULTS:
                continue
            end = self.at[place] + round(share * (len(log) - self.at[place]))
            for one in self.run.brokers.visible(place, self.at[place], end):
                self._use(place, one)
                if self.rng.random() < 0.3:
                    self.write()
            self.at[place] = end
        self.write()

    def _use(self, place: PartitionId, one: Written) -> None:
        self.used += 1
        if self.used in self.loses:
            return
        if one.value is None or not self.run.counts(json.loads(one.value)):
            self.rows.pop((place, one.key), None)
        else:
            self.rows[place, one.key] = json.loads(one.value)

    def stated(self) -> dict[str, bytes]:
        """The result of each group."""
        of: dict[str, list[float]] = defaultdict(list)
        for it in self.rows.values():
            of[it["status"]].append(it["amount"])
        return {
            group: json.dumps({"n": len(found), "total": _total(found)}).encode() for group, found in sorted(of.items())
        }

    def read_all(self) -> dict[str, bytes]:
        """The result of each group by all records that compaction has left, of which none is lost."""
        whole = Engine(self.run, self.rng)
        for place, log in sorted(self.run.brokers.logs.items()):
            for one in self.run.brokers.visible(place, 0, len(log)) if place.topic != RESULTS else ():
                whole._use(place, one)
        return whole.stated()

    def write(self) -> None:
        """Write what differs from the newest results."""
        now = self.stated()
        for group in sorted({*now, *self.said}):
            value = now.get(group)
            if value != self.said.get(group):
                self.said[group] = value
                self.run.brokers.put(RESULTS, 0, self.run.now_us, group.encode(), value)


def _total(amounts: Sequence[float | None]) -> float | None:
    known = [it for it in amounts if it is not None]
    return sum(known) if known else None

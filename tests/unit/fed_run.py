"""A sidecar without Kafka and Spark: tests feed records to its `BatchRunner`, in which only Spark's job is replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import pyarrow as pa

from tests.unit.publish_snapshots import NOON_US
from tests.unit.range_counts import counted
from tests.unit.reconcile_rows import fact, facts
from validator.codecs.columns import UNDECODABLE, UNOWED
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.core.evicted import EVICTED_AT_ONCE
from validator.model.frontier import Lookup, PartitionId
from validator.model.progress import IngestProgress
from validator.model.snapshot import Snapshot
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables
from validator.stream.batch import BatchRunner
from validator.stream.brokers import Brokers, Topic
from validator.stream.commit_rows import epoch_of
from validator.stream.coverage_sums import failed_sums
from validator.stream.generations import _rules_of
from validator.stream.kafka_reading import Range
from validator.stream.recovery import recover, restore_record, time_rules_of
from validator.stream.reporting import snapshot_of
from validator.stream.rereading import adopt
from validator.stream.run_record import RunRecord
from validator.stream.saved_cells import Saver, saved_cells
from validator.stream.sources import sources_of
from validator.stream.start_offsets import first_frontier, initial_progress
from validator.stream.workers import FactsRead


@dataclass(frozen=True)
class Fed:
    """A record. On an input or late topic it has one id, on an output any number of ids. With ``ids`` None it does not
    decode. ``owed``: whether the oracle's condition holds for the event. ``names``: the position that a rejected record
    names."""

    topic: str
    ids: tuple[int | str, ...] | None
    window_us: int = 0
    key: str = "a"
    owed: bool = True
    names: str | None = None
    partition: int = 0


def confirmed(shown: Snapshot) -> dict[str, int]:
    """Class -> confirmed contributions that a report states, if any."""
    return {name: count for name, count in shown.violations["confirmed"].items() if count}


def suspected(shown: Snapshot) -> dict[str, int]:
    """Class -> suspected contributions that a report states, if any."""
    return {name: count for name, count in shown.violations["suspected"].items() if count}


@dataclass
class Logs:
    """Brokers with topics of one partition each. ``ends``: records per topic. ``committed``: the offset of the engine's
    group. ``open_from``: topic -> first offset that an open transaction hides. ``made_anew``: topics that were deleted
    and created again. ``starts``: topic -> first offset that retention has left. ``policy``: the `cleanup.policy` of
    all topics. ``added``: partition that was added to its topic -> its log start and end."""

    ends: dict[str, int]
    committed: int | None = None
    open_from: dict[str, int] = field(default_factory=dict)
    made_anew: set[str] = field(default_factory=set)
    starts: dict[str, int] = field(default_factory=dict)
    policy: str = "delete"
    added: dict[PartitionId, tuple[int, int]] = field(default_factory=dict)

    def visible_end(self, name: str) -> int:
        return self.open_from.get(name, self.ends[name])

    def topics(self, names: Iterable[str], optional: object = ()) -> dict[str, Topic]:
        del optional
        return {name: Topic(name, self._id(name), self._partitions(name)) for name in names if name in self.ends}

    def lookup(self, topics: Iterable[str]) -> dict[PartitionId, Lookup]:
        names = list(topics)
        first = {
            PartitionId(name, 0): Lookup(
                self._id(name), self.starts.get(name, 0), self.ends[name], self.visible_end(name), self.committed
            )
            for name in names
        }
        return first | {
            place: Lookup(self._id(place.topic), start, end, end, self.committed)
            for place, (start, end) in self.added.items()
            if place.topic in names
        }

    def policies(self, topics: Iterable[str]) -> dict[str, str]:
        return dict.fromkeys(topics, self.policy)

    def _partitions(self, name: str) -> tuple[int, ...]:
        return (0, *sorted(place.partition for place in self.added if place.topic == name))

    def _id(self, name: str) -> str:
        return f"again-{name}" if name in self.made_anew else f"id-{name}"


class _FedRunner(BatchRunner):
    rows: Sequence[dict[str, Any]] = ()

    def _facts(self, ranges: Sequence[Range], progress: IngestProgress) -> FactsRead:
        read = self._rows_of(progress)
        return FactsRead(read, counted(ranges, read))

    def _rows_of(self, progress: IngestProgress) -> pa.Table:
        of_batch = {
            "batch": progress.batch,
            "lookup_us": progress.lookup_us,
            "epoch": epoch_of(progress.lookup_us, self._retention),
        }
        found = ({**row, **of_batch} for row in self.rows)
        if not progress.partitions_with_hidden_start:
            return facts(*found)
        return facts(*({**row, "first_event_time_us": row["newest_event_time_us"]} for row in found))


@dataclass
class FedRun:
    """A run of an example configuration with ``settings``. The caller advances ``now_us``. ``tables``: the tables of
    the state; by default those in the folder ``state``."""

    planted: ClassVar[bool] = False
    """Whether the test plants a defect that the coverage sums must find. Otherwise they hold after every batch."""
    saves: ClassVar[bool] = False
    """Whether the run saves memory after every batch for the next process."""
    runs: ClassVar[type[BatchRunner]] = _FedRunner

    state: Path
    settings: tuple[str, ...] = ()
    example: str = "clickstream"
    """Name of the example."""
    now_us: int = NOON_US
    tables: StateTables | None = None
    runner: BatchRunner = field(init=False)
    folded_from: int = field(init=False)
    """The first batch whose facts the newest process folded."""
    _sent: list[tuple[PartitionId, int, Fed]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._configure()
        self.sides = {source.topic: source.side for source in sources_of(self.config)}
        self.logs = Logs(dict.fromkeys(self.sides, 0))
        self.restart()

    def _configure(self) -> None:
        given = ["metrics.port=0", f"state.path={self.state}", *self.settings]
        self.config = loads(EXAMPLES[self.example], self.state, given, environment={})

    def correct(self, setting: str = "", topic: str = "", decoded: Sequence[Fed] = ()) -> tuple[str, ...]:
        """Start a new process with a further setting, with which the records of ``topic`` are read as ``decoded``.
        Returns the topics that are read again. Without a setting, the state adopts its first configuration."""
        self.settings = (*self.settings, *filter(None, [setting]))
        self._configure()
        again = adopt(StateTables(self.state) if self.tables is None else self.tables, self.config)
        instead = iter(decoded)
        self._sent = [(at, offset, next(instead) if at.topic == topic else one) for at, offset, one in self._sent]
        self.restart()
        return again

    def restart(self) -> None:
        """Start a new process on the state. It opens a generation."""
        sources = [source for source in sources_of(self.config) if source.topic in self.logs.ends]
        absent, brokers = self.sides.keys() - self.logs.ends.keys(), cast("Brokers", self.logs)
        tables = StateTables(self.state) if self.tables is None else self.tables
        time_rules = time_rules_of(self.config)
        rules = _rules_of(self.config)
        saved = saved_cells(self.state, rules, time_rules) if self.saves else None
        assert not isinstance(saved, str), saved
        found = recover(tables, time_rules, self.config.oracle, saved)
        self.folded_from = found.folded_from
        before, lookups = found.progress, self.logs.lookup(self.logs.ends)
        opened_us = max(before.lookup_us, self.now_us) + 1
        if before.frontiers:
            progress, lookups = initial_progress(
                before, self.config, brokers, sources, self.logs.topics(self.sides), opened_us
            )
        else:
            frontiers = {
                place: first_frontier(self.sides[place.topic], place, lookup, 0, self.now_us - 1)
                for place, lookup in lookups.items()
            }
            before = progress = IngestProgress(before.rules, lookup_us=self.now_us - 1, frontiers=frontiers)
        record = RunRecord(
            unexamined=found.unread.unexamined,
            waiting_for=tuple(sorted(absent)),
            explained_by_one=rules.oracle.explained_by_one,
            hidden_inputs_lose=rules.oracle.hidden_inputs_lose,
            missing_after_us=self.config.timing.missing_after_us,
            copies_explain=self.config.copies_explain,
        )
        record.waiting_sides = frozenset(self.sides[topic].value for topic in absent)
        if progress.batch >= 0:
            restore_record(tables, record)
        self.runner = self.runs(
            config=self.config,
            sources=sources,
            brokers=brokers,
            progress=progress,
            judging=found.judging(
                KnownFacts(tables, first_batch=progress.batch + 1), rules, 1 if self.saves else EVICTED_AT_ONCE
            ),
            record=record,
            tables=tables,
            generation=record.restarts + 1,
            checkpoint=self.state / "checkpoint",
            starts={},
            retired=found.retired,
            positions=found.positions,
            read_faults=lambda: None,
            publish=lambda: None,
            now_us=lambda: self.now_us,
            saver=Saver(self.state, rules, time_rules, rereads=found.rereads) if self.saves else None,
        )
        self.runner.open(before, lookups, opened_us)

    def send(self, *records: Fed) -> None:
        """Append records; a later batch reads them."""
        for one in records:
            place = PartitionId(one.topic, one.partition)
            if place in self.logs.added:
                start, end = self.logs.added[place]
                self.logs.added[place] = start, end + 1
            else:
                end = self.logs.ends[one.topic]
                self.logs.ends[one.topic] += 1
            self._sent.append((place, end, one))

    def feed(
        self, records: Sequence[Fed], *, after_us: int = 1, but: Sequence[str] = (), meanwhile: Sequence[Fed] = ()
    ) -> Snapshot:
        """Run a batch ``after_us`` after the last one and return the published snapshot. It reads all visible records
        except those of the topics ``but``. ``meanwhile``: records appended after the batch's ends were planned, which
        it does not read."""
        self.now_us += after_us
        self.send(*records)
        runner = cast("_FedRunner", self.runner)
        known = {place: frontier.next_offset for place, frontier in runner.progress.frontiers.items()}
        ends = {PartitionId(name, 0): self.logs.visible_end(name) for name in self.logs.ends if name not in but}
        ends |= {place: end for place, (_, end) in self.logs.added.items() if place.topic not in but}
        runner.rows = [
            _row(one, self.sides[one.topic], offset, self.now_us)
            for place, offset, one in self._sent
            if max(known.get(place, 0), self.logs.added.get(place, (0,))[0]) <= offset < ends.get(place, 0)
        ]
        self.send(*meanwhile)
        before = runner.progress.batch
        runner.advance(ends)
        if runner.progress.batch > before and not self.planted:
            assert list(failed_sums(runner.progress, runner.judging.sums)) == []
        if self.saves:
            runner.save()
        return self.shown()

    def end(self) -> Snapshot:
        """End the run as `--once` does."""
        self.now_us += 1
        self.runner.conclude(self.logs.lookup(self.logs.ends), leave_open=False, at_rest=False)
        return self.shown()

    def shown(self) -> Snapshot:
        """The report that is published now."""
        return snapshot_of(self.config, self.runner.progress, self.runner.judging.sums, self.runner.record)

    @property
    def recorded(self) -> Mapping[tuple[str, str], int]:
        """(class, phase) -> contributions confirmed so far, as the run's record counts them."""
        return self.runner.record.confirmed_total


def _row(one: Fed, side: str, offset: int, at_us: int) -> dict[str, Any]:
    numbers = [id_ for id_ in one.ids or () if isinstance(id_, int)]
    texts = [id_ for id_ in one.ids or () if isinstance(id_, str)]
    row = fact(side, numbers or (0,), batch=0, lookup_us=at_us, window_us=one.window_us, key=one.key)
    place = {
        "topic": one.topic,
        "partition": one.partition,
        "records": 1,
        "first_offset": offset,
        "last_offset": offset,
    }
    if one.ids is None:
        nothing = dict.fromkeys(("window_start_us", "key", "newest_event_time_us", "min_id", "max_id"))
        named = [] if one.names is None else [{"id": one.names, "offset": offset}]
        empty = {"contributions": 0, "ids": [], "text_ids": named, "results": []}
        return {**row, **place, **nothing, **empty, "status": UNDECODABLE}
    if side == "output":
        result = {"offset": offset, "time_us": at_us, "ids": numbers, "text_ids": texts}
        return {**row, **place, "contributions": len(one.ids), "results": [result]}
    of_event = {
        name: [{"id": id_, "offset": offset} for id_ in ids] for name, ids in (("ids", numbers), ("text_ids", texts))
    }
    nothing = {"status": UNOWED, "contributions": 0, "hash_a": 0, "hash_b": 0}
    return {**row, **place, **of_event, **({} if one.owed else nothing)}

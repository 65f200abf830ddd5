"""Start offsets of a generation: the committed frontiers, or the setting `start` for partitions never read before."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from confluent_kafka import TopicPartition

from validator.config.model import Config, Output
from validator.model.frontier import NO_LOG, Frontier, Lookup, PartitionId
from validator.model.progress import IngestProgress, OffsetGap
from validator.reconcile.facts import Side
from validator.stream.brokers import Brokers, BrokersUnreachable, Topic
from validator.stream.sources import Source


def initial_progress(
    progress: IngestProgress,
    config: Config,
    brokers: Brokers,
    sources: list[Source],
    topics: Mapping[str, Topic],
    lookup_us: int,
) -> tuple[IngestProgress, dict[PartitionId, Lookup]]:
    """The progress with a frontier for every partition of ``topics``, and the lookups of the partitions.

    Records that retention removed before they were read are counted as expired. Raises `BrokersUnreachable`, also if a
    broker lists a topic that no longer exists.
    """
    former = sorted(topic.name for topic in topics.values() if topic.id in progress.former_ids)
    if former:
        # SEMANTICS 3.2: to read the new topic again from its start would count its records twice.
        raise BrokersUnreachable(f"a broker still lists topic {former[0]} as it was before it was recreated")
    lookups = brokers.lookup(topics)
    frontiers = dict(progress.frontiers)
    known_topics = {partition.topic for partition in frontiers}
    wanted = _starts(config, brokers, topics, lookups)
    tables = {source.topic for source in sources if source.side is Side.TABLE}
    wanted |= {partition: it.log_start_offset for partition, it in lookups.items() if partition.topic in tables}
    if config.start.kind != "earliest" and any(partition not in frontiers for partition in lookups):
        # The answers that `start` hides may be to events that were appended after the ends of the inputs were looked
        # up. Ends that are looked up after the starts are past these events.
        lookups = brokers.lookup(topics)
    lookups |= absent_partitions(frontiers, topics)
    sides = {source.topic: source.side for source in sources}
    whole_inputs = any(
        lookup.log_start_offset == 0 and lookup.high_watermark > 0
        for partition, lookup in lookups.items()
        if sides.get(partition.topic) == "input"
    )
    results_expired, offset_gaps = progress.results_expired, list(progress.offset_gaps)
    replaced, cut_back, former_ids = set(progress.replaced), set(progress.cut_back), set(progress.former_ids)
    for partition, lookup in sorted(lookups.items()):
        if partition.topic not in sides:
            continue
        known = frontiers.get(partition)
        if known is None:
            if partition.topic in known_topics:
                frontiers[partition] = added_frontier(sides[partition.topic], partition, lookup, lookup_us)
                results_expired |= frontiers[partition].unread_since_us is not None
                offset_gaps += gaps_before(partition, frontiers[partition])
                continue
            start = wanted[partition]
            frontier = first_frontier(sides[partition.topic], partition, lookup, start, lookup_us)
            if frontier.side == "table":
                # SEMANTICS 2.37: a table is read from its first row on.
                frontier = replace(frontier, first_offset=0, expired=start, hidden_start=False)
            elif frontier.side != "input" and frontier.hidden_start:
                frontier, results_expired = replace(frontier, unread_since_us=0), True
                if whole_inputs and config.start.kind == "earliest":
                    # SEMANTICS 3.24: inputs are read from offset 0, so the expired results belonged to events that are
                    # read.
                    frontier = replace(frontier, first_offset=0, expired=start)
            frontiers[partition] = frontier
            continue
        frontiers[partition] = after_loss = _after_loss(known, lookup, lookup_us)
        if after_loss is known:
            continue
        if after_loss.topic_id != known.topic_id:
            replaced.add(partition)
            former_ids.add(known.topic_id)
        elif is_cut_back(known, lookup):
            cut_back.add(partition)
        if known.side == "input":
            # The offsets of a recreated topic start again at 0, so all of them come after the lost records.
            offset_gaps.append(
                OffsetGap(partition, 0 if after_loss.topic_id != known.topic_id else after_loss.next_offset)
            )
        elif known.side != "table":
            results_expired = True
    progress = replace(
        progress,
        frontiers=frontiers,
        results_expired=results_expired,
        offset_gaps=tuple(offset_gaps),
        replaced=frozenset(replaced),
        cut_back=frozenset(cut_back),
        former_ids=frozenset(former_ids),
    )
    return progress, lookups


def faults_topic(config: Config) -> tuple[str, ...]:
    """The name of the faults topic; empty if none is configured."""
    return () if config.faults is None else (config.faults.topic,)


def with_faults_topic(progress: IngestProgress, config: Config, topics: Mapping[str, Topic]) -> IngestProgress:
    """The progress with the topic id of the faults topic, if the topic exists."""
    found = {topics[name].id for name in faults_topic(config) if name in topics}
    return (
        progress if found <= progress.faults_topics else replace(progress, faults_topics=progress.faults_topics | found)
    )


def absent_partitions(
    frontiers: Mapping[PartitionId, Frontier], topics: Mapping[str, Topic]
) -> dict[PartitionId, Lookup]:
    """Lookups for partitions that a recreated topic no longer has: their logs are empty.

    If the topic id is unchanged, a partition that is absent from a listing may still hold records and is left out.
    """
    return {
        partition: Lookup(
            topic_id=topics[partition.topic].id, log_start_offset=NO_LOG, high_watermark=0, last_stable_offset=0
        )
        for partition, frontier in frontiers.items()
        if partition.topic in topics
        and partition.partition not in topics[partition.topic].partitions
        and (not frontier.exists or frontier.topic_id != topics[partition.topic].id)
    }


def is_cut_back(frontier: Frontier, lookup: Lookup) -> bool:
    """Whether the log of the same topic ends before the frontier, by an unclean leader election or a lost disk."""
    return lookup.topic_id == frontier.topic_id and lookup.high_watermark < frontier.next_offset


def _starts(
    config: Config, brokers: Brokers, topics: Mapping[str, Topic], lookups: Mapping[PartitionId, Lookup]
) -> dict[PartitionId, int]:
    start = config.start
    earliest = {partition: lookup.log_start_offset for partition, lookup in lookups.items()}
    if start.kind == "latest":
        return {partition: lookup.last_stable_offset for partition, lookup in lookups.items()}
    if start.kind == "time":
        assert start.time_us is not None
        return {**earliest, **brokers.at_time(topics, start.time_us)}
    if start.kind == "group":
        assert start.group is not None
        inputs = {entry.topic for entry in config.inputs}
        partitions = [TopicPartition(p.topic, p.partition) for p in lookups if p.topic in inputs]
        # An offset that was committed on an earlier topic of the same name may be past the end. A frontier there would
        # look as if the log had been cut back.
        committed = {
            partition: offset if offset <= lookups[partition].high_watermark else lookups[partition].last_stable_offset
            for partition, offset in brokers.committed(partitions, start.group).items()
            if partition in lookups
        }
        # A group commits offsets of inputs only. Results of events that it has consumed may still be written, so the
        # output topics are read from their ends.
        ends = {
            partition: lookup.last_stable_offset
            for partition, lookup in lookups.items()
            if partition.topic not in inputs
        }
        return {**earliest, **ends, **committed}
    return earliest


def _after_loss(frontier: Frontier, lookup: Lookup, lookup_us: int) -> Frontier:
    """A frontier moved past expired records, to the start of a recreated topic, or back to the end of a cut log."""
    if lookup.topic_id != frontier.topic_id:
        # SEMANTICS 4.7, 3.25: records of the old topic beyond the frontier are lost: at least those below the last
        # known high watermark. The engine may never have read the events below the frontier.
        lost = max(0, frontier.high_watermark - frontier.next_offset)
        start = max(0, lookup.log_start_offset)
        return replace(
            _with_loss(frontier, events_below=frontier.next_offset),
            topic_id=lookup.topic_id,
            # Counting continues: offsets of the new topic are counted from the old next offset.
            first_offset=frontier.first_offset - frontier.next_offset - lost,
            next_offset=start,
            high_watermark=lookup.high_watermark,
            last_stable_offset=lookup.last_stable_offset,
            log_start_offset=lookup.log_start_offset,
            expired=frontier.expired + lost + start,
            cleanup_policy=None,
            compacted_below=None,
            last_data_us=lookup_us,
            unreached=(),
        )
    # SEMANTICS 4.8: from here on nothing more is confirmed.
    if is_cut_back(frontier, lookup):
        return replace(
            _with_loss(frontier, events_below=frontier.next_offset),
            # Counting continues: records read there now are counted in addition to those read there before.
            first_offset=frontier.first_offset - frontier.next_offset + lookup.high_watermark,
            next_offset=lookup.high_watermark,
            last_data_us=lookup_us,
            unreached=(),
        )
    if lookup.log_start_offset > frontier.next_offset:
        lost = lookup.log_start_offset - frontier.next_offset
        return replace(
            _with_loss(frontier),
            next_offset=lookup.log_start_offset,
            expired=frontier.expired + lost,
            last_data_us=lookup_us,
        )
    return frontier


def _with_loss(frontier: Frontier, *, events_below: int = 0) -> Frontier:
    """A frontier that records what a loss makes unprovable.

    For outputs: the instant up to which no record was lost; the earliest loss counts. For an input: the events below
    ``events_below``, which the engine may never have read.
    """
    if frontier.side == "input":
        if not events_below:
            return frontier
        return replace(frontier, unread_since_us=0, unprovable_below=max(events_below, frontier.unprovable_below or 0))
    if frontier.side == "table":
        return frontier
    before = frontier.read_through_us or 0
    return replace(
        frontier, unread_since_us=before if frontier.unread_since_us is None else min(before, frontier.unread_since_us)
    )


def new_generation(state: Path) -> int:
    """A new generation number, whose checkpoint folder is created; earlier checkpoints are removed.

    ``state`` is marked (`validator.state.folder`), so every numeric folder in its checkpoint folder belongs to the
    sidecar. `shutil.rmtree` does not follow links. A number may be reused: appends are numbered by batch, and batch
    numbers only rise.
    """
    folder = state / "checkpoint"
    folder.mkdir(exist_ok=True)
    used = [int(path.name) for path in folder.iterdir() if re.fullmatch("[0-9]+", path.name)]
    generation = max(used, default=0) + 1
    (folder / str(generation)).mkdir()
    for number in used:
        shutil.rmtree(folder / str(number), ignore_errors=True)
    return generation


def shares(
    sources: list[Source], progress: IngestProgress, lookups: Mapping[PartitionId, Lookup], limit: int
) -> tuple[dict[str, int], bool]:
    """Topic -> most records per batch, and whether a backlog determined the limits.

    If more than ``limit`` records are unread, each topic gets a share in proportion to its backlog, so that results do
    not run ahead of their inputs. Otherwise an input may use the whole ``limit``, and another topic a twentieth. If
    more of its records are unread, it may use their number, to save the fixed cost of further batches: up to an eighth
    if its records carry lists of ids, else up to its share of a half. It may always use 1,000.
    """
    backlog = {source.topic: 0 for source in sources}
    for partition, frontier in progress.frontiers.items():
        if partition in lookups and partition.topic in backlog:
            backlog[partition.topic] += max(0, lookups[partition].high_watermark - frontier.next_offset)
    whole = sum(backlog.values())
    if whole > limit:
        return {topic: max(10, limit * amount // whole) for topic, amount in backlog.items()}, True
    answers = [source for source in sources if source.side not in (Side.INPUT, Side.TABLE)]
    loose = {source.topic: limit for source in sources}
    for source in answers:
        has_lists = isinstance(source.configured, Output) and source.configured.fields.ids is not None
        most = limit // (8 if has_lists else 2 * len(answers))
        loose[source.topic] = max(1_000, limit // 20, min(backlog[source.topic], most))
    return loose, False


def first_frontier(side: Side, partition: PartitionId, lookup: Lookup, start: int, lookup_us: int) -> Frontier:
    """The frontier of a partition that was never read before. Reading begins at offset ``start``."""
    return Frontier(
        side=side.value,
        topic=partition.topic,
        partition=partition.partition,
        topic_id=lookup.topic_id,
        first_offset=start,
        next_offset=start,
        log_start_offset=lookup.log_start_offset,
        high_watermark=lookup.high_watermark,
        last_stable_offset=lookup.last_stable_offset,
        last_data_us=lookup_us,
        hidden_start=start > 0,
    )


def added_frontier(side: Side, partition: PartitionId, lookup: Lookup, lookup_us: int) -> Frontier:
    """The frontier of a partition that was added to a topic which is already read. It is read from its log start, as
    Spark's source does.

    It was empty when it was added, so records before its log start expired before they were read.
    """
    frontier = first_frontier(side, partition, lookup, lookup.log_start_offset, lookup_us)
    if not frontier.hidden_start:
        return frontier
    # SEMANTICS 3.23: a partition that was added began empty.
    frontier = replace(frontier, first_offset=0, expired=frontier.next_offset)
    return frontier if side in (Side.INPUT, Side.TABLE) else replace(frontier, unread_since_us=0)


def gaps_before(partition: PartitionId, added: Frontier) -> tuple[OffsetGap, ...]:
    """The offsets of an added input partition whose records expired before they were read. They may have made later
    events of the partition late."""
    return (OffsetGap(partition, added.next_offset),) if added.side == Side.INPUT and added.hidden_start else ()

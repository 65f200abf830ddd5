"""Where a generation begins to read: at the committed frontiers, or for what was never read, where `start` says."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from confluent_kafka import TopicPartition

from validator.config.model import Config
from validator.model.books import Books, Hole
from validator.model.frontier import Frontier, Lookup, PartitionId
from validator.reconcile.facts import Side
from validator.stream.brokers import Brokers, Topic
from validator.stream.sources import Source


def opened(
    books: Books,
    config: Config,
    brokers: Brokers,
    sources: list[Source],
    topics: Mapping[str, Topic],
    lookup_us: int,
) -> tuple[Books, dict[PartitionId, Lookup]]:
    """The books with a frontier for every partition of ``topics``; what retention took meanwhile is booked as
    expired."""
    lookups = brokers.lookup(topics)
    frontiers = dict(books.frontiers)
    known_topics = {place.topic for place in frontiers}
    wanted = _starts(config, brokers, topics, lookups)
    gap, holes, replaced = books.gap_met, list(books.holes), set(books.replaced)
    for source in sources:
        if source.topic not in topics:
            continue
        for number in topics[source.topic].partitions:
            place = PartitionId(source.topic, number)
            lookup = lookups[place]
            if place in frontiers:
                known = frontiers[place]
                frontiers[place] = found = _after_holes(known, lookup, lookup_us)
                if found is known:
                    continue
                if source.side != "input":
                    gap = True
                elif found.topic_id != known.topic_id:
                    # Its offsets begin anew, so that all of them come after what was lost.
                    holes.append(Hole(place, 0))
                    replaced.add(place)
                else:
                    holes.append(Hole(place, found.next_offset))
                continue
            # A partition that appears in a topic that is being read is read whole, as Spark's source does.
            start = lookup.log_start_offset if source.topic in known_topics else wanted[place]
            frontier = first_frontier(source.side, place, lookup, start, lookup_us)
            if frontier.side != "input" and frontier.hidden_start:
                frontier, gap = replace(frontier, gone_us=0), True
            frontiers[place] = frontier
    books = replace(books, frontiers=frontiers, gap_met=gap, holes=tuple(holes), replaced=frozenset(replaced))
    return books, lookups


def _starts(
    config: Config, brokers: Brokers, topics: Mapping[str, Topic], lookups: Mapping[PartitionId, Lookup]
) -> dict[PartitionId, int]:
    start = config.start
    earliest = {place: lookup.log_start_offset for place, lookup in lookups.items()}
    if start.kind == "latest":
        return {place: lookup.last_stable_offset for place, lookup in lookups.items()}
    if start.kind == "time":
        assert start.time_us is not None
        return {**earliest, **brokers.at_time(topics, start.time_us)}
    if start.kind == "group":
        assert start.group is not None
        inputs = {entry.topic for entry in config.inputs}
        partitions = [TopicPartition(p.topic, p.partition) for p in lookups if p.topic in inputs]
        committed = brokers.committed(partitions, start.group)
        # A group commits inputs only. Results of what it has read already may come, so they begin at their end.
        ends = {place: lookup.last_stable_offset for place, lookup in lookups.items() if place.topic not in inputs}
        return {**earliest, **ends, **committed}
    return earliest


def _after_holes(frontier: Frontier, lookup: Lookup, lookup_us: int) -> Frontier:
    """A frontier moved past records that are gone, or to the start of a topic that was made again."""
    if lookup.topic_id != frontier.topic_id:
        # What the old topic held beyond the frontier is gone; how much of it there was, its high watermark told.
        lost = max(0, frontier.high_watermark - frontier.next_offset)
        return replace(
            frontier,
            topic_id=lookup.topic_id,
            # The books go on: positions of the new topic are counted from the old next offset.
            first_offset=frontier.first_offset - frontier.next_offset - lost,
            next_offset=lookup.log_start_offset,
            high_watermark=lookup.high_watermark,
            last_stable_offset=lookup.last_stable_offset,
            log_start_offset=lookup.log_start_offset,
            expired=frontier.expired + lost + lookup.log_start_offset,
            gone_us=_gone(frontier),
            last_data_us=lookup_us,
            unreached=(),
        )
    if lookup.log_start_offset > frontier.next_offset:
        lost = lookup.log_start_offset - frontier.next_offset
        return replace(
            frontier,
            next_offset=lookup.log_start_offset,
            expired=frontier.expired + lost,
            gone_us=_gone(frontier),
            last_data_us=lookup_us,
        )
    return frontier


def _gone(frontier: Frontier) -> int:
    """Until when nothing of it was lost: the earliest gap counts."""
    before = frontier.read_through_us or 0
    return before if frontier.gone_us is None else min(before, frontier.gone_us)


def new_generation(state: Path) -> int:
    """A number that no checkpoint folder has, with a folder of its own; the old ones are removed.

    A number that comes again does no harm: what a writer appends is numbered by batch, and batches only rise.
    """
    folder = state / "checkpoint"
    folder.mkdir(exist_ok=True)
    used = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
    generation = max(used, default=0) + 1
    (folder / str(generation)).mkdir()
    for number in used:
        shutil.rmtree(folder / str(number), ignore_errors=True)
    return generation


def shares(
    sources: list[Source], books: Books, lookups: Mapping[PartitionId, Lookup], limit: int
) -> tuple[dict[str, int], bool]:
    """Most records a batch of each topic, and whether a backlog set them.

    Under a backlog each topic gets its part of it, so that results do not run ahead of their inputs; else inputs may
    take the whole limit, and results as many as carry about twice the limit of ids.
    """
    backlog = {source.topic: 0 for source in sources}
    for place, frontier in books.frontiers.items():
        if place in lookups and place.topic in backlog:
            backlog[place.topic] += max(0, lookups[place].high_watermark - frontier.next_offset)
    whole = sum(backlog.values())
    if whole > limit:
        return {topic: max(10, limit * amount // whole) for topic, amount in backlog.items()}, True
    loose = {}
    for source in sources:
        loose[source.topic] = limit if source.side.value == "input" else max(1_000, limit // 20)
    return loose, False


def first_frontier(side: Side, place: PartitionId, lookup: Lookup, start: int, lookup_us: int) -> Frontier:
    """The frontier of a partition that was never read, to be read from ``start``."""
    return Frontier(
        side=side.value,
        topic=place.topic,
        partition=place.partition,
        topic_id=lookup.topic_id,
        first_offset=start,
        next_offset=start,
        log_start_offset=lookup.log_start_offset,
        high_watermark=lookup.high_watermark,
        last_stable_offset=lookup.last_stable_offset,
        last_data_us=lookup_us,
        hidden_start=start > 0,
    )

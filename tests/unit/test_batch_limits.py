"""The records of each topic that one batch reads (`validator.stream.start_offsets.shares`), for random backlogs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.model.frontier import Lookup, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.stream.sources import Source, sources_of
from validator.stream.start_offsets import first_frontier, shares


def sources(example: str) -> list[Source]:
    return sources_of(loads(EXAMPLES[example], Path("/etc"), ["metrics.port=0"], {}))


SOURCES = sources("minimal")
LIMIT = 2_000_000


def limits_of(backlog: dict[str, int], of: Sequence[Source] = SOURCES) -> tuple[dict[str, int], bool]:
    lookups, frontiers = {}, {}
    for source in of:
        place = PartitionId(source.topic, 0)
        lookups[place] = Lookup("id", 0, backlog[source.topic], backlog[source.topic])
        frontiers[place] = first_frontier(source.side, place, lookups[place], 0, 1)
    progress = IngestProgress(TimeRules(max_disorder_us=0, idle_after_us=1), frontiers=frontiers)
    return shares(list(of), progress, lookups, LIMIT)


def test_a_backlog_above_the_limit_is_read_in_proportion() -> None:
    rng = Random(1)
    for _ in range(200):
        backlog = {source.topic: rng.randrange(1, 10 ** rng.randrange(1, 9)) for source in SOURCES}
        limits, balanced = limits_of(backlog)
        assert balanced == (sum(backlog.values()) > LIMIT)
        if balanced:
            assert sum(limits.values()) <= LIMIT + 10 * len(SOURCES)
            batches = [backlog[topic] / limits[topic] for topic in backlog if limits[topic] > 10]
            assert max(batches) - min(batches) < 0.1 * max(batches), "topics end together"


@pytest.mark.parametrize("example", ["minimal", "counts"])
def test_a_smaller_backlog_leaves_inputs_the_limit_and_bounds_results(example: str) -> None:
    rng = Random(2)
    of = sources(example)
    others = sum(source.side.value != "input" for source in of)
    for _ in range(200):
        backlog = {source.topic: rng.randrange(LIMIT // len(of)) for source in of}
        limits, balanced = limits_of(backlog, of)
        assert not balanced
        for source in of:
            if source.side.value == "input":
                assert limits[source.topic] == LIMIT
            else:
                has_lists = example == "minimal" and source.side.value == "output"
                most = LIMIT // (8 if has_lists else 2 * others)
                assert LIMIT // 20 <= limits[source.topic] <= most
                assert limits[source.topic] >= min(backlog[source.topic], most)

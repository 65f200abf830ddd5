"""The reference engine's interval join: each pair once, also through kills between commits."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

import pytest

from testbed.engines.core import BEGINNING_MS, EventId, PartitionId, PartitionProgress, Record, Result
from testbed.engines.intervals import IntervalCore

pytestmark = pytest.mark.unit

BEFORE_MS, AFTER_MS = 3, 8
LEFT, RIGHT = ("left", 0), ("right", 0)
START: Final = {partition: PartitionProgress(0, 0, BEGINNING_MS) for partition in (LEFT, RIGHT)}


def logs(rng: Random) -> dict[PartitionId, list[Record]]:
    def record(offset: int, prefix: str) -> Record:
        return offset, (rng.choice("ab"),), rng.randrange(40), f"{prefix}{offset}"

    return {partition: [record(n, prefix) for n in range(12)] for partition, prefix in ((LEFT, ""), (RIGHT, "right/"))}


def own_end(event_id: EventId) -> int | None:
    number = int(event_id)
    return None if number % 3 else 5 * number


def restored(progress: dict[PartitionId, PartitionProgress]) -> IntervalCore:
    core = IntervalCore(BEFORE_MS, AFTER_MS, right_prefix="right/", own_end=own_end)
    for partition, at in progress.items():
        core.assign(partition, at)
    return core


@pytest.mark.parametrize("seed", range(20))
def test_each_pair_is_produced_once_through_kills(seed: int) -> None:
    rng = Random(seed)
    records = logs(rng)
    progress, found = dict(START), Counter[tuple[object, ...]]()
    while any(at.next_offset < 12 for at in progress.values()):
        core, produced = restored(progress), Counter[tuple[object, ...]]()
        for partition in rng.sample(list(records), 2):
            at, upto = progress[partition], rng.randint(progress[partition].next_offset, 12)
            core.process(partition, [one for one in records[partition] if at.rebuild_from <= one[0] < upto])
            core.read_through(partition, max(upto, at.next_offset))
        for answer in core.take():
            assert isinstance(answer, Result)
            produced[answer.ids] += 1
            assert answer.window_start_ms == answer.times_ms[0]
        if rng.random() < 0.6:  # else it is killed before its commit
            progress, found = core.progress(), found + produced
    assert found == Counter(
        (left[3], right[3])
        for left in records[LEFT]
        for right in records[RIGHT]
        if left[1] == right[1] and -BEFORE_MS <= right[2] - left[2] <= AFTER_MS
        if (end := own_end(left[3])) is None or right[2] <= end
    )

"""Records without an append time are dated within the stated resolution."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from validator.measure.record_times import RESOLUTION_MAX_US, RecordTimes
from validator.model.frontier import Frontier, Lookup, PartitionId
from validator.model.progress import IngestProgress, TimeRules

pytestmark = pytest.mark.unit

PLACES = [PartitionId("clicks", 0), PartitionId("clicks", 1)]


@pytest.mark.parametrize("seed", range(200))
def test_a_record_became_visible_within_the_resolution_of_its_batch(seed: int) -> None:
    """Appends at random times, some in transactions; batches of random sizes, one of them a backlog."""
    random = Random(seed)
    record_times = RecordTimes(frozenset({"clicks"}))
    frontiers = {place: Frontier("input", place.topic, place.partition, "id", *[0] * 6) for place in PLACES}
    visible_us: dict[PartitionId, list[int]] = {place: [] for place in PLACES}
    open_at: dict[PartitionId, int] = dict.fromkeys(PLACES, 0)
    now_us, dated = 0, 0
    for batch in range(40):
        planned = {}
        for _ in range(random.randrange(4)):
            now_us += random.randrange(1, 900_000)
            for place in PLACES:
                open_at[place] += random.randrange(3)
                if random.random() < 0.7:
                    visible_us[place] += [now_us] * open_at[place]
                    open_at[place] = 0
        for place in PLACES:
            behind = random.random() < 0.1
            planned[place] = len(visible_us[place]) - (random.randrange(3) if behind else 0)
            planned[place] = max(frontiers[place].next_offset, planned[place])
        now_us += random.randrange(1, RESOLUTION_MAX_US * (2 if random.random() < 0.05 else 0) + 50_000)
        for place in PLACES:
            # More records may become visible between the plan and the lookup.
            visible_us[place] += [now_us] * random.randrange(2)
        now_us += 1
        starts = {place: frontier.next_offset for place, frontier in frontiers.items()}
        for place in PLACES:
            visible = len(visible_us[place])
            lookup = Lookup("id", 0, visible + open_at[place], visible)
            frontiers[place] = frontiers[place].looked_up(now_us, lookup, planned[place])
        progress = replace(IngestProgress(TimeRules(0, 0), frontiers=dict(frontiers)), batch=batch, lookup_us=now_us)
        resolution_us = record_times.batch_committed(progress)
        for place in PLACES:
            for at_us in visible_us[place][starts[place] : planned[place]]:
                assert at_us <= now_us
                if resolution_us is not None:
                    dated += 1
                    assert now_us - at_us <= resolution_us
        assert resolution_us is None or now_us > record_times.since_us
    assert dated > 0
    assert record_times.resolution_us <= RESOLUTION_MAX_US

"""The instants of records whose topic does not record when they were appended, and the precision of these instants.

A record of a topic with LogAppendTime carries the instant at which its broker appended it. With CreateTime, Kafka's
default, it carries a time that its producer wrote, often an event time. Such a record is dated by the lookup instant of
the batch that reads it. At that instant the record was visible. It was not visible at the newest earlier lookup whose
last stable offset had been reached. The time between the two is the resolution of every measure that uses the record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from validator.model.frontier import PartitionId
from validator.model.progress import IngestProgress

RESOLUTION_MAX_US: Final = 10_000_000
"""Above this resolution a batch reads a backlog. The instant at which it reads a record shows nothing about the
pipeline."""


@dataclass
class RecordTimes:
    """The instants of a run's records, and their resolution.

    ``topics``: topics whose records are dated by the batch that reads them. ``since_us``: only records read after this
    instant are dated precisely enough for a latency. ``resolution_us``: the coarsest resolution of any latency.
    """

    topics: frozenset[str] = frozenset()
    since_us: int = 0
    resolution_us: int = 0
    _through_us: dict[PartitionId, int] = field(default_factory=dict)
    _unreached: dict[PartitionId, list[tuple[int, int]]] = field(default_factory=dict)

    def batch_committed(self, progress: IngestProgress) -> int | None:
        """Return the resolution of the instants of a batch's records, in microseconds (0: broker time); None if the
        batch read a backlog, or is the first since the sidecar started.

        ``progress``: the progress after the batch.
        """
        partitions = [partition for partition in progress.frontiers if partition.topic in self.topics]
        resolutions = [self._reached(partition, progress) for partition in partitions]
        known = [one for one in resolutions if one is not None and one <= RESOLUTION_MAX_US]
        if len(known) < len(partitions):
            self.since_us = progress.lookup_us
            return None
        coarsest = max(known, default=0)
        self.resolution_us = max(self.resolution_us, coarsest)
        return coarsest

    def _reached(self, partition: PartitionId, progress: IngestProgress) -> int | None:
        """Return the time since the newest earlier lookup whose last stable offset had been reached, until this batch's
        lookup; None if there is no such lookup."""
        frontier = progress.frontiers[partition]
        before = self._through_us.get(partition)
        unreached = self._unreached.setdefault(partition, [])
        unreached.append((progress.lookup_us, frontier.last_stable_offset))
        while unreached and frontier.next_offset >= unreached[0][1]:
            self._through_us[partition] = unreached.pop(0)[0]
        # Until the oldest lookup is reached, the others have no effect. Under a backlog, later ones may be dropped.
        del unreached[64:]
        return None if before is None else progress.lookup_us - before

"""Reads the planned end offsets of a micro-batch from Spark's offset log.

The ends must come from the plan: in a partition with transactions the last record read may be followed by markers.
Format (Spark's `OffsetSeqLog`): a version line, a metadata line, then one line per source. The line of a Kafka source
is ``{"topic": {"0": next_offset}}``.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from validator.model.frontier import PartitionId


def planned_ends(checkpoint: Path, batch: int, topics: Collection[str]) -> dict[PartitionId, int]:
    """Planned next offset of every partition of ``topics`` after ``batch``; empty if the batch is not in the log."""
    path = checkpoint / "offsets" / str(batch)
    if not path.exists():
        return {}
    ends: dict[PartitionId, int] = {}
    for line in path.read_text().splitlines()[2:]:
        if not line.startswith("{"):
            continue
        for topic, partitions in json.loads(line).items():
            if topic in topics and isinstance(partitions, dict):
                ends.update({PartitionId(topic, int(p)): int(offset) for p, offset in partitions.items()})
    return ends

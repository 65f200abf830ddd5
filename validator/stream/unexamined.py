"""Records that were not examined because they exceed the size limits or do not fit into memory.

A row of the facts table counts them. Its key is the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import UNDECODABLE, UNEXAMINED
from validator.model.frontier import PartitionId

_COLUMNS: Final = ("topic", "partition", "first_offset", "key", "records")
_STATUSES: Final = (UNDECODABLE, UNEXAMINED)
_SHOWN: Final = 3


class Unexamined(NamedTuple):
    """The unexamined records of a partition: their number, and the offset and reason of the first."""

    records: int
    offset: int
    reason: str


Found = dict[PartitionId, Unexamined]


def add(found: Found, facts: pa.Table) -> None:
    """Add the unexamined records of fact rows to ``found``."""
    wanted = pc.and_(pc.is_in(facts["status"], pa.array(_STATUSES, facts["status"].type)), pc.is_valid(facts["key"]))
    rows = facts.filter(wanted)
    for topic, number, offset, reason, records in zip(*(rows[name].to_pylist() for name in _COLUMNS), strict=True):
        partition = PartitionId(topic, number)
        known = found.get(partition, Unexamined(0, offset, reason))
        first = min((known.offset, known.reason), (offset, reason))
        found[partition] = Unexamined(known.records + records, *first)


def sentence(found: Mapping[PartitionId, Unexamined], side_of: Mapping[PartitionId, str], side: str) -> str:
    """The positions and reasons of some unexamined records of a ``side``, as the end of a sentence; may be empty."""
    chosen = {partition: what for partition, what in sorted(found.items()) if side_of.get(partition) == side}
    if not chosen:
        return ""
    shown = list(chosen.items())[:_SHOWN]
    positions = [f"{partition} at offset {what.offset} ({what.reason})" for partition, what in shown]
    more = sum(what.records for what in chosen.values()) - len(shown)
    return f"; not examined: {', '.join(positions)}" + (f" and {more} more" if more > 0 else "")

"""What the workers of an engine have read, by its own counters: those that a fault hit, and the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from testbed.campaign.counters import Row
from testbed.node import TARGET

_READ: Final = ("process-total", "read-records")
"""Counters of what a worker has read: of Kafka Streams, without restored changelogs, and of Flink without its sources.
"""
_PART: Final = "worker-"
_WORKER: Final = re.compile(r"-(\d+)(?:-node|-link)?$")
Read = tuple[str, int, int, float]
"""Worker, begin and end in microseconds, and the records that it read in between."""


def hit(faults: Iterable[Mapping[str, Any]]) -> set[str]:
    """The workers that a fault hit, as parts of the engine's counters: targets end with their number."""
    targets = [target for fault in faults for target in fault["target"].split(", ")]
    # The campaign's own delay hits the network of the first worker.
    first = {f"{_PART}0"} if TARGET in targets else set()
    return first | {f"{_PART}{match[1]}" for target in targets if (match := _WORKER.search(target)) is not None}


def reads(counted: Iterable[Row]) -> Iterator[Read]:
    """What each worker read between two of its counts."""
    before: dict[str, tuple[int, float]] = {}
    for at_us, part, name, value in counted:
        if name not in _READ or not part.startswith(_PART):
            continue
        earlier = before.get(part)
        before[part] = at_us, value
        # A worker that starts again counts from 0.
        if earlier is not None and value >= earlier[1]:
            yield part, earlier[0], at_us, value - earlier[1]


def rates(found: Iterable[Read], faulty: set[str], start_us: int, end_us: int) -> tuple[float | None, float | None]:
    """Records a second, between two instants, of the workers in ``faulty`` together and of the others together; None:
    none of them was counted before."""
    records: dict[bool, float] = {}
    for part, _, at_us, count in found:
        if at_us < end_us:
            of = records.setdefault(part in faulty, 0.0)
            records[part in faulty] = of + (count if at_us >= start_us else 0.0)
    seconds = (end_us - start_us) / 1e6
    both = (records.get(is_hit) for is_hit in (True, False))
    first, second = (None if one is None or seconds <= 0 else one / seconds for one in both)
    return first, second

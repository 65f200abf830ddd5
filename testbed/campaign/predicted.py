"""The duplicates that a kill should cause, beside those that were observed (OSPBench's rule: the time since the last
commit times the rate, for what the killed worker had read).

The events that the hit partitions have at the kill, and that are not committed, are this product, counted. They are an
upper bound: an event that the worker had not answered yet is answered once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from testbed.campaign.sampler import INPUT, Sample
from testbed.engines.settings import Guarantee

_KILL: Final = "process_kill"
_SLACK_SECONDS: Final = 1.5
"""A commit is in the sample after it, at most this later."""


def predicted(
    faults: Sequence[Mapping[str, Any]], samples: Sequence[Sample], guarantee: Guarantee, interval_seconds: float
) -> list[int | None]:
    """The duplicates of each fault of a report; None for a fault that kills no process, or without samples.
    ``guarantee``: the effective one. ``interval_seconds``: that of commits."""
    of: dict[str, list[Sample]] = {}
    for sample in samples:
        if sample.process.startswith(INPUT):
            of.setdefault(sample.process, []).append(sample)
    return [_of_fault(fault, list(of.values()), guarantee, interval_seconds) for fault in faults]


def _of_fault(
    fault: Mapping[str, Any], partitions: Sequence[Sequence[Sample]], guarantee: Guarantee, interval_seconds: float
) -> int | None:
    if fault["kind"] != _KILL or fault["start"] is None or not partitions:
        return None
    if guarantee != "at_least_once":
        return 0  # what is not committed is not visible, or not read again
    kill_us = round(datetime.fromisoformat(fault["start"]).timestamp() * 1e6)
    found: list[float] = []
    survived: list[bool] = []
    for samples in partitions:
        after = next((i for i, sample in enumerate(samples) if sample.time_us >= kill_us), 0)
        last, one = samples[after - 1], samples[after]
        if not after or one.lag_events is None or one.produced_events is None:
            return None
        # What was appended after the kill is no part of what its worker had read.
        later = one.produced_events * (one.time_us - kill_us) / (one.time_us - last.time_us)
        found.append(max(0.0, one.lag_events - later))
        until_us = one.time_us + (interval_seconds + _SLACK_SECONDS) * 1e6
        survived.append(any(sample.consumed_events for sample in samples[after + 1 :] if sample.time_us <= until_us))
    # If all partitions are committed again that soon, the whole job was restarted from its last checkpoint.
    hit = [not one for one in survived] if not all(survived) else [True] * len(found)
    return round(sum(events for events, is_hit in zip(found, hit, strict=True) if is_hit))

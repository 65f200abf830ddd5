"""The share of the machine's processor time that the engine used, by phase, from the samples of a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from testbed.campaign.latencies import micros
from testbed.campaign.sampler import ENGINE, Sample, part_of
from validator.publish.report_types import PhaseOfReport


def utilisation(
    phases: Sequence[PhaseOfReport], samples: Sequence[Sample], load_end_us: int, cores: int
) -> dict[str, float]:
    """Phase -> share, of the first phase of each kind that has samples. A phase ends with the load at the latest."""
    used: dict[int, float] = {}
    for sample in samples:
        if sample.processor_seconds is not None and part_of(sample.process) == ENGINE:
            used[sample.time_us] = used.get(sample.time_us, 0.0) + sample.processor_seconds
    # A sample has what was used since the one before it, also where that is longer than a short phase.
    at = sorted({sample.time_us for sample in samples})
    lasted = {later: later - earlier for earlier, later in pairwise(at)}
    found: dict[str, float] = {}
    for phase in phases:
        start_us, end_us = micros(phase["start"], 0), min(micros(phase["end"], load_end_us), load_end_us)
        of = [at_us for at_us in lasted if start_us <= at_us < end_us and at_us in used]
        if of and start_us:
            share = sum(used[at_us] for at_us in of) * 1e6 / sum(lasted[at_us] for at_us in of) / cores
            found.setdefault(phase["phase"], round(share, 4))
    return found

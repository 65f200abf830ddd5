"""Reading progress and suspicion as values, for tests of `Judging.step`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from validator.core.suspicion import Suspicion
from validator.core.totals import CellTotals
from validator.model.frontier import Frontier, PartitionId
from validator.model.progress import IngestProgress, TimeRules

PASSED_US: Final = 2**60
"""A watermark that has passed every window."""


def read_through(at_us: int, *, inputs_us: int | None = None, outputs_us: int | None = None) -> IngestProgress:
    """Progress after a batch at ``at_us``, which is also its number. All topics are read through: inputs until
    ``inputs_us``, outputs until ``outputs_us``."""
    times = {"input": at_us if inputs_us is None else inputs_us, "output": at_us if outputs_us is None else outputs_us}
    frontiers = {
        PartitionId(side, 0): Frontier(side, side, 0, "topic", 0, 9, 0, 9, 9, at_us, read_through_us=time_us)
        for side, time_us in times.items()
    }
    return IngestProgress(TimeRules(0, 0), batch=at_us, lookup_us=at_us, watermark_us=PASSED_US, frontiers=frontiers)


@dataclass(frozen=True)
class Suspected(Suspicion):
    """Suspects the given classes, and withdraws none."""

    classes: frozenset[str] = frozenset()

    def suspected(self, progress: IngestProgress, sums: CellTotals) -> frozenset[str]:
        return self.classes

    def withdrawn(self, progress: IngestProgress, sums: CellTotals) -> frozenset[str]:
        return frozenset()

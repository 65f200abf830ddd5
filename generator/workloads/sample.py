"""StreamBench's Sample: some of the records of numbers.

StreamBench keeps each record with a probability. Here a record has the hash of its id as a field (``draw``), which
decides the same for pipeline and oracle.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from generator.sections import Share
from generator.streambench import DRAWS, NUMBERS, OnRecords
from generator.workloads.operations import PerEvent
from generator.workloads.seam import Stream


class Sample(PerEvent, OnRecords):
    """A share of records has results."""

    kind: ClassVar[str] = "sample"
    judged_as: ClassVar[str] = "filter"
    streams: ClassVar[tuple[Stream, ...]] = (NUMBERS,)
    share: Share = 0.1
    """The share."""

    def operator(self, window_ms: int) -> dict[str, Any]:
        """A filter."""
        return {**super().operator(window_ms), "where": {"field": "draw", "below": round(self.share * DRAWS)}}

    @property
    def kept(self) -> tuple[str, ...]:
        """The draw."""
        return ("draw",)

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """The same filter."""
        where = {"path": "draw", "below": round(self.share * DRAWS)}
        return {**super().oracle(inputs, window_ms), "where": where}

"""StreamBench's Statistics: number, sum, least, largest and mean value of a field of the records of numbers, so far.

StreamBench has them for all records, here each flow has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from generator.streambench import NUMBERS, OnRecords
from generator.workloads.operations import Running
from generator.workloads.seam import Stream


class Statistics(Running, OnRecords):
    """A field has its number, sum, minimum, maximum and average per flow."""

    kind: ClassVar[str] = "statistics"
    streams: ClassVar[tuple[Stream, ...]] = (NUMBERS,)
    aggregates: ClassVar[Mapping[str, str]] = {
        "records": "count", "total": "sum(measure1)", "least": "min(measure1)", "largest": "max(measure1)",
        "mean": "avg(measure1)",
    }  # fmt: skip

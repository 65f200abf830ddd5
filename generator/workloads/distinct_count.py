"""StreamBench's DistinctCount: the users of each word.

StreamBench's result is the size of the set. This number cannot be judged yet, since evidence `values` knows no distinct
ids. So the id of an event is its user here, a result lists the users, and the oracle is `distinct`, which has windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from generator.streambench import OnRecords, text_by
from generator.workloads.seam import Stream


class DistinctCount(OnRecords):
    """The distinct users of the texts with a word are collected per window."""

    kind: ClassVar[str] = "distinct_count"
    streams: ClassVar[tuple[Stream, ...]] = (
        replace(text_by("word"), fields={"id": "user", "key": "word", "event_time": "time"}),
    )

    def operator(self, window_ms: int) -> dict[str, Any]:
        """See `Workload`."""
        del window_ms
        return {"operator": "distinct"}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """See `Workload`."""
        del inputs
        return {"kind": "distinct", "size": f"{window_ms}ms"}

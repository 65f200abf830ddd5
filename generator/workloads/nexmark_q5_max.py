"""The second stage of NexMark's query 5: the largest number of bids of an auction, in each window.

Source: ``SELECT max(num), starttime, endtime FROM ... GROUP BY starttime, endtime``. The query joins this maximum with
the auctions that reach it. Such a result hides all other auctions. Here a result states the maximum, and lists the
results of the first stage that it compared.

The key is the start of the window, which is also the time of the first stage's results. One of their windows starts
every slide, so the windows of this stage have that length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from generator.workloads.nexmark_q5_count import NexmarkQ5Count
from generator.workloads.operations import Tumbling
from generator.workloads.seam import Stage, Stream, Workload


class NexmarkQ5Max(Stage, Tumbling):
    """The numbers of bids of a window have a maximum."""

    kind: ClassVar[str] = "nexmark_q5_max"
    follows: ClassVar[type[Workload]] = NexmarkQ5Count
    streams: ClassVar[tuple[Stream, ...]] = (
        Stream(
            "bidCount",
            {"key": "windowStart", "event_time": "windowStart"},
            id_paths=("auction", "windowStart"),
            late="lateBidCounts",
        ),
    )
    aggregates: ClassVar[Mapping[str, str]] = {"bids": "max(bids)"}
    states_beside_ids: ClassVar[bool] = True

    def operator(self, window_ms: int) -> dict[str, Any]:
        """The windows of the slide."""
        return {"window_ms": window_ms // 2}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """See `operator`."""
        return super().oracle(inputs, window_ms // 2)

"""The second stage of NexMark's query 4: the highest price that is bid on an auction while it lasts.

Source: ``SELECT MAX(B.price) AS final, A.category FROM ... GROUP BY A.id, A.category``. The bids of an auction all have
its time, so they are in one window. A bid arrives up to the length of an auction after the auction's time: the stage
must allow that much disorder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from generator.workloads.nexmark_q4_bids import NexmarkQ4Bids
from generator.workloads.operations import Tumbling
from generator.workloads.seam import Stage, Stream, Workload


class NexmarkQ4Winners(Stage, Tumbling):
    """The bids on an auction have a highest price."""

    kind: ClassVar[str] = "nexmark_q4_winners"
    follows: ClassVar[type[Workload]] = NexmarkQ4Bids
    streams: ClassVar[tuple[Stream, ...]] = (
        Stream(
            "auctionBid",
            {"key": "auction", "event_time": "windowStart"},
            id_paths=("auctionIds.0", "bidIds.0"),
            late="lateAuctionBids",
        ),
    )
    aggregates: ClassVar[Mapping[str, str]] = {"price": "max(price)"}
    states_beside_ids: ClassVar[bool] = True
    carried: ClassVar[tuple[str, ...]] = ("category",)

    def operator(self, window_ms: int) -> dict[str, Any]:
        """See above."""
        return {"max_disorder_ms": window_ms}

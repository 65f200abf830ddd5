"""The first stage of NexMark's query 4: the bids on each auction while it lasts.

Source: ``... FROM auction A, bid B WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires``. Auctions
last up to one window, so that an interval join with this length has all bids on them.
"""

from __future__ import annotations

from typing import ClassVar

from generator.nexmark import AUCTION_BY_ID, AuctionWire, Model
from generator.workloads.nexmark_q20 import NexmarkQ20
from generator.workloads.seam import Load, NumberedWire, Stream


class NexmarkQ4Bids(NexmarkQ20):
    """Bids are joined with auctions until these expire."""

    kind: ClassVar[str] = "nexmark_q4_bids"
    carried: ClassVar[tuple[str, ...]] = ("auction", "category", "price", "expires")
    partitioned_by: ClassVar[str | None] = "auction"
    until: ClassVar[str | None] = "expires"

    def wire(self, stream: Stream, load: Load) -> NumberedWire:
        """Beam's bid, and auctions that last up to a window."""
        if stream is not AUCTION_BY_ID:
            return super().wire(stream, load)
        return AuctionWire(Model(load.plan.seed, self.hot_share), "id", load.window_ms)

"""NexMark's query 20: bids joined with their auctions, here within a time of the auction's opening.

Source: ``SELECT ... FROM bid AS B INNER JOIN auction AS A on B.auction = A.id``. The query keeps all auctions; Flink's
interval join bounds this state. Its filter on a category is left out.
"""

from __future__ import annotations

from typing import ClassVar

from generator.nexmark import AUCTION_BY_ID, AUCTIONS, BIDS, FIRST_ID, AuctionWire, BidWire, InTurn, Model, bid_by
from generator.sections import Share
from generator.workloads.operations import Paired
from generator.workloads.seam import Events, Load, NumberedWire, Stream


class NexmarkQ20(Paired):
    """Bids are joined with auctions of up to a window before."""

    kind: ClassVar[str] = "nexmark_q20"
    streams: ClassVar[tuple[Stream, ...]] = (AUCTION_BY_ID, bid_by("auction"))
    rarest_share: ClassVar[float] = AUCTIONS / (AUCTIONS + BIDS)
    hot_share: Share | None = None
    """Share of bids on a hot auction; None: that of Beam."""

    def events(self, load: Load) -> Events:
        """Three auctions, 46 bids."""
        keys = [self.wire(stream, load).keys_of for stream in self.streams]
        return InTurn(load.plan, (AUCTIONS, BIDS), (FIRST_ID, 1), keys)

    def wire(self, stream: Stream, load: Load) -> NumberedWire:
        """Beam's auction and bid."""
        model = Model(load.plan.seed, self.hot_share)
        return AuctionWire(model, "id") if stream is AUCTION_BY_ID else BidWire(model, "auction")

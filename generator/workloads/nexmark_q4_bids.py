"""The first stage of NexMark's query 4: the bids on each auction while it lasts.

Source: ``... FROM auction A, bid B WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires``. Auctions
differ in how long they last. An interval join has one length for all, so here all last one window.
"""

from __future__ import annotations

from typing import ClassVar

from generator.workloads.nexmark_q20 import NexmarkQ20


class NexmarkQ4Bids(NexmarkQ20):
    """Bids are joined with auctions that last one window."""

    kind: ClassVar[str] = "nexmark_q4_bids"
    carried: ClassVar[tuple[str, ...]] = ("auction", "category", "price")
    partitioned_by: ClassVar[str | None] = "auction"

"""NexMark's query 1: the price of each bid in another currency.

Source: ``SELECT auction, bidder, 0.82 * price, dateTime`` (CheckMate's rate). The key is the auction.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, ClassVar

from generator.nexmark import OnBids
from generator.workloads.operations import PerEvent


class NexmarkQ1(PerEvent, OnBids):
    """Each bid has a result with its price in another currency."""

    kind: ClassVar[str] = "nexmark_q1"
    judged_as: ClassVar[str] = "map"

    def mapped(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Exact: a price has no fraction."""
        return {"bidder": event["bidder"], "price": str(event["price"] * Decimal("0.82"))}

"""NexMark's query 1: the price of each bid in another currency.

Source: ``SELECT auction, bidder, 0.82 * price, dateTime`` (CheckMate's rate). The key is the auction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from generator.nexmark import OnBids
from generator.workloads.operations import PerEvent


class NexmarkQ1(PerEvent, OnBids):
    """Each bid has a result with its price in another currency."""

    kind: ClassVar[str] = "nexmark_q1"
    judged_as: ClassVar[str] = "map"
    factors: ClassVar[Mapping[str, str]] = {"price": "0.82"}

    @property
    def kept(self) -> tuple[str, ...]:
        """Its bidder and its price."""
        return ("bidder", "price")

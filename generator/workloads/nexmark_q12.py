"""NexMark's query 12 in event time: the bids of each bidder in adjacent windows. CheckMate's windows have 10 s."""

from __future__ import annotations

from typing import ClassVar

from generator.nexmark import OnBids, bid_by
from generator.workloads.operations import Tumbling
from generator.workloads.seam import Stream


class NexmarkQ12(Tumbling, OnBids):
    """Bids are collected per bidder and window."""

    kind: ClassVar[str] = "nexmark_q12"
    streams: ClassVar[tuple[Stream, ...]] = (bid_by("bidder"),)

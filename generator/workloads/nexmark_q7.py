"""NexMark's query 7: the highest price of all bids in each window.

The query's result is the bid itself. Here a result states the price and the number of bids, since the price alone hides
the loss of every other bid. Bids have a field with the same text, their common key. Beam's windows have 10 s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from generator.nexmark import OnBids, bid_by
from generator.workloads.operations import Tumbling
from generator.workloads.seam import Stream


class NexmarkQ7(Tumbling, OnBids):
    """The bids of a window are counted, and have a highest price."""

    kind: ClassVar[str] = "nexmark_q7"
    streams: ClassVar[tuple[Stream, ...]] = (bid_by("site"),)
    aggregates: ClassVar[Mapping[str, str]] = {"bids": "count", "price": "max(price)"}

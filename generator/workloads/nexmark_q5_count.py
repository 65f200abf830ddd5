"""The first stage of NexMark's query 5: the number of bids of each auction, in windows that overlap.

Source: ``SELECT auction, count(*) AS num, ... FROM TABLE(HOP(TABLE bid, ...)) GROUP BY auction, window_start,
window_end``. The results state the number in place of ids, as those of the query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from generator.nexmark import OnBids
from generator.workloads.operations import Sliding


class NexmarkQ5Count(Sliding, OnBids):
    """Bids are counted per auction in windows that overlap."""

    kind: ClassVar[str] = "nexmark_q5_count"
    aggregates: ClassVar[Mapping[str, str]] = {"bids": "count"}

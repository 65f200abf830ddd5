"""The third stage of NexMark's query 4: the average of the winning prices of each category.

Source: ``SELECT AVG(Q.final), Q.category FROM (...) Q GROUP BY Q.category``. The query corrects the average with each
bid. Here an auction counts once, when it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from generator.workloads.nexmark_q4_winners import NexmarkQ4Winners
from generator.workloads.operations import Running
from generator.workloads.seam import Stage, Stream, Workload


class NexmarkQ4(Stage, Running):
    """The winning prices of auctions have an average per category."""

    kind: ClassVar[str] = "nexmark_q4"
    follows: ClassVar[type[Workload]] = NexmarkQ4Winners
    streams: ClassVar[tuple[Stream, ...]] = (
        Stream(
            "winningBid",
            {"key": "category", "event_time": "windowStart"},
            id_paths=("auction", "windowStart"),
            late="lateWinningBids",
        ),
    )
    sets_aside: ClassVar[bool] = False
    aggregates: ClassVar[Mapping[str, str]] = {"auctions": "count", "price": "avg(price)"}

"""NexMark's query 5 without its last step: the bids of each auction in windows that overlap.

The query asks for the auction with the most bids of each window. Such a result hides all other bids, so that nothing
can be said of them; each window and auction therefore has a result. Beam's windows have 10 s and start every 5 s.
"""

from __future__ import annotations

from typing import ClassVar

from generator.nexmark import OnBids
from generator.workloads.operations import Sliding


class NexmarkQ5(Sliding, OnBids):
    """Bids are collected per auction in windows that overlap."""

    kind: ClassVar[str] = "nexmark_q5"

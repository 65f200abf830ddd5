"""NexMark's query 3 in windows of event time: persons of three states, and their auctions of one category.

Source: ``A.seller = P.id AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA') AND A.category = 10``. The query
joins without windows, which no oracle judges, so the windows are those of query 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from generator.nexmark import FIRST_CATEGORY
from generator.workloads.nexmark_q8 import NexmarkQ8

STATES: Final = ["OR", "ID", "CA"]


class NexmarkQ3(NexmarkQ8):
    """Persons of some states and their auctions of one category are joined per window."""

    kind: ClassVar[str] = "nexmark_q3"
    sets_aside: ClassVar[bool] = False

    def operator(self, window_ms: int) -> dict[str, Any]:
        """A join of filtered events."""
        left, right = {"field": "state", "one_of": STATES}, {"field": "category", "one_of": [FIRST_CATEGORY]}
        return {**super().operator(window_ms), "where": left, "where_right": right}

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """The same join, of events that pass the condition of their kind."""
        state = [{"path": "state", "exists": True}, {"path": "state", "one_of": STATES}]
        category = [{"path": "category", "exists": True}, {"path": "category", "equals": FIRST_CATEGORY}]
        return {**super().oracle(inputs, window_ms), "where": {"any": [{"all": state}, {"all": category}]}}

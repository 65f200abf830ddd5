"""NexMark's query 3 in windows of event time: persons of three states, and their auctions of one category.

Source: ``A.seller = P.id AND (P.state = 'OR' OR P.state = 'ID' OR P.state = 'CA') AND A.category = 10``; CheckMate's
query has no category. The query joins without windows, which no oracle judges, so the windows are those of query 8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from generator.nexmark import FIRST_CATEGORY
from generator.workloads.nexmark_q8 import NexmarkQ8

STATES: Final = ["OR", "ID", "CA"]


class NexmarkQ3(NexmarkQ8):
    """Persons of some states and their auctions of one category are joined per window."""

    kind: ClassVar[str] = "nexmark_q3"
    sets_aside: ClassVar[bool] = False
    category: Annotated[int, Field(ge=0)] = FIRST_CATEGORY
    """The category; 0: all, as in CheckMate."""

    def operator(self, window_ms: int) -> dict[str, Any]:
        """A join of filtered events."""
        found = {**super().operator(window_ms), "where": {"field": "state", "one_of": STATES}}
        if self.category:
            found["where_right"] = {"field": "category", "one_of": [self.category]}
        return found

    def oracle(self, inputs: Sequence[str], window_ms: int) -> dict[str, Any]:
        """The same join, of events that pass the condition of their kind."""
        state = [{"path": "state", "exists": True}, {"path": "state", "one_of": STATES}]
        category: list[dict[str, Any]] = [{"path": "category", "exists": True}]
        if self.category:
            category.append({"path": "category", "equals": self.category})
        return {**super().oracle(inputs, window_ms), "where": {"any": [{"all": state}, {"all": category}]}}

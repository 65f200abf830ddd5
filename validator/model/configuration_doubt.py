"""When the configuration is in doubt, not the pipeline (docs/decisions/0097). Pure rules on committed counts.

A wrong field or unit makes a whole topic unreadable, or makes results and events name different things. Neither proves
anything of the pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from validator.model.books import Books

NEARLY_NONE: Final = 100
"""Fewer than 1 in so many is nearly none. A field that is wrong can be present in a few records by chance. An engine
that writes 99 unreadable records for each readable one is not told from that."""
LEAST_COMPARED: Final = 10
"""So many contributions on either side must be there before it says anything that none of them match: two or three
results that are all wrong are an engine's mistake as likely as a configuration's."""
_RESULTS: Final = frozenset({"undecodable", "missing"})
_EXCESS: Final = frozenset({"misplaced", "unknown_id"})
_ALL: Final = frozenset({"missing", "duplicate", "misplaced", "unknown_id", "undecodable"})


@dataclass(frozen=True)
class TopicInDoubt:
    """A topic of which no record decoded since the state began, or nearly none. ``read``: without tombstones and
    without what was settled; ``undecodable``: of those."""

    side: str
    topic: str
    read: int
    undecodable: int

    @property
    def decoded(self) -> int:
        """How many records did decode."""
        return self.read - self.undecodable


def topics_in_doubt(books: Books) -> tuple[TopicInDoubt, ...]:
    """The topics in doubt, by name."""
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for place, frontier in books.frontiers.items():
        settled = books.settled.get(place, 0)
        read, undecodable = sums.get((place.topic, frontier.side), (0, 0))
        read += frontier.records - frontier.tombstones - settled
        sums[place.topic, frontier.side] = read, undecodable + frontier.undecodable - settled
    found = (TopicInDoubt(side, topic, *counts) for (topic, side), counts in sorted(sums.items()))
    return tuple(
        one
        for one in found
        if one.undecodable > 0 and (one.decoded == 0 or (one.decoded > 0 and one.decoded * NEARLY_NONE < one.read))
    )


def matches_nothing(counts: Mapping[str, int]) -> bool:
    """Whether inputs and results both have contributions, and (nearly) none of the one is one of the other.

    ``counts``: contributions by class. An engine that answers nothing is not concerned: there is nothing to compare.
    """
    least = min(counts.get("expected", 0), unmatched(counts))
    return least >= LEAST_COMPARED and counts.get("processed", 0) * NEARLY_NONE < least


def unmatched(counts: Mapping[str, int]) -> int:
    """Contributions that answers carry and no input explains so far."""
    return sum(counts.get(name, 0) for name in ("misplaced", "unknown_id", "unresolved"))


def suspected(books: Books, counts: Mapping[str, int], *, collapse: bool) -> frozenset[str]:
    """The classes of violations that a wrong configuration may explain. ``collapse``: the pipeline drops repeated ids.

    Of late and rejected records no more than is said in decision 0091: each answers one contribution, whatever its
    fields are called.
    """
    classes: frozenset[str] = _ALL if matches_nothing(counts) else frozenset()
    for one in topics_in_doubt(books):
        if one.decoded:
            # What did decode may be nonsense.
            classes |= _ALL
        elif one.side == "output":
            classes |= _RESULTS
        elif one.side == "input":
            classes |= _EXCESS if collapse else _EXCESS | {"duplicate"}
    return classes

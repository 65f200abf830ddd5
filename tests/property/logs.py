"""Partitions as a broker keeps them: their appends, which of them are visible, and the ends that a lookup returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.property.history import InputEvent, Record, Role, TopicPartition

NEVER: Final = 1 << 60
"""The end of a transaction that is left open."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A record before its append. Its offset is known once all drafts are sorted."""

    append_us: int
    settled_us: int
    """When its transaction ended; without a transaction, the time of the append."""
    make: Callable[[int], Record] | None
    """Offset -> record. None for an offset that stays invisible: an aborted record or a transaction marker."""
    truth: InputEvent | None = None
    """For an undecodable record: the event that an engine with another decoder reads in it."""


@dataclass(slots=True)
class Log:
    """One partition. First `write` all drafts, then `seal`, then use the lookups."""

    role: Role
    topic: str
    partition: int
    drafts: list[Draft] = field(default_factory=list)
    records: list[Record | None] = field(default_factory=list)

    @property
    def place(self) -> TopicPartition:
        """Topic and partition."""
        return self.topic, self.partition

    def write(self, draft: Draft) -> None:
        """Add a draft, and the marker that ends its transaction."""
        self.drafts.append(draft)
        if draft.append_us < draft.settled_us < NEVER:
            self.drafts.append(Draft(draft.settled_us, draft.settled_us, None))

    def seal(self) -> None:
        """Sort the drafts by the time of their append and assign offsets."""
        self.drafts.sort(key=lambda draft: draft.append_us)
        self.records = [draft.make(offset) if draft.make else None for offset, draft in enumerate(self.drafts)]

    def high_watermark(self, at_us: int) -> int:
        """The offset after the last append."""
        return sum(draft.append_us <= at_us for draft in self.drafts)

    def last_stable(self, at_us: int) -> int:
        """The first offset of the first open transaction, else the high watermark."""
        held = [at for at, draft in enumerate(self.drafts) if draft.append_us <= at_us < draft.settled_us]
        return min(held, default=self.high_watermark(at_us))

    def visible_us(self, offset: int) -> int:
        """The instant from which a consumer with `read_committed` can pass an offset."""
        return max(draft.settled_us for draft in self.drafts[: offset + 1])

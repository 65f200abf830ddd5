"""NexMark's query 8 in event time: persons who open auctions in the window of their registration.

Source: persons joined with auctions on ``person.id = auction.seller`` within adjacent windows; CheckMate's have 10 s.
"""

from __future__ import annotations

from typing import ClassVar

from generator.nexmark import (
    AUCTION,
    AUCTIONS,
    FIRST_ID,
    PERSON,
    PERSONS,
    AuctionWire,
    InTurn,
    Model,
    PersonWire,
)
from generator.sections import Share
from generator.workloads.operations import Joined
from generator.workloads.seam import Events, Load, NumberedWire, Stream


class NexmarkQ8(Joined):
    """Persons and their auctions are joined per window."""

    kind: ClassVar[str] = "nexmark_q8"
    streams: ClassVar[tuple[Stream, ...]] = (PERSON, AUCTION)
    rarest_share: ClassVar[float] = 0.25
    hot_share: Share | None = None
    """Share of auctions of a hot seller; None: that of Beam."""

    def events(self, load: Load) -> Events:
        """One person, three auctions."""
        keys = [self.wire(stream, load).keys_of for stream in self.streams]
        return InTurn(load.plan, (PERSONS, AUCTIONS), (FIRST_ID, FIRST_ID), keys)

    def wire(self, stream: Stream, load: Load) -> NumberedWire:
        """Beam's person and auction."""
        return PersonWire() if stream is PERSON else AuctionWire(Model(load.plan.seed, self.hot_share))

"""NexMark's entities as Apache Beam generates them: persons, auctions and bids in proportions of 1 : 3 : 46.

Source: Beam's ``GeneratorConfig``, ``PersonGenerator``, ``AuctionGenerator`` and ``BidGenerator``. Of every 50 events
(an epoch), the first is a person, three are auctions, and the others are bids. An auction has a seller, a bid has an
auction and a bidder: with some probability a *hot* one, the first (a bidder: the second) of the newest hundred; else
one of the newest, or one of the next ten, which do not exist yet.

Here all fields follow from the seed and the event's place, not from one sequence of random numbers. So a query has the
same events whatever other streams it reads. Bids have an ``id``, which Beam's lack. An entity's texts come from Beam's
lists, and ``extra`` fills the record up to Beam's average size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from generator import seed
from generator.grid import GridPlan
from generator.sections import Share
from generator.sends import SendBatch
from generator.workloads.seam import Events, GridEvents, Keyed, Load, NumberedWire, Numbers, Stream, Workload

PERSONS, AUCTIONS, BIDS = 1, 3, 46
FIRST_ID: Final = 1000
"""The first person and the first auction have this id."""
FIRST_CATEGORY, CATEGORIES = 10, 5
IN_FLIGHT_AUCTIONS, ACTIVE_PERSONS, LEAD = 100, 1000, 10
HOT_EVERY: Final = 100
HOT_AUCTIONS, HOT_BIDDERS, HOT_SELLERS = 1 / 2, 3 / 4, 3 / 4
"""Beam's shares of hot entities."""
LONGEST_MS: Final = 60_000
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100

_PLACES: Final = (
    ("AZ", "Phoenix"), ("CA", "Los Angeles"), ("CA", "San Francisco"), ("ID", "Boise"), ("OR", "Portland"),
    ("OR", "Bend"), ("WA", "Redmond"), ("WA", "Seattle"), ("WA", "Kent"), ("WY", "Cheyenne"),
)  # fmt: skip
_FIRST_NAMES: Final = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
_LAST_NAMES: Final = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]

PERSON: Final = Stream(
    "person", {"id": "id", "key": "id", "event_time": "dateTime"}, time_unit="ms", late="latePersons"
)
AUCTION: Final = Stream(
    "auction", {"id": "id", "key": "seller", "event_time": "dateTime"}, time_unit="ms", late="lateAuctions"
)
AUCTION_BY_ID: Final = replace(AUCTION, fields={**AUCTION.fields, "key": "id"})


def bid_by(key: str) -> Stream:
    """The bids, whose key is the ``auction``, the ``bidder``, or the ``site``, which all bids share."""
    return Stream("bid", {"id": "id", "key": key, "event_time": "dateTime"}, time_unit="ms", late="lateBids")


@dataclass(frozen=True)
class Model:
    """The entities of a seed. ``hot_share``: the share of references to hot entities; None: Beam's shares. Entities are
    counted from 0."""

    seed: int
    hot_share: float | None = None

    def price(self, purpose: str, numbers: Numbers) -> Numbers:
        """Between 100 and 100 million, uniform in the logarithm."""
        return np.rint(10.0 ** (self.draw(purpose, numbers) * 6) * 100).astype(np.int64)

    def draw(self, purpose: str, numbers: Numbers) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """See `seed.draws`."""
        return seed.draws(self.seed, purpose, numbers)

    def person_for(self, purpose: str, numbers: Numbers, newest: Numbers, beams_share: float, hot: int) -> Numbers:
        """The id of a person, for an event when ``newest`` was the newest one. ``hot``: place of the hot person in its
        hundred."""
        active = np.minimum(newest + 1, ACTIVE_PERSONS)
        some = newest + 1 - active + (self.draw(f"{purpose} among", numbers) * (active + LEAD)).astype(np.int64)
        return FIRST_ID + self._hot(purpose, numbers, newest // HOT_EVERY * HOT_EVERY + hot, some, beams_share)

    def auction_for(self, purpose: str, numbers: Numbers, newest: Numbers) -> Numbers:
        """The id of an auction, for an event when ``newest`` was the newest one."""
        oldest = np.maximum(newest - IN_FLIGHT_AUCTIONS, 0)
        some = oldest + (self.draw(f"{purpose} among", numbers) * (newest - oldest + 1 + LEAD)).astype(np.int64)
        return FIRST_ID + self._hot(purpose, numbers, newest // HOT_EVERY * HOT_EVERY, some, HOT_AUCTIONS)

    def _hot(self, purpose: str, numbers: Numbers, hot: Numbers, some: Numbers, beams_share: float) -> Numbers:
        share = beams_share if self.hot_share is None else self.hot_share
        return np.where(self.draw(f"{purpose} is hot", numbers) < share, hot, some)


class InTurn(GridEvents):
    """The events of a grid in turn: in each epoch, ``shares`` of two streams. ``first``: their first ids. ``keys_of``:
    the keys of ids."""

    def __init__(
        self,
        plan: GridPlan,
        shares: tuple[int, int],
        first: tuple[int, int],
        keys_of: Sequence[Callable[[Numbers], Numbers]],
    ) -> None:
        super().__init__(plan)
        self._shares, self._first, self._keys_of = shares, first, keys_of

    @property
    def next_numbers(self) -> tuple[int, ...]:
        """Above the ids of the epoch that has begun."""
        epochs = self._grid.next_number // sum(self._shares) + 1
        return tuple(first + epochs * share for first, share in zip(self._first, self._shares, strict=True))

    def split(self, batch: SendBatch) -> tuple[SendBatch, ...]:
        """Both streams, with their ids as numbers."""
        epochs, places = np.divmod(np.array(batch.numbers, np.int64) - 1, sum(self._shares))
        times_ms, kinds = np.array(batch.times_ms, np.int64), np.array(batch.kinds, np.int64)
        found, before = [], 0
        for share, first, keys_of in zip(self._shares, self._first, self._keys_of, strict=True):
            chosen = (before <= places) & (places < before + share)
            ids = first + (epochs * share + places - before)[chosen]
            columns = (ids, keys_of(ids), times_ms[chosen], kinds[chosen])
            found.append(SendBatch(*(column.tolist() for column in columns)))
            before += share
        return tuple(found)


class PersonWire(NumberedWire):
    """Beam's person. Its id is its key."""

    def keys_of(self, numbers: Numbers) -> Numbers:
        """The ids."""
        return numbers

    def render(self, numbers: list[int], keys: list[int], times_ms: list[int], created_ms: int) -> list[bytes]:
        """See `Wire`."""
        del keys, created_ms
        return [_filled(_PERSON % (n, *_PERSONS_TEXTS[n % len(_PERSONS_TEXTS)], ms), PERSON_BYTES)
                for n, ms in zip(numbers, times_ms, strict=True)]  # fmt: skip

    def number_in(self, value: bytes) -> int:
        """See `Wire`."""
        return _id_in(value)


class AuctionWire(NumberedWire):
    """Beam's auction. Its key is its seller or its id. ``longest_ms``: the longest time from its opening to its end."""

    def __init__(self, model: Model, key: str = "seller", longest_ms: int = LONGEST_MS) -> None:
        self._model = model
        self._is_by_id = key == "id"
        self._longest_ms = longest_ms

    def keys_of(self, numbers: Numbers) -> Numbers:
        """The ids or the sellers."""
        return numbers if self._is_by_id else self._sellers(numbers)

    def _sellers(self, numbers: Numbers) -> Numbers:
        newest_person = (numbers - FIRST_ID) // AUCTIONS
        return self._model.person_for("seller", numbers, newest_person, HOT_SELLERS, 0)

    def render(self, numbers: list[int], keys: list[int], times_ms: list[int], created_ms: int) -> list[bytes]:
        """See `Wire`."""
        del created_ms
        ids = np.array(numbers, np.int64)
        bids, model = self._model.price("initial bid", ids), self._model
        reserves = bids + model.price("reserve", ids)
        lasting_ms = 1 + (model.draw("lasting", ids) * self._longest_ms).astype(np.int64)
        columns = (
            numbers,
            bids.tolist(),
            reserves.tolist(),
            times_ms,
            (np.array(times_ms) + lasting_ms).tolist(),
            self._sellers(ids).tolist() if self._is_by_id else keys,
        )
        return [
            _filled(_AUCTION % (n, n % 1000, bid, reserve, ms, expires, seller, FIRST_CATEGORY + n % CATEGORIES),
                    AUCTION_BYTES)
            for n, bid, reserve, ms, expires, seller in zip(*columns, strict=True)
        ]  # fmt: skip

    def number_in(self, value: bytes) -> int:
        """See `Wire`."""
        return _id_in(value)


class BidWire(NumberedWire):
    """Beam's bid with an id. Its key is its auction, its bidder, or the only site, which is then one of its fields."""

    def __init__(self, model: Model, key: str) -> None:
        self._model = model
        self._is_by_auction = key != "bidder"
        self._form = _BID_WITH_SITE if key == "site" else _BID

    def keys_of(self, numbers: Numbers) -> Numbers:
        """The auctions or the bidders. Those of a site are spread by auction."""
        return self._auctions(numbers) if self._is_by_auction else self._bidders(numbers)

    def render(self, numbers: list[int], keys: list[int], times_ms: list[int], created_ms: int) -> list[bytes]:
        """See `Wire`."""
        del created_ms
        ids = np.array(numbers, np.int64)
        others = (self._bidders(ids) if self._is_by_auction else self._auctions(ids)).tolist()
        auctions, bidders = (keys, others) if self._is_by_auction else (others, keys)
        prices = self._model.price("price", ids).tolist()
        return [
            _filled(self._form % row, BID_BYTES)
            for row in zip(numbers, auctions, bidders, prices, times_ms, strict=True)
        ]

    def number_in(self, value: bytes) -> int:
        """See `Wire`."""
        return _id_in(value)

    def _auctions(self, numbers: Numbers) -> Numbers:
        newest = (numbers - 1) // BIDS * AUCTIONS + AUCTIONS - 1
        return self._model.auction_for("auction", numbers, newest)

    def _bidders(self, numbers: Numbers) -> Numbers:
        return self._model.person_for("bidder", numbers, (numbers - 1) // BIDS, HOT_BIDDERS, 1)


class OnBids(Workload):
    """A query of bids."""

    streams: ClassVar[tuple[Stream, ...]] = (bid_by("auction"),)
    hot_share: Share | None = None
    """Share of bids on a hot auction and by a hot bidder; None: those of Beam."""

    def events(self, load: Load) -> Events:
        """Bids."""
        return Keyed(load.plan, self.wire(self.streams[0], load).keys_of)

    def wire(self, stream: Stream, load: Load) -> BidWire:
        """Beam's bid."""
        return BidWire(Model(load.plan.seed, self.hot_share), stream.fields["key"])


_PERSON: Final = b'{"id":%d,"name":"%b","email":"%b","creditCard":"%b","city":"%b","state":"%b","dateTime":%d,"extra":"'
_AUCTION: Final = (
    b'{"id":%d,"itemName":"item-%d","description":"as described","initialBid":%d,"reserve":%d,"dateTime":%d,'
    b'"expires":%d,"seller":%d,"category":%d,"extra":"'
)
_BID: Final = b'{"id":%d,"auction":%d,"bidder":%d,"price":%d,"dateTime":%d,"extra":"'
_BID_WITH_SITE: Final = _BID.replace(b'"extra"', b'"site":"auctions","extra"')
_PERSONS_TEXTS: Final = [
    tuple(
        text.encode()
        for text in (
            f"{first} {last}", f"{first}.{last}@example.org".lower(), f"{1000 + n} {2000 + n} {3000 + n} {4000 + n}",
            *reversed(_PLACES[n % len(_PLACES)]),
        )
    )
    for n, (first, last) in enumerate((first, last) for first in _FIRST_NAMES for last in _LAST_NAMES)
]  # fmt: skip


def _filled(head: bytes, size: int) -> bytes:
    """End a record with a text that gives it the size."""
    return head.ljust(size - 2, b"x") + b'"}'


def _id_in(value: bytes) -> int:
    return int(value[6 : value.index(b",")])

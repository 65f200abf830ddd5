"""StreamBench's records: texts of 60 bytes, and numbers of 200 bytes in 17 fields, from seeds that are cycled.

Source: StreamBench (Lu et al. 2014): a text of the AOL search log has 60 bytes, a record of CAIDA's traces 200 bytes.
Both are lines here, with tabs between the fields, and synthetic: id and time come first, and the rest is cycled over as
many records as the seed has (``seed_records``). The first word of a text is a field, too, which a filter of the sidecar
can read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final

import numpy as np

from generator import seed
from generator.sections import Count
from generator.workloads.seam import Events, Keyed, Load, NumberedWire, Numbers, Stream, Workload

TEXT_BYTES, NUMBERS_BYTES = 60, 200
TEXT_WORDS: Final = 3
USERS: Final = 1_000
FLOWS: Final = 1_000
DRAWS: Final = 1_000_000
"""A record of numbers has a draw below this, from the hash of its id."""
WORDS: Final = tuple(
    first + middle + last
    for first in ("b", "d", "f", "gr", "l", "m", "n", "p", "st", "tr")
    for middle in ("a", "e", "i", "o", "u", "ai", "ea", "ou", "ar", "er")
    for last in ("ck", "ll", "mp", "nd", "nt", "rn", "ss", "t", "x", "z")
)
_WHOLE: Final = 1 << 32
_MEASURES: Final = tuple(f"measure{n}" for n in range(1, 14))

TEXT_COLUMNS: Final = ("id", "time", "user", "word", "text")
NUMBERS_COLUMNS: Final = ("id", "time", "flow", "draw", *_MEASURES)


TEXTS: Final = Stream(
    "text", {"id": "id", "key": "user", "event_time": "time"}, time_unit="ms", columns=TEXT_COLUMNS, late="lateTexts"
)
WORDS_OF_TEXTS: Final = replace(TEXTS, fields={**TEXTS.fields, "key": "text"}, has_words=True)
NUMBERS: Final = Stream(
    "numbers", {"id": "id", "key": "flow", "event_time": "time"}, time_unit="ms", columns=NUMBERS_COLUMNS,
    late="lateNumbers",
)  # fmt: skip


class _Lines(NumberedWire):
    """Lines that begin with the id. ``seed_value``: the generator's seed. ``records``: number of those that are
    cycled."""

    def __init__(self, seed_value: int, records: int, purpose: str) -> None:
        self._seed = seed_value
        self._records = records
        self._purpose = purpose

    def below(self, bound: int, name: str) -> Numbers:
        """A number from 0 to ``bound`` for each record of the seed."""
        drawn = seed.draws(self._seed, f"{self._purpose} {name}", np.arange(self._records))
        return (drawn * bound).astype(np.int64)

    def number_in(self, value: bytes) -> int:
        """See `Wire`."""
        return int(value[: value.index(b"\t")])


class TextWire(_Lines):
    """Texts. Words have Zipf's frequencies: the n-th is 1/n times as frequent as the first."""

    def __init__(self, seed_value: int, records: int) -> None:
        super().__init__(seed_value, records, "text")
        bounds = np.cumsum(_WHOLE // np.arange(1, len(WORDS) + 1))
        drawn = [self.below(int(bounds[-1]), f"word {n}") for n in range(TEXT_WORDS)]
        places = zip(*(np.searchsorted(bounds, one, "right").tolist() for one in drawn), strict=True)
        texts = [[WORDS[place].encode() for place in of_text] for of_text in places]
        self._users = self.below(USERS, "user")
        self._rest = [
            b"%d\t%b\t%b" % (user, words[0], b" ".join(words)) for user, words in zip(self._users, texts, strict=True)
        ]

    def keys_of(self, numbers: Numbers) -> Numbers:
        """The users."""
        return self._users[numbers % self._records]

    def render(self, numbers: list[int], keys: list[int], times_ms: list[int], created_ms: int) -> list[bytes]:
        """See `Wire`."""
        del keys, created_ms
        rest, records = self._rest, self._records
        return [(b"%d\t%d\t%b" % (n, ms, rest[n % records])).ljust(TEXT_BYTES)
                for n, ms in zip(numbers, times_ms, strict=True)]  # fmt: skip


class NumbersWire(_Lines):
    """Records of numbers. Their draws are not cycled."""

    def __init__(self, seed_value: int, records: int) -> None:
        super().__init__(seed_value, records, "numbers")
        self._flows = self.below(FLOWS, "flow")
        columns = [self.below(1_000_000, name).tolist() for name in _MEASURES]
        self._rest = [b"\t".join(b"%d" % value for value in row) for row in zip(*columns, strict=True)]

    def keys_of(self, numbers: Numbers) -> Numbers:
        """The flows."""
        return self._flows[numbers % self._records]

    def render(self, numbers: list[int], keys: list[int], times_ms: list[int], created_ms: int) -> list[bytes]:
        """See `Wire`."""
        del created_ms
        draws = (seed.draws(self._seed, "draw", np.array(numbers, np.int64)) * DRAWS).astype(np.int64).tolist()
        rest, records = self._rest, self._records
        # The zeros that fill the record belong to its last number.
        return [(b"%d\t%d\t%d\t%d\t%b" % (n, ms, flow, draw, rest[n % records])).ljust(NUMBERS_BYTES, b"0")
                for n, ms, flow, draw in zip(numbers, times_ms, keys, draws, strict=True)]  # fmt: skip


class OnRecords(Workload):
    """A program that reads texts or records of numbers."""

    streams: ClassVar[tuple[Stream, ...]] = (TEXTS,)
    seed_records: Count = 10_000
    """Number of records that are cycled. StreamBench states 10,000 texts and 100,000, and has 11,942 records of
    numbers."""

    def events(self, load: Load) -> Events:
        """The records of the seed, cycled."""
        return Keyed(load.plan, self.wire(self.streams[0], load).keys_of)

    def wire(self, stream: Stream, load: Load) -> NumberedWire:
        """The lines."""
        return (NumbersWire if stream is NUMBERS else TextWire)(load.plan.seed, self.seed_records)

    @property
    def kept(self) -> tuple[str, ...]:
        """All other fields, or those of the aggregates."""
        fields = self.streams[0].fields.values()
        return super().kept or tuple(name for name in self.streams[0].columns if name not in fields)


class OnWords(OnRecords):
    """A program that splits texts into words, which are its keys. Late words have no topic that the sidecar reads."""

    streams: ClassVar[tuple[Stream, ...]] = (WORDS_OF_TEXTS,)
    sets_aside: ClassVar[bool] = False

    @property
    def key(self) -> str:
        """A word."""
        return "word"

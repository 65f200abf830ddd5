"""ShuffleBench's records, which go to the consumers whose rules match their first bytes.

Source: ShuffleBench's ``AdvancedStateConsumer``; the rules are in `validator.model.range_rules`. ShuffleBench's records
are random bytes without a key. Here a record begins with its id, which is what its consumers add up. Eight bytes that
follow from the seed complete the 16 hashed ones. Then come the event time and the names of the consumers, for sidecars
that do not match. The rest of the record is cycled.
"""

from __future__ import annotations

import random
from typing import Any, Final

import numpy as np

from generator import seed
from generator.workloads.seam import NumberedWire, Numbers, Stream
from validator.model.komihash import Words
from validator.model.range_rules import HASHED_BYTES, AnyMatcher

_NAMES_AT: Final = 24
NAMES_BYTES: Final = 232
"""Room for at least 14 names of up to a million rules."""
NAMED_MEAN_MAX: Final = 2
"""Consumers of a record on average, of which more than 14 are not to be expected (less than 4 in 10^9 records)."""
LEAST_RECORD_BYTES: Final = _NAMES_AT + NAMES_BYTES
_FILLERS: Final = 1000
_KEYS: Final = 1024

RECORDS: Final = Stream(
    "record", {"id": "id", "key": "consumers", "event_time": "time"}, time_unit="ms", late="lateRecords",
    layout={
        "head": {"offset": 0, "type": "bytes", "size": HASHED_BYTES},
        "id": {"offset": 0, "type": "int64"},
        "time": {"offset": HASHED_BYTES, "type": "int64"},
        "consumers": {"offset": _NAMES_AT, "type": "text", "size": NAMES_BYTES},
    },
    has_words=True,
    matched="head",
)  # fmt: skip


def name_of(rule: int) -> str:
    """The consumer of a rule."""
    return f"consumer_{rule}"


class RecordWire(NumberedWire):
    """ShuffleBench's records of ``size`` bytes, with ids. Their Kafka key, which ShuffleBench leaves out, spreads them
    over partitions."""

    def __init__(self, seed_value: int, of: AnyMatcher, size: int) -> None:
        self._seed = seed_value
        self._matcher = of
        self._names = [name_of(rule).encode() for rule in range(of.rules)]
        drawn = random.Random(f"{seed_value}/fillers")
        self._fillers = [drawn.randbytes(size - LEAST_RECORD_BYTES) for _ in range(_FILLERS)]

    def keys_of(self, numbers: Numbers) -> Numbers:
        """Some numbers in turn."""
        return numbers % _KEYS

    def render(self, numbers: list[int], keys: list[int], times_ms: list[int], created_ms: int) -> list[bytes]:
        """See `Wire`."""
        del keys, created_ms
        heads = np.empty((len(numbers), 3), ">i8")
        heads[:, 0] = numbers
        heads[:, 1] = seed.draws(self._seed, "record", np.array(numbers, np.int64)) * 2.0**62
        heads[:, 2] = times_ms
        words = heads.view("<u8")
        names = self._names_of(words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64))
        packed, fillers = heads.tobytes(), self._fillers
        return [
            packed[place * _NAMES_AT : place * _NAMES_AT + _NAMES_AT]
            + names.get(place, _NO_NAMES)
            + fillers[number % _FILLERS]
            for place, number in enumerate(numbers)
        ]

    def number_in(self, value: bytes) -> int:
        """See `Wire`."""
        return int.from_bytes(value[:8], "big")

    def _names_of(self, firsts: Words, seconds: Words) -> dict[int, bytes]:
        """Place of a record -> the names of its consumers, if it has some."""
        found: dict[int, bytes] = {}
        matches = self._matcher.of_words(firsts, seconds)
        for place, rule in zip(*(column.tolist() for column in matches), strict=True):
            found[place] = found[place] + b" " + self._names[rule] if place in found else self._names[rule]
        if any(len(names) > NAMES_BYTES for names in found.values()):
            raise ValueError(f"a record matches more rules than {NAMES_BYTES} bytes of names; lower the selectivities")
        return {place: names.ljust(NAMES_BYTES) for place, names in found.items()}


_NO_NAMES: Final = b" " * NAMES_BYTES


def state_bytes(members: dict[str, Any], size: int) -> bytes:
    """A consumer's state, as its results have it: four numbers of eight bytes, of which the sum wraps, and zeros."""
    numbers = (members["count"], members["sum"], members["start"], members["end"])
    return b"".join((number & (1 << 64) - 1).to_bytes(8, "big") for number in numbers).ljust(size, b"\0")

"""ShuffleBench's matcher and records: a record goes to the consumers whose rules match its first bytes.

Source: ShuffleBench's ``RangeBasedMatchingRule``, ``RangeBasedMatchingRuleIndex``, ``SimpleMatcherService`` and
``AdvancedStateConsumer``. A rule is a range of 63-bit hashes: rule i matches a record if
``(hash - offset of i) mod 2^63 < floor(probability of i x 2^63)``, where the hash is komihash 5.0 of the first 16
bytes. The probabilities are Zipf's: ``selectivity x (i + 1)^-s``, divided by the sum of all weights. An index of 65,536
slots, by the upper bits of the hash, has the rules whose range overlaps each slot.

ShuffleBench's records are random bytes without a key. Here a record begins with its id, which is what its consumers add
up. Eight bytes that follow from the seed complete the 16 hashed ones. Then come the event time and the names of the
consumers, so that the sidecar, which cannot match, knows them. The rest of the record is cycled.
"""

from __future__ import annotations

import functools
import math
import random
from typing import Any, Final

import numpy as np

from generator import seed
from generator.komihash import Words, komihash, komihash_of_16
from generator.workloads.seam import NumberedWire, Numbers, Stream

RECORD_BYTES: Final = 1024
HASHED_BYTES: Final = 16
HASH_SEED: Final = 0x81C1F2B68968424D
RULES_SEED: Final = 0x2E3FAC4F58FC98B4
SLOT_BITS: Final = 16
_SLOTS: Final = 1 << SLOT_BITS
_SHIFT: Final = 63 - SLOT_BITS
_SLOT_WIDTH: Final = 1 << _SHIFT
_RANGE: Final = (1 << 63) - 1
_ALWAYS: Final = 1 << 63
_NAMES_AT: Final = 24
NAMES_BYTES: Final = 232
"""Room for 15 names. With a selectivity of at most 1, more consumers of one record are not to be expected."""
_FILLERS: Final = 1000
_KEYS: Final = 1024

RECORDS: Final = Stream(
    "record", {"id": "id", "key": "consumers", "event_time": "time"}, time_unit="ms", late="lateRecords",
    layout={
        "id": {"offset": 0, "type": "int64"},
        "time": {"offset": HASHED_BYTES, "type": "int64"},
        "consumers": {"offset": _NAMES_AT, "type": "text", "size": NAMES_BYTES},
    },
    has_words=True,
)  # fmt: skip


def name_of(rule: int) -> str:
    """The consumer of a rule."""
    return f"consumer_{rule}"


class Matcher:
    """Finds the rules that match a hash. ``zipf``: the exponent of the frequencies; 0: all rules are alike."""

    def __init__(self, rules: int, selectivity: float, zipf: float) -> None:
        weights = [1 / math.pow(rule + 1, zipf) for rule in range(rules)]
        total = sum(weights)
        shares = [weight / total * selectivity for weight in weights]
        self.offsets = [_offset_of(rule) for rule in range(rules)]
        self.widths = [_ALWAYS if share >= 1 else math.floor(math.ldexp(share, 63)) for share in shares]
        self._offsets = np.array(self.offsets, np.uint64)
        self._widths = np.array(self.widths, np.uint64)
        self._rules, self._starts = self._indexed()

    def of(self, head: bytes) -> list[int]:
        """The rules that match a record with these first bytes, in order."""
        found = komihash(head[:HASHED_BYTES], HASH_SEED)
        slot = (found & _RANGE) >> _SHIFT
        candidates = self._rules[self._starts[slot] : self._starts[slot + 1]].tolist()
        return [rule for rule in candidates if (found - self.offsets[rule]) & _RANGE < self.widths[rule]]

    def of_all(self, hashes: Words) -> tuple[Numbers, Numbers]:
        """The matches of many hashes: place of the hash, and rule, in this order."""
        slots = ((hashes & np.uint64(_RANGE)) >> np.uint64(_SHIFT)).astype(np.int64)
        starts = self._starts[slots]
        numbers = self._starts[slots + 1] - starts
        places = np.repeat(np.arange(len(hashes)), numbers)
        first_of_each = np.cumsum(numbers) - numbers
        rules = self._rules[starts[places] + np.arange(len(places)) - first_of_each[places]]
        match = ((hashes[places] - self._offsets[rules]) & np.uint64(_RANGE)) < self._widths[rules]
        return places[match], rules[match]

    def _indexed(self) -> tuple[Numbers, Numbers]:
        """The rules of all slots, one slot after the other, and the place of each slot's first one."""
        steps = np.minimum((self._widths + np.uint64(2 * _SLOT_WIDTH - 1)) >> np.uint64(_SHIFT), _SLOTS).astype(
            np.int64
        )
        rules = np.repeat(np.arange(len(steps)), steps)
        step = np.arange(len(rules)) - (np.cumsum(steps) - steps)[rules]
        starts = ((self._offsets & np.uint64(_RANGE)) >> np.uint64(_SHIFT)).astype(np.int64)
        slots = (starts[rules] + step) % _SLOTS
        order = np.lexsort((rules, slots))
        return rules[order], np.searchsorted(slots[order], np.arange(_SLOTS + 1))


@functools.lru_cache(4)
def matcher(rules: int, selectivity: float, zipf: float) -> Matcher:
    """The matcher with these settings."""
    return Matcher(rules, selectivity, zipf)


def _offset_of(rule: int) -> int:
    return komihash(RULES_SEED.to_bytes(8, "little") + rule.to_bytes(4, "little"), version=4.3)


class RecordWire(NumberedWire):
    """ShuffleBench's records with ids. Their Kafka key, which ShuffleBench leaves out, spreads them over partitions."""

    def __init__(self, seed_value: int, of: Matcher) -> None:
        self._seed = seed_value
        self._matcher = of
        self._names = [name_of(rule).encode() for rule in range(len(of.widths))]
        drawn = random.Random(f"{seed_value}/fillers")
        self._fillers = [drawn.randbytes(RECORD_BYTES - _NAMES_AT - NAMES_BYTES) for _ in range(_FILLERS)]

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
        names = self._names_of(komihash_of_16(words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64), HASH_SEED))
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

    def _names_of(self, hashes: Words) -> dict[int, bytes]:
        """Place of a record -> the names of its consumers, if it has some."""
        found: dict[int, bytes] = {}
        for place, rule in zip(*(column.tolist() for column in self._matcher.of_all(hashes)), strict=True):
            found[place] = found[place] + b" " + self._names[rule] if place in found else self._names[rule]
        assert all(len(names) <= NAMES_BYTES for names in found.values())
        return {place: names.ljust(NAMES_BYTES) for place, names in found.items()}


_NO_NAMES: Final = b" " * NAMES_BYTES


def state_bytes(members: dict[str, Any], size: int) -> bytes:
    """A consumer's state, as its results have it: four numbers of eight bytes, of which the sum wraps, and zeros."""
    numbers = (members["count"], members["sum"], members["start"], members["end"])
    return b"".join((number & (1 << 64) - 1).to_bytes(8, "big") for number in numbers).ljust(size, b"\0")

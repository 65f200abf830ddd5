"""ShuffleBench's rules: ranges of the hashes of a record's first bytes, or a hash for each rule.

Source: ShuffleBench's ``RangeBasedMatchingRule``, ``RangeBasedMatchingRuleIndex`` and ``SimpleMatcherService``. Rule i
matches a record if ``(hash - offset of i) mod 2^63 < floor(probability of i x 2^63)``, where the hash is komihash 5.0
of the first 16 bytes. The probabilities are Zipf's: ``selectivity x (i + 1)^-s``, divided by the sum of all weights. An
index of 65,536 slots, by the upper bits of the hash, has the rules whose range overlaps each slot. With a map of
selectivities in their place, as many rules as it says have each probability, numbered in its order.

``HashBasedMatchingRule`` has no index: rule i matches if its own hash of these bytes, komihash 4.3 with the rule's
seed, is at most ``probability of i x 2^63`` after its sign bit is removed. ShuffleBench leaves the seeds to the caller
and no published configuration uses these rules; here the seeds are the offsets of the ranges.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from validator.model.arrays import Ints
from validator.model.komihash import Words, komihash, komihash_of_16
from validator.model.rules import Rules

HASHED_BYTES: Final = 16
HASH_SEED: Final = 0x81C1F2B68968424D
RULES_SEED: Final = 0x2E3FAC4F58FC98B4
SLOT_BITS: Final = 16
_SLOTS: Final = 1 << SLOT_BITS
_SHIFT: Final = 63 - SLOT_BITS
_SLOT_WIDTH: Final = 1 << _SHIFT
_RANGE: Final = (1 << 63) - 1
_ALWAYS: Final = 1 << 63


class AnyMatcher(Protocol):
    """Finds the rules that match a record."""

    rules: int
    """Number of rules."""

    def of(self, head: bytes) -> list[int]:
        """The rules that match a record with these first bytes, in order."""

    def of_words(self, firsts: Words, seconds: Words) -> tuple[Ints, Ints]:
        """The matches of many records, given as the two words of their first bytes: place of the record, and rule, in
        this order."""


class Matcher:
    """Finds the rules of ranges that match a hash."""

    def __init__(self, shares: Sequence[float]) -> None:
        self.rules = len(shares)
        self.offsets = [_offset_of(rule) for rule in range(len(shares))]
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

    def of_words(self, firsts: Words, seconds: Words) -> tuple[Ints, Ints]:
        """See `AnyMatcher`."""
        return self.of_all(komihash_of_16(firsts, seconds, HASH_SEED))

    def of_all(self, hashes: Words) -> tuple[Ints, Ints]:
        """The matches of many hashes: place of the hash, and rule, in this order."""
        slots = ((hashes & np.uint64(_RANGE)) >> np.uint64(_SHIFT)).astype(np.int64)
        starts = self._starts[slots]
        numbers = self._starts[slots + 1] - starts
        places = np.repeat(np.arange(len(hashes)), numbers)
        first_of_each = np.cumsum(numbers) - numbers
        rules = self._rules[starts[places] + np.arange(len(places)) - first_of_each[places]]
        match = ((hashes[places] - self._offsets[rules]) & np.uint64(_RANGE)) < self._widths[rules]
        return places[match], rules[match]

    def _indexed(self) -> tuple[Ints, Ints]:
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


class HashMatcher:
    """Tests every rule, each of which has a hash of its own."""

    def __init__(self, shares: Sequence[float]) -> None:
        self.rules = len(shares)
        self._rules = [(_offset_of(rule), min(_RANGE, int(share * 2.0**63))) for rule, share in enumerate(shares)]

    def of(self, head: bytes) -> list[int]:
        """See `AnyMatcher`."""
        hashed = head[:HASHED_BYTES]
        return [
            rule
            for rule, (seed, most) in enumerate(self._rules)
            if komihash(hashed, seed, version=4.3) & _RANGE <= most
        ]

    def of_words(self, firsts: Words, seconds: Words) -> tuple[Ints, Ints]:
        """See `AnyMatcher`."""
        found = [
            np.flatnonzero(komihash_of_16(firsts, seconds, seed, version=4.3) & np.uint64(_RANGE) <= np.uint64(most))
            for seed, most in self._rules
        ]
        places = np.concatenate(found)
        rules = np.repeat(np.arange(len(found)), [len(one) for one in found])
        order = np.lexsort((rules, places))
        return places[order], rules[order]


@functools.lru_cache(4)
def matcher(of: Rules) -> AnyMatcher:
    """The matcher with these settings."""
    return HashMatcher(of.shares()) if of.matching == "hashes" else Matcher(of.shares())


def _offset_of(rule: int) -> int:
    return komihash(RULES_SEED.to_bytes(8, "little") + rule.to_bytes(4, "little"), version=4.3)

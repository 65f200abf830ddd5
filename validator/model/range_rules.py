"""ShuffleBench's rules: ranges of the hashes of a record's first bytes.

Source: ShuffleBench's ``RangeBasedMatchingRule``, ``RangeBasedMatchingRuleIndex`` and ``SimpleMatcherService``. Rule i
matches a record if ``(hash - offset of i) mod 2^63 < floor(probability of i x 2^63)``, where the hash is komihash 5.0
of the first 16 bytes. The probabilities are Zipf's: ``selectivity x (i + 1)^-s``, divided by the sum of all weights. An
index of 65,536 slots, by the upper bits of the hash, has the rules whose range overlaps each slot.
"""

from __future__ import annotations

import functools
import math
from typing import Final

import numpy as np

from validator.model.arrays import Ints
from validator.model.komihash import Words, komihash

HASHED_BYTES: Final = 16
HASH_SEED: Final = 0x81C1F2B68968424D
RULES_SEED: Final = 0x2E3FAC4F58FC98B4
SLOT_BITS: Final = 16
_SLOTS: Final = 1 << SLOT_BITS
_SHIFT: Final = 63 - SLOT_BITS
_SLOT_WIDTH: Final = 1 << _SHIFT
_RANGE: Final = (1 << 63) - 1
_ALWAYS: Final = 1 << 63


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


@functools.lru_cache(4)
def matcher(rules: int, selectivity: float, zipf: float) -> Matcher:
    """The matcher with these settings."""
    return Matcher(rules, selectivity, zipf)


def _offset_of(rule: int) -> int:
    return komihash(RULES_SEED.to_bytes(8, "little") + rule.to_bytes(4, "little"), version=4.3)

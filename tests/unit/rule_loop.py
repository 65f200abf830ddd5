"""ShuffleBench's matching rule, as a loop over all rules."""

from __future__ import annotations

import functools
import math
import struct

from validator.model.komihash import komihash
from validator.model.range_rules import HASH_SEED, RULES_SEED


@functools.cache
def offset_of(rule: int) -> int:
    """Return where the range of a rule begins."""
    return komihash(struct.pack("<Qi", RULES_SEED, rule), version=4.3)


def hash_matches(head: bytes, shares: list[float]) -> list[int]:
    """Return the rules of which each has a hash of its own."""
    seeds = [offset_of(rule) for rule in range(len(shares))]
    hashes = [komihash(head, seed, version=4.3) % (1 << 63) for seed in seeds]
    return [rule for rule, share in enumerate(shares) if share >= 1 or hashes[rule] <= int(share * 2.0**63)]


def range_matches(head: bytes, shares: list[float]) -> list[int]:
    """Return the rules of which each has a range."""
    found = []
    for rule, share in enumerate(shares):
        distance = (komihash(head, HASH_SEED) - offset_of(rule)) % (1 << 63)
        if share >= 1 or distance < int(share * 2.0**63):
            found.append(rule)
    return found


def matches(head: bytes, rules: int, selectivity: float, zipf: float) -> list[int]:
    """Return the rules that match the first bytes of a record."""
    weights = [1 / math.pow(k, zipf) for k in range(1, rules + 1)]
    total = sum(weights)
    return range_matches(head, [weight / total * selectivity for weight in weights])

"""Exact numbers of `AMOUNT` as columns of 64-bit parts, so that sums, minima and maxima per row are arithmetic."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from validator.codecs.plain_json import AMOUNT
from validator.model.arrays import Ints

PARTS: Final = 4
"""Parts of 64 bits of a decimal of 256 bits, in two's complement, the lowest first."""


def parts_of(texts: pa.Array) -> tuple[list[Ints], npt.NDArray[np.bool_]]:
    """Return the parts of decimals that are given as texts, and which of them are not null."""
    are_known = np.asarray(texts.is_valid())
    found = texts.fill_null("0").cast(AMOUNT) if texts.null_count else texts.cast(AMOUNT)
    raw = np.frombuffer(found.buffers()[1], np.int64) if len(found) else np.empty(0, dtype=np.int64)
    words = raw[found.offset * PARTS : (found.offset + len(found)) * PARTS].reshape(-1, PARTS)
    return [np.ascontiguousarray(words[:, i]) for i in range(PARTS)], are_known


def number_of(parts: list[int]) -> int:
    """Return the number whose parts these are, in units of the last decimal place of `AMOUNT`."""
    low = sum((part & (2**64 - 1)) << (64 * i) for i, part in enumerate(parts[:-1]))
    return low + (parts[-1] << (64 * (PARTS - 1)))


def added(left: list[Ints], right: list[Ints]) -> list[Ints]:
    """Return the sums, row by row."""
    found, carry = [], np.zeros(len(left[0]), dtype=np.uint64)
    for one, other in zip(left, right, strict=True):
        first, second = one.astype(np.uint64), other.astype(np.uint64)
        total = first + second
        carried = (total < first).astype(np.uint64)
        total += carry
        carried += (total < carry).astype(np.uint64)
        found.append(total.astype(np.int64))
        carry = carried
    return found


def negated(parts: list[Ints]) -> list[Ints]:
    """Return the numbers with the other sign."""
    ones = [np.ones_like(parts[0]), *(np.zeros_like(part) for part in parts[1:])]
    return added([~part for part in parts], ones)


def order_of(rows: Ints, parts: list[Ints]) -> Ints:
    """Return the indexes that sort entries by row, and within a row by number."""
    unsigned = [part.astype(np.uint64) for part in parts[:-1]]
    found: Ints = np.lexsort((*unsigned, parts[-1], rows))
    return found

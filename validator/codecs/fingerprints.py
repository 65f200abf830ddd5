"""The fingerprint terms of integer ids as NumPy knows them: the same numbers as `validator.codecs.scalars` in Spark."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)
_SEED: Final = 42
"""Spark's."""


def hash_a(integers: Ints) -> Ints:
    """XXH64 of the eight bytes of each integer, as Spark's ``xxhash64`` (specification: xxHash, "XXH64")."""
    with np.errstate(over="ignore"):
        value = integers.view(np.uint64) * _P2
        value = _rotated(value, 31) * _P1
        value ^= np.uint64(_SEED) + _P5 + np.uint64(8)
        value = _rotated(value, 27) * _P1 + _P4
        value ^= value >> np.uint64(33)
        value *= _P2
        value ^= value >> np.uint64(29)
        value *= _P3
        value ^= value >> np.uint64(32)
    return value.view(np.int64)


def hash_b(integers: Ints) -> Ints:
    """The square, modulo 2**64."""
    with np.errstate(over="ignore"):
        return integers * integers


def _rotated(values: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.uint64]:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))

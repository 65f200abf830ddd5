"""The fingerprint terms of an id: Spark's ``xxhash64``, and a square. Stored facts hold them.

XXH64 is specified at https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)
SPARK_SEED: Final = 42
"""The seed that Spark uses."""
_STRIPE: Final = 32
_64_BITS: Final = 2**64
_AT_ONCE: Final = 16_384
"""Number of texts that are hashed together, so that their numbers stay in the processor's cache."""
_TEXT_SALT: Final = b"streamproof"


def hash_a(integers: Ints) -> Ints:
    """Return XXH64 of the eight bytes of each integer, as Spark's ``xxhash64``."""
    with np.errstate(over="ignore"):
        value = integers.view(np.uint64) * _P2
        value = _rotated(value, 31) * _P1
        value ^= np.uint64(SPARK_SEED) + _P5 + np.uint64(8)
        value = _rotated(value, 27) * _P1 + _P4
        return _mixed(value).view(np.int64)


def hash_b(integers: Ints) -> Ints:
    """Return the square of each integer, modulo 2**64."""
    with np.errstate(over="ignore"):
        return integers * integers


def text_numbers(texts: pa.Array) -> Ints:
    """Return the 64-bit number of each text id, from which its fingerprint terms are computed: Spark's ``xxhash64`` of
    a salt and the text. ``texts`` has no nulls."""
    _, ends, data = texts.buffers()
    offsets = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    characters = np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return xxh64(characters, offsets, _TEXT_SEED).view(np.int64)


def number_of_text(text: str) -> int:
    """Return the number of one text, as `text_numbers`."""
    return int(text_numbers(pa.array([text], pa.string()))[0])


def xxh64(data: npt.NDArray[np.uint8], offsets: Ints, seed: int) -> _Words:
    """Return XXH64 of each stretch of ``data`` between two ``offsets``. ``seed``: 64 bits."""
    found = np.empty(len(offsets) - 1, dtype=np.uint64)
    for start in range(0, len(found), _AT_ONCE):
        part = offsets[start : start + _AT_ONCE + 1]
        found[start : start + _AT_ONCE] = _hashed(data[part[0] : part[-1]], part - part[0], seed)
    return found


def _hashed(data: npt.NDArray[np.uint8], offsets: Ints, seed: int) -> _Words:
    """Return the same hashes as `xxh64`. The number of steps does not depend on the number of different lengths."""
    lengths = np.diff(offsets)
    # The longest texts come first, so that those with a further stripe are always the first ones.
    order = np.argsort(-lengths, kind="stable") if len(lengths) and lengths.min() != lengths.max() else None
    at = offsets[:-1] if order is None else offsets[:-1][order]
    size = lengths if order is None else lengths[order]
    padded = np.concatenate([data, np.zeros(8, dtype=np.uint8)])
    words = np.ndarray((len(data) + 1,), "<u8", buffer=padded, strides=(1,))
    halves = np.ndarray((len(data) + 5,), "<u4", buffer=padded, strides=(1,))
    with np.errstate(over="ignore"):
        hashed = np.full(len(size), (seed + int(_P5)) % _64_BITS, dtype=np.uint64)
        longer = int(np.count_nonzero(size >= _STRIPE))
        if longer:
            hashed[:longer] = _striped_hash(words, at[:longer], size[:longer], seed)
        hashed += size.view(np.uint64)
        place, end = at + size // _STRIPE * _STRIPE, at + size
        while len(rows := np.flatnonzero(end - place >= 8)):
            value = hashed[rows] ^ _round(np.zeros(len(rows), dtype=np.uint64), words[place[rows]])
            hashed[rows] = _rotated(value, 27) * _P1 + _P4
            place[rows] += 8
        if len(rows := np.flatnonzero(end - place >= 4)):
            value = hashed[rows] ^ halves[place[rows]].astype(np.uint64) * _P1
            hashed[rows] = _rotated(value, 23) * _P2 + _P3
            place[rows] += 4
        while len(rows := np.flatnonzero(end > place)):
            value = hashed[rows] ^ padded[place[rows]].astype(np.uint64) * _P5
            hashed[rows] = _rotated(value, 11) * _P1
            place[rows] += 1
        hashed = _mixed(hashed)
    if order is None:
        return hashed
    found = np.empty_like(hashed)
    found[order] = hashed
    return found


def _striped_hash(words: _Words, at: Ints, size: Ints, seed: int) -> _Words:
    """Return the hash so far of texts of 32 bytes and more, the longest first."""
    starts = [seed + int(_P1) + int(_P2), seed + int(_P2), seed, seed - int(_P1)]
    lanes = [np.full(len(at), start % _64_BITS, dtype=np.uint64) for start in starts]
    stripes = size // _STRIPE
    for stripe in range(int(stripes[0])):
        active = int(np.searchsorted(-stripes, -stripe, side="left"))
        place = at[:active] + stripe * _STRIPE
        for number, lane in enumerate(lanes):
            lane[:active] = _round(lane[:active], words[place + 8 * number])
    hashed = np.zeros(len(at), dtype=np.uint64)
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        hashed += _rotated(lane, bits)
    for lane in lanes:
        hashed = (hashed ^ _round(np.zeros_like(lane), lane)) * _P1 + _P4
    return hashed


def _round(lane: _Words, word: _Words) -> _Words:
    return _rotated(lane + word * _P2, 31) * _P1


def _mixed(value: _Words) -> _Words:
    value ^= value >> np.uint64(33)
    value *= _P2
    value ^= value >> np.uint64(29)
    value *= _P3
    value ^= value >> np.uint64(32)
    return value


def _rotated(values: _Words, bits: int) -> _Words:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


_TEXT_SEED: Final = int(
    xxh64(np.frombuffer(_TEXT_SALT, np.uint8), np.array([0, len(_TEXT_SALT)], dtype=np.int64), SPARK_SEED)[0]
)
"""Seed for texts. Spark hashes one column after another: the hash of the first is the seed of the second."""

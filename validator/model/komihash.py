"""komihash of messages below 32 bytes, in versions 4.3 and 5.0, for one message or for many.

Source: https://github.com/avaneev/komihash. The versions differ in the bit that ends a message: 4.3 shifts it by one
place if the first bit of the last byte is set.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
LONGEST: Final = 31
_ALL: Final = (1 << 64) - 1
_EVEN, _ODD = 0x5555555555555555, 0xAAAAAAAAAAAAAAAA
_FIRST, _FIFTH = 0x243F6A8885A308D3, 0x452821E638D01377
_LOW: Final = np.uint64((1 << 32) - 1)
_HALF: Final = np.uint64(32)


def komihash(message: bytes, seed: int = 0, *, version: float = 5.0) -> int:
    """The hash of a message of at most 31 bytes."""
    assert len(message) <= LONGEST
    first, fifth = _started(seed)
    rest = message
    if len(message) > 15:
        first, fifth = _mixed(first ^ _word(message[:8]), fifth ^ _word(message[8:16]), fifth)
        rest = message[16:]
    ended = 1 << 8 * len(rest) if message else 0
    if version < 5 and message and message[-1] >> 7:
        ended <<= 1
    padded = _word(rest) | ended
    first, fifth = _mixed(first ^ padded & _ALL, fifth ^ padded >> 64, fifth)
    return _mixed(first, fifth, fifth)[0]


def komihash_of_16(firsts: Words, seconds: Words, seed: int = 0, *, version: float = 5.0) -> Words:
    """The hashes of messages of 16 bytes, each given as its two words, of which the lowest byte is the first."""
    first, fifth = map(np.uint64, _started(seed))
    ones, fives = _mixed_words(firsts ^ first, seconds ^ fifth, np.full_like(firsts, fifth))
    ended = np.uint64(1) << (seconds >> np.uint64(63) if version < 5 else np.uint64(0))
    ones, fives = _mixed_words(ones ^ ended, fives, fives)
    return _mixed_words(ones, fives, fives)[0]


def _started(seed: int) -> tuple[int, int]:
    first, fifth = _FIRST ^ seed & _EVEN, _FIFTH ^ seed & _ODD
    return _mixed(first, fifth, fifth)


def _mixed(left: int, right: int, fifth: int) -> tuple[int, int]:
    product = left * right
    fifth = fifth + (product >> 64) & _ALL
    return product & _ALL ^ fifth, fifth


def _word(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _mixed_words(left: Words, right: Words, fives: Words) -> tuple[Words, Words]:
    fives = fives + _upper_half(left, right)
    return left * right ^ fives, fives


def _upper_half(left: Words, right: Words) -> Words:
    """The upper 64 bits of the products."""
    left_low, left_high, right_low, right_high = left & _LOW, left >> _HALF, right & _LOW, right >> _HALF
    middle = left_high * right_low + (left_low * right_low >> _HALF)
    other = left_low * right_high + (middle & _LOW)
    upper: Words = left_high * right_high + (middle >> _HALF) + (other >> _HALF)
    return upper

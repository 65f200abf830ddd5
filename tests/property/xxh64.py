"""XXH64 of one text, written from its specification (xxhash_spec.md): slow, and independent of the product's code."""

from __future__ import annotations

from typing import Final

_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_ALL: Final = 2**64 - 1


def xxh64(data: bytes, seed: int) -> int:
    """The hash, from 0 to 2**64 - 1."""
    at = 0
    if len(data) >= 32:
        lanes = [(seed + _P1 + _P2) & _ALL, (seed + _P2) & _ALL, seed, (seed - _P1) & _ALL]
        while at + 32 <= len(data):
            lanes = [_round(lane, _word(data, at + 8 * place, 8)) for place, lane in enumerate(lanes)]
            at += 32
        found = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _ALL
        for lane in lanes:
            found = ((found ^ _round(0, lane)) * _P1 + _P4) & _ALL
    else:
        found = (seed + _P5) & _ALL
    found = (found + len(data)) & _ALL
    while at + 8 <= len(data):
        found = (_rotated(found ^ _round(0, _word(data, at, 8)), 27) * _P1 + _P4) & _ALL
        at += 8
    if at + 4 <= len(data):
        found = (_rotated(found ^ (_word(data, at, 4) * _P1 & _ALL), 23) * _P2 + _P3) & _ALL
        at += 4
    for byte in data[at:]:
        found = _rotated(found ^ (byte * _P5 & _ALL), 11) * _P1 & _ALL
    found = (found ^ found >> 33) * _P2 & _ALL
    found = (found ^ found >> 29) * _P3 & _ALL
    return found ^ found >> 32


def signed(number: int) -> int:
    """The number modulo 2**64 as a signed 64-bit integer."""
    return (number + 2**63) % 2**64 - 2**63


def number_of(id_: int | str) -> int:
    """The integer that stands for an id in its fingerprint: an integer id itself, or the hash of a text id."""
    if isinstance(id_, int):
        return id_
    return signed(xxh64(id_.encode(), xxh64(b"streamproof", 42)))


def terms(id_: int | str) -> tuple[int, int]:
    """Both terms of an id's fingerprint."""
    number = number_of(id_)
    return signed(xxh64((number % 2**64).to_bytes(8, "little"), 42)), signed(number * number)


def _round(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _ALL, 31) * _P1 & _ALL


def _word(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _ALL

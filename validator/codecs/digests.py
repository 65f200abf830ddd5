"""The numbers of which results state sums modulo 2^64: ids, hashes of ids, and their squares (SEMANTICS 2.34)."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from validator.codecs.fingerprints import SPARK_SEED, Ints, hash_a, hash_b, xxh64
from validator.model.stated_values import Digest, Hash

_64_BITS: Final = 2**64
_MD5_BYTES: Final = 8


def signed(number: int) -> int:
    """Return the signed 64-bit integer that equals a number modulo 2^64."""
    return (number + _64_BITS // 2) % _64_BITS - _64_BITS // 2


def hashes_of(texts: pa.Array, kind: Hash) -> Ints:
    """Return the hash of each text. ``texts`` has no nulls."""
    if kind == "xxhash64":
        _, ends, data = texts.buffers()
        offsets = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
        characters = np.zeros(0, dtype=np.uint8) if data is None else np.frombuffer(data, np.uint8)
        return xxh64(characters, offsets, SPARK_SEED).view(np.int64)
    numbers = (_crc32 if kind == "crc32" else _md5)(texts)
    return np.array(numbers, dtype=np.uint64).view(np.int64)


def _crc32(texts: pa.Array) -> list[int]:
    return [zlib.crc32(raw) for raw in texts.cast(pa.binary()).to_pylist()]


def _md5(texts: pa.Array) -> list[int]:
    digests = (hashlib.md5(raw, usedforsecurity=False).digest() for raw in texts.cast(pa.binary()).to_pylist())
    return [int.from_bytes(digest[:_MD5_BYTES]) for digest in digests]


def of_prefixes(hashes: Sequence[Ints]) -> list[Ints]:
    """Return, for each field of tuples, the hash of the fields up to it. ``hashes``: that of each field, 0 for null."""
    found: list[Ints] = []
    for one in hashes:
        with np.errstate(over="ignore"):
            found.append(hash_a(found[-1] + one if found else one))
    return found


def powers(numbers: Ints, digest: Digest) -> Ints:
    """Return the numbers or their squares, modulo 2^64."""
    return hash_b(numbers) if digest.is_squared else numbers


def of_integer(number: int, digest: Digest) -> int:
    """Return what an integer adds to the sum."""
    return signed(number * number if digest.is_squared else number)


def of_text(text: str, digest: Digest) -> int:
    """Return what the hash of a text adds to the sum."""
    assert digest.hash is not None, "others are integers"
    return of_integer(int(hashes_of(pa.array([text], pa.string()), digest.hash)[0]), digest)

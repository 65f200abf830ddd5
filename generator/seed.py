"""All randomness of the generator comes from this module.

Every random decision draws from a stream that is named by the seed, its purpose and its producer. Therefore a new kind
of decision or another producer does not change any other stream. ``random.Random.random()`` is used, because Python
guarantees its sequence for a seed in all versions, and integer arithmetic that is the same everywhere.
"""

from __future__ import annotations

import hashlib
import random

import numpy as np
import numpy.typing as npt


def stream(seed: int, purpose: str, producer: int) -> random.Random:
    """The random stream for one purpose ("disorder", "duplicates") of one producer."""
    return random.Random(f"{seed}/{purpose}/{producer}")


def draw(seed: int, purpose: str, number: int) -> float:
    """See `draws`."""
    return float(draws(seed, purpose, np.array([number]))[0])


def draws(seed: int, purpose: str, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """A number in [0, 1) for each of ``numbers``, whatever the order or batch in which they are drawn.

    The function is the output of splitmix64 (Steele, Lea, Flood 2014) for the state ``number x gamma`` from an origin
    that seed and purpose name.
    """
    origin = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()[:8]
    x = np.frombuffer(origin, "<u8") + numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    drawn: npt.NDArray[np.float64] = (x >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return drawn

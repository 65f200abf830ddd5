"""All randomness of the generator comes from this module.

Every random decision draws from a stream that is named by the seed, its purpose and its producer. Therefore a new kind
of decision or another producer does not change any other stream. Only ``random.Random.random()`` is used, because
Python guarantees its sequence for a seed in all versions.
"""

from __future__ import annotations

import random


def stream(seed: int, purpose: str, producer: int) -> random.Random:
    """The random stream for one purpose ("disorder", "duplicates") of one producer."""
    return random.Random(f"{seed}/{purpose}/{producer}")

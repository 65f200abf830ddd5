"""The one door through which randomness enters the generator.

Every random decision draws from a stream that is named by the seed, its purpose and its producer, so that adding a
decision of another purpose, or a producer, changes no other stream. ``random.Random`` promises the same
``random()`` sequence for the same seed in every Python version; only that method is used.
"""

from __future__ import annotations

import random


def stream(seed: int, purpose: str, producer: int) -> random.Random:
    """The random stream of one purpose ("disorder", "duplicates") of one producer."""
    return random.Random(f"{seed}/{purpose}/{producer}")

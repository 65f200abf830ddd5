"""Floating-point numbers of 32 bits."""

from __future__ import annotations

import math


def shortest(number: float) -> float:
    """The 64-bit number with the shortest digits of a 32-bit one: writers of text write 0.1 for it, and not
    0.10000000149011612."""
    import numpy as np

    return float(str(np.float32(number))) if math.isfinite(number) else number

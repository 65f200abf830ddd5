"""Floating-point numbers of 32 bits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt


def shortest(number: float) -> float:
    """The 64-bit number with the shortest digits of a 32-bit one: writers of text write 0.1 for it, and not
    0.10000000149011612."""
    import numpy as np

    return float(str(np.float32(number))) if math.isfinite(number) else number


def shortest_of(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """As `shortest`, of an array of 32-bit numbers."""
    import numpy as np
    import pyarrow as pa

    found = pa.array(numbers.astype(np.float32)).cast(pa.string()).cast(pa.float64())
    return np.asarray(found.to_numpy(zero_copy_only=False))

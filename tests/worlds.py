"""Which random histories a run has: their number and the seed of the first one.

``STREAMPROOF_TEST_SEED`` is the seed of the first history, 0 by default. The first tier takes it from the commit and
prints it, so each commit tries other histories. ``STREAMPROOF_WORLDS`` scales the numbers: 2000 by default, 1000 for
half of them.
"""

from __future__ import annotations

import os
from typing import Final

FIRST: Final = int(os.environ.get("STREAMPROOF_TEST_SEED", "0"))
SHARE: Final = int(os.environ.get("STREAMPROOF_WORLDS", "2000")) / 2000
IS_STANDING: Final = FIRST == 0 and SHARE >= 1
"""Whether these are the standing histories. Tests assert of these that they contain every class and event."""


def seeds(number: int) -> range:
    """The seeds of ``number`` histories, or of the share of them that this run has."""
    return range(FIRST, FIRST + scaled(number))


def scaled(number: int) -> int:
    """The share of ``number`` that this run has, at least one."""
    return max(1, round(number * SHARE))

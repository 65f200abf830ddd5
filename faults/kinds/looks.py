"""Looks that are taken now and then, though they are asked for at every nap of the run."""

from __future__ import annotations

import time
from typing import Final

LOOK_SECONDS: Final = 1.0
"""By so much the end of a window may come after the end of its fault."""


class Looks:
    """Whether to look again; the first time at once."""

    def __init__(self) -> None:
        self._next = 0.0

    def are_due(self) -> bool:
        """True once a second at most."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + LOOK_SECONDS
        return True

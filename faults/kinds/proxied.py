"""Whether the proxy goes on with what a fault told it: one that was started again has lost it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from faults.backends.impairment import Impairment
from faults.backends.proxy import ProxyControl
from faults.errors import NotHealed, NotVerified

_LOOK_SECONDS: Final = 1.0
"""By so much the end of the window may come after the end of the fault."""


class Kept:
    """Asks the proxy now and then, however often it is called."""

    def __init__(self, fault: str, proxy: ProxyControl) -> None:
        """``fault``: its name, for the message."""
        self._fault = fault
        self._proxy = proxy
        self._next_look = 0.0

    def look(self, names: Iterable[str], impairment: Impairment) -> None:
        """Raise NotVerified where links or relays do not what they were told any more."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _LOOK_SECONDS
        try:
            served = self._proxy.status()
        except NotHealed:
            return  # Nothing passes without a proxy; the next one, or healing, tells.
        for name in names:
            if name not in served or served[name].impairment != impairment:
                raise NotVerified(
                    f"{self._fault} on {name}: it was gone before its time, since the proxy was started again; it was "
                    "healed, and the run ended."
                )

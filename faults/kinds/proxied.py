"""Whether the proxy goes on with what a fault told it: one that was started again has lost it, a dead one cuts all."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from faults.backends.impairment import LinkStatus
from faults.backends.proxy import ProxyControl
from faults.errors import NotVerified, Unreachable
from faults.kinds.looks import Looks


class Kept:
    """Asks the proxy now and then, however often it is called."""

    def __init__(self, fault: str, proxy: ProxyControl) -> None:
        """``fault``: its name, for the message."""
        self._fault = fault
        self._proxy = proxy
        self._looks = Looks()

    def look(self, names: Iterable[str], is_kept: Callable[[str, LinkStatus], bool]) -> None:
        """Raise NotVerified where links or relays do not what they were told any more, or no proxy serves them.

        ``is_kept``: whether the fault is in on a link or relay, by its name and as the proxy sees it.
        """
        if not self._looks.are_due():
            return
        try:
            served = self._proxy.status()
        except Unreachable:
            # A dead proxy is no slow one: the window would blame a delay for what a cut did.
            raise self._over(", ".join(names), "no proxy answers any more and nothing passes") from None
        for name in names:
            status = served.get(name)
            if status is not None and status.is_lost:
                raise self._over(name, "the relay's device was deleted and nothing passes")
            if status is None or not is_kept(name, status):
                raise self._over(name, "the proxy was started again")

    def _over(self, where: str, why: str) -> NotVerified:
        return NotVerified(
            f"{self._fault} on {where}: it was gone before its time, since {why}; the run ends when all is healed."
        )

"""Detects that the proxy no longer applies an impairment: a restarted proxy has lost it, a dead one passes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from faults.backends.impairment import LinkStatus
from faults.backends.proxy import ProxyControl
from faults.errors import NotVerified, Unreachable
from faults.kinds.base import ProbeThrottle, ended_early


class ImpairmentWatch:
    """Queries the proxy at a limited rate, however often it is called."""

    def __init__(self, fault: str, proxy: ProxyControl) -> None:
        """``fault``: its name, for the message."""
        self._fault = fault
        self._proxy = proxy
        self._throttle = ProbeThrottle()

    def check(self, names: Iterable[str], is_applied: Callable[[str, LinkStatus], bool]) -> None:
        """Raise NotVerified if the proxy no longer serves a link or relay of ``names``, or has lost its impairment.

        ``is_applied``: whether the fault is active on a link or relay, from its name and its status.
        """
        if not self._throttle.is_due():
            return
        try:
            served = self._proxy.status()
        except Unreachable:
            # A dead proxy cuts the link. Violations that the cut causes must not be attributed to a delay.
            raise self._ended_early(", ".join(names), "the proxy does not answer and no traffic passes") from None
        for name in names:
            status = served.get(name)
            if status is not None and status.is_lost:
                raise self._ended_early(name, "the relay's device was deleted and no traffic passes")
            if status is None or not is_applied(name, status):
                raise self._ended_early(name, "the proxy was restarted")

    def _ended_early(self, where: str, why: str) -> NotVerified:
        return ended_early(f"{self._fault} on {where}", why)

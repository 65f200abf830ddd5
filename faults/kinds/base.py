"""The interface that each kind of fault implements (injection, probes, healing), and helpers of the kinds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol, TypeVar, runtime_checkable

from faults.errors import FaultError, FaultRefused, NotVerified, Unreachable
from faults.facts import Facts
from faults.fault import Fault

PROBE_INTERVAL_SECONDS: Final = 1.0
"""A fault window may end later than its fault, by at most this interval."""
_Item = TypeVar("_Item")


def for_each(items: Iterable[_Item], action: Callable[[_Item], object]) -> None:
    """Call ``action`` for all items, also after it failed for one.

    Raises FaultRefused with all messages. Raises Unreachable if a retry may succeed for one of the items.
    """
    failed: list[FaultError | OSError] = []
    for item in items:
        try:
            action(item)
        except (FaultError, OSError) as error:
            failed.append(error)
    if failed:
        kind = Unreachable if any(isinstance(error, Unreachable) for error in failed) else FaultRefused
        raise kind(" ".join(dict.fromkeys(map(str, failed))))


class Injection(Protocol):
    """One fault on its targets. ``heal`` and ``is_healed`` need only the fault and its facts, in any process."""

    facts: Facts

    def prepare(self) -> None:
        """Measure the targets before the fault, into ``facts``. Changes nothing. Raises FaultRefused."""

    def inject(self) -> None:
        """Inject the fault. May add to ``facts``."""

    def maintain(self) -> None:
        """Called repeatedly while the fault is active. Raises NotVerified if the fault has ended early."""

    def is_active(self) -> bool:
        """Probe whether the fault has its effect."""

    def heal(self) -> None:
        """Heal the fault. May be called again, and without an injection. Raises Unreachable if a retry may help."""

    def is_healed(self) -> bool:
        """Probe whether the targets are as before. Raises Unreachable if ``heal`` and the probe should be retried."""


@runtime_checkable
class HasProbeDetail(Protocol):
    """An injection for which another system reports why it is not active or not healed."""

    def probe_detail(self) -> str:
        """The latest reason in one line; empty if there is none."""


def probe_detail_of(injected: Injection) -> str:
    """The reason why a probe failed, in parentheses after a space; empty if there is none."""
    detail = injected.probe_detail() if isinstance(injected, HasProbeDetail) else ""
    return f" ({detail})" if detail else ""


class ProbeThrottle:
    """Limits the rate of a probe in `Injection.maintain`, which the runner calls at every poll."""

    def __init__(self) -> None:
        self._next = 0.0

    def is_due(self) -> bool:
        """True for the first call, then at most once per interval."""
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + PROBE_INTERVAL_SECONDS
        return True


def ended_early(where: str, why: str) -> NotVerified:
    """The error for a fault that a probe shows to be no longer active."""
    return NotVerified(f"{where}: the fault ended early because {why}; the run ends when all faults are healed.")


class InjectionFactory(Protocol):
    """Makes the injection of a fault: a new one, or one with the facts of the journal."""

    def __call__(self, fault: Fault, facts: Facts, state: Path) -> Injection:
        """``state`` is the state folder of the run."""

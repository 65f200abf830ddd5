"""Healing and its proof: the one way that a fault ends, in the run, in the watchdog and in ``faults heal``."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from faults.config import LimitsSection
from faults.errors import FaultError, FaultRefused, NotHealed
from faults.fault import State
from faults.journal import Entry, Journal
from faults.kinds.base import Injection
from faults.kinds.makers import injection
from faults.topic import FaultsTopic

POLL_SECONDS: Final = 0.02


def becomes_true(probe: Callable[[], bool], within_seconds: float) -> bool:
    """Whether ``probe`` says yes within the time; it is asked at least once."""
    deadline = time.monotonic() + within_seconds
    while not probe():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def reach(entry: Entry, state: State, journal: Journal, topic: FaultsTopic | None) -> None:
    """Write down that the fault reached ``state``, then tell; what was begun but never injected is no fault to tell."""
    journal.reach(entry, state)
    if topic is not None and entry.was_injected:
        topic.tell(entry, state)


def heal(entry: Entry, injected: Injection, journal: Journal, topic: FaultsTopic | None, within_seconds: float) -> None:
    """Heal one fault and wait for the proof. Raises NotHealed."""
    reach(entry, "heal_started", journal, topic)
    fault = entry.fault
    try:
        injected.heal()
        is_gone = becomes_true(injected.is_gone, within_seconds)
    except (FaultRefused, OSError) as error:
        raise NotHealed(f"{fault.name} on {fault.target_names} is not healed: {error}") from error
    if not is_gone:
        raise NotHealed(
            f"{fault.name} on {fault.target_names} is not healed: no probe showed within {within_seconds:g} s that it "
            "is gone; look at the target, then run `streamproof faults heal CONFIG`."
        )
    reach(entry, "healed", journal, topic)


def heal_all(journal: Journal, topic: FaultsTopic | None, limits: LimitsSection, say: Callable[[str], None]) -> None:
    """Heal all that the journal does not know to be gone; tries each. Raises the first NotHealed at the end."""
    failed: FaultError | None = None
    for entry in journal.open_entries():
        fault = entry.fault
        try:
            heal(entry, injection(fault, journal.folder, entry.facts), journal, topic, limits.healed_within)
        except NotHealed as error:
            failed = failed or error
            say(str(error))
        else:
            say(f"{fault.name} on {fault.target_names}: healed, and seen to be gone.")
    if failed is not None:
        raise failed

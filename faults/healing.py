"""Healing and its proof: the one way that a fault ends, in the run, in the watchdog and in ``faults heal``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from faults.config import LimitsSection
from faults.errors import FaultError, NotHealed, NotVerified, Unreachable
from faults.fault import State
from faults.journal import Entry, Journal
from faults.kinds.base import Injection
from faults.kinds.makers import injection
from faults.topic import FaultsTopic

POLL_SECONDS: Final = 0.02
_ASK_AGAIN_SECONDS: Final = 0.1


@dataclass(frozen=True)
class Patience:
    """How the proof of a healing is waited for, and what a person is told where none comes."""

    seconds: float
    meanwhile: Callable[[], None] = lambda: None
    """Called again and again; raises NotHealed where waiting is in vain. What else it raises goes on to the caller."""
    advice: str = "look at the target, then run `streamproof faults heal CONFIG`"
    say: Callable[[str], None] = lambda _: None
    """Told at once what only a person can bring back."""


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
    heal_each([(entry, injected)], journal, topic, Patience(within_seconds), lambda _: None)


def heal_each(
    broken: Sequence[tuple[Entry, Injection]],
    journal: Journal,
    topic: FaultsTopic | None,
    patience: Patience,
    healed: Callable[[Entry], None],
) -> None:
    """Heal all in this order, then wait for the proof of each, for which another one may have to be healed.

    Who gives no answer (a proxy, a broker, a container engine or an API server that is away) is asked again, as long as
    the proof is waited for. Tries all, and calls ``healed`` for each that is proven. Raises NotHealed for
    those that are not.
    """
    failed: list[str] = []
    unanswered: dict[str, Unreachable] = {}
    """Id of a fault -> why it cannot be healed yet."""

    def tried(entry: Entry, do: Callable[[], bool]) -> bool | None:
        """What it says; None where it failed, which is kept for the end."""
        try:
            return do()
        except NotVerified:
            raise  # another one's, which is held meanwhile
        except (FaultError, OSError) as error:
            fail(entry, str(error))
        return None

    def fail(entry: Entry, why: str) -> None:
        failed.append(f"{entry.fault.name} on {entry.fault.target_names} is not healed: {why}")

    def mended(entry: Entry, injected: Injection) -> bool:
        try:
            injected.heal()
        except Unreachable as error:
            wait_for_answer(entry, error)
        return True

    def wait_for_answer(entry: Entry, error: Unreachable) -> None:
        is_new = entry.fault.id not in unanswered
        unanswered[entry.fault.id] = error
        if is_new:
            where = f"{entry.fault.name} on {entry.fault.target_names}"
            patience.say(f"waiting, {patience.seconds:g} s at most: {where} cannot be healed yet: {error}")

    def began(entry: Entry) -> bool:
        reach(entry, "heal_started", journal, topic)
        return True

    def proven(entry: Entry, injected: Injection) -> bool:
        try:
            if entry.fault.id in unanswered:
                injected.heal()
                del unanswered[entry.fault.id]
            if injected.is_gone():
                reach(entry, "healed", journal, topic)
                return True
        except Unreachable as error:
            wait_for_answer(entry, error)
            time.sleep(_ASK_AGAIN_SECONDS)
        patience.meanwhile()
        return False

    def left_of(to_prove: list[tuple[Entry, Injection]]) -> list[tuple[Entry, Injection]]:
        """Those of which no proof came, so many seconds after the last one that did.

        All are asked in turn: one that waits for an answer must not keep another from being healed, or seen to be.
        """
        deadline = time.monotonic() + patience.seconds
        while to_prove:
            is_last = time.monotonic() > deadline
            for pair in tuple(to_prove):
                is_proven = tried(pair[0], partial(proven, *pair))
                if is_proven is not False:
                    to_prove.remove(pair)
                if is_proven:
                    healed(pair[0])
                    is_last, deadline = False, time.monotonic() + patience.seconds
            if is_last:
                break
            if to_prove:
                time.sleep(POLL_SECONDS)
        return to_prove

    unwritten: list[Entry] = []
    to_prove: list[tuple[Entry, Injection]] = []

    def mend(entry: Entry, injected: Injection) -> None:
        if tried(entry, partial(mended, entry, injected)):
            to_prove.append((entry, injected))

    with ExitStack() as mending:
        # Each is mended, in the order given, also where another one, or telling, fails as nobody thought of.
        for entry, injected in reversed(broken):
            mending.callback(mend, entry, injected)
        for entry, _ in broken:
            try:
                began(entry)
            except OSError:
                # The fault may be what fills the disk that the journal is on: heal it first, and write then.
                unwritten.append(entry)
    to_prove = [pair for pair in to_prove if pair[0] not in unwritten or tried(pair[0], partial(began, pair[0]))]
    for entry, _ in left_of(to_prove):
        if (lacks := unanswered.get(entry.fault.id)) is not None:
            fail(entry, f"{lacks} It was asked again for {patience.seconds:g} s; {patience.advice}.")
        else:
            fail(entry, f"no probe showed within {patience.seconds:g} s that it is gone; {patience.advice}.")
    if failed:
        raise NotHealed(" ".join(failed))


def heal_all(journal: Journal, topic: FaultsTopic | None, limits: LimitsSection, say: Callable[[str], None]) -> None:
    """Heal all that the journal does not know to be gone; tries each. Raises NotHealed."""
    broken = [(entry, injection(entry.fault, journal.folder, entry.facts)) for entry in journal.open_entries()]

    def healed(entry: Entry) -> None:
        say(f"{entry.fault.name} on {entry.fault.target_names}: healed, and seen to be gone.")

    heal_each(broken, journal, topic, Patience(limits.healed_within, say=say), healed)

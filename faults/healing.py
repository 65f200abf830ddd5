"""Healing and its proof: the one way that a fault ends, in the run, in the watchdog and in ``faults heal``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from faults.config import LimitsSection
from faults.errors import FaultError, NotHealed, NotTold, NotVerified, Unreachable
from faults.fault import State
from faults.journal import Entry, Journal
from faults.kinds.base import Injection, why_not
from faults.kinds.makers import injection
from faults.kinds.process import Pause
from faults.patient import Patient
from faults.topic import FaultsTopic, tell_again

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
    awaits_calls: bool = True
    """Whether a call that is out when the time is over is waited for; else the next healing of the fault does that."""


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
    the proof is waited for, and who takes long to answer is waited for beside the others. Tries all, and calls
    ``healed`` for each that is proven. Raises NotHealed for those that are not.
    """
    _Healing(journal, topic, patience, healed).of([Patient(*pair) for pair in broken])


class _Healing:
    """One healing of some faults, with what could not be done."""

    def __init__(
        self, journal: Journal, topic: FaultsTopic | None, patience: Patience, healed: Callable[[Entry], None]
    ) -> None:
        self._journal = journal
        self._topic = topic
        self._patience = patience
        self._healed = healed
        self._failed: list[str] = []
        self._defect: Exception | None = None
        """What nobody thought of, and a fault said: it goes on to the caller when the others are seen to."""
        self._deadline = 0.0

    def of(self, patients: Sequence[Patient]) -> None:
        """Do it. Raises NotHealed, and what a fault raises that nobody thought of."""
        to_prove: list[Patient] = []

        def mend(patient: Patient) -> None:
            if self._tried(patient, partial(self._ask, patient)) is not None:
                to_prove.append(patient)

        with ExitStack() as mending:
            # Each is mended, in the order given, also where another one, or telling, fails as nobody thought of.
            for patient in reversed(patients):
                mending.callback(mend, patient)
            for patient in patients:
                # The fault may be what fills the disk that the journal is on: heal it first, and write then.
                with suppress(OSError):
                    self._begin(patient)
        for patient in patients:
            with suppress(OSError):
                self._begin_if_unwritten(patient)
        for patient in self._unproven(to_prove):
            self._fail(patient, self._why_unproven(patient))
        if self._defect is not None:
            self._defect.add_note(" ".join(self._failed))
            raise self._defect
        if self._failed:
            raise NotHealed(" ".join(self._failed))

    def _begin(self, patient: Patient) -> None:
        patient.entry.is_being_healed = True
        reach(patient.entry, "heal_started", self._journal, self._topic)

    def _begin_if_unwritten(self, patient: Patient) -> None:
        if "heal_started" not in patient.entry.states:
            self._begin(patient)

    def _unproven(self, to_prove: list[Patient]) -> list[Patient]:
        """Those of which no proof came, so many seconds after the last one that did.

        All are asked in turn: one that waits for an answer must not keep another from being healed, or seen to be.
        """
        self._be_patient()
        while to_prove:
            deadline = self._deadline
            is_last = time.monotonic() > deadline
            for patient in tuple(to_prove):
                is_alone = all(other.unwritten is not None for other in to_prove if other is not patient)
                is_proven = self._tried(patient, partial(self._is_proven, patient, is_alone=is_alone))
                if is_proven is not False:
                    to_prove.remove(patient)
                if is_proven:
                    self._healed(patient.entry)
                    self._be_patient()
            if is_last and self._deadline == deadline and not self._is_awaited(to_prove):
                break
            if to_prove:
                time.sleep(POLL_SECONDS)
        return to_prove

    def _is_awaited(self, to_prove: list[Patient]) -> bool:
        """Whether one was asked in time, and its answer may come."""
        return self._patience.awaits_calls and any(patient.may_answer(self._deadline) for patient in to_prove)

    def _be_patient(self) -> None:
        self._deadline = time.monotonic() + self._patience.seconds

    def _is_proven(self, patient: Patient, *, is_alone: bool) -> bool | None:
        """Whether it is; None where it is and cannot be written down, which is kept for the end.

        ``is_alone``: no other is left whose healing might make room for that.
        """
        is_gone = self._ask(patient)
        if is_gone:
            try:
                self._begin_if_unwritten(patient)
                reach(patient.entry, "healed", self._journal, self._topic)
            except OSError as error:
                patient.unwritten = error
            else:
                return True
        if is_gone and is_alone:
            self._fail(patient, self._why_unproven(patient))
            return None
        if not is_gone and patient.asked is None:
            patient.unwritten = None
        if patient.unanswered is not None:
            time.sleep(_ASK_AGAIN_SECONDS)
        self._patience.meanwhile()
        return False

    def _ask(self, patient: Patient) -> bool:
        """Whether it is seen to be gone. Raises what cannot be tried again."""
        was_out, was_mended, was_before = patient.asked is not None, patient.is_mended, patient.is_asked_before
        try:
            answer = patient.ask()
        except Unreachable as error:
            if patient.unanswered is None:
                self._say_waiting(patient, str(error))
            patient.unanswered = error
            patient.is_mended = False  # what was told to one that is away may be lost with it
            return False
        except (FaultError, OSError):
            raise
        except Exception as error:
            self._defect = self._defect or error
            raise NotHealed(f"{type(error).__name__}: {error}.") from error
        finally:
            if was_before and not patient.is_asked_before:
                self._be_patient()  # only now it was asked at all
        if answer is None and not was_out and not was_mended and patient.unanswered is None:
            self._say_waiting(patient, "what heals it has not answered yet.")
        if answer is not None and was_out and not was_mended and patient.unanswered is None:
            self._be_patient()  # the proof is waited for from here on
        return answer is True

    def _say_waiting(self, patient: Patient, why: str) -> None:
        self._patience.say(f"waiting, {self._patience.seconds:g} s at most: {patient.name} cannot be healed yet: {why}")

    def _tried(self, patient: Patient, do: Callable[[], bool | None]) -> bool | None:
        """What it says; None where it failed, which is kept for the end."""
        try:
            return do()
        except NotVerified:
            raise  # another one's, which is held meanwhile
        except (FaultError, OSError) as error:
            self._fail(patient, f"is not healed: {error}")
        return None

    def _fail(self, patient: Patient, what: str) -> None:
        self._failed.append(f"{patient.name} {what}")

    def _why_unproven(self, patient: Patient) -> str:
        seconds, advice = f"{self._patience.seconds:g} s", self._patience.advice
        if patient.unwritten is not None:
            return (
                f"is gone, which could not be written down: {patient.unwritten}; mend that, then run "
                "`streamproof faults heal CONFIG`."
            )
        if patient.unanswered is not None:
            return f"is not healed: {patient.unanswered} It was asked again for {seconds}; {advice}."
        if patient.asked is not None and (not patient.is_mended or patient.is_out_since(self._deadline)):
            return f"is not healed: who was asked has not answered for {patient.asked.seconds:.0f} s; {advice}."
        return f"is not healed: no probe showed within {seconds} that it is gone{why_not(patient.injected)}; {advice}."


def heal_all(journal: Journal, topic: FaultsTopic | None, limits: LimitsSection, say: Callable[[str], None]) -> None:
    """Heal all that the journal does not know to be gone; tries each. Then tell what the faults topic may lack, also
    where one is not healed: that may be so for long. Raises NotHealed, NotTold.
    """
    broken = [(entry, injection(entry.fault, journal.folder, entry.facts)) for entry in journal.open_entries()]

    def healed(entry: Entry) -> None:
        (injected,) = (injected for known, injected in broken if known is entry)
        said = why_not(injected) if isinstance(injected, Pause) else ""
        say(f"{entry.fault.name} on {entry.fault.target_names}: healed, and seen to be gone{said}.")

    failed = []
    try:
        heal_each(broken, journal, topic, Patience(limits.healed_within, say=say), healed)
    except NotHealed as error:
        failed.append(str(error))
    if (unread := journal.why_not_healed()) is not None:
        failed.append(unread)
    try:
        tell_again(topic, journal)
    except NotTold as error:
        if not failed:
            raise
        failed.append(str(error))
    if failed:
        raise NotHealed(" ".join(failed))

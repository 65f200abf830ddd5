"""Heals faults and probes the healing. Every fault ends here, in a run, in the watchdog and in ``faults heal``."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from faults.config import LimitsSection
from faults.errors import FaultError, NotHealed, NotPublished, NotVerified, Unreachable
from faults.fault import State
from faults.heal_task import HealTask
from faults.journal import Entry, Journal
from faults.kinds.base import Injection, probe_detail_of
from faults.kinds.process import Pause
from faults.kinds.registry import injection
from faults.topic import FaultsTopicWriter, publish_missing

POLL_SECONDS: Final = 0.02
_ASK_AGAIN_SECONDS: Final = 0.1


@dataclass(frozen=True)
class HealPolicy:
    """How long to wait until a probe shows the healing, and the advice if it does not."""

    seconds: float
    meanwhile: Callable[[], None] = lambda: None
    """Called at every poll. Raises NotHealed to stop waiting; other errors propagate to the caller."""
    advice: str = "look at the target, then run `streamproof faults heal CONFIG`"
    say: Callable[[str], None] = lambda _: None
    """Receives progress messages at once, since the operator may have to act."""
    awaits_calls: bool = True
    """Whether to wait for a call that is unfinished at the timeout. If not, the next attempt to heal the fault waits
    for it."""


def wait_until(probe: Callable[[], bool], within_seconds: float) -> bool:
    """Whether ``probe`` returns True within the time. It is called at least once."""
    deadline = time.monotonic() + within_seconds
    while not probe():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def record_state(entry: Entry, state: State, journal: Journal, topic: FaultsTopicWriter | None) -> None:
    """Write the state to the journal. Then publish it if the fault may have been injected."""
    journal.record_state(entry, state)
    if topic is not None and entry.was_injected:
        topic.publish(entry, state)


def heal(
    entry: Entry, injected: Injection, journal: Journal, topic: FaultsTopicWriter | None, within_seconds: float
) -> None:
    """Heal one fault, and wait until a probe shows that it is healed. Raises NotHealed."""
    heal_faults([(entry, injected)], journal, topic, HealPolicy(within_seconds), lambda _: None)


def heal_faults(
    broken: Sequence[tuple[Entry, Injection]],
    journal: Journal,
    topic: FaultsTopicWriter | None,
    policy: HealPolicy,
    healed: Callable[[Entry], None],
) -> None:
    """Heal all faults in this order, then probe each until it is healed. A fault may depend on the healing of another.

    If a proxy, a broker, a container engine or an API server is unreachable, the call is retried until the timeout. A
    slow call runs in the background while other faults are healed. Tries all faults, and calls ``healed`` for each that
    a probe shows to be healed. Raises NotHealed for the others.
    """
    _Healing(journal, topic, policy, healed).heal([HealTask(*pair) for pair in broken])


class _Healing:
    """One healing of several faults. Collects the failures of all faults before it raises them."""

    def __init__(
        self, journal: Journal, topic: FaultsTopicWriter | None, policy: HealPolicy, healed: Callable[[Entry], None]
    ) -> None:
        self._journal = journal
        self._topic = topic
        self._policy = policy
        self._healed = healed
        self._failed: list[str] = []
        self._defect: Exception | None = None
        """The first unexpected exception. It is raised after the other faults are healed."""
        self._deadline = 0.0

    def heal(self, tasks: Sequence[HealTask]) -> None:
        """Heal the faults. Raises NotHealed, and the first unexpected exception of a fault."""
        to_prove: list[HealTask] = []

        def heal_task(task: HealTask) -> None:
            if self._tried(task, partial(self._advance, task)) is not None:
                to_prove.append(task)

        with ExitStack() as stack:
            # Faults are healed in the given order, even if one of them or the faults topic raises an unexpected error.
            for task in reversed(tasks):
                stack.callback(heal_task, task)
            for task in tasks:
                # The fault may have filled the disk of the journal. In that case it is healed first and written later.
                with suppress(OSError):
                    self._begin(task)
        for task in tasks:
            with suppress(OSError):
                self._begin_if_unwritten(task)
        for task in self._unproven(to_prove):
            self._fail(task, self._why_unproven(task))
        if self._defect is not None:
            self._defect.add_note(" ".join(self._failed))
            raise self._defect
        if self._failed:
            raise NotHealed(" ".join(self._failed))

    def _begin(self, task: HealTask) -> None:
        task.entry.is_being_healed = True
        record_state(task.entry, "heal_started", self._journal, self._topic)

    def _begin_if_unwritten(self, task: HealTask) -> None:
        if "heal_started" not in task.entry.states:
            self._begin(task)

    def _unproven(self, to_prove: list[HealTask]) -> list[HealTask]:
        """The tasks that no probe shows to be healed before the timeout ends. Each success restarts the timeout.

        All tasks advance in turn, so that a task that waits for a call does not delay the others.
        """
        self._restart_timeout()
        while to_prove:
            deadline = self._deadline
            is_last = time.monotonic() > deadline
            for task in tuple(to_prove):
                is_alone = all(other.unwritten is not None for other in to_prove if other is not task)
                is_proven = self._tried(task, partial(self._is_proven, task, is_alone=is_alone))
                if is_proven is not False:
                    to_prove.remove(task)
                if is_proven:
                    self._healed(task.entry)
                    self._restart_timeout()
            if is_last and self._deadline == deadline and not self._is_awaited(to_prove):
                break
            if to_prove:
                time.sleep(POLL_SECONDS)
        return to_prove

    def _is_awaited(self, to_prove: list[HealTask]) -> bool:
        """Whether a call that was made in time may still return."""
        return self._policy.awaits_calls and any(task.may_return(self._deadline) for task in to_prove)

    def _restart_timeout(self) -> None:
        self._deadline = time.monotonic() + self._policy.seconds

    def _is_proven(self, task: HealTask, *, is_alone: bool) -> bool | None:
        """Whether a probe shows the healing. None: it does, but the journal cannot be written. This is reported last.

        ``is_alone``: no other fault is left whose healing might free space for the journal.
        """
        is_healed = self._advance(task)
        if is_healed:
            try:
                self._begin_if_unwritten(task)
                record_state(task.entry, "healed", self._journal, self._topic)
            except OSError as error:
                task.unwritten = error
            else:
                return True
        if is_healed and is_alone:
            self._fail(task, self._why_unproven(task))
            return None
        if not is_healed and task.call is None:
            task.unwritten = None
        if task.unreachable is not None:
            time.sleep(_ASK_AGAIN_SECONDS)
        self._policy.meanwhile()
        return False

    def _advance(self, task: HealTask) -> bool:
        """Whether a probe shows that the fault is healed. Raises errors that a retry cannot resolve."""
        was_pending, was_heal_done, was_earlier_call = task.call is not None, task.is_heal_done, task.is_earlier_call
        try:
            result = task.advance()
        except Unreachable as error:
            if task.unreachable is None:
                self._say_waiting(task, str(error))
            task.unreachable = error
            task.is_heal_done = False  # heal again: a restart of the unreachable process may undo it
            return False
        except (FaultError, OSError):
            raise
        except Exception as error:
            self._defect = self._defect or error
            raise NotHealed(f"{type(error).__name__}: {error}.") from error
        finally:
            if was_earlier_call and not task.is_earlier_call:
                self._restart_timeout()  # the first call of this healing is made only now
        if result is None and not was_pending and not was_heal_done and task.unreachable is None:
            self._say_waiting(task, "the call that heals it has not returned yet.")
        if result is not None and was_pending and not was_heal_done and task.unreachable is None:
            self._restart_timeout()  # the timeout of the probe begins here
        return result is True

    def _say_waiting(self, task: HealTask, why: str) -> None:
        self._policy.say(f"waiting, {self._policy.seconds:g} s at most: {task.name} cannot be healed yet: {why}")

    def _tried(self, task: HealTask, do: Callable[[], bool | None]) -> bool | None:
        """The result of ``do``. None: it failed, which is reported last."""
        try:
            return do()
        except NotVerified:
            raise  # another fault, which must stay active during the wait, has ended early
        except (FaultError, OSError) as error:
            self._fail(task, f"is not healed: {error}")
        return None

    def _fail(self, task: HealTask, what: str) -> None:
        self._failed.append(f"{task.name} {what}")

    def _why_unproven(self, task: HealTask) -> str:
        seconds, advice = f"{self._policy.seconds:g} s", self._policy.advice
        if task.unwritten is not None:
            return (
                f"is healed, but the journal cannot be written: {task.unwritten}; fix that, then run "
                "`streamproof faults heal CONFIG`."
            )
        if task.unreachable is not None:
            return f"is not healed: {task.unreachable} Healing was retried for {seconds}; {advice}."
        if task.call is not None and (not task.is_heal_done or task.is_pending_since(self._deadline)):
            return f"is not healed: healing timed out after {task.call.seconds:.0f} s; {advice}."
        detail = probe_detail_of(task.injected)
        return f"is not healed: no probe showed within {seconds} that it has ended{detail}; {advice}."


def heal_all(
    journal: Journal, topic: FaultsTopicWriter | None, limits: LimitsSection, say: Callable[[str], None]
) -> None:
    """Heal all faults that are open in the journal. Then publish the records that the faults topic may lack, even if a
    fault is not healed. Raises NotHealed, NotPublished.
    """
    broken = [(entry, injection(entry.fault, journal.folder, entry.facts)) for entry in journal.open_entries()]

    def healed(entry: Entry) -> None:
        (injected,) = (injected for known, injected in broken if known is entry)
        said = probe_detail_of(injected) if isinstance(injected, Pause) else ""
        say(f"{entry.fault.name} on {entry.fault.target_names}: healed and verified{said}.")

    failed = []
    try:
        heal_faults(broken, journal, topic, HealPolicy(limits.healed_within, say=say), healed)
    except NotHealed as error:
        failed.append(str(error))
    if (unread := journal.unreadable_problem()) is not None:
        failed.append(unread)
    try:
        publish_missing(topic, journal)
    except NotPublished as error:
        if not failed:
            raise
        failed.append(str(error))
    if failed:
        raise NotHealed(" ".join(failed))

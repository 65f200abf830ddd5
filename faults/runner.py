"""Runs a timeline: each step waits, injects, verifies, maintains, heals, and verifies the healing."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from faults.config import FaultConfig
from faults.errors import FaultRefused, NotHealed, NotVerified
from faults.fault import Fault, Step, Timeline
from faults.healing import POLL_SECONDS, HealPolicy, heal_faults, record_state, wait_until
from faults.journal import Entry, Journal
from faults.kinds.base import Injection, probe_detail_of
from faults.kinds.process import Pause
from faults.kinds.registry import injection
from faults.resumed import ResumedProcesses
from faults.section import text_of
from faults.topic import FaultsTopicWriter
from faults.watchdog import Watchdog

Say = Callable[[str], None]
_PROOF_SECONDS_LEAST: Final = 1.0


def run(
    config: FaultConfig, timeline: Timeline, say: Say, stop: threading.Event, policy: HealPolicy | None = None
) -> None:
    """Run ``timeline`` to its end, or until ``stop`` is set. Injected faults are healed in both cases.

    ``policy``: how faults are healed at the end of each step; default: by the limits of the configuration.

    Raises FaultRefused before anything is changed; after that NotVerified, NotHealed, NotPublished. If a paused process
    ended, during the pause or after it, the run continues, and raises NotVerified at its end.
    """
    with Journal.locked(config.state) as journal:
        unhealed = journal.open_entries()
        if unhealed:
            last = unhealed[0].fault
            raise FaultRefused(
                f"{last.name} on {last.target_names} of an earlier run is not known to be healed; "
                "run `streamproof faults heal CONFIG` first."
            )
        if (why := journal.unreadable_problem()) is not None:
            raise FaultRefused(why)
        topic = None if config.kafka is None else FaultsTopicWriter(config.kafka)
        if topic is not None:
            topic.check()
        for step in timeline.steps:
            for _, fault in step.parts:
                _prepared(fault, config)  # refuses an impossible fault now, not after an hour
        resumed = ResumedProcesses(say)
        with Watchdog(config):
            for step, wait_seconds in paced(timeline, time.monotonic):
                _wait(step.before, wait_seconds, say, stop)
                if stop.is_set():
                    break
                waits = dataclasses.replace(policy or HealPolicy(config.limits.healed_within), say=say)
                _one(step, config, journal, topic, say, stop, waits, resumed)
            _wait("recovery", timeline.recovery_seconds, say, stop)
            resumed.outlast(config.limits.survives, stop)
        if resumed.ended:
            raise NotVerified(" ".join(resumed.ended))


def paced(timeline: Timeline, clock: Callable[[], float]) -> Iterator[tuple[Step, float]]:
    """Each step, with the seconds to wait before it. The step is done when the caller requests the next one.

    In a periodic timeline, a wait is shortened by the time that the previous step overran. If that is longer than
    the wait, the rest is not made up later.
    """
    late = 0.0
    for step in timeline.steps:
        wait = max(0.0, step.wait_seconds - late)
        began = clock()
        yield step, wait
        if timeline.periodic:
            late = max(0.0, clock() - began - wait - step.seconds)


def _wait(phase: str, seconds: float, say: Say, stop: threading.Event) -> None:
    if seconds > 0 and not stop.is_set():
        say(f"{phase}: {text_of(seconds)}")
        stop.wait(seconds)


def _one(
    step: Step,
    config: FaultConfig,
    journal: Journal,
    topic: FaultsTopicWriter | None,
    say: Say,
    stop: threading.Event,
    policy: HealPolicy,
    resumed: ResumedProcesses,
) -> None:
    try:
        ready = {fault.id: _prepared(fault, config) for _, fault in step.parts}
    except FaultRefused as error:
        # The fault could be injected when the run began. A change since then, such as by an earlier fault, is not an
        # error of the file.
        raise NotVerified(f"{error} The run ended before this fault.") from error
    broken: list[tuple[Entry, Injection]] = []
    unseen: NotVerified | None = None
    ends: dict[str, float] = {}
    """Fault id -> time of its healing (monotonic clock), if that differs from the end of its group."""

    def healed(entry: Entry) -> None:
        (injected,) = (injected for known, injected in broken if known is entry)
        if injected.facts != entry.facts:
            journal.add_facts(entry, injected.facts)
        said = ""
        if isinstance(injected, Pause):
            others = {known.pid for other, _ in broken if other is not entry for known in other.facts.processes}
            resumed.add(entry.fault.name, injected, others)
            said = injected.probe_detail()
        say(f"healed: {_where(entry.fault)} has ended" + (f"; {said}" if said else ""))

    def heal_early(pairs: Sequence[tuple[Entry, Injection]], within_seconds: float) -> None:
        # A failed healing (no answer from the target, or it depends on other faults) is retried at the group's end.
        with suppress(NotHealed):
            waits = HealPolicy(within_seconds, partial(_hold_once, broken), say=say, awaits_calls=False)
            heal_faults(pairs[::-1], journal, topic, waits, healed)

    started = 0.0
    try:
        for after, fault in step.parts:
            _hold(broken, started + after, ends, stop, heal_early)
            if stop.is_set():
                break
            # The measurements from the start of the group may be outdated.
            injected = _prepared(fault, config) if after else ready[fault.id]
            entry = journal.begin(fault, injected.facts)
            broken.append((entry, injected))
            record_state(entry, "injected", journal, topic)
            started = started or time.monotonic()
            resumed.forget()
            injected.inject()
            journal.add_facts(entry, injected.facts)
            if not wait_until(partial(_shows, broken), config.limits.verified_within):
                unseen = NotVerified(
                    f"{_where(fault)}: no probe detected the fault within {config.limits.verified_within:g} s"
                    f"{probe_detail_of(injected)}; the fault was healed and the run ended, as it would measure nothing."
                )
                break
            record_state(entry, "verified", journal, topic)
            own = step.own_seconds.get(fault.id)
            if own is not None:
                ends[fault.id] = time.monotonic() + own
            elif fault is step.parts[-1][1]:
                own = step.lasts_seconds
            say(f"failure: {_where(fault)} is active" + (f", for {text_of(own)}" if own else ""))
        else:
            until = time.monotonic() + step.lasts_seconds
            if step.own_seconds:
                ends |= {entry.fault.id: ends.get(entry.fault.id, until) for entry, _ in _inside(broken)}
            _hold(broken, max([until, *ends.values()]), ends, stop, heal_early)
    except (NotVerified, FaultRefused) as error:
        unseen = error if isinstance(error, NotVerified) else NotVerified(str(error))
        say(f"over: {error}")  # Healing may have to wait for the operator.
        for entry, _ in _inside(broken):
            # The fault may have filled the disk of the journal. It must be healed all the same.
            with suppress(OSError):
                journal.end_early(entry, str(error))
    finally:
        heal_faults(_inside(broken)[::-1], journal, topic, policy, healed)
    if topic is not None:
        topic.flush()
        for entry, _ in broken:
            journal.mark_published(entry)
    if unseen is not None:
        raise unseen


def _where(fault: Fault) -> str:
    return f"{fault.name} on {fault.target_names}"


def _prepared(fault: Fault, config: FaultConfig) -> Injection:
    injected = injection(fault, config.state)
    injected.prepare()
    return injected


def _shows(broken: Sequence[tuple[Entry, Injection]]) -> bool:
    """Whether the newest fault is active. Maintains the other faults."""
    _hold_once(broken[:-1])
    return broken[-1][1].is_active()


def _hold_once(broken: Sequence[tuple[Entry, Injection]]) -> None:
    """Maintain each active fault. A fault that is being healed must not be injected again."""
    for entry, injected in broken:
        if not entry.is_being_healed:
            injected.maintain()


def _inside(broken: Sequence[tuple[Entry, Injection]]) -> list[tuple[Entry, Injection]]:
    return [(entry, injected) for entry, injected in broken if not entry.is_healed]


def _hold(
    broken: Sequence[tuple[Entry, Injection]],
    until: float,
    ends: dict[str, float],
    stop: threading.Event,
    heal: Callable[[Sequence[tuple[Entry, Injection]], float], None],
) -> None:
    """Maintain the faults until ``until``. Heal those whose end in ``ends`` has passed, and remove their ends.

    A healing is probed only until another fault starts or ends. A longer wait would lengthen the other faults.
    """
    while not stop.is_set():
        now = time.monotonic()
        over = [pair for pair in _inside(broken) if ends.get(pair[0].fault.id, math.inf) <= now]
        if over:
            for entry, _ in over:
                del ends[entry.fault.id]
            heal(over, max(_PROOF_SECONDS_LEAST, min([until, *ends.values()]) - now))
        elif now >= until:
            return
        else:
            _hold_once(broken)
            stop.wait(min(until - now, POLL_SECONDS))

"""Runs a timeline: wait, inject, prove, hold, heal, prove, and never the next before the last is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from faults.config import FaultConfig
from faults.errors import FaultRefused, NotVerified
from faults.fault import Step, Timeline
from faults.healing import POLL_SECONDS, becomes_true, heal, reach
from faults.journal import Journal
from faults.kinds.makers import injection
from faults.section import text_of
from faults.topic import FaultsTopic
from faults.watchdog import Watchdog

Say = Callable[[str], None]


def run(config: FaultConfig, timeline: Timeline, say: Say, stop: threading.Event) -> None:
    """Do all of ``timeline``, or until ``stop`` is set; what was injected is healed either way.

    Raises FaultRefused before anything is touched, NotVerified, NotHealed, NotTold.
    """
    with Journal.locked(config.state) as journal:
        unhealed = journal.open_entries()
        if unhealed:
            last = unhealed[0].fault
            raise FaultRefused(
                f"{last.name} on {last.target_names} of an earlier run is not known to be healed; "
                "run `streamproof faults heal CONFIG` first."
            )
        topic = None if config.kafka is None else FaultsTopic(config.kafka)
        if topic is not None:
            topic.check()
        for step in timeline.steps:
            # What cannot be done now is said now, not after an hour of control phase.
            injection(step.fault, config.state).prepare()
        with Watchdog(config):
            for step in timeline.steps:
                _wait(step.before, step.wait_seconds, say, stop)
                if stop.is_set():
                    return
                _one(step, config, journal, topic, say, stop)
            _wait("recovery", timeline.recovery_seconds, say, stop)


def _wait(phase: str, seconds: float, say: Say, stop: threading.Event) -> None:
    if seconds > 0 and not stop.is_set():
        say(f"{phase}: {text_of(seconds)}")
        stop.wait(seconds)


def _one(
    step: Step, config: FaultConfig, journal: Journal, topic: FaultsTopic | None, say: Say, stop: threading.Event
) -> None:
    fault = step.fault
    where = f"{fault.name} on {fault.target_names}"
    injected = injection(fault, config.state)
    injected.prepare()
    entry = journal.begin(fault, injected.facts)
    is_in = False
    try:
        reach(entry, "injected", journal, topic)
        injected.inject()
        journal.add_facts(entry, injected.facts)
        is_in = becomes_true(injected.is_in, config.limits.verified_within)
        if is_in:
            reach(entry, "verified", journal, topic)
            say(f"failure: {where} is in" + (f", for {text_of(step.lasts_seconds)}" if step.lasts_seconds else ""))
            until = time.monotonic() + step.lasts_seconds
            while (left := until - time.monotonic()) > 0 and not stop.is_set():
                injected.hold()
                stop.wait(min(left, POLL_SECONDS))
    finally:
        heal(entry, injected, journal, topic, config.limits.healed_within)
        if injected.facts != entry.facts:
            journal.add_facts(entry, injected.facts)
        say(f"healed: {where} is gone")
    if topic is not None:
        topic.flush()
        journal.told(entry)
    if not is_in:
        raise NotVerified(
            f"{where}: no probe showed it within {config.limits.verified_within:g} s; it was healed, and the run "
            "ended, since it would measure nothing."
        )

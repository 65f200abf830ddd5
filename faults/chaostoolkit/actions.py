"""Actions: run a fault of a faults file, heal, and wait until the sidecar has judged."""

# No `from __future__ import annotations`: the toolkit needs the classes of the arguments in the signature.
import logging
import threading
import time
from typing import Any, Final

from faults.chaostoolkit.source import NoAnswer, fresh_report, taken
from faults.config import FaultConfig, ScheduleSection, load
from faults.errors import FaultConfigError
from faults.healing import heal_all
from faults.journal import Journal, names_in
from faults.runner import run
from faults.schedule import name_of, timeline
from faults.topic import FaultsTopicWriter

__all__ = ["heal", "run_fault", "wait_until_judged"]

_LOG: Final = logging.getLogger("chaostoolkit")
_LOOK_SECONDS: Final = 1.0
_FRESH_WITHIN_SECONDS: Final = 60.0
_UNDECIDED: Final = ("overdue", "blocked", "unresolved")


def run_fault(config: str, fault: str | None = None, seed: int | None = None) -> list[dict[str, str]]:
    """Inject, verify, hold and heal one fault of the file ``config``. Its windows are published to the faults topic.

    ``fault``: its name in the file's schedule. The name of a fault without ``name`` is its kind with hyphens, and the
    name of a group is that of its first fault. Default: the only fault of the file. Control and recovery phases are
    left to the experiment. The fault is healed even if the experiment is killed.
    Returns the name, kind and target of each fault. Raises FaultError.
    """
    only = _only(load(config), config, fault)
    planned = timeline(only, seed, taken=names_in(only.state))
    run(only, planned, _LOG.info, threading.Event())
    faults = [fault for step in planned.steps for _, fault in step.parts]
    return [{"name": fault.name, "kind": fault.kind, "target": fault.target_names} for fault in faults]


def heal(config: str) -> int:
    """Heal the faults that a killed run of the file ``config`` left, and return their number. For `rollbacks`."""
    read = load(config)
    with Journal.locked(read.state) as journal:
        topic = None if read.kafka is None else FaultsTopicWriter(read.kafka)
        found = len(journal.open_entries())
        heal_all(journal, topic, read.limits, _LOG.info)
    return found


def wait_until_judged(source: str, at_least_seconds: float = 0.0, timeout_seconds: float = 300.0) -> dict[str, Any]:
    """Wait until the sidecar at ``source`` has decided: nothing is overdue, blocked, unresolved or suspected.

    ``at_least_seconds``: the report must be this much later than the call. Use the length of a window plus the
    pipeline's `timing.missing_after`, after which a loss that happens now is confirmed. Returns the contributions of
    that report.
    Raises NoAnswer after ``timeout_seconds``.
    """
    pause = threading.Event()
    begin, deadline = time.time(), time.monotonic() + timeout_seconds
    while True:
        report = fresh_report(source, _FRESH_WITHIN_SECONDS)
        waited = taken(report).timestamp() - begin
        counts: dict[str, Any] = report["contributions"]
        undecided = {name: counts[name] for name in _UNDECIDED if counts[name]}
        suspected = sum(report["violations"]["suspected"].values())
        if waited >= at_least_seconds and not undecided and not suspected:
            return counts
        if time.monotonic() > deadline:
            why = [f"{count} {name}" for name, count in (undecided | {"suspected": suspected}).items() if count]
            if waited < at_least_seconds:
                why.append(f"the report came after {waited:.1f} s, less than at_least_seconds ({at_least_seconds:g})")
            raise NoAnswer(
                f"{source}: the sidecar has not decided within {timeout_seconds:g} s ({', '.join(why)}); set a "
                "larger timeout_seconds, or see the reason in the sidecar's report."
            )
        pause.wait(_LOOK_SECONDS)


def _only(config: FaultConfig, file: str, name: str | None) -> FaultConfig:
    if config.schedule is None or config.schedule.random is not None:
        raise FaultConfigError(
            f"{file}: run_fault injects one fault of schedule.faults; use schedule:, without random: or plan:."
        )
    faults = config.schedule.faults
    named = {name_of(spec.parts[0]): spec for spec in faults}
    if name is None and len(faults) == 1:
        name = next(iter(named))
    if name is None or name not in named:
        raise FaultConfigError(f"{file}: set the argument `fault` to one of: {', '.join(named)}.")
    return config.model_copy(update={"schedule": ScheduleSection(faults=(named[name],))})

"""Draws a timeline from the configuration and its seed. Uses no clock, and reads only disks and process groups."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, count, cycle, islice

from faults.catalogue import KINDS
from faults.config import FaultConfig, RandomSection, ScheduleSection
from faults.errors import FaultRefused
from faults.fault import Fault, Step, Timeline, new_id, seconds_in
from faults.parameters import TransactionParameters
from faults.plans import schedule_of
from faults.selection import Selection, check_radius, select
from faults.spec import FaultSpec, GroupSpec, Range
from faults.targets import LocalProcess

_KILLS = ("process_kill", "restart_loop", "node_loss", "broker_kill", "sidecar_kill", "sidecar_restart")


def timeline(
    config: FaultConfig, seed: int | None = None, id_of: Callable[[], str] = new_id, taken: Collection[str] = ()
) -> Timeline:
    """The timeline of a run. ``seed`` overrides the seed of the file. Raises FaultRefused if a fault is not allowed.

    Each occurrence has a unique name: the second ``kill-one`` is ``kill-one-2``. Names ``taken`` by earlier runs are
    excluded, since the sidecar reports violations by the name of the fault.
    """
    seed = config.seed if seed is None else seed
    named = config.plan
    if named is not None:
        plan, schedule = str(named.name), schedule_of(named)
    else:
        assert config.schedule is not None
        plan = "written" if config.schedule.random is None else "random"
        schedule = config.schedule
    timing = random.Random(f"{seed}:timing")
    drawn = _written(schedule) if schedule.random is None else _random(schedule, schedule.random, timing)
    steps = []
    names = set(taken)
    for number, (before, wait, spec, lasts) in enumerate(drawn):
        draw = random.Random(f"{seed}:targets:{number}")
        faults = [
            Fault(
                id=id_of(),
                name=_own_name(one, names),
                kind=one.kind,
                targets={name: config.targets[name] for name in selection.names},
                parameters=one.parameters,
                plan=plan,
                seed=seed,
                expects=one.expects,
            )
            for one, selection in zip(spec.parts, _selections(config, spec.parts, draw), strict=True)
        ]
        parts = [(one.after_seconds, fault) for one, fault in zip(spec.parts, faults, strict=True)]
        own = {f.id: s.own_seconds for s, f in zip(spec.parts, faults, strict=True) if s.own_seconds is not None}
        steps.append(step := Step(before, wait, faults[0], lasts, tuple(parts[1:]), own))
        for after, fault in parts:
            _check(fault, step.seconds_of(after, fault))
    if not steps:
        raise FaultRefused(
            f"random: seed {seed} draws no fault, since the first one would exceed length or down_at_most; "
            "raise these limits, or set shorter durations in for: and gap:."
        )
    return Timeline(plan, seed, tuple(steps), schedule.recovery, schedule.periodic)


def _selections(config: FaultConfig, specs: Sequence[FaultSpec], draw: random.Random) -> list[Selection]:
    """The targets of each fault of a step. No target is hit twice, and together the faults stay within the limits."""
    found: list[Selection] = []
    for spec in specs:
        found.append(select(config, spec.kind, KINDS[spec.kind].target, spec.target, draw, spec.parameters, found))
    check_radius(config, found)
    return found


def name_of(spec: FaultSpec) -> str:
    """The name of the first occurrence of a fault of a schedule."""
    return spec.name or spec.kind.replace("_", "-")


def _own_name(spec: FaultSpec, names: set[str]) -> str:
    """A unique name for one occurrence, which is added to ``names``."""
    plain = name_of(spec)
    numbered = (f"{plain}-{number}" for number in count(2))
    name = next(name for name in chain([plain], numbered) if name not in names)
    names.add(name)
    return name


def _written(schedule: ScheduleSection) -> Iterator[tuple[str, float, FaultSpec | GroupSpec, float]]:
    wait, before = schedule.warm_up + schedule.control, "control"
    for spec in islice(cycle(schedule.faults), schedule.repeat * len(schedule.faults)):
        assert isinstance(spec.lasts, float)
        yield before, wait, spec, spec.lasts
        wait, before = schedule.recovery + schedule.control, "recovery and control"


def _random(
    schedule: ScheduleSection, budget: RandomSection, draw: random.Random
) -> Iterator[tuple[str, float, FaultSpec | GroupSpec, float]]:
    at, down, before = schedule.warm_up, 0.0, "control"
    for number in range(budget.faults_at_most):
        wait = round(draw.uniform(budget.gap.at_least, budget.gap.at_most), 3)
        spec = draw.choice(schedule.faults)
        lasts = spec.lasts
        if isinstance(lasts, Range):
            lasts = round(draw.uniform(lasts.at_least, lasts.at_most), 3)
        broken = max(
            part.after_seconds + seconds_in(part.after_seconds, part.own_seconds, spec.parts[-1].after_seconds, lasts)
            for part in spec.parts
        )
        if at + wait + broken > schedule.warm_up + budget.length or down + broken > budget.down_at_most:
            return
        yield before, wait + (schedule.warm_up if number == 0 else 0.0), spec, lasts
        at, down, before = at + wait + broken, down + broken, "recovery and control"


def _check(fault: Fault, lasts_seconds: float) -> None:
    reason = KINDS[fault.kind].why_not_here
    if reason is not None:
        raise FaultRefused(f"{fault.kind} cannot be done on this host: {reason}.")
    if isinstance(fault.parameters, TransactionParameters) and lasts_seconds >= fault.parameters.timeout:
        raise FaultRefused(
            f"{fault.kind}: the broker ends the transaction after its timeout of {fault.parameters.timeout:g} s; "
            "make for: shorter, or timeout longer."
        )
    if fault.kind not in _KILLS:
        return
    for name, target in fault.targets.items():
        assert isinstance(target, LocalProcess)
        if target.pid is not None or not (target.start or target.supervised):
            raise FaultRefused(
                f"{fault.kind}: nothing could restart {name}; give it pid_file, and either start or supervised: true."
            )
        if target.supervised and lasts_seconds > 0 and fault.kind != "restart_loop":
            raise FaultRefused(
                f"{fault.kind}: the supervisor of {name} would restart it before the duration in for: has passed; "
                "leave out for:, or use restart_loop to keep it down."
            )

"""The fault plans of the literature, as schedules. Sources: docs/faults.md, "Named plans".

If a publication and its scripts differ, the plan follows the publication, and a comment says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from faults.config import NamedPlanSection, ScheduleSection
from faults.errors import FaultRefused
from faults.spec import FaultSpec, GroupSpec


def schedule_of(plan: NamedPlanSection) -> ScheduleSection:
    """The plan's phases and faults, on the targets of ``plan``. Raises FaultRefused if ``plan`` lacks a setting."""
    if plan.name == "streambench-node" and plan.target.name is None and plan.target.input is None:
        # The publication kills a node that receives no input.
        plan = plan.model_copy(update={"target": plan.target.model_copy(update={"input": False})})
    made = _schedule(plan)
    by = 1 / plan.faster
    return made.model_copy(
        update={
            "warm_up": made.warm_up * by,
            "control": made.control * by,
            "recovery": made.recovery * by,
            "faults": tuple(_shorter(spec, by, plan.expects) for spec in made.faults),
        }
    )


_KILL: Final = {"process": "process_kill", "container": "container_kill", "pods": "pod_kill"}
_CRASH: Final = {"process": "process_kill", "container": "container_kill", "pods": "pod_failure"}
"""Kinds that keep the target down for a time. `pod_kill` does not: a killed pod is replaced at once."""
_NODE: Final = {"process": "node_loss"}
_DELAY: Final = {"process": "net_delay", "namespace": "namespace_delay", "pods": "pod_net_delay"}
"""PGVal delays all packets that a worker sends, as do the kinds for namespaces and pods. A link delays only the bytes
to its upstream."""
_POISON: Final = {"process": "poison"}


def _schedule(plan: NamedPlanSection) -> ScheduleSection:
    def fault(kinds: Mapping[str, str], pick: str | int, lasts: str = "0s", **parameters: object) -> list[object]:
        """``kinds``: type of target -> kind."""
        if plan.type not in kinds:
            raise FaultRefused(f"{plan.name}: the plan has no fault for type: {plan.type}; use {' or '.join(kinds)}.")
        target = plan.target.model_dump()
        if plan.type == "pods":
            if pick == "leader":
                raise FaultRefused(f"{plan.name}: no pod is known to be the leader; use type: process or container.")
            if plan.target.name is None:
                raise FaultRefused(f"{plan.name}: say which pods, as in target: {{name: workers}}.")
            parameters["pods"] = pick
        elif plan.target.name is None:
            target["pick"] = pick
        kind = kinds[plan.type]
        return [{"kind": kind, "target": target, "for": lasts, "name": plan.name, "parameters": parameters}]

    def kill(pick: str | int) -> list[object]:
        return fault(_KILL, pick)

    def delay(by: str) -> list[object]:
        # netem on the egress of the faulted instance delays what it sends, not what it receives. This is the default
        # direction of each of the kinds.
        return fault(_DELAY, "one", "90s", delay=by)

    def made(faults: list[object], *, repeat: int = 1, periodic: bool = False, **phases: str) -> ScheduleSection:
        return ScheduleSection.model_validate({**phases, "repeat": repeat, "periodic": periodic, "faults": faults})

    match plan.name:
        # PGVal: 5 s, then 90 s each of control, failure and recovery. The delays are below and above a timeout of 3 s.
        case "pgval-delay-below-timeout":
            return made(delay("500ms"), warm_up="5s", control="90s", recovery="90s")
        case "pgval-delay-above-timeout":
            return made(delay("5s"), warm_up="5s", control="90s", recovery="90s")
        case "pgval-crash":
            return made(fault(_CRASH, "one", "90s"), warm_up="5s", control="90s", recovery="90s")
        # OSPBench: the container is started again at once.
        case "ospbench-worker":
            return made(kill("one"), warm_up="2m", control="7m", recovery="7m")
        case "ospbench-master":
            return made(kill("leader"), warm_up="2m", control="10m", recovery="5m")
        # One event that no consumer can decode, at minute 10 of the 15 measured minutes.
        case "ospbench-poison":
            return made(fault(_POISON, "one", at_most=1), warm_up="2m", control="10m", recovery="5m")
        # Vogel et al.: Chaos Mesh schedules: ten faults, 5 minutes apart, or five, 10 minutes apart. The intervals
        # are fixed and do not depend on the healing.
        case "vogel-kill-1" | "vogel-kill-2" | "vogel-kill-4":
            return made(kill(int(plan.name[-1])), repeat=10, periodic=True, warm_up="5m", recovery="5m")
        case "vogel-crash-2":
            return made(fault(_CRASH, 2, "5m"), repeat=5, periodic=True, warm_up="5m", recovery="5m")
        # StreamBench: a node dies at half of the failure-free time and stays dead. This plan heals it at the end.
        case "streambench-node":
            if plan.failure_free <= 0:
                raise FaultRefused("streambench-node: set plan.failure_free to the duration of a run without a fault.")
            half = f"{plan.failure_free / 2:.3f}s"
            return made(fault(_NODE, "one", half), control=half)
        # CheckMate: 60 s are measured after 30 s of warm-up. CheckMate notifies a worker of its failure; this plan
        # kills the worker.
        case "checkmate":
            return made(kill("one"), warm_up="30s", control="18s", recovery="42s")
        # CheckMate's cyclic query has no separate warm-up. As above (30 s + 18 s), the kill is 48 s after the start.
        case "checkmate-cyclic":
            return made(kill("one"), control="48s", recovery="42s")


def _shorter(spec: FaultSpec | GroupSpec, by: float, expects: tuple[str, ...]) -> FaultSpec:
    assert isinstance(spec, FaultSpec), "no plan has groups"
    assert isinstance(spec.lasts, float)
    return spec.model_copy(update={"lasts": spec.lasts * by, "expects": expects})

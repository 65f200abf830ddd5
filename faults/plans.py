"""The fault plans of the literature, as schedules. Sources: docs/faults.md, "Named plans".

What each text says and its scripts do is not always the same; then the published text counts, and a comment says so.
"""

from __future__ import annotations

from faults.config import FaultSpec, NamedPlanSection, PlanName, ScheduleSection, Selector
from faults.errors import FaultRefused
from faults.parameters import DelayParameters

_MINUTE = 60.0


def schedule_of(plan: NamedPlanSection) -> ScheduleSection:
    """The plan's phases and faults, on the targets of ``plan``. Raises FaultRefused where it lacks something."""
    made = _schedule(plan.name, plan)
    by = 1 / plan.faster
    return made.model_copy(
        update={
            "warm_up": made.warm_up * by,
            "control": made.control * by,
            "recovery": made.recovery * by,
            "faults": tuple(_shorter(spec, by) for spec in made.faults),
        }
    )


def _schedule(name: PlanName, plan: NamedPlanSection) -> ScheduleSection:
    def on(pick: str | int) -> Selector:
        return plan.target if plan.target.name is not None else plan.target.model_copy(update={"pick": pick})

    def kill(pick: str | int, lasts: float = 0.0, kind: str = "process_kill") -> tuple[FaultSpec, ...]:
        return (FaultSpec(kind=kind, target=on(pick), lasts=lasts, name=name),)

    def delay(seconds: float) -> tuple[FaultSpec, ...]:
        # netem on the egress of the faulted instance: what it sends comes later, what it receives does not.
        parameters = DelayParameters(delay=seconds, direction="to_upstream")
        return (FaultSpec(kind="net_delay", target=on("one"), lasts=90.0, name=name, parameters=parameters),)

    match name:
        # PGVal: 5 s, then control, failure and recovery of 90 s each; the timeout it is measured against is 3 s.
        case "pgval-delay-below-timeout":
            return ScheduleSection(warm_up=5.0, control=90.0, recovery=90.0, faults=delay(0.5))
        case "pgval-delay-above-timeout":
            return ScheduleSection(warm_up=5.0, control=90.0, recovery=90.0, faults=delay(5.0))
        case "pgval-crash":
            return ScheduleSection(warm_up=5.0, control=90.0, recovery=90.0, faults=kill("one", 90.0))
        # OSPBench: the container is started again at once.
        case "ospbench-worker":
            return ScheduleSection(warm_up=2 * _MINUTE, control=7 * _MINUTE, recovery=7 * _MINUTE, faults=kill("one"))
        case "ospbench-master":
            return ScheduleSection(
                warm_up=2 * _MINUTE, control=10 * _MINUTE, recovery=5 * _MINUTE, faults=kill("leader")
            )
        # Vogel et al.: Chaos Mesh schedules, every 5 minutes ten times, or every 10 minutes five times.
        case "vogel-kill-1" | "vogel-kill-2" | "vogel-kill-4":
            pods = kill(int(name[-1]))
            return ScheduleSection(warm_up=5 * _MINUTE, recovery=5 * _MINUTE, repeat=10, faults=pods)
        case "vogel-crash-2":
            pods = kill(2, 5 * _MINUTE)
            return ScheduleSection(warm_up=5 * _MINUTE, recovery=5 * _MINUTE, repeat=5, faults=pods)
        # StreamBench: a node dies at half of the failure-free time and stays dead; we bring it back at the end.
        case "streambench-node":
            if plan.failure_free <= 0:
                raise FaultRefused("streambench-node: plan.failure_free says how long a run takes without a fault.")
            half = plan.failure_free / 2
            return ScheduleSection(control=half, faults=kill("one", half, "node_loss"))
        # CheckMate: 60 measured seconds after 30 of warm-up; its worker is told that it failed, ours is killed.
        case "checkmate":
            return ScheduleSection(warm_up=30.0, control=18.0, recovery=42.0, faults=kill("one"))


def _shorter(spec: FaultSpec, by: float) -> FaultSpec:
    assert isinstance(spec.lasts, float)
    return spec.model_copy(update={"lasts": spec.lasts * by})

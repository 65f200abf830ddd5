"""The demo's checked options: engine, guarantee, mutations, fault, length and seed."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, cast

from generator.workloads import kinds
from generator.workloads.kinds import DEFAULT
from testbed.demo.measures import least_seconds
from testbed.demo.scenario import Scenario, scenario_of
from testbed.demo.scenario_config import named, one, read
from testbed.engines.mutations import Mutation
from testbed.engines.registry import REGISTRY
from testbed.engines.settings import Guarantee
from testbed.run_files import Topics
from validator.model.wording import plural
from validator.publish.report_types import Report

Fault = Literal["kill", "pause", "none"]
"""The demo's own faults. A kind of `streamproof faults list` becomes a scenario with one fault."""

SECONDS_DEFAULT: Final = 60
SECONDS_MIN: Final = 10
FAULTS: Final = ("kill", "pause", "none")
GUARANTEES: Final = ("exactly_once", "at_least_once", "at_most_once")
MUTATIONS_DEFAULT: Final[dict[Mutation, float]] = {
    Mutation.DROP: 0.0005,
    Mutation.DUPLICATE: 0.0005,
    Mutation.INVENT: 0.0002,
    Mutation.MISPLACE_COPY: 0.0002,
}
"""Mutation -> share of the affected ids."""


class DemoRefused(Exception):
    """The demo cannot run with these options. The message is one sentence with the fix."""

    exit_status = 2


@dataclass(frozen=True)
class DemoPlan:
    """A checked demo. The pipeline always *declares* exactly once; ``guarantee`` is the guarantee of its engine."""

    engine: str = "reference"
    """``reference``, ``mutant`` or a real engine of the registry."""
    guarantee: Guarantee = "at_least_once"
    workload: str = DEFAULT
    """Its name, and its parameters, as `kinds.named` reads them."""
    fault: Fault = "kill"
    seconds: int = SECONDS_DEFAULT
    seed: int = 1
    opens_page: bool = False
    mutations: dict[Mutation, float] = field(default_factory=dict)
    scenario: Scenario | None = None
    """A scenario instead of a single fault. ``seconds`` is then its planned length, and the load lasts until it
    ends."""

    @property
    def topics(self) -> Topics:
        """The topics, with their workload."""
        return Topics(kinds.named(self.workload))

    @property
    def faults(self) -> str:
        """The demo's faults, in words."""
        if self.scenario is None:
            return f"fault {self.fault}"
        count = sum(len(step.parts) for step in self.scenario.timeline.steps)
        return f"faults of {self.scenario.source} ({plural(count, 'fault')}, seed {self.scenario.seed})"

    @property
    def is_real(self) -> bool:
        """Whether the engine is a production engine, not the reference engine or the mutant."""
        return self.engine in REGISTRY

    @property
    def ends_load(self) -> bool:
        """Whether the load lasts until the demo ends it, beyond ``seconds``: in a scenario, because healing takes
        time, and with a real engine, whose first result also comes late."""
        return self.scenario is not None or self.is_real

    @property
    def further_time(self) -> str:
        """How long the load lasts beyond its seconds, in words."""
        if not self.ends_load:
            return ""
        return f"{' after the first result' if self.is_real else ''}, plus the time that healing takes"

    @property
    def title(self) -> str:
        """The engine in words."""
        kept = self.guarantee.replace("_", " ") + ("" if self.workload == DEFAULT else f", {self.workload}")
        if self.engine == "mutant":
            rates = ", ".join(f"{name}={rate:g}" for name, rate in self.mutations.items())
            return f"mutant ({kept}, with mutations {rates})"
        return f"{self.engine} ({kept})"


def plan_of(given: argparse.Namespace) -> DemoPlan:
    """Return the plan in the arguments of ``streamproof demo``. Raises DemoRefused."""
    name, _, details = (given.engine or "reference").partition(":")
    others = ", ".join(REGISTRY)
    if name not in ("reference", "mutant", *REGISTRY):
        raise DemoRefused(f"demo: --engine {name} is not a demo engine; use reference, mutant or one of {others}.")
    # The mutant breaks its guarantee without a fault. With one, its violations would be attributed to the fault.
    fault = given.fault or ("none" if name == "mutant" else "kill")
    if given.faults is not None or given.plan is not None:
        return _run_scenario(given, name, details)
    if given.faster is not None:
        raise DemoRefused("demo: --faster shortens a plan; add --plan NAME, or omit --faster.")
    seconds = SECONDS_DEFAULT if given.seconds is None else given.seconds
    if seconds < SECONDS_MIN:
        raise DemoRefused(
            f"demo: --seconds {seconds} is too short for a fault and its healing; use {SECONDS_MIN} or more."
        )
    plan = _plan(given, name, details, fault=fault if fault in FAULTS else "none", seconds=seconds)
    if plan.is_real and fault != "none":
        _check_baseline(plan, seconds, is_scenario=fault not in FAULTS)
    if fault in FAULTS:
        return plan
    return _with_scenario(plan, f"--fault {fault}", one(fault, seconds, name, plan.topics.inputs))


def _check_baseline(plan: DemoPlan, seconds: int, *, is_scenario: bool) -> None:
    least = least_seconds(is_scenario=is_scenario)
    if seconds < least:
        raise DemoRefused(
            f"demo: --seconds {seconds} is too short to measure the output of {plan.engine} before the fault; "
            f"use {least} or more."
        )


def _plan(given: argparse.Namespace, name: str, details: str, **shared: Any) -> DemoPlan:
    shared |= {"seed": given.seed, "opens_page": given.open, "workload": _workload(name, given.workload)}
    if name in REGISTRY:
        return DemoPlan(engine=name, guarantee=_real_guarantee(name, details), **shared)
    if name == "mutant":
        mutations = _mutations(details) if details else dict(MUTATIONS_DEFAULT)
        return DemoPlan(engine="mutant", guarantee="exactly_once", mutations=mutations, **shared)
    if details and details not in GUARANTEES:
        raise DemoRefused(f"demo: --engine reference:{details} is not a guarantee; use one of {', '.join(GUARANTEES)}.")
    return DemoPlan(guarantee=cast("Guarantee", details or "at_least_once"), **shared)


def _run_scenario(given: argparse.Namespace, name: str, details: str) -> DemoPlan:
    """Return the demo with the faults of a file or of a named plan. Also raises FaultConfigError, FaultRefused."""
    for option, value in (("--fault", given.fault), ("--seconds", given.seconds)):
        if value is not None:
            raise DemoRefused(f"demo: {option} cannot be combined with --faults or --plan; omit {option}.")
    if given.faults is not None and (given.plan is not None or given.faster is not None):
        raise DemoRefused("demo: --faults excludes --plan and --faster; set plan: {name: X, faster: N} in FILE.")
    plan = _plan(given, name, details, fault="none", seconds=SECONDS_DEFAULT)
    if given.faults is not None:
        return _with_scenario(plan, given.faults, read(Path(given.faults)))
    base_config = named(given.plan, given.faster, name, plan.topics.inputs)
    return _with_scenario(plan, f"--plan {given.plan}", base_config)


def _with_scenario(plan: DemoPlan, source: str, base_config: Mapping[str, Any]) -> DemoPlan:
    scenario = scenario_of(plan.engine, plan.topics.inputs, plan.seed, source, base_config)
    return replace(plan, scenario=scenario, seconds=math.ceil(scenario.timeline.seconds))


def _workload(name: str, given: str | None) -> str:
    try:
        workload = kinds.named(given or (REGISTRY[name].workload if name in REGISTRY else DEFAULT))
    except ValueError as error:
        raise DemoRefused(f"demo: --workload {given}: {error}.") from error
    if name in REGISTRY and workload.kind not in REGISTRY[name].workloads:
        others = [other for other, entry in REGISTRY.items() if workload.kind in entry.workloads]
        raise DemoRefused(
            f"demo: --engine {name} has no job for {workload.kind}; use {' or '.join(['reference', *others])}."
        )
    return kinds.text_of(workload)


def _real_guarantee(name: str, details: str) -> Guarantee:
    """Return the guarantee of a real engine: the given one, otherwise the strongest that it supports."""
    guarantees = REGISTRY[name].guarantees
    if details and details not in guarantees:
        raise DemoRefused(f"demo: --engine {name}:{details} is not supported; use one of {', '.join(guarantees)}.")
    return next((g for g in guarantees if g == details), guarantees[0])


def epilogue(plan: DemoPlan, report: Report) -> tuple[str, ...]:
    """Return the conclusion from ``report``, in lines of at most 100 characters."""
    broken = report["outcome"] == "fail"
    lines: tuple[str, ...] = ()
    if plan.engine == "mutant":
        lines = ("This engine corrupts its results on purpose, with or without a fault.",)
    elif broken and plan.fault == "kill" and plan.guarantee == "at_least_once" and not plan.is_real:
        lines = (
            "Why: this engine sends results at once and commits its progress rarely. After the kill it read the",
            "clicks since its last commit again and sent their results a second time.",
        )
    elif broken and plan.fault == "kill" and plan.guarantee == "at_most_once":
        lines = (
            "Why: this engine commits its progress before it sends its results. The kill came in between, so the",
            "clicks in its memory have no result.",
        )
    elif report["outcome"] == "pass":
        lines = ("Nothing was lost, counted again or invented: the guarantee held in this run.",)
    if broken:
        lines += ("STATE above stands for the state folder of your pipeline. The demo removes its own at the end.",)
    if report["contributions"]["pending"]:
        lines += ("The demo sent its last events only to close the earlier windows, so these events are not due yet.",)
    better = REGISTRY[plan.engine].guarantees if plan.is_real else GUARANTEES
    if plan.guarantee != "exactly_once" and "exactly_once" in better:
        lines += (f"To run this demo with transactions: streamproof demo --engine {plan.engine}:exactly_once",)
    return lines


def _mutations(text: str) -> dict[Mutation, float]:
    found: dict[Mutation, float] = {}
    for part in text.split(","):
        name, _, rate = part.partition("=")
        try:
            found[Mutation(name)] = float(rate)
        except ValueError:
            example = "write it as mutant:drop=0.001,invent=0.001"
            raise DemoRefused(f"demo: --engine mutant: {part!r} is not a mutation with a rate; {example}.") from None
        if not 0 < found[Mutation(name)] <= 1:
            raise DemoRefused(f"demo: --engine mutant: the rate of {name} must be above 0 and at most 1.")
    return found

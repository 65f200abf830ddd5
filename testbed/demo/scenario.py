"""A scenario: the faults of the user's file or of a named plan, on the demo's targets.

The file is a fault configuration without targets, kafka and state (docs/faults.md). It is checked completely before a
process starts. Raises FaultConfigError and FaultRefused, one sentence each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from faults.catalogue import KINDS
from faults.config import FaultConfig, parse
from faults.errors import FaultConfigError, FaultRefused
from faults.fault import Fault, Timeline
from faults.parameters import ClockParameters
from faults.schedule import timeline
from faults.targets import LocalProcess
from testbed.demo.preflight import check_combination, check_targets, needs_second_broker
from testbed.demo.scenario_config import DELAYS, TIMEOUT_SECONDS
from testbed.demo.targets import (
    STARTED_BY,
    WORKERS,
    RunContext,
    disk_folder,
    instance_names,
    link_names,
    roles,
    state_folder,
    targets,
)
from testbed.demo.workers import workers_needed

HEALED_WITHIN: Final = "180s"
"""Default healing timeout: a killed engine counts as healed when all of its processes are ready again."""
_PLANNED: Final = RunContext(
    Path("demo"), "127.0.0.1:1", (), {"type": "namespace", "namespace": "demo", "device": "e0",
                                      "relay": "198.18.0.0/30", "probe": "127.0.0.1:1"},
)  # fmt: skip
_SECOND: Final = "127.0.0.1:2"


@dataclass(frozen=True)
class Scenario:
    """The faults, checked against the demo's targets."""

    source: str
    """The file or the option, for error messages."""
    base_config: Mapping[str, Any]
    """The fault configuration without the sections that the demo adds."""
    engine: str
    inputs: tuple[str, ...]
    seed: int
    workers: int
    """The number of workers, for an engine that can have several."""
    has_two_brokers: bool
    """Whether the demo runs a second broker, which can lead partitions: only if a fault needs one."""
    timeline: Timeline
    """The timeline for the seed. A run binds it to its targets and changes nothing else, so the checked plan is the
    one that runs."""

    @property
    def kinds(self) -> frozenset[str]:
        """The types of the faults' targets."""
        return frozenset(KINDS[fault.kind].target for step in self.timeline.steps for _, fault in step.parts)

    @property
    def fault_kinds(self) -> frozenset[str]:
        """The kinds of the faults."""
        return frozenset(fault.kind for step in self.timeline.steps for _, fault in step.parts)

    @property
    def link_names(self) -> tuple[str, ...]:
        """The links between engine and broker; empty if no fault affects a link, since a proxy costs processor time."""
        return link_names(self.engine, self.workers) if "link" in self.kinds else ()

    @property
    def instance_names(self) -> tuple[str, ...]:
        """The target name of each instance of the engine, in order."""
        return instance_names(self.engine, self.workers)

    @property
    def needs_node(self) -> bool:
        """Whether the first worker runs in a separate network: only if a fault needs it."""
        return "namespace" in self.kinds

    @property
    def timeout_seconds(self) -> float | None:
        """The timeout that the plan's delays refer to; None: the engine keeps its own."""
        return TIMEOUT_SECONDS if self.timeline.plan.startswith(DELAYS) else None

    @property
    def longest_seconds(self) -> float:
        """The longest time that a fault or a group of faults may delay a result."""
        return max(step.seconds for step in self.timeline.steps) + self._clock_jump_seconds

    @property
    def _clock_jump_seconds(self) -> float:
        """The largest jump of a clock. If a clock jumps back, a wait until a given time takes longer by the jump."""
        parameters = (fault.parameters for step in self.timeline.steps for _, fault in step.parts)
        jumps = (abs(one.offset_seconds) for one in parameters if isinstance(one, ClockParameters))
        return max(jumps, default=0.0)

    @property
    def control_seconds(self) -> float:
        """The time before the first fault."""
        return self.timeline.steps[0].wait_seconds

    @property
    def needs_disk(self) -> bool:
        """Whether the engine's state is on a separate file system: only if a fault fills it."""
        return "disk_full" in self.fault_kinds

    @property
    def disk_folder(self) -> Path | None:
        """The mount point of that file system, relative to the demo's folder; None without one."""
        return disk_folder(self.engine, Path()) if self.needs_disk else None

    @property
    def needs_clocks(self) -> bool:
        """Whether each worker has its own clock: only if a fault moves one."""
        return "clock_skew" in self.fault_kinds

    def content(self, context: RunContext) -> dict[str, Any]:
        """Return the complete fault configuration of a run."""
        return _content(self.base_config, self.engine, self.inputs, self.seed, context, self.workers)

    def bound(self, context: RunContext) -> tuple[FaultConfig, Timeline]:
        """Return the configuration and the timeline of a run."""
        config = parse(self.content(context), self.source)
        return config, _on_targets(self.timeline, config)


def scenario_of(
    engine: str, inputs: tuple[str, ...], seed: int, source: str, base_config: Mapping[str, Any],
    workers: int | None = None,
) -> Scenario:  # fmt: skip
    """Return the scenario of ``base_config`` (from `testbed.demo.scenario_config`). ``seed`` applies if the file has
    none. ``workers``: their number; None: as many as the faults need. Raises FaultConfigError, FaultRefused."""
    own_seed = base_config.get("seed", seed)
    if not isinstance(own_seed, int):
        raise FaultConfigError(f"{source}: seed must be a whole number.")

    def with_workers(count: int, second_broker: str | None = None) -> FaultConfig:
        names = link_names(engine, count)
        links = tuple((f"127.0.0.1:{2 * n + 2}", f"127.0.0.1:{2 * n + 3}") for n, _ in enumerate(names))
        context = replace(_PLANNED, links=links, second_broker=second_broker)
        return parse(_content(base_config, engine, inputs, own_seed, context, count), source)

    few = with_workers(workers or WORKERS)
    needed, are_two = workers_needed(few, engine, source), needs_second_broker(few)
    if workers is not None and needed > workers and len(roles(engine, needed)) > len(roles(engine, workers)):
        raise FaultRefused(f"{source}: its faults need {needed} workers of {engine}, and there are {workers}.")
    workers = workers or needed
    config = with_workers(workers, _SECOND if are_two else None)
    check_targets(config, engine, source)
    planned = _planned(config, own_seed)
    if not planned.steps:
        raise FaultConfigError(f"{source}: its budgets allow no fault; raise length or down_at_most.")
    scenario = Scenario(source, base_config, engine, inputs, own_seed, workers, are_two, planned)
    check_combination(scenario.kinds, scenario.fault_kinds, engine, source, has_two_brokers=are_two)
    return scenario


def _content(
    base_config: Mapping[str, Any], engine: str, inputs: tuple[str, ...], seed: int, context: RunContext, workers: int
) -> dict[str, Any]:
    limits = base_config.get("limits", {})
    return {
        **base_config,
        "seed": seed,
        "state": str(state_folder(context.folder)),
        "kafka": {"bootstrap_servers": context.bootstrap_servers, "topic": "faults"},
        "targets": targets(engine, inputs, context, workers),
        "limits": {"healed_within": HEALED_WITHIN, **limits} if isinstance(limits, dict) else limits,
    }


def _planned(config: FaultConfig, seed: int) -> Timeline:
    # The planner assumes that a supervised process restarts at once, and refuses faults that keep it down. The demo's
    # supervisor waits until the journal records the start of healing. Therefore plan as if the runner restarted the
    # process.
    started = {
        name: target.model_copy(update={"supervised": False, "start": ("supervisor",)})
        if isinstance(target, LocalProcess) and name not in STARTED_BY
        else target
        for name, target in config.targets.items()
    }
    return _on_targets(timeline(config.model_copy(update={"targets": started}), seed), config)


def _on_targets(planned: Timeline, config: FaultConfig) -> Timeline:
    """Return ``planned`` with each target replaced by the target of the same name in ``config``."""
    steps = tuple(
        replace(
            step,
            fault=_supervised(step.fault, config),
            others=tuple((after, _supervised(fault, config)) for after, fault in step.others),
        )
        for step in planned.steps
    )
    return replace(planned, steps=steps)


def _supervised(fault: Fault, config: FaultConfig) -> Fault:
    found: dict[str, Any] = {}
    for name in fault.targets:
        target = config.targets[name]
        if fault.kind in ("sidecar_kill", "sidecar_pause"):
            # A fault of the sidecar includes its JVM. On SIGTERM, the sidecar ends the JVM itself.
            target = target.model_copy(update={"group": True})
        found[name] = target
    return fault.model_copy(update={"targets": found})

"""A chaos day: the faults that the user's file or a named plan asks for, on the targets that the demo gives.

The file is a fault configuration without targets, kafka and state (docs/faults.md). All that can be refused is refused
before anything is started. Raises FaultConfigError and FaultRefused, one sentence each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from faults.catalogue import KINDS
from faults.config import FaultConfig, parse
from faults.errors import FaultConfigError, FaultRefused
from faults.fault import Fault, Timeline
from faults.schedule import timeline
from faults.targets import LocalProcess
from testbed import node
from testbed.demo_asked import DELAYS, TIMEOUT_SECONDS
from testbed.demo_targets import (
    STARTED_BY,
    WORKERS,
    Places,
    instance_names,
    link_names,
    node_name,
    state_folder,
    targets,
)
from testbed.demo_workers import overlapping, workers_needed

HEALED_WITHIN: Final = "180s"
"""Unless the file says it: a killed engine is healed when all of it is ready again."""
_PLANNED: Final = Places(
    Path("demo"), "127.0.0.1:1", (), {"type": "namespace", "namespace": "demo", "device": "e0",
                                      "relay": "198.18.0.0/30", "probe": "127.0.0.1:1"},
)  # fmt: skip
_ONE_BROKER: Final = "another broker to lead, and the demo has one"
_LACKING: Final = {
    "clock_skew": "processes that were started under libfaketime, and the demo starts none so",
    "broker_demote": _ONE_BROKER,
    "leader_move": _ONE_BROKER,
}
"""Kind of fault -> what the demo's targets lack for it."""


@dataclass(frozen=True)
class Day:
    """What is asked for, checked against the demo's targets."""

    source: str
    """The file or the option, for messages."""
    asked: Mapping[str, Any]
    """The fault configuration without what the demo adds."""
    engine: str
    inputs: tuple[str, ...]
    seed: int
    workers: int
    """How many the engine runs, where it runs several."""
    timeline: Timeline
    """As the seed gives it, of which a run changes only what the targets are: the plan that was checked is the one."""

    @property
    def kinds(self) -> frozenset[str]:
        """The types of the targets that are hit."""
        return frozenset(KINDS[fault.kind].target for step in self.timeline.steps for _, fault in step.parts)

    @property
    def link_names(self) -> tuple[str, ...]:
        """The links that the engine is led through: none where no fault hits one, since a proxy takes its share."""
        return link_names(self.engine, self.workers) if "link" in self.kinds else ()

    @property
    def instance_names(self) -> tuple[str, ...]:
        """The target of each instance of the engine, in order."""
        return instance_names(self.engine, self.workers)

    @property
    def needs_node(self) -> bool:
        """Whether the first worker is put into a network of its own: only where a fault hits it."""
        return "namespace" in self.kinds

    @property
    def timeout_seconds(self) -> float | None:
        """The timeout that the plan's delays are meant against; None: the engine keeps its own."""
        return TIMEOUT_SECONDS if self.timeline.plan.startswith(DELAYS) else None

    @property
    def longest_seconds(self) -> float:
        """What the longest fault or group of faults lasts."""
        return max(step.seconds for step in self.timeline.steps)

    @property
    def control_seconds(self) -> float:
        """Before the first fault."""
        return self.timeline.steps[0].wait_seconds

    def content(self, places: Places) -> dict[str, Any]:
        """The whole fault configuration of a run."""
        return _content(self.asked, self.engine, self.inputs, self.seed, places, self.workers)

    def bound(self, places: Places) -> tuple[FaultConfig, Timeline]:
        """Configuration and timeline of a run."""
        config = parse(self.content(places), self.source)
        return config, _on_targets(self.timeline, config)


def day_of(engine: str, inputs: tuple[str, ...], seed: int, source: str, asked: Mapping[str, Any]) -> Day:
    """The day that is ``asked`` for (`testbed.demo_asked`), by ``source``; ``seed`` counts where it has none."""
    own_seed = asked.get("seed", seed)
    if not isinstance(own_seed, int):
        raise FaultConfigError(f"{source}: seed must be a whole number.")

    def with_workers(workers: int) -> dict[str, Any]:
        names = link_names(engine, workers)
        links = tuple((f"127.0.0.1:{2 * n + 2}", f"127.0.0.1:{2 * n + 3}") for n, _ in enumerate(names))
        return _content(asked, engine, inputs, own_seed, replace(_PLANNED, links=links), workers)

    workers = workers_needed(parse(with_workers(WORKERS), source), engine, source)
    config = parse(with_workers(workers), source)
    _check_targets(config, engine, source)
    planned = _planned(config, own_seed)
    if not planned.steps:
        raise FaultConfigError(f"{source}: its budgets leave room for no fault; raise length or down_at_most.")
    day = Day(source, asked, engine, inputs, own_seed, workers, planned)
    if day.needs_node and day.link_names:
        raise FaultRefused(
            f"{source}: a worker in a network of its own reaches the broker past the links; take faults of links or of "
            f"{node_name(engine)}, not both in one day."
        )
    return day


def _content(
    asked: Mapping[str, Any], engine: str, inputs: tuple[str, ...], seed: int, places: Places, workers: int
) -> dict[str, Any]:
    limits = asked.get("limits", {})
    return {
        **asked,
        "seed": seed,
        "state": str(state_folder(places.folder)),
        "kafka": {"bootstrap_servers": places.bootstrap_servers, "topic": "faults"},
        "targets": targets(engine, inputs, places, workers),
        "limits": {"healed_within": HEALED_WITHIN, **limits} if isinstance(limits, dict) else limits,
    }


def _check_targets(config: FaultConfig, engine: str, source: str) -> None:
    """Say what the demo lacks in its own words, before the selectors would."""
    given = {target.type for target in config.targets.values()}
    for spec in chain.from_iterable(overlapping(config)):
        if (wanted := KINDS[spec.kind].target) not in given:
            raise FaultRefused(
                f"{source}: {spec.kind} needs a target of type {wanted}, and the demo has none; use a kind for "
                f"{', '.join(sorted(given))}."
            )
        if wanted == "namespace" and (why_not := node.why_not_here()) is not None:
            raise FaultRefused(
                f"{source}: {spec.kind} needs a network of its own for a worker, which this host cannot give: "
                f"{why_not}."
            )
        if (lacking := _LACKING.get(spec.kind)) is not None:
            raise FaultRefused(f"{source}: {spec.kind} needs {lacking}; take another kind.")
        if spec.target.name is not None and spec.target.name not in config.targets:
            raise FaultRefused(
                f"{source}: the demo with {engine} has no target {spec.target.name}; use one of "
                f"{', '.join(config.targets)}."
            )


def _planned(config: FaultConfig, seed: int) -> Timeline:
    # The planner takes a supervised process for one that comes back at once, and refuses to keep it down. The demo's
    # supervisor waits until the journal says that healing has begun; so plan as if the runner itself would start it.
    started = {
        name: target.model_copy(update={"supervised": False, "start": ("supervisor",)})
        if isinstance(target, LocalProcess) and name not in STARTED_BY
        else target
        for name, target in config.targets.items()
    }
    return _on_targets(timeline(config.model_copy(update={"targets": started}), seed), config)


def _on_targets(planned: Timeline, config: FaultConfig) -> Timeline:
    """The same plan on the targets of these names in ``config``."""
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
            # Its JVM as well. Asked to end, it ends its JVM itself.
            target = target.model_copy(update={"group": True})
        found[name] = target
    return fault.model_copy(update={"targets": found})

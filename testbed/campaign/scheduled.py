"""The faults of a schedule in a run: any that the demo can do, also several at once or one after another.

The demo's machinery does the work: its targets, its supervisor, which restarts what a fault has killed, and the fault
runner. Such a run has brokers of its own, so that a fault can hit them, or the links to them. The campaign's phases
replace the wait before the first fault and the recovery after the last one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from faults.errors import FaultConfigError
from generator.workloads.kinds import named
from testbed.campaign.cell import Cell
from testbed.campaign.engine_watch import EngineWatch
from testbed.campaign.plan import CampaignPlan, PlanError
from testbed.demo import scenario_config
from testbed.demo.brokers import DemoBrokers
from testbed.demo.scenario import Scenario, scenario_of
from testbed.demo.scenario_run import ScenarioRun
from testbed.demo.targets import STARTED_BY
from testbed.engines.base import ProcessEngine
from testbed.engines.real import Poison
from testbed.processes import OwnedProcess
from testbed.run_files import Topics
from testbed.stop import Stop

_HARMLESS: Final = ("process", "topic", "machine")
"""Types of targets whose faults end no process but the one that they hit."""


_THROUGH_FIRST: Final = frozenset({"link", "namespace"})
"""Types of targets through which a process reaches the first broker only."""


def scenario(cell: Cell, plan: CampaignPlan, seed: int) -> Scenario:
    """The faults of a cell, without the waits that the phases of ``plan`` replace.

    Raises PlanError if the schedule is wrong, FaultRefused if this engine or machine cannot have it.
    """
    source, inputs = f"schedules.{cell.fault}", Topics(named(cell.workload)).inputs
    try:
        found = scenario_of(
            cell.engine, inputs, seed, source, _base(plan.schedules[cell.fault], cell.engine, inputs), plan.parallelism
        )
        if "sidecar" in found.kinds:
            raise PlanError(f"{source}: a fault of the sidecar measures no engine; remove it.")
        if plan.brokers > 1 and not _THROUGH_FIRST.isdisjoint(found.kinds):
            raise PlanError(
                f"{source}: through a link or a network of its own the engine reaches only one broker; use brokers: 1, "
                "or other faults."
            )
        if plan.missing_after <= found.longest_seconds:
            raise PlanError(
                f"{source}: missing_after must be above the {found.longest_seconds:g} s of its longest fault; "
                "lengthen missing_after."
            )
    except FaultConfigError as error:
        raise PlanError(f"{source}: {error}".replace(f"{source}: {source}", source)) from error
    first, *others = found.timeline.steps
    timeline = replace(
        found.timeline, steps=(replace(first, wait_seconds=0.0), *others), recovery_seconds=0.0
    )  # fmt: skip
    return replace(found, timeline=timeline)


def _base(given: Mapping[Any, Any], engine: str, inputs: tuple[str, ...]) -> dict[str, Any]:
    """The fault configuration; a named plan gets the targets that it has in the demo."""
    plan = given.get("plan")
    if isinstance(plan, dict) and isinstance(plan.get("name"), str) and plan.keys() <= {"name", "faster"}:
        return {**given, **scenario_config.named(plan["name"], plan.get("faster"), engine, inputs)}
    return dict(given)


class ScheduledFaults:
    """The brokers and faults of one run, as a context manager. It ends the brokers; `end` ends the faults."""

    def __init__(
        self, faults: Scenario, folder: Path, stop: Stop, say: Callable[[str], None], ended: threading.Event,
        settings: Mapping[str, str] = MappingProxyType({}), brokers: int = 1,
    ) -> None:  # fmt: skip
        """``folder``: that of the run. ``ended`` ends the faults early. ``settings``: those of the brokers.
        ``brokers``: their least number."""
        self._scenario = faults
        self._folder = folder
        self._stop = stop
        self._stack = ExitStack()
        self.ended = ended
        self.run = ScenarioRun(faults, folder, ended, say)
        self.brokers = DemoBrokers(
            folder.with_name(f"{folder.name}-brokers"), settings,
            links=self.run.links, hosts=self.run.hosts, count=max(brokers, 2 if faults.has_two_brokers else 1),
        )  # fmt: skip
        self.watched: list[OwnedProcess] = []
        """The processes that no fault ends."""

    @property
    def count(self) -> int:
        """The number of faults."""
        return sum(len(step.parts) for step in self._scenario.timeline.steps)

    @property
    def seconds(self) -> float:
        """Seconds from the first injection to the last healing, if injecting and healing take no time."""
        return self._scenario.timeline.seconds

    def __enter__(self) -> Self:
        """Start brokers, links and networks. Raises BrokerError, FaultRefused."""
        try:
            self._folder.mkdir(parents=True)
            self._stack.callback(self.run.end_relay)
            if (relay := self.run.start_relay(self._stop)) is not None:
                self.watched.append(relay)
            self._stack.callback(self.brokers.kill)
            with self._stop.at_once():
                self.brokers.start()
            if not self.run.targets_type("broker"):
                self.watched += self.brokers.processes
            if (proxy := self.run.start_links(self.brokers)) is not None:
                self._stack.callback(proxy.kill)
                self.watched.append(proxy)
                self.run.await_links(proxy, self._stop, lambda: None)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def watch(self, engine: ProcessEngine, poison: Poison) -> EngineWatch:
        """The watch of the processes that no fault of the schedule ends. ``poison``: what the engine's job does."""
        names = self._scenario.instance_names
        hit = {name for step in self._scenario.timeline.steps for _, fault in step.parts for name in fault.targets}
        hit |= {name for name, starter in STARTED_BY.items() if starter in hit}
        # An engine may give up if it does not reach its broker, or its state. The supervisor starts it again.
        spared = self._scenario.kinds <= set(_HARMLESS)
        # A job that fails on poison ends its processes, in whatever way; that is what the run measures.
        spared = spared and (poison == "skip" or "poison" not in self._scenario.fault_kinds)
        return EngineWatch(
            engine, "failure", but=[n for n, name in enumerate(names) if name in hit or not spared]
        )  # fmt: skip

"""The demo's engine: the engine of the plan, and its effective guarantee."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from testbed.demo.files import EFFECTIVE_FILE, engine_settings, real_settings
from testbed.demo.options import DemoPlan
from testbed.demo.targets import ENGINE_FOLDER, roles
from testbed.engines.base import MutantEngine, ProcessEngine, ReferenceEngine
from testbed.engines.real import RealEngine
from testbed.engines.registry import REGISTRY, make_engine
from testbed.engines.settings import Node
from validator.stream.jars import find_java


def require(plan: DemoPlan) -> None:
    """Raise a PrerequisiteError if this machine lacks what broker, sidecar and engine need. Downloads nothing."""
    find_java()
    if plan.is_real:
        REGISTRY[plan.engine].require()


def prepare(plan: DemoPlan, say: Callable[[str], None]) -> None:
    """Download and compile what a real engine needs. Raises PrerequisiteError."""
    say(f"preparing {plan.engine}: its files are fetched and compiled the first time, then kept")
    REGISTRY[plan.engine].prepare()


def make(plan: DemoPlan, bootstrap_servers: str, folder: Path, node: Node | None = None) -> ProcessEngine:
    """Return the engine of ``plan``, not started. If there is a ``node``, the first worker runs in its network."""
    own = {"node": node}
    if plan.is_real:
        settings = real_settings(plan, bootstrap_servers).model_copy(update=own)
        return make_engine(plan.engine, settings, folder / ENGINE_FOLDER)
    kind = MutantEngine if plan.engine == "mutant" else ReferenceEngine
    # A single worker shows the effect of a kill best; in a scenario the other workers continue, as in a real pipeline.
    instances = 1 if plan.scenario is None else roles(plan.engine, plan.scenario.workers).count("worker")
    ours = engine_settings(plan, bootstrap_servers, folder).model_copy(update=own)
    return kind(ours, folder / ENGINE_FOLDER, instances=instances)


def report_effective(engine: RealEngine, folder: Path, say: Callable[[str], None]) -> None:
    """Report the running engine's guarantee to the reader and to the sidecar. Raises EngineError."""
    effective = engine.effective()
    effective.write(folder / EFFECTIVE_FILE)
    say(f"{engine.name} is ready: {', '.join(i.role for i in engine.instances)}")
    say(f"its guarantee is {effective.guarantee.replace('_', ' ')}: {'; '.join(effective.evidence)}")
    if (finding := effective.mismatch("exactly_once")) is not None:
        say(f"FINDING: {finding}")

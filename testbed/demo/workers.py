"""The number of workers that an engine needs in a scenario, so that the faults of any seed leave at least one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from faults.catalogue import KINDS
from faults.config import FaultConfig
from faults.errors import FaultRefused
from faults.plans import schedule_of
from faults.spec import FaultSpec, Selector
from faults.targets import ProcessTarget
from testbed.demo.targets import instance_names, roles, workers_for
from testbed.engines.real import WORKERS_MAX


def overlapping(config: FaultConfig) -> Iterator[Sequence[FaultSpec]]:
    """Yield the faults of the schedule or the plan, each with the faults that are active at the same time."""
    schedule = schedule_of(config.plan) if config.plan is not None else config.schedule
    assert schedule is not None
    for one in schedule.faults:
        yield one.parts


def workers_needed(config: FaultConfig, engine: str, source: str) -> int:
    """Return the number of workers to run for ``config``. Its targets may assume another number of workers.

    Raises FaultRefused if the demo cannot run that many.
    """
    of_process = [[p.target for p in parts if KINDS[p.kind].target == "process"] for parts in overlapping(config)]
    hit = max(_drawn_workers(selectors, config, engine) for selectors in of_process)
    most = roles(engine, WORKERS_MAX).count("worker")
    if hit > 1 and hit >= most:
        raise FaultRefused(
            f"{source}: its faults hit {hit} workers at once. One must keep running, which needs {hit + 1} workers, "
            f"but the demo has at most {most} of {engine}: hit fewer workers, or set pick: all to hit all of them."
        )
    return workers_for(engine, max([hit, *(_number(selector) for selectors in of_process for selector in selectors)]))


def _drawn_workers(selectors: Sequence[Selector], config: FaultConfig, engine: str) -> int:
    """Return the number of drawn and named workers. If no selector draws a worker, the number is 0: a fault whose
    workers are all named may hit all of them."""
    drawn = sum(_number(selector) for selector in selectors if _is_of_workers(selector, config))
    named = {selector.name for selector in selectors} & set(instance_names(engine, WORKERS_MAX))
    return drawn and drawn + sum("-worker-" in name for name in named if name is not None)


def _number(selector: Selector) -> int:
    """Return the number of targets that a selector draws; 0 if it has no number."""
    if selector.name is not None:
        return 0
    return selector.pick if isinstance(selector.pick, int) else int(selector.pick == "one")


def _is_of_workers(selector: Selector, config: FaultConfig) -> bool:
    """Return whether the selector can draw only workers."""
    processes = (target for target in config.targets.values() if isinstance(target, ProcessTarget))
    found = [target for target in processes if selector.labels.items() <= target.labels.items()]
    return all(target.labels["role"] == "worker" for target in found)

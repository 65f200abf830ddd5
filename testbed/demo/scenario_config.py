"""A scenario's fault configuration without targets, from the user's file, the name of a plan or a kind of fault.

Raises FaultConfigError and FaultRefused, one sentence each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from faults.catalogue import KINDS, UNSUPPORTED
from faults.config import mapping_in
from faults.errors import FaultConfigError, FaultRefused
from testbed import disk, node
from testbed.demo.measures import control_seconds
from testbed.demo.preflight import why_no_target
from testbed.demo.targets import (
    BROKER,
    MACHINE,
    SIDECAR,
    disk_folder,
    disk_name,
    instance_names,
    link_names,
    node_name,
    roles,
)
from testbed.engines.real import WORKERS_MAX

DELAYS: Final = "pgval-delay-"
"""Name prefix of plans that delay a worker's packets, by less and by more than `TIMEOUT_SECONDS`."""
TIMEOUT_SECONDS: Final = 3.0
"""PGVal's timeout, for sessions and for a cluster's heartbeats."""
FAILURE_FREE: Final = "120s"
"""Length of the run of ``--plan streambench-node`` without its fault; the plan stops a node after half of it."""
_SET_BY_THE_DEMO: Final = ("targets", "kafka", "state", "backend")
_SIMULTANEOUS_WORKERS: Final = {"vogel-kill-2": 2, "vogel-kill-4": 4, "vogel-crash-2": 2}
"""Plan -> number of workers that it hits at once, if more than one."""
_WORKER_ROLES: Final = {"spark": "driver", "spark_dstreams": "driver"}
"""The role that a named plan kills, if it is not called worker."""
_HELD_DOWN: Final = ("pgval-crash", "streambench-node", "process_kill", "node_loss")
"""Plans and kinds that keep one worker down. With Storm they also hit its Supervisor, which would restart the worker
at once."""
_PARAMETERS: Final[dict[str, dict[str, object]]] = {
    "net_delay": {"delay": "500ms"},
    "net_bandwidth": {"bytes_per_second": 50_000},  # the load is about four times this rate
    "namespace_delay": {"delay": "500ms"},
    "namespace_bandwidth": {"bytes_per_second": 50_000},
    **{f"namespace_{effect}": {"percent": 10} for effect in ("loss", "corrupt", "duplicate", "reorder")},
    "memory_pressure": {"bytes": "256MiB"},
    "clock_skew": {"offset": "1m"},
    "disk_full": {"bytes": disk.SIZE_BYTES, "reserve": 0},  # the disk holds nothing else
    "disk_slow": {"bytes_per_second": 200_000},
}
"""Parameters of ``--fault KIND`` for kinds that require some."""
_LASTS_SECONDS_MAX: Final = 10.0
_VERIFIED_WITHIN: Final = "30s"
"""On SIGTERM, a sidecar finishes its batch first."""


def read(file: Path) -> dict[str, Any]:
    """Return the content of the user's file."""
    data = mapping_in(file, "schedule: or plan:")
    given = [key for key in _SET_BY_THE_DEMO if key in data]
    if given:
        raise FaultConfigError(f"{file}: the demo sets {' and '.join(given)} itself; remove that from the file.")
    return data


def named(plan: str, faster: float | None, engine: str, inputs: tuple[str, ...]) -> dict[str, Any]:
    """Return a fault configuration with that plan on the demo's targets: workers, or one worker's network."""
    section: dict[str, Any] = {"name": plan}
    if plan.startswith(DELAYS):
        section |= _delayed(plan, engine)
    elif plan == "ospbench-poison":
        section["target"] = {"name": inputs[0]}
    elif plan != "ospbench-master":
        section["target"] = _workers(plan, engine)
    if faster is not None:
        section["faster"] = faster
    if plan == "streambench-node":
        section["failure_free"] = FAILURE_FREE
    return {"plan": section}


def one(kind: str, seconds: float, engine: str, inputs: tuple[str, ...]) -> dict[str, Any]:
    """Return a fault configuration with one fault of ``kind`` on a fitting target. The run takes ``seconds``; the first
    third is the control phase."""
    for absent in UNSUPPORTED:
        if absent.name == kind:
            raise FaultRefused(f"--fault {kind} is not supported: {absent.reason}.")
    if kind not in KINDS:
        raise FaultRefused(
            f"--fault {kind} is not a demo fault; use kill, pause, none or a kind that `streamproof faults list` "
            "shows, such as net_delay, broker_kill or restart_loop; --faults FILE and --plan NAME run several faults."
        )
    control, lasts = control_seconds(seconds, is_scenario=True), min(seconds / 6, _LASTS_SECONDS_MAX)
    fault = {
        "kind": kind,
        "target": _target(kind, engine, inputs),
        "for": f"{lasts:g}s",
        "parameters": _PARAMETERS.get(kind, {}),
    }
    schedule = {"control": f"{control:g}s", "recovery": f"{seconds - control - lasts:g}s", "faults": [fault]}
    return {"schedule": schedule, "limits": {"verified_within": _VERIFIED_WITHIN}}


def _target(kind: str, engine: str, inputs: tuple[str, ...]) -> dict[str, Any]:
    fitting = {
        "process": _workers(kind, engine),
        "broker": {"name": BROKER},
        "sidecar": {"name": SIDECAR},
        "topic": {"name": inputs[0]},
        "link": {"name": link_names(engine)[0]},
        "namespace": {"name": node_name(engine)},
        "machine": {"name": MACHINE},
    }
    if disk_folder(engine, Path()) is not None:
        fitting["folder"] = {"name": disk_name(engine)}
    wanted = KINDS[kind].target
    if wanted not in fitting:
        raise FaultRefused(
            f"--fault {kind} needs a target of type {wanted}, and the demo {why_no_target(wanted, engine)}."
        )
    return fitting[wanted]


def _workers(plan: str, engine: str) -> dict[str, Any]:
    """Return the target of a plan, or of a fault of a kind."""
    role = _WORKER_ROLES.get(engine, "worker")
    at_once, most = _SIMULTANEOUS_WORKERS.get(plan, 1), roles(engine, WORKERS_MAX).count(role)
    if at_once > 1 and at_once >= most:
        raise FaultRefused(
            f"--plan {plan} hits {at_once} workers at once, but the demo has at most {most} of {engine}, and one "
            "must keep running; use a plan that hits fewer workers, such as vogel-kill-1."
        )
    if engine == "storm" and plan in _HELD_DOWN:
        return {"name": "storm-supervisor"}
    workers = [name for name in instance_names(engine) if f"-{role}" in name]
    # A single worker is selected by its name. StreamBench stops a node that has no input. Here every worker has input,
    # so the first one is selected.
    if len(workers) == 1 or plan == "streambench-node":
        return {"name": workers[0]}
    return {"labels": {"role": role}}


def _delayed(plan: str, engine: str) -> dict[str, Any]:
    """Return type and target of a plan that delays one worker: all its packets, or its own link if it has one.

    A single link of a whole engine would delay all of its workers, but none of the traffic between workers, JobManager
    and ZooKeeper.
    """
    if (why_not := node.why_not_here()) is None:
        return {"type": "namespace", "target": {"name": node_name(engine)}}
    if len(link_names(engine)) > 1:
        return {}
    raise FaultRefused(
        f"--plan {plan} delays the packets of one worker of {engine}, which this host cannot do ({why_not}); "
        f"use --fault net_delay, which delays everything that {engine} sends to the broker."
    )

"""The demo's targets for the fault runner: the processes of its engine, broker and sidecar, and topics and links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

WORKERS: Final = 2
"""Workers of an engine that can have several: a fault on one leaves the other."""
WORKERS_MAX: Final = 3
"""Where a fault hits two at once. An engine of the testbed runs no more."""
ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "reference": ("worker",) * WORKERS,
    "mutant": ("worker",),
    "kafka_streams": ("worker",) * WORKERS,
    "flink": (*("worker",) * WORKERS, "jobmanager"),
    "spark": ("driver",),
    "storm": ("worker", "zookeeper", "nimbus", "supervisor"),
}
"""Engine -> the role of each instance, in order (as ``engine.instances`` has them)."""
STARTED_BY: Final[Mapping[str, str]] = {"storm-worker-0": "storm-supervisor"}
"""Target -> the one that starts it again, at once, and has it in its process group; others are the demo's to start."""
_LEADERS: Final = ("jobmanager", "driver", "nimbus")
_LINK_OF_EACH: Final = ("kafka_streams",)
"""Engines whose instances can be led to the broker by a link each; the others have one for all that they send."""
_DISKS: Final[Mapping[str, str]] = {
    "kafka_streams": "state-0",
    "flink": "checkpoints",
    "spark": "checkpoint",
    "storm": "local",
}
"""Engine -> where its first worker keeps its state; that of Flink and Spark is of all of it, that of Storm holds no
window, but what Nimbus, Supervisor and worker go by. The stand-ins keep nothing on disk."""
ENGINE_FOLDER: Final = "engine"
BROKER: Final = "broker"
BROKER_2: Final = "broker-2"
SIDECAR: Final = "sidecar"
MACHINE: Final = "machine"


@dataclass(frozen=True)
class RunContext:
    """Where a run is. ``links`` are (listen, upstream) pairs in the order of `link_names`; none: there are no links."""

    folder: Path
    bootstrap_servers: str
    links: tuple[tuple[str, str], ...]
    node: Mapping[str, object] | None = None
    """The network of the first worker as a target, where it has one of its own."""
    second_broker: str | None = None
    """The address of it, on a day with two."""


def workers_for(engine: str, hit_at_once: int) -> int:
    """How many workers of an engine are run, so that one is left where so many are hit; `WORKERS_MAX` at most."""
    if ROLES[engine].count("worker") < WORKERS:
        return WORKERS  # which is the parallelism of its one process
    return min(WORKERS_MAX, max(WORKERS, hit_at_once + 1))


def roles(engine: str, workers: int = WORKERS) -> tuple[str, ...]:
    """`ROLES` of an engine with so many workers."""
    more = workers - WORKERS if ROLES[engine].count("worker") == WORKERS else 0
    return ("worker",) * more + ROLES[engine]


def instance_names(engine: str, workers: int = WORKERS) -> tuple[str, ...]:
    """The target of each instance, in order: ``flink-worker-0``, ``flink-jobmanager``."""
    return tuple(
        f"{engine}-{role}-{number}" if role == "worker" else f"{engine}-{role}"
        for number, role in enumerate(roles(engine, workers))
    )


def link_names(engine: str, workers: int = WORKERS) -> tuple[str, ...]:
    """The links between engine and broker."""
    if engine in _LINK_OF_EACH:
        return tuple(f"{name}-link" for name in instance_names(engine, workers))
    return (f"{engine}-link",)


def node_name(engine: str) -> str:
    """The network of the first worker, of Storm's Supervisor and its worker: ``flink-worker-0-node``."""
    return f"{instance_names(engine)[0]}-node"


def disk_name(engine: str) -> str:
    """The folder of its state: ``flink-disk``."""
    return f"{engine}-disk"


def disk_folder(engine: str, folder: Path) -> Path | None:
    """Where an engine keeps its state, of a demo in ``folder``; None where it keeps none."""
    return folder / ENGINE_FOLDER / _DISKS[engine] if engine in _DISKS else None


def clock_file(folder: Path, target: str) -> Path:
    """By which the clock of an instance is moved; who starts another one shares it with that."""
    return folder / "clocks" / STARTED_BY.get(target, target)


def leads(role: str) -> bool:
    """Whether an instance of that role directs the others."""
    return role in _LEADERS


def pid_file(folder: Path, target: str) -> Path:
    """Where the process id of a target is while it does its part."""
    return folder / "pids" / f"{target}.pid"


def state_folder(folder: Path) -> Path:
    """Of the fault runner: its journal, and the socket of the proxy."""
    return folder / "faults"


def _group(name: str, folder: Path) -> dict[str, object]:
    """All of a process but one that is in the group of another."""
    if name in STARTED_BY:
        return {"in_group_of": str(pid_file(folder, STARTED_BY[name]))}
    return {"group": True}


def targets(
    engine: str, topics: tuple[str, ...], context: RunContext, workers: int = WORKERS
) -> dict[str, dict[str, object]]:
    """Name -> target, as a fault configuration has them (docs/faults.md). All processes are supervised by the demo."""
    found: dict[str, dict[str, object]] = {}
    for number, (name, role) in enumerate(zip(instance_names(engine, workers), roles(engine, workers), strict=True)):
        found[name] = {
            "type": "process",
            "pid_file": str(pid_file(context.folder, name)),
            "supervised": True,
            "clock_file": str(clock_file(context.folder, name)),
            **_group(name, context.folder),
            "host": f"node-{number}",
            "leader": leads(role),
            "labels": {"engine": engine, "role": role},
        }
    for name, address in ((BROKER, context.bootstrap_servers), (BROKER_2, context.second_broker)):
        if address is not None:
            found[name] = {
                "type": "broker",
                "address": address,
                "pid_file": str(pid_file(context.folder, name)),
                "supervised": True,
                "labels": {"role": BROKER},
            }
    found[SIDECAR] = {
        "type": "sidecar",
        "state": str(context.folder / "state"),
        "supervised": True,
        "labels": {"role": SIDECAR},
    }
    for topic in topics:
        found[topic] = {
            "type": "topic",
            "bootstrap_servers": context.bootstrap_servers,
            "topic": topic,
            "labels": {"role": "input"},
        }
    if context.links:
        for name, (listen, upstream) in zip(link_names(engine, workers), context.links, strict=True):
            found[name] = {
                "type": "link",
                "listen": listen,
                "upstream": upstream,
                "labels": {"engine": engine, "role": "link"},
            }
    if context.node is not None:
        found[node_name(engine)] = {**context.node, "labels": {"engine": engine, "role": "node"}}
    if (disk := disk_folder(engine, context.folder)) is not None:
        owner = instance_names(engine, workers)[0]
        found[disk_name(engine)] = {
            "type": "folder",
            "path": str(disk),
            "pid_file": str(pid_file(context.folder, STARTED_BY.get(owner, owner))),
            "group": True,
            "labels": {"engine": engine, "role": "disk"},
        }
    found[MACHINE] = {"type": "machine", "labels": {"role": MACHINE}}
    return found

"""The demo's targets for the fault runner: the processes of its engine, broker and sidecar, topics, and links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.engines.real import WORKERS_MAX

WORKERS: Final = 2
"""Number of workers of an engine that can have several: a fault on one leaves another."""
ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    "reference": ("worker",) * WORKERS,
    "mutant": ("worker",),
    "kafka_streams": ("worker",) * WORKERS,
    "flink": (*("worker",) * WORKERS, "jobmanager"),
    "spark": ("driver",),
    "spark_dstreams": ("driver",),
    "storm": ("worker", "zookeeper", "nimbus", "supervisor"),
}
"""Engine -> the role of each instance, in the order of ``engine.instances``."""
STARTED_BY: Final[Mapping[str, str]] = {"storm-worker-0": "storm-supervisor"}
"""Target -> the process that restarts it immediately and shares its process group. The demo restarts all others."""
_LEADERS: Final = ("jobmanager", "driver", "nimbus")
_LINK_OF_EACH: Final = ("kafka_streams",)
"""Engines whose instances can have separate links to the broker. Other engines have one link for all of their
traffic."""
_DISKS: Final[Mapping[str, str]] = {
    "kafka_streams": "state-0",
    "flink": "checkpoints",
    "spark": "checkpoint",
    "spark_dstreams": "checkpoint",
    "storm": "local",
}
"""Engine -> folder of its first worker's state. Flink's and Spark's folders hold the state of the whole engine.
Storm's holds no windows, only files of Nimbus, Supervisor and worker. The reference engine and the mutant keep no
files."""
ENGINE_FOLDER: Final = "engine"
BROKER: Final = "broker"
BROKER_2: Final = "broker-2"
SIDECAR: Final = "sidecar"
MACHINE: Final = "machine"


@dataclass(frozen=True)
class RunContext:
    """The addresses and folder of a run. ``links`` are (listen, upstream) pairs in the order of `link_names`; empty
    without links."""

    folder: Path
    bootstrap_servers: str
    links: tuple[tuple[str, str], ...]
    node: Mapping[str, object] | None = None
    """The first worker's network as a target; None if it has no separate network."""
    second_broker: str | None = None
    """The second broker's address; None without one."""


def workers_for(engine: str, hit_at_once: int) -> int:
    """Return the number of workers to run so that one is left if ``hit_at_once`` are hit; at most `WORKERS_MAX`."""
    if ROLES[engine].count("worker") < WORKERS:
        return WORKERS  # the parallelism of its single process
    return min(WORKERS_MAX, max(WORKERS, hit_at_once + 1))


def roles(engine: str, workers: int = WORKERS) -> tuple[str, ...]:
    """Return the `ROLES` of an engine with this many workers."""
    if ROLES[engine].count("worker") < WORKERS:
        return ROLES[engine]
    return ("worker",) * workers + tuple(role for role in ROLES[engine] if role != "worker")


def instance_names(engine: str, workers: int = WORKERS) -> tuple[str, ...]:
    """Return the target name of each instance, in order: ``flink-worker-0``, ``flink-jobmanager``."""
    return tuple(
        f"{engine}-{role}-{number}" if role == "worker" else f"{engine}-{role}"
        for number, role in enumerate(roles(engine, workers))
    )


def link_names(engine: str, workers: int = WORKERS) -> tuple[str, ...]:
    """Return the names of the links between engine and broker."""
    if engine in _LINK_OF_EACH:
        return tuple(f"{name}-link" for name in instance_names(engine, workers))
    return (f"{engine}-link",)


def node_name(engine: str) -> str:
    """Return the name of the network of the first worker (and of Storm's Supervisor): ``flink-worker-0-node``."""
    return f"{instance_names(engine)[0]}-node"


def disk_name(engine: str) -> str:
    """Return the name of the engine's disk: ``flink-disk``."""
    return f"{engine}-disk"


def disk_folder(engine: str, folder: Path) -> Path | None:
    """Return an engine's state folder in a demo in ``folder``; None if it keeps no files."""
    return folder / ENGINE_FOLDER / _DISKS[engine] if engine in _DISKS else None


def clock_file(folder: Path, target: str) -> Path:
    """Return the file that sets an instance's clock. A process that another instance starts shares that instance's
    file."""
    return folder / "clocks" / STARTED_BY.get(target, target)


def leads(role: str) -> bool:
    """Return whether an instance of that role directs the others."""
    return role in _LEADERS


def pid_file(folder: Path, target: str) -> Path:
    """Return the pid file of a target, which exists while the target is ready."""
    return folder / "pids" / f"{target}.pid"


def state_folder(folder: Path) -> Path:
    """Return the fault runner's state folder: its journal, and the proxy's socket."""
    return folder / "faults"


def _group(name: str, folder: Path) -> dict[str, object]:
    """Return the target's process group: its own, or the group of the process that starts it."""
    if name in STARTED_BY:
        return {"in_group_of": str(pid_file(folder, STARTED_BY[name]))}
    return {"group": True}


def targets(
    engine: str, topics: tuple[str, ...], context: RunContext, workers: int = WORKERS
) -> dict[str, dict[str, object]]:
    """Return name -> target, in the form of a fault configuration (docs/faults.md). The demo supervises the targets."""
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

"""The requirements of a scenario that the demo or this host does not meet, each in one sentence with the fix.

The demo checks them before it starts a process. The fault runner's selectors would report them too, but without the fix
for a demo. Raises FaultRefused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable
from itertools import chain
from pathlib import Path
from typing import Final

from faults.backends import block_throttle, faketime
from faults.catalogue import KINDS
from faults.config import FaultConfig
from faults.errors import FaultRefused
from faults.parameters import DiskParameters
from faults.spec import FaultSpec
from testbed import disk, node
from testbed.demo.targets import BROKER_2, ROLES, disk_folder, leads, node_name
from testbed.demo.workers import overlapping
from testbed.engines.java_build import find_javac
from testbed.engines.registry import REGISTRY
from validator.stream.jars import PrerequisiteError

_LEADERSHIP: Final = ("leader_move", "broker_demote")


def why_no_target(target_type: str, engine: str) -> str:
    """Return why the demo has no target of a type, and what to use instead."""
    where = {"container": "not in containers", "pods": "not in a cluster"}.get(target_type)
    if where is not None:
        return (
            f"runs its engines as processes of this machine, {where}; use process_kill, process_pause, net_delay or "
            "namespace_loss, which have the same effects on processes"
        )
    disks = _either(name for name in ROLES if disk_folder(name, Path()) is not None)
    return (
        f"has no such target with {engine}, which keeps its windows in memory, its progress on the broker and nothing "
        f"on disk; take --engine {disks}"
    )


def check_targets(config: FaultConfig, engine: str, source: str) -> None:
    """Check each fault by itself."""
    given = {target.type for target in config.targets.values()}
    for spec in chain.from_iterable(overlapping(config)):
        if (wanted := KINDS[spec.kind].target) not in given:
            raise FaultRefused(
                f"{source}: {spec.kind} needs a target of type {wanted}, and the demo {why_no_target(wanted, engine)}."
            )
        if (why_not := _missing_on_host(spec.kind, engine)) is not None:
            raise FaultRefused(f"{source}: {spec.kind} needs {why_not}.")
        if spec.target.name is not None and spec.target.name not in config.targets:
            raise FaultRefused(
                f"{source}: the demo with {engine} has no target {spec.target.name}; use one of "
                f"{', '.join(config.targets)}."
            )
        if wanted == "process" and spec.target.pick == "leader" and not _has_master(engine):
            masters = _either(name for name in ROLES if _has_master(name))
            raise FaultRefused(
                f"{source}: {spec.kind} with pick: leader needs a master, and {engine} has none, because its workers "
                f"are equal; hit a worker, as --plan ospbench-worker does, or use --engine {masters}."
            )
        _check_size(spec, source)


def check_combination(
    target_types: Collection[str], kinds: Collection[str], engine: str, source: str, *, has_two_brokers: bool
) -> None:
    """Check for faults that cannot be combined in one scenario."""
    if "namespace" in target_types and "link" in target_types:
        raise FaultRefused(
            f"{source}: faults of links do not affect a worker in a network of its own; use either faults of links or "
            f"faults of {node_name(engine)}, not both in one chaos day."
        )
    if has_two_brokers and not {"namespace", "link"}.isdisjoint(target_types):
        raise FaultRefused(
            f"{source}: faults of leaders need two brokers, but through a link or a worker's own network the engine "
            "reaches only one; use either faults of links and networks or faults of leaders, not both in one chaos day."
        )
    if {"disk_full", "disk_slow"} <= set(kinds):
        raise FaultRefused(
            f"{source}: disk_full needs the engine's state on a file system in memory, and disk_slow needs it on a "
            "disk; use one of them, not both in one chaos day."
        )


def needs_second_broker(config: FaultConfig) -> bool:
    """Return whether a fault moves leaders, or names the second broker."""
    return any(
        spec.kind in _LEADERSHIP or spec.target.name == BROKER_2 for spec in chain.from_iterable(overlapping(config))
    )


def _missing_on_host(kind: str, engine: str) -> str | None:
    """Return what this host lacks for a fault of ``kind``; None if it lacks nothing."""
    if KINDS[kind].target == "namespace" and (why_not := node.why_not_here()) is not None:
        return f"a separate network for a worker, which this host cannot create: {why_not}"
    if kind == "disk_full" and (why_not := disk.why_not_here()) is not None:
        return (
            f"a separate file system for {engine} (the demo never fills your own disk), but this host cannot mount "
            f"one: {why_not}"
        )
    if kind == "clock_skew":
        return _missing_for_clocks(engine)
    if kind == "disk_slow" and KINDS[kind].why_not_here is None:
        try:
            block_throttle.disk_of(Path(tempfile.gettempdir()))
        except FaultRefused as error:
            return f"the demo's folder on a disk: {str(error).removesuffix('.')}; set TMPDIR to a folder on a disk"
    return None


def _missing_for_clocks(engine: str) -> str | None:
    """Return what is missing for workers with their own clock: libfaketime, or the compiler for a JVM's agent."""
    if engine not in REGISTRY:
        return None if faketime.installed() else "libfaketime, which this host lacks (Debian: apt-get install faketime)"
    try:
        find_javac()
    except PrerequisiteError as error:
        return f"an agent for the JVM of {engine}. {str(error).removesuffix('.')}"
    return None


def _either(engines: Iterable[str]) -> str:
    *first, last = engines
    return f"{', '.join(first)} or {last}"


def _has_master(engine: str) -> bool:
    return any(map(leads, ROLES[engine]))


def _check_size(spec: FaultSpec, source: str) -> None:
    if isinstance(spec.parameters, DiskParameters) and spec.parameters.reserve >= disk.SIZE_BYTES:
        raise FaultRefused(
            f"{source}: disk_full leaves {spec.parameters.reserve} bytes free, but the demo's disk has only "
            f"{disk.SIZE_BYTES} bytes in total; set parameters: {{bytes: {disk.SIZE_BYTES}, reserve: 0}}."
        )

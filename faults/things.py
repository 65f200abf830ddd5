"""What a target physically is: two names may stand for one process, clock file, device or file system.

As far as the configuration tells it. That two files hold one process id is seen only when the processes are looked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from faults.targets import (
    ContainerTarget,
    FolderTarget,
    LinkTarget,
    LocalProcess,
    NamespaceTarget,
    PodsTarget,
    SidecarTarget,
    Target,
    TopicTarget,
)

Thing = tuple[str, ...]
"""Sort and identity; equal where two targets are one thing."""


def things_of(kind: str, target: Target) -> frozenset[Thing]:
    """All that a fault of ``kind`` on ``target`` takes hold of."""
    match target:
        case LocalProcess():
            clock = [_file("clock", target.clock_file)] if kind == "clock_skew" and target.clock_file else []
            return frozenset([_process(target), *clock])
        case FolderTarget():
            process = [_file("process", target.pid_file)] if kind == "disk_slow" and target.pid_file else []
            return frozenset([_file_system(target.path), *process])
        case NamespaceTarget():
            return frozenset([("device", target.namespace, target.device)])
        case LinkTarget():
            return frozenset([("link", target.listen)])
        case ContainerTarget():
            return frozenset([("container", os.path.realpath(target.socket), target.container)])
        case PodsTarget():
            labels = (f"{key}={value}" for key, value in sorted(target.match.items()))
            return frozenset([("pods", target.server or "", target.namespace, *labels)])
        case TopicTarget():
            return frozenset([("topic", target.bootstrap_servers, target.topic)])
        case _:
            return frozenset([("machine",)])


def distinct(kind: str, targets: Mapping[str, Target]) -> dict[str, Target]:
    """``targets`` without those that take hold of what one before them does."""
    seen: set[Thing] = set()
    kept = {}
    for name, target in targets.items():
        things = things_of(kind, target)
        if not things & seen:
            kept[name] = target
        seen |= things
    return kept


def sharing(kind: str, targets: Mapping[str, Target], names: Iterable[str]) -> frozenset[str]:
    """``names``, and those of ``targets`` that take hold of something that these do."""
    taken = {thing for name in names for thing in things_of(kind, targets[name])}
    return frozenset(name for name, target in targets.items() if things_of(kind, target) & taken)


def _process(target: LocalProcess) -> Thing:
    if target.pid is not None:
        return ("process", str(target.pid))
    if isinstance(target, SidecarTarget) and target.state is not None:
        return _file("process", target.state / "lock")
    assert target.pid_file is not None
    return _file("process", target.pid_file)


def _file(sort: str, path: Path) -> Thing:
    return (sort, os.path.realpath(path))


def _file_system(folder: Path) -> Thing:
    try:
        return ("file system", str(folder.stat().st_dev))
    except OSError:
        return _file("folder", folder)

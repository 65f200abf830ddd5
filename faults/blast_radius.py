"""The physical resources of a target: two names may stand for one process, clock file, device or file system.

The resources are derived from the configuration and, for process groups (``group: true``), from the processes that run
now. If two files contain the same process id, this is detected only when the processes are looked up.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from faults.backends import processes
from faults.targets import (
    ContainerTarget,
    FolderTarget,
    LinkTarget,
    LocalProcess,
    NamespaceTarget,
    PodsTarget,
    ProcessTarget,
    Target,
    TopicTarget,
)

Resource = tuple[str, ...]
"""Type and identity of a resource. Two targets with an equal resource are the same."""


@dataclass(frozen=True)
class Footprint:
    """The resources that a fault hits. ``groups``: the process group of the single process that it hits."""

    resources: frozenset[Resource]
    groups: frozenset[Resource] = frozenset()

    def hits(self, other: Footprint) -> bool:
        """Whether this fault hits the target of ``other``, directly or as part of a whole process group."""
        return bool(self.resources & (other.resources | other.groups))

    def overlaps(self, other: Footprint) -> bool:
        """Whether one of the two hits the target of the other."""
        return self.hits(other) or other.hits(self)

    def is_part_of(self, other: Footprint) -> bool:
        """Whether the target is a single process of the group that ``other`` hits."""
        return other.hits(self) and not self.hits(other)


def footprint_of(kind: str, target: Target) -> Footprint:
    """The footprint of a fault of ``kind`` on ``target``."""
    resources, process = _resources(kind, target), _process_of(kind, target)
    if process is None:
        return Footprint(resources)
    return Footprint(resources | _group(process)) if process.group else Footprint(resources, _group(process))


def _resources(kind: str, target: Target) -> frozenset[Resource]:
    match target:
        case LocalProcess():
            clock = [_file("clock", target.clock_file)] if kind == "clock_skew" and target.clock_file else []
            return frozenset([_process(target), *clock])
        case FolderTarget():
            process = _process_of(kind, target)
            return frozenset([_file_system(target.path), *([] if process is None else [_process(process)])])
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
    """``targets`` without overlaps. Of targets that overlap, a whole group is kept, or the first target if none is a
    whole group."""
    seen: list[Footprint] = []
    kept = set()
    for name in sorted(targets, key=lambda name: not _is_group(kind, targets[name])):
        footprint = footprint_of(kind, targets[name])
        if not any(footprint.overlaps(other) for other in seen):
            kept.add(name)
        seen.append(footprint)
    return {name: target for name, target in targets.items() if name in kept}


def parts(kind: str, targets: Mapping[str, Target], name: str) -> list[str]:
    """The ``targets`` that are single processes of the group of ``name`` and can be hit without the others."""
    whole = footprint_of(kind, targets[name])
    return list(distinct(kind, {n: t for n, t in targets.items() if footprint_of(kind, t).is_part_of(whole)}))


def sharing(kind: str, targets: Mapping[str, Target], names: Iterable[str]) -> frozenset[str]:
    """``names``, and the ``targets`` that are hit with them. A fault of one process does not hit its group."""
    taken = [footprint_of(kind, targets[name]) for name in names]
    return frozenset(
        n for n, target in targets.items() if any(footprint.hits(footprint_of(kind, target)) for footprint in taken)
    )


def _process_of(kind: str, target: Target) -> LocalProcess | None:
    """The process that the fault hits; None if it hits none."""
    if isinstance(target, LocalProcess):
        return target
    if isinstance(target, FolderTarget) and kind == "disk_slow" and target.pid_file is not None:
        return ProcessTarget(type="process", pid_file=target.pid_file, group=target.group)
    return None


def _is_group(kind: str, target: Target) -> bool:
    process = _process_of(kind, target)
    return process is not None and process.group


def _process(target: LocalProcess) -> Resource:
    if target.pid is not None:
        return ("process", str(target.pid))
    return _file("process", processes.where_named(target))


def _group(target: LocalProcess) -> frozenset[Resource]:
    """The process group of a target: by the file of its leader, and by its number if the process runs now."""
    found = set()
    if target.pid is None:
        found.add(_file("process group", target.in_group_of or processes.where_named(target)))
    with suppress(OSError):
        if (pid := processes.pid_of(target)) is not None:
            found.add(("process group", str(os.getpgid(pid))))
    return frozenset(found)


def _file(sort: str, path: Path) -> Resource:
    return (sort, os.path.realpath(path))


def _file_system(folder: Path) -> Resource:
    try:
        return ("file system", str(folder.stat().st_dev))
    except OSError:
        return _file("folder", folder)

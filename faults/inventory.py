"""The present state of a configuration's targets, for the operator. Changes nothing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from faults.backends import kafka, namespaces, processes
from faults.backends.docker import Docker
from faults.backends.impairment import Impairment
from faults.backends.proxy import ProxyControl
from faults.config import FaultConfig
from faults.errors import FaultError
from faults.targets import (
    ContainerTarget,
    FolderTarget,
    LinkTarget,
    LocalProcess,
    NamespaceTarget,
    PodsTarget,
    Target,
    TopicTarget,
)
from validator.model.wording import plural


def inventory(config: FaultConfig) -> dict[str, str]:
    """Target -> a description of its present state."""
    return {name: _found(name, target, config.state) for name, target in config.targets.items()}


def _found(name: str, target: Target, state: Path) -> str:
    match target:
        case LocalProcess():
            return _process(target)
        case LinkTarget():
            return _link(name, target, state)
        case FolderTarget():
            if not target.path.is_dir():
                return f"there is no folder {target.path}"
            return f"{shutil.disk_usage(target.path).free} bytes are free in {target.path}"
        case ContainerTarget():
            return _container(target)
        case NamespaceTarget():
            return _namespace(target)
        case PodsTarget():
            where = target.server or "the cluster that the runner runs in"
            return (
                f"pods of {target.namespace} with {', '.join(f'{k}={v}' for k, v in target.match.items())}, at {where}"
            )
        case TopicTarget():
            return kafka.describe_topic(target)
        case _:
            return f"{os.cpu_count()} processors"


def _process(target: LocalProcess) -> str:
    status = processes.leader_of(target)
    if status is None:
        named_in = "" if target.pid is not None else f" (file of its process id: {processes.where_named(target)})"
        return f"does not run{named_in}"
    if status.is_stopped:
        return f"process {status.pid} is stopped"
    return f"process {status.pid} runs" + (
        "" if processes.is_ready(target) else f", and {target.ready} does not answer"
    )


def _container(target: ContainerTarget) -> str:
    try:
        seen = Docker(target.socket).inspect(target.container)
    except FaultError as error:
        return str(error)
    runs = "is paused" if seen.is_paused else "runs" if seen.is_running else "does not run"
    return f"container {seen.id[:12]} {runs}, on {', '.join(seen.endpoints) or 'no network'}"


def _namespace(target: NamespaceTarget) -> str:
    reason = namespaces.why_not_here()
    if reason is not None:
        return reason
    try:
        rule = namespaces.root_rule(namespaces.Device(target.namespace, target.device))
    except FaultError as error:
        return str(error)
    return f"{target.device} of {target.namespace}, with the queueing rule {rule.get('kind', 'none')}"


def _link(name: str, target: LinkTarget, state: Path) -> str:
    way = f"{target.listen} to {target.upstream}"
    try:
        served = ProxyControl(state).status().get(name)
    except FaultError:
        return f"{way}, and no proxy runs"
    if served is None or (served.listen, served.upstream) != (target.listen, target.upstream):
        return f"{way}, and the running proxy does not serve this link"
    impaired = "" if served.impairment == Impairment() else ", impaired"
    return f"{way}, {plural(served.connections, 'connection')}{impaired}"

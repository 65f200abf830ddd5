"""Faults as objects of Chaos Mesh, ``chaos-mesh.org/v1alpha1``, following version 2.8.

Objects contain only the fields that a fault needs. The API server validates them against its schema.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from faults.fault import Fault
from faults.parameters import (
    PodClockParameters,
    PodCpuParameters,
    PodDelayParameters,
    PodDiskParameters,
    PodLossParameters,
    PodMemoryParameters,
    PodParameters,
    PodPartitionParameters,
)
from faults.targets import PodsTarget

API: Final = "chaos-mesh.org/v1alpha1"
PAUSE: Final = "experiment.chaos-mesh.org/pause"
ChaosKind = Literal["PodChaos", "NetworkChaos", "StressChaos", "IOChaos", "TimeChaos"]
ONE_SHOT: Final = ("pod_kill",)
"""Kinds that Chaos Mesh applies once. It neither recovers nor pauses them."""

KIND_OF: Final[dict[str, ChaosKind]] = {
    "pod_kill": "PodChaos",
    "pod_failure": "PodChaos",
    "pod_net_delay": "NetworkChaos",
    "pod_net_loss": "NetworkChaos",
    "pod_net_partition": "NetworkChaos",
    "pod_cpu_pressure": "StressChaos",
    "pod_memory_pressure": "StressChaos",
    "pod_disk_slow": "IOChaos",
    "pod_clock_skew": "TimeChaos",
}


def collection(kind: ChaosKind, namespace: str) -> str:
    """API path of all objects of a kind. The plural names in Chaos Mesh are the kinds in lower case."""
    return f"/apis/{API}/namespaces/{namespace}/{kind.lower()}"


def object_name(fault: Fault, target: str) -> str:
    """Name of the fault's object for one target: the same in every process that heals the fault."""
    return f"streamproof-{fault.id}-{list(fault.targets).index(target)}"


def rendered(fault: Fault, name: str, target: PodsTarget) -> dict[str, Any]:
    """The object that injects ``fault`` into the pods of ``target``."""
    parameters = fault.parameters
    assert isinstance(parameters, PodParameters)
    spec = {"selector": _selector(target.namespace, target.match), **_mode(parameters.pods), **_what(fault)}
    return {
        "apiVersion": API,
        "kind": KIND_OF[fault.kind],
        "metadata": {
            "name": object_name(fault, name),
            "namespace": target.namespace,
            "labels": {"app.kubernetes.io/managed-by": "streamproof"},
        },
        "spec": spec | _peers(target, parameters),
    }


def _selector(namespace: str, labels: dict[str, str]) -> dict[str, Any]:
    """Selects running pods only: a completed pod keeps its labels and could be drawn, but a fault cannot affect it."""
    return {"namespaces": [namespace], "labelSelectors": dict(labels), "podPhaseSelectors": ["Running"]}


def _mode(pods: str | int) -> dict[str, str]:
    if isinstance(pods, int):
        return {"mode": "fixed", "value": str(pods)}
    if pods.endswith("%"):
        return {"mode": "fixed-percent", "value": pods.removesuffix("%")}
    return {"mode": pods}


def _peers(target: PodsTarget, parameters: PodParameters) -> dict[str, Any]:
    if not isinstance(parameters, PodDelayParameters | PodLossParameters | PodPartitionParameters):
        return {}
    if not parameters.peers:
        return {"direction": parameters.direction}
    peers = {"mode": "all", "selector": _selector(target.namespace, parameters.peers)}
    return {"direction": parameters.direction, "target": peers}


def _what(fault: Fault) -> dict[str, Any]:
    match fault.parameters:
        case PodDelayParameters() as delay:
            action_fields = {"latency": _text(delay.delay), "jitter": _text(delay.jitter), "correlation": "0"}
            return {"action": "delay", "delay": action_fields}
        case PodLossParameters() as loss:
            return {"action": "loss", "loss": {"loss": f"{loss.percent:g}", "correlation": "0"}}
        case PodPartitionParameters():
            return {"action": "partition"}
        case PodCpuParameters() as cpu:
            return {"stressors": {"cpu": {"workers": cpu.workers, "load": cpu.load_percent}}}
        case PodMemoryParameters() as memory:
            return {"stressors": {"memory": {"workers": 1, "size": f"{memory.bytes}B"}}}
        case PodDiskParameters() as disk:
            disk_fields = {"volumePath": disk.volume, "delay": _text(disk.delay), "percent": disk.percent}
            return {"action": "latency", **disk_fields}
        case PodClockParameters() as clock:
            return {"timeOffset": clock.offset}
        case _:
            return {"action": fault.kind.replace("_", "-")}


def _text(seconds: float) -> str:
    """A duration in Go's syntax, without exponents."""
    return f"{round(seconds * 1000)}ms"

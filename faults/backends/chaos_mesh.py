"""Faults as objects of Chaos Mesh, ``chaos-mesh.org/v1alpha1``, of which 2.8 was read.

Only the fields that we need are written; an API server checks them against its own schema before they are made.
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
"""Kinds that Chaos Mesh does once: there is nothing for it to take back, and it does not pause them."""

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
    """Path of all objects of a kind; Chaos Mesh's plurals are the kinds in small letters."""
    return f"/apis/{API}/namespaces/{namespace}/{kind.lower()}"


def object_name(fault: Fault, target: str) -> str:
    """Of the fault's object for one target: the same in every process that heals it."""
    return f"streamproof-{fault.id}-{list(fault.targets).index(target)}"


def rendered(fault: Fault, name: str, target: PodsTarget) -> dict[str, Any]:
    """The object that makes ``fault`` happen to the pods of ``target``."""
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
    """Of pods that run: one that came to its end keeps its labels, would be drawn, and cannot be hurt."""
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
            told = {"latency": _text(delay.delay), "jitter": _text(delay.jitter), "correlation": "0"}
            return {"action": "delay", "delay": told}
        case PodLossParameters() as loss:
            return {"action": "loss", "loss": {"loss": f"{loss.percent:g}", "correlation": "0"}}
        case PodPartitionParameters():
            return {"action": "partition"}
        case PodCpuParameters() as cpu:
            return {"stressors": {"cpu": {"workers": cpu.workers, "load": cpu.load_percent}}}
        case PodMemoryParameters() as memory:
            return {"stressors": {"memory": {"workers": 1, "size": f"{memory.bytes}B"}}}
        case PodDiskParameters() as disk:
            told_disk = {"volumePath": disk.volume, "delay": _text(disk.delay), "percent": disk.percent}
            return {"action": "latency", **told_disk}
        case PodClockParameters() as clock:
            return {"timeOffset": clock.offset}
        case _:
            return {"action": fault.kind.replace("_", "-")}


def _text(seconds: float) -> str:
    """As Go reads a duration, and without exponents."""
    return f"{round(seconds * 1000)}ms"

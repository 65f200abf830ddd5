"""Faults of pods, through Chaos Mesh.

Verified when Chaos Mesh reports AllInjected. Healed when it reports AllRecovered, its object is deleted, and as many
pods are ready as before.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final

from faults.backends.chaos_mesh import KIND_OF, ONE_SHOT, PAUSE, collection, object_name, rendered
from faults.backends.kubernetes import Kubernetes, server_of
from faults.errors import FaultRefused, Unreachable
from faults.facts import Facts
from faults.fault import Fault
from faults.kinds.base import ProbeThrottle, ended_early, for_each
from faults.parameters import PodParameters
from faults.targets import PodsTarget

_WATCH_SECONDS: Final = 1
_DRY: Final = {"dryRun": "All"}
_DONE_PHASE: Final = {"Apply": "Injected", "Recover": "Not Injected"}
_FAILURE_CHARACTERS_MAX: Final = 400


class Pods:
    """Creates one Chaos Mesh object for each target."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:  # noqa: ARG002 - one signature for all
        self.facts = facts
        self._fault = fault
        self._targets = {n: t for n, t in fault.targets.items() if isinstance(t, PodsTarget)}
        assert isinstance(fault.parameters, PodParameters)
        self._pods = fault.parameters.pods
        self._clusters: dict[str, Kubernetes] = {}
        self._throttle = ProbeThrottle()
        self._probe_detail: dict[str, str] = {}

    def prepare(self) -> None:
        """Check the objects and the runner's permissions by dry runs, and count the ready pods.

        Raises FaultRefused if there is no API server or no Chaos Mesh, if the server refuses a request that the fault
        or its healing needs, if no pod is ready, or if all ready pods would be hit without ``pods: all``.
        """
        ready = {}
        for name, target in self._targets.items():
            cluster = self._cluster(name)
            if cluster.get(self._collection(name), {"limit": "1"}) is None:
                raise FaultRefused(f"{name}: the cluster has no CRD {KIND_OF[self._fault.kind]}; install Chaos Mesh.")
            cluster.create(self._collection(name), rendered(self._fault, name, target), _DRY)
            # The object does not exist yet, but the server checks permissions before existence.
            cluster.get(self._path(name))
            cluster.annotate(self._path(name), {PAUSE: "true"}, _DRY)
            cluster.delete(self._path(name), _DRY)
            ready[name] = self._ready_pods(name)
            if ready[name] == 0:
                raise FaultRefused(
                    f"{name}: match: no ready pod in namespace {target.namespace} has these labels; fix that first."
                )
            if self._would_hit(ready[name]) >= ready[name] and self._pods != "all":
                raise FaultRefused(
                    f"{name}: pods: {self._pods} would hit all replicas (ready pods: {ready[name]}); "
                    "write pods: all, if you mean it."
                )
        self.facts = Facts(ready_pods=ready)

    def inject(self) -> None:
        """Create the objects."""
        for name, target in self._targets.items():
            self._cluster(name).create(self._collection(name), rendered(self._fault, name, target), {})

    def maintain(self) -> None:
        """Check, at a limited rate, that the objects exist and are injected. Raises NotVerified if one is not.

        Another client may delete or pause an object.
        """
        if not self._throttle.is_due():
            return
        for name in self._targets:
            try:
                seen = self._cluster(name).get(self._path(name))
            except FaultRefused:
                continue  # a failed request says nothing about the fault; healing reports the failure
            if seen is None or not _holds(seen, "AllInjected"):
                what = "its object was deleted" if seen is None else "Chaos Mesh no longer reports AllInjected"
                raise ended_early(f"{self._fault.name} on {name}", what)

    def is_active(self) -> bool:
        """Whether Chaos Mesh reports AllInjected for each object; False if the API server is unreachable."""
        try:
            return all(self._says(name, "AllInjected") for name in self._targets)
        except Unreachable:
            return False

    def heal(self) -> None:
        """Pause the objects, so that Chaos Mesh recovers the pods. One-shot kinds have nothing to recover."""
        if self._fault.kind not in ONE_SHOT:
            for_each(self._targets, lambda name: self._cluster(name).annotate(self._path(name), {PAUSE: "true"}))

    def is_healed(self) -> bool:
        """Whether the pods are recovered, the objects deleted, and as many pods ready as before.

        Deletes an object as soon as Chaos Mesh has recovered its pods.
        """
        removed: list[bool] = []  # no short circuit: each object may have to be deleted
        for_each(self._targets, lambda name: removed.append(self._is_removed(name)))
        return all(removed) and all(
            self._ready_pods(name) >= self.facts.ready_pods.get(name, 1) for name in self._targets
        )

    def probe_detail(self) -> str:
        """The failures that Chaos Mesh reports in the objects, by target; empty if there are none."""
        return "; ".join(f"{name}: Chaos Mesh reports {said}" for name, said in self._probe_detail.items() if said)

    def _would_hit(self, ready: int) -> int:
        if isinstance(self._pods, int):
            return self._pods
        if self._pods in ("one", "all"):
            return 1 if self._pods == "one" else ready
        return math.ceil(ready * int(self._pods.removesuffix("%")) / 100)  # rounded up, whichever way Chaos Mesh rounds

    def _is_removed(self, name: str) -> bool:
        seen = self._cluster(name).get(self._path(name))
        self._probe_detail[name] = _failure_text(seen, "Recover")
        if seen is None:
            return True
        is_over = self._fault.kind in ONE_SHOT or not _holds(seen, "Selected") or _holds(seen, "AllRecovered")
        if is_over and "deletionTimestamp" not in seen["metadata"]:
            self._cluster(name).delete(self._path(name))
        else:
            self._await_change(name, seen)
        return False

    def _says(self, name: str, condition: str) -> bool:
        seen = self._cluster(name).get(self._path(name))
        self._probe_detail[name] = _failure_text(seen, "Apply")
        if seen is None:
            return False
        if not _holds(seen, condition):
            self._await_change(name, seen)
            return False
        return True

    def _await_change(self, name: str, seen: dict[str, Any]) -> None:
        version = str(seen["metadata"].get("resourceVersion", ""))
        self._cluster(name).await_change(
            self._collection(name), object_name(self._fault, name), version, _WATCH_SECONDS
        )

    def _ready_pods(self, name: str) -> int:
        target = self._targets[name]
        labels = ",".join(f"{key}={value}" for key, value in target.match.items())
        found = self._cluster(name).get(f"/api/v1/namespaces/{target.namespace}/pods", {"labelSelector": labels})
        return sum(
            _holds(pod, "Ready") and "deletionTimestamp" not in pod["metadata"]
            for pod in (found or {}).get("items", [])
        )

    def _collection(self, name: str) -> str:
        return collection(KIND_OF[self._fault.kind], self._targets[name].namespace)

    def _path(self, name: str) -> str:
        return f"{self._collection(name)}/{object_name(self._fault, name)}"

    def _cluster(self, name: str) -> Kubernetes:
        if name not in self._clusters:
            self._clusters[name] = Kubernetes(server_of(self._targets[name]))
        return self._clusters[name]


def _holds(seen: dict[str, Any], condition: str) -> bool:
    conditions = (seen.get("status") or {}).get("conditions") or []
    return any(said.get("type") == condition and said.get("status") == "True" for said in conditions)


def _failure_text(seen: dict[str, Any] | None, operation: str) -> str:
    """Why ``operation``, Apply or Recover, is not done on all pods: the newest failure of each remaining pod, in one
    line and cut to a maximum length. Empty if no failure is reported."""
    records = (((seen or {}).get("status") or {}).get("experiment") or {}).get("containerRecords") or []
    done = _DONE_PHASE[operation]
    failures = [
        " ".join(str(failed[-1].get("message", "")).split())
        for record in records
        if record.get("phase") != done
        and (failed := [e for e in record.get("events") or [] if _is_failure(e, operation)])
    ]
    return ", ".join(dict.fromkeys(failures))[:_FAILURE_CHARACTERS_MAX]


def _is_failure(event: dict[str, Any], operation: str) -> bool:
    return (event.get("operation"), event.get("type")) == (operation, "Failed")

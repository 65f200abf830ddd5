"""A model of the passes that Chaos Mesh's controller makes over one of its objects, after the source of 2.8.3.

One pass sets the finalizer, decides the desired phase, sets the conditions from the previous pass's result, then
selects and injects or recovers. It removes the finalizer of a deleted object once all is recovered. Nothing is
injected.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

Object = dict[str, Any]
Select = Callable[[Object], list[str]]
"""Returns the ids of the pods that a selector with its mode selects."""
FINALIZER: Final = "chaos-mesh/records"
PAUSE: Final = "experiment.chaos-mesh.org/pause"
ONE_SHOT: Final = ("pod-kill", "container-kill")


def holds(seen: Mapping[str, Any], condition: str) -> bool:
    """Return whether the condition is true in the object's status."""
    found = (seen.get("status") or {}).get("conditions") or []
    return any((said["type"], said["status"]) == (condition, "True") for said in found)


def after_a_pass(seen: Object, select: Select, act: Callable[[str, str], str | None]) -> Object:
    """Return the object after a pass. ``act`` gets ``Apply`` or ``Recover`` and a pod's id, and returns why it failed.

    A deleted object without a finalizer must then be removed, which a real API server does by itself.
    """
    made = copy.deepcopy(seen)
    metadata = made["metadata"]
    is_deleted = "deletionTimestamp" in metadata
    if not is_deleted and FINALIZER not in metadata.get("finalizers", []):
        metadata["finalizers"] = [*metadata.get("finalizers", []), FINALIZER]
    status = made.setdefault("status", {})
    experiment = status.setdefault("experiment", {})
    experiment["desiredPhase"] = "Run" if _shall_run(made) else "Stop"
    status["conditions"] = _conditions(made)
    records = experiment.get("containerRecords") or _selected(made["spec"], select)
    for record in records:
        if experiment["desiredPhase"] == "Run" and record["phase"] != "Injected":
            _do("Apply", record, act, phase="Injected", injectedCount=record["injectedCount"] + 1)
        elif experiment["desiredPhase"] == "Stop" and record["phase"] != "Not Injected":
            _do("Recover", record, act, phase="Not Injected", recoveredCount=record["recoveredCount"] + 1)
    if records:
        experiment["containerRecords"] = records
    if is_deleted and all(record["phase"] == "Not Injected" for record in records):
        metadata["finalizers"] = []
    return made


def _do(operation: str, record: Object, act: Callable[[str, str], str | None], **done: Any) -> None:
    """Add an event. A failed operation changes only the events, which say why."""
    why = act(operation, record["id"])
    event = {
        "operation": operation,
        "type": "Succeeded" if why is None else "Failed",
        "timestamp": "2026-11-21T10:00:00Z",
    }
    record["events"] = [*record.get("events", []), event if why is None else {**event, "message": why}]
    if why is None:
        record.update(done)


def _shall_run(made: Object) -> bool:
    if "deletionTimestamp" in made["metadata"]:
        return False
    is_paused = made["metadata"].get("annotations", {}).get(PAUSE) == "true"
    return made["spec"].get("action") in ONE_SHOT or not is_paused


def _conditions(made: Object) -> list[dict[str, str]]:
    phases = [record["phase"] for record in made["status"]["experiment"].get("containerRecords", [])]
    conditions = {
        "Selected": bool(phases),
        "AllInjected": bool(phases) and {*phases} == {"Injected"},
        "AllRecovered": bool(phases) and {*phases} == {"Not Injected"},
        "Paused": made["metadata"].get("annotations", {}).get(PAUSE) == "true",
    }
    return [{"type": name, "status": str(is_so)} for name, is_so in conditions.items()]


def _selected(spec: Object, select: Select) -> list[dict[str, Any]]:
    """Return a record for each pod; an empty list if one of the selectors selects no pod."""
    taken = {".": select(spec)} | ({".Target": select(spec["target"])} if "target" in spec else {})
    if not all(taken.values()):
        return []
    return [
        {"id": pod, "selectorKey": key, "phase": "Not Injected", "injectedCount": 0, "recoveredCount": 0}
        for key, pods in taken.items()
        for pod in pods
    ]

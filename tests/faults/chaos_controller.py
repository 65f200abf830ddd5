"""What Chaos Mesh's controller does to one of its objects, of which 2.8.3 was read.

One pass is: own the finalizer, decide whether it shall run, say the conditions of what the pass before did, then select
and inject or recover, and let go of what is deleted once all is recovered. It is the rule of its controllers, in our
own words; nothing is injected.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

Object = dict[str, Any]
Select = Callable[[Object], list[str]]
"""Ids of the pods that a selector with its mode takes."""
FINALIZER: Final = "chaos-mesh/records"
PAUSE: Final = "experiment.chaos-mesh.org/pause"
ONE_SHOT: Final = ("pod-kill", "container-kill")


def holds(seen: Mapping[str, Any], condition: str) -> bool:
    """Whether the object's status says so."""
    found = (seen.get("status") or {}).get("conditions") or []
    return any((said["type"], said["status"]) == (condition, "True") for said in found)


def after_a_pass(seen: Object, select: Select, act: Callable[[str, str], str | None]) -> Object:
    """The object as a pass leaves it; ``act`` gets ``Apply`` or ``Recover`` and a pod's id, and says why it failed.

    Deleted and without a finalizer it is to be forgotten, which an API server does by itself.
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
    """What failed changes nothing but the events, which say why."""
    why = act(operation, record["id"])
    told = {
        "operation": operation,
        "type": "Succeeded" if why is None else "Failed",
        "timestamp": "2026-11-21T10:00:00Z",
    }
    record["events"] = [*record.get("events", []), told if why is None else {**told, "message": why}]
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
    """A record for each pod; none at all where one of the selectors takes none."""
    taken = {".": select(spec)} | ({".Target": select(spec["target"])} if "target" in spec else {})
    if not all(taken.values()):
        return []
    return [
        {"id": pod, "selectorKey": key, "phase": "Not Injected", "injectedCount": 0, "recoveredCount": 0}
        for key, pods in taken.items()
        for pod in pods
    ]

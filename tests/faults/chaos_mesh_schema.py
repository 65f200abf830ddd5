"""What objects of Chaos Mesh 2.8 may hold, written from its API reference: names, types, required fields, bounds.

The notation is that of OpenAPI where it matters: ``properties``, ``required``, ``enum``, ``pattern``, ``minimum``.
A field that is not named is an error, as with ``fieldValidation=Strict``.
"""

from __future__ import annotations

import re
from typing import Any

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "array", "items": TEXT}
TEXT_BY_TEXT: Schema = {"type": "object", "additionalProperties": TEXT}
_GO_DURATION: Schema = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h)$"}


def _number(minimum: int | None = None) -> Schema:
    return {"type": "integer"} if minimum is None else {"type": "integer", "minimum": minimum}


def _one_of(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def _object(required: str = "", **properties: Schema) -> Schema:
    return {"type": "object", "required": required.split(), "properties": properties}


_SELECTOR = _object(
    namespaces=TEXTS,
    labelSelectors=TEXT_BY_TEXT,
    annotationSelectors=TEXT_BY_TEXT,
    fieldSelectors=TEXT_BY_TEXT,
    nodeSelectors=TEXT_BY_TEXT,
    nodes=TEXTS,
    podPhaseSelectors=TEXTS,
    pods={"type": "object", "additionalProperties": TEXTS},
)
_PODS: dict[str, Schema] = {
    "selector": _SELECTOR,
    "mode": _one_of("one", "all", "fixed", "fixed-percent", "random-max-percent"),
    "value": TEXT,
    "duration": TEXT,
    "remoteCluster": TEXT,
}
_CONTAINERS = {**_PODS, "containerNames": TEXTS}
SPECS: dict[str, Schema] = {
    "PodChaos": _object(
        "action mode selector",
        **_CONTAINERS,
        action=_one_of("pod-kill", "pod-failure", "container-kill"),
        gracePeriod=_number(0),
    ),
    "NetworkChaos": _object(
        "action mode selector",
        **_PODS,
        action=_one_of("netem", "delay", "loss", "duplicate", "corrupt", "partition", "bandwidth"),
        delay=_object("latency", latency=_GO_DURATION, jitter=_GO_DURATION, correlation=TEXT),
        loss=_object("loss", loss=TEXT, correlation=TEXT),
        direction=_one_of("to", "from", "both"),
        target=_object("mode selector", mode=_PODS["mode"], selector=_SELECTOR, value=TEXT),
        externalTargets=TEXTS,
        device=TEXT,
        targetDevice=TEXT,
    ),
    "StressChaos": _object(
        "mode selector",
        **_CONTAINERS,
        stressngStressors=TEXT,
        stressors=_object(
            cpu=_object("workers", workers=_number(), load=_number(0), options=TEXTS),
            memory=_object("workers", workers=_number(), size=TEXT, options=TEXTS, oomScoreAdj=_number(-1000)),
        ),
    ),
    "IOChaos": _object(
        "action mode selector volumePath",
        **_CONTAINERS,
        action=_one_of("latency", "fault", "attrOverride", "mistake"),
        volumePath=TEXT,
        path=TEXT,
        delay=TEXT,
        percent=_number(),
        methods=TEXTS,
        errno=_number(),
    ),
    "TimeChaos": _object("mode selector timeOffset", **_CONTAINERS, timeOffset=TEXT, clockIds=TEXTS),
}
"""Kind -> schema of its spec."""


def problems(value: object, schema: Schema, where: str = "spec") -> list[str]:
    """Why ``value`` is not what ``schema`` allows; nothing it does not name is allowed."""
    match schema["type"], value:
        case "object", dict():
            named, others = schema.get("properties", {}), schema.get("additionalProperties")
            found = [f"{where}.{name}: is missing" for name in schema.get("required", []) if name not in value]
            for name, part in value.items():
                of = named.get(name, others)
                found += [f"{where}.{name}: unknown field"] if of is None else problems(part, of, f"{where}.{name}")
            return found
        case "array", list():
            return [problem for part in value for problem in problems(part, schema["items"], f"{where}[]")]
        case "string", str():
            if value not in schema.get("enum", [value]) or not re.search(schema.get("pattern", ""), value):
                return [f"{where}: {value!r} is not allowed"]
            return []
        case "integer", int() if not isinstance(value, bool):
            return [f"{where}: {value} is too small"] if value < schema.get("minimum", value) else []
    return [f"{where}: {value!r} is no {schema['type']}"]

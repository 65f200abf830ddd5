"""The fields of Chaos Mesh's objects, from its own definitions, and the rules of its admission webhook.

The facts about fields are in ``chaos_mesh_v2_8_3.txt``, which names their source and its notation. A field that is not
in that file is an error, as with ``fieldValidation=Strict``. The webhook's rules are those of
``api/v1alpha1/*_webhook.go`` of the same version, for the fields that the faults use.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

Schema = dict[str, Any]
FACTS = Path(__file__).with_name("chaos_mesh_v2_8_3.txt")
_TOP = {"apiVersion", "kind", "metadata", "spec"}
_METADATA = {"name", "namespace", "labels"}
_LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_GO_DURATION = re.compile(r"[-+]?([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+|0")
_HUMAN_SIZE = re.compile(r"[0-9]+(\.[0-9]+)? ?([kmgtp]?i?b?)", re.IGNORECASE)


def _schemas(text: str) -> dict[str, Schema]:
    blocks: dict[str, Schema] = {}
    for line in text.splitlines():
        if line.startswith("["):
            block = blocks[line.strip("[]")] = {"type": "object"}
        elif line and not line.startswith("#"):
            path, kind, *rules = line.split(" ")
            facts = dict(rule.split("=", 1) for rule in rules)
            part: Schema = {"type": kind} if kind[0] != "@" else blocks[kind[1:]]
            part |= {"enum": facts["enum"].split("|")} if "enum" in facts else {}
            part |= {bound: int(facts[bound]) for bound in ("minimum", "maximum") if bound in facts}
            part |= {"pattern": facts["pattern"]} if "pattern" in facts else {}
            _put(block, path.removesuffix("!"), part, is_required=path.endswith("!"))
    return blocks


def _put(block: Schema, path: str, part: Schema, *, is_required: bool) -> None:
    """Insert ``part`` at its path. Earlier lines of the file have created the parents."""
    steps = re.findall(r"[A-Za-z]+|\[\]|\{\}", path)
    for step in steps[:-1]:
        block = (
            block["items" if step == "[]" else "additionalProperties"] if step in "[]{}" else block["properties"][step]
        )
    last = steps[-1]
    if last in ("[]", "{}"):
        block["items" if last == "[]" else "additionalProperties"] = part
        return
    block.setdefault("properties", {})[last] = part
    if is_required:
        block.setdefault("required", []).append(last)


_BLOCKS = _schemas(FACTS.read_text(encoding="utf-8"))
SPECS = {name: schema for name, schema in _BLOCKS.items() if name[0].isupper()}
"""Kind -> schema of its spec."""
STATUS = _BLOCKS["status"]
"""Schema of an object's status, without fields that only one kind has. A status is not a subresource: it is written
with the object."""


def refusals(made: Schema) -> list[str]:
    """Return why an API server with Chaos Mesh refuses the object; empty if it accepts it."""
    if made.get("apiVersion") != "chaos-mesh.org/v1alpha1" or made.get("kind") not in SPECS:
        return [f"no kind {made.get('kind')} in {made.get('apiVersion')}"]
    metadata = made["metadata"]
    found = [f"{name}: unknown field" for name in sorted({*made} - _TOP)]
    found += [f"metadata.{name}: unknown field" for name in sorted({*metadata} - _METADATA)]
    found += [
        f"metadata.labels: {text!r} is no label"
        for text in metadata.get("labels", {}).values()
        if len(text) > 63 or not _LABEL.fullmatch(text)
    ]
    return found + (problems(made["spec"], SPECS[made["kind"]]) or admission(made["kind"], made["spec"]))


def problems(value: object, schema: Schema, where: str = "spec") -> list[str]:
    """Return why ``value`` does not match ``schema``. A field that the schema does not name is not allowed."""
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
            within = schema.get("minimum", value) <= value <= schema.get("maximum", value)
            return [] if within else [f"{where}: {value} is out of bounds"]
    return [f"{where}: {value!r} is no {schema['type']}"]


def admission(kind: str, spec: Schema) -> list[str]:
    """Return the webhook's objections to a spec that matches the schema."""
    found = _of_pods(spec, "spec") + (_of_pods(spec["target"], "spec.target") if "target" in spec else [])
    delay, loss = spec.get("delay"), spec.get("loss", {})
    durations = {"duration": spec.get("duration"), "timeOffset": spec.get("timeOffset")}
    if isinstance(delay, dict):
        durations |= {"delay.latency": delay["latency"], "delay.jitter": delay.get("jitter")}
    elif delay is not None:
        durations["delay"] = delay
    for name, text in durations.items():
        if text is not None and not _GO_DURATION.fullmatch(text):
            found.append(f"spec.{name}: {text!r} is no duration")
    numbers = [
        loss.get("loss"),
        loss.get("correlation"),
        *([delay.get("correlation")] if isinstance(delay, dict) else []),
    ]
    found += [f"spec: {text!r} is no number" for text in numbers if text is not None and not _is_number(text)]
    if not 0 <= spec.get("percent", 0) <= 100:
        found.append("spec.percent: is not in 0-100")
    if kind == "NetworkChaos" and spec["action"] != "partition" and spec.get("direction", "to") != "to":
        found += [] if "target" in spec else ["spec.direction: cannot be used when targets is empty"]
    return found + (_of_stress(spec) if kind == "StressChaos" else [])


def _of_pods(spec: Schema, where: str) -> list[str]:
    mode, value = spec["mode"], spec.get("value", "")
    most = {"fixed": None, "fixed-percent": 100, "random-max-percent": 100}
    if mode not in most:
        return []
    is_good = re.fullmatch(r"[0-9]+", value) and 0 < int(value) <= (most[mode] or int(value))
    return [] if is_good else [f"{where}.value: {value!r} does not go with mode {mode}"]


def _of_stress(spec: Schema) -> list[str]:
    stressors = spec.get("stressors", {})
    if "stressngStressors" not in spec and not stressors:
        return ["spec: missing stressors"]
    size = stressors.get("memory", {}).get("size", "1B")
    found = [f"spec.stressors.{name}.workers: not positive" for name, part in stressors.items() if part["workers"] < 1]
    return found + ([] if _HUMAN_SIZE.fullmatch(size) else [f"spec.stressors.memory.size: {size!r} is no size"])


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?[0-9]*\.?[0-9]+(e[-+]?[0-9]+)?", text, re.IGNORECASE) is not None

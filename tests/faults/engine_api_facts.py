"""Extracts from the descriptions of Docker's API the fields that the faults' calls and their answers may have.

``python -m tests.faults.engine_api_facts CLONE [REVISION]`` rewrites ``engine_api_schema.json`` from a clone of
github.com/moby/moby, whose ``api/docs/v*.yaml`` (Swagger 2.0) are the descriptions, one per version. It keeps only
the fields of answers that ``faults/backends/docker.py`` reads or the fake engine sends.

A fact is a name, its type, and the versions that state it. Names: ``path.*`` and ``query.*`` are parameters,
``consumes`` and ``produces`` are content types, ``body`` is the request's body, ``answer.200`` is a status's body
(``nothing`` if none is described), ``header.200.*`` are its headers. ``[]`` are a list's items, ``{}`` the values of a
map, and a trailing ``!`` marks a required field.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Version = tuple[int, int]
Node = dict[str, Any]
WRITTEN = Path(__file__).with_name("engine_api_schema.json")
_FOLDER = "api/docs"
_CONTAINER = ("kill", "pause", "restart", "start", "unpause")
OPERATIONS = (
    "GET /_ping",
    "GET /version",
    "GET /containers/{id}/json",
    *(f"POST /containers/{{id}}/{verb}" for verb in _CONTAINER),
    "POST /networks/{id}/connect",
    "POST /networks/{id}/disconnect",
)
_KEPT = {
    "GET /_ping": ("answer.", "header.200.Api-Version"),
    "GET /version": ("answer.200.ApiVersion", "answer.200.MinAPIVersion", "answer.500"),
    "GET /containers/{id}/json": (
        "answer.200.Id",
        "answer.200.Name",
        *(f"answer.200.State.{name}" for name in ("Running", "Paused", "Restarting", "StartedAt", "Health.Status")),
        "answer.200.HostConfig.AutoRemove",
        "answer.200.GraphDriver.Data",
        "answer.200.NetworkSettings.Networks",
        "answer.404",
        "answer.500",
    ),
}
"""Fields of answers and headers that are kept. An operation without an entry keeps all of them."""


def facts(texts: dict[Version, str]) -> dict[str, dict[str, dict[str, str]]]:
    """Return operation -> name -> type -> the versions that state it, from descriptions by version."""
    said: dict[str, dict[str, dict[str, list[Version]]]] = {}
    for version in sorted(texts):
        described = yaml.safe_load(texts[version])
        for operation in OPERATIONS:
            names = said.setdefault(operation, defaultdict(lambda: defaultdict(list)))
            for name, what in _of_operation(operation, described):
                names[name][what].append(version)
    return {
        operation: {
            name: {what: _ranges(versions, sorted(texts)) for what, versions in of.items()}
            for name, of in sorted(names.items())
        }
        for operation, names in said.items()
    }


def _of_operation(operation: str, described: Node) -> Iterator[tuple[str, str]]:
    method, template = operation.split(" ")
    at = described["paths"][template]
    assert "parameters" not in at, f"{template}: parameters of all its methods, which we do not read"
    node = at[method.lower()]
    yield "produces", "|".join(node.get("produces", described["produces"]))
    for parameter in node.get("parameters", []):
        if parameter["in"] == "body":
            yield "consumes", "|".join(node.get("consumes", described["consumes"]))
        name = "body" if parameter["in"] == "body" else f"{parameter['in']}.{parameter['name']}"
        schema = parameter.get("schema", parameter)
        yield from _of_schema(operation, name, schema, described, is_required=parameter.get("required") is True)
    for status, response in node["responses"].items():
        yield from _of_schema(operation, f"answer.{status}", response.get("schema", {"type": "nothing"}), described)
        for name, header in response.get("headers", {}).items():
            yield from _of_schema(operation, f"header.{status}.{name}", header, described)


def _of_schema(
    operation: str, name: str, schema: Node, described: Node, *, is_required: bool = False
) -> Iterator[tuple[str, str]]:
    if not _is_kept(operation, name):
        return
    is_nullable = schema.get("x-nullable") is True
    while "$ref" in schema:
        schema = described["definitions"][schema["$ref"].removeprefix("#/definitions/")]
        is_nullable = is_nullable or schema.get("x-nullable") is True
    if "allOf" in schema:
        schema = _merged(schema["allOf"], described)
    what = schema.get("type", "object") + (" nullable" if is_nullable else "")
    yield name + ("!" if is_required else ""), what + (f" enum={'|'.join(schema['enum'])}" if "enum" in schema else "")
    # In schemas, ``required`` is a list of names; in parameters it is a boolean.
    required = schema.get("required") if isinstance(schema.get("required"), list) else []
    parts = [(f"{name}.{part}", of, part in (required or [])) for part, of in schema.get("properties", {}).items()]
    parts += [(f"{name}[]", schema["items"], False)] if "items" in schema else []
    others = schema.get("additionalProperties")
    parts += [(f"{name}{{}}", others, False)] if isinstance(others, dict) else []
    for part, of, is_needed in parts:
        yield from _of_schema(operation, part, of, described, is_required=is_needed)


def _merged(schemas: list[Node], described: Node) -> Node:
    """Return one object with the properties of all."""
    properties: Node = {}
    for part in schemas:
        schema = part
        while "$ref" in schema:
            schema = described["definitions"][schema["$ref"].removeprefix("#/definitions/")]
        assert set(schema) <= {"type", "description", "properties", "title", "x-go-name"}, f"allOf of {set(schema)}"
        properties |= schema.get("properties", {})
    return {"type": "object", "properties": properties}


def _is_kept(operation: str, name: str) -> bool:
    if operation not in _KEPT or not name.startswith(("answer.", "header.")):
        return True
    return any(name.startswith(kept) or kept.startswith(f"{name}.") for kept in _KEPT[operation])


def _ranges(versions: list[Version], all_versions: list[Version]) -> str:
    """Format versions as ``1.25-1.34, 1.40-1.55``. A range ends before a version of ``all_versions`` that is not in
    ``versions``."""
    runs: list[list[Version]] = []
    for version in versions:
        before = all_versions.index(version) - 1
        if runs and runs[-1][-1] == all_versions[before]:
            runs[-1].append(version)
        else:
            runs.append([version])
    return ", ".join(f"{_shown(run[0])}-{_shown(run[-1])}" for run in runs)


def _shown(version: Version) -> str:
    return f"{version[0]}.{version[1]}"


def written(clone: Path, revision: str) -> str:
    """Return the file's new content."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", clone, *arguments], capture_output=True, text=True, check=True).stdout

    commit = git("rev-parse", f"{revision}^{{commit}}").strip()
    names = re.findall(r"v(\d+)\.(\d+)\.yaml", git("ls-tree", "--name-only", f"{commit}:{_FOLDER}"))
    texts = {(int(a), int(b)): git("show", f"{commit}:{_FOLDER}/v{a}.{b}.yaml") for a, b in names}
    head = {
        "what": "Facts about calls of Docker's Engine API, read from its published descriptions; no text of theirs.",
        "source": f"github.com/moby/moby, {_FOLDER}/v*.yaml",
        "commit": commit,
        "licence": "Apache-2.0",
        "written by": "tests/faults/engine_api_facts.py, which has the notation",
        "versions": _ranges(sorted(texts), sorted(texts)),
    }
    lines = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    operations = [
        f"  {json.dumps(operation)}: {{\n"
        + ",\n".join(f"   {json.dumps(name)}: {json.dumps(what)}" for name, what in names.items())
        + "\n  }"
        for operation, names in facts(texts).items()
    ]
    return "\n".join(["{", *lines, ' "operations": {', ",\n".join(operations), " }", "}"]) + "\n"


if __name__ == "__main__":
    WRITTEN.write_text(written(Path(sys.argv[1]), (sys.argv[2:] or ["HEAD"])[0]), encoding="utf-8")

"""The JSON Schema of a configuration file, for editors and for charts.

``python -m validator.config.schema`` writes it into the package, with ``check`` it compares.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from validator import __version__
from validator.config.examples import SCHEMA_FILE
from validator.config.model import Config
from validator.settings.durations import PATTERN, SIGNED_PATTERN, format_duration
from validator.settings.fields import Frozen

SHORT_FORMS: Final = {name: {"type": "string", "minLength": 1} for name in ("FieldPath", "IdsPath", "ValuePath")}
"""Models that may also be written as a plain text."""
LISTS_OF_ONE: Final = {"key", "id", "ids", "url"}
"""Lists whose only entry may also be written without the list."""


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the file; what is not supported yet is left out of its enumerations."""
    schema = Config.model_json_schema(mode="validation")
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["$id"] = f"urn:streamproof:configuration:{__version__}"
    schema["title"] = "streamproof configuration"
    definitions: dict[str, Any] = schema["$defs"]
    for part in _parts(Frozen):
        _describe(part, schema if part is Config else definitions.get(part.__name__, {}))
    for model in (schema, *definitions.values()):
        for rendered in model.get("properties", {}).values():
            _default_as_written(rendered)
    for name, short in SHORT_FORMS.items():
        definitions[name]["properties"]["path"]["minLength"] = 1
        definitions[name] = {"anyOf": [short, definitions[name]]}
    for definition in definitions.values():
        for name in LISTS_OF_ONE & set(definition.get("properties", ())):
            rendered = definition["properties"][name]
            if rendered.get("type") == "array" or "anyOf" in rendered:
                _allow_single(rendered)
    _allow_options(definitions)
    return schema


def _parts(base: type[Frozen]) -> Iterator[type[Frozen]]:
    for part in base.__subclasses__():
        yield part
        yield from _parts(part)


def _describe(part: type[Frozen], definition: dict[str, Any]) -> None:
    """Add the docstrings of attributes."""
    for name, field in part.model_fields.items():
        rendered = definition.get("properties", {}).get(field.alias or name)
        texts = (_docstrings(base.__module__).get((base.__qualname__, name)) for base in part.__mro__)
        text = next(filter(None, texts), None)
        if rendered is not None and text is not None:
            # Keys are sorted, as pydantic sorts them.
            described = sorted({"description": text, **rendered}.items())
            rendered.clear()
            rendered.update(described)


@functools.cache
def _docstrings(module: str) -> dict[tuple[str, str], str]:
    """(class, attribute) -> the text below the attribute, in the source of a module."""
    if not module.startswith(f"{__package__.partition('.')[0]}."):
        return {}
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {
        (part.name, attribute.target.id): inspect.cleandoc(below.value.value)
        for part in tree.body
        if isinstance(part, ast.ClassDef)
        for attribute, below in itertools.pairwise(part.body)
        if isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def _default_as_written(rendered: dict[str, Any]) -> None:
    if rendered.get("pattern") in (PATTERN, SIGNED_PATTERN) and "default" in rendered:
        rendered["default"] = format_duration(rendered["default"])
    elif isinstance(rendered.get("default"), dict) and rendered.get("type") == "string":
        rendered["default"] = rendered["default"]["kind"]
    elif isinstance(rendered.get("default"), dict):
        # The default of a section follows from those of its keys, which are in the section's definition.
        del rendered["default"]


def _allow_single(rendered: dict[str, Any]) -> None:
    if "anyOf" in rendered:
        listed = next(entry for entry in rendered["anyOf"] if "items" in entry)
        rendered["anyOf"].insert(0, listed["items"])
    else:
        listed = {key: rendered.pop(key) for key in ("type", "items", "minItems") if key in rendered}
        rendered["anyOf"] = [listed["items"], listed]


def _allow_options(definitions: dict[str, Any]) -> None:
    for name in ("Kafka", "Spark"):
        options = definitions[name]["properties"]["options"]
        options["additionalProperties"] = {"type": ["string", "number", "boolean"]}
    servers = definitions["Kafka"]["properties"]["bootstrap_servers"]
    description = servers.get("description")
    servers.clear()
    servers["anyOf"] = [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
    if description is not None:
        servers["description"] = description


@functools.cache
def _known_schema() -> dict[str, Any]:
    """The result of `json_schema`, made once. Callers must not change it."""
    return json_schema()


def keys_at(location: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys that a mapping at ``location`` of the file may have; empty if it is not a mapping of known keys. If
    there are several kinds of mapping, the location names the kind."""
    schema = _known_schema()
    node: dict[str, Any] = schema
    for step in location:
        node = _mapping(node, schema["$defs"])
        if "oneOf" in node:
            node = {"$ref": node["discriminator"]["mapping"][step]}
        else:
            node = node.get("items", {}) if isinstance(step, int) else node.get("properties", {}).get(step, {})
    return tuple(_mapping(node, schema["$defs"]).get("properties", ()))


def _mapping(node: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in node:
        return _mapping(definitions[node["$ref"].rsplit("/", 1)[-1]], definitions)
    for entry in reversed(node.get("anyOf", ())):
        found = _mapping(entry, definitions)
        if "properties" in found or "items" in found:
            return found
    return node


def main(arguments: list[str]) -> int:
    """Write the file, or with `check` compare it. Returns the exit status."""
    text = json.dumps(json_schema(), indent=1) + "\n"
    if arguments != ["check"]:
        SCHEMA_FILE.write_text(text, encoding="utf-8")
    elif not SCHEMA_FILE.is_file() or SCHEMA_FILE.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{SCHEMA_FILE} is not current; run `python -m validator.config.schema`.\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The reference of the configuration, written from the model: ``python -m validator.config.reference FILE``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from validator.config.built import NOT_BUILT
from validator.config.schema import json_schema

HEAD: Final = """\
# Configuration

<!-- Written by `python -m validator.config.reference docs/configuration.md`; a test keeps it current. -->

One YAML file says what a pipeline reads, writes and claims. `streamproof config example clickstream` prints one to
start from, `streamproof config check FILE` says what is wrong with one, `streamproof config schema` is for editors.

- **Unknown keys are errors**, and so is a key said twice. What is not built yet is refused, never ignored.
- **Durations** are a number with `ms`, `s`, `m`, `h` or `d`: `500ms`, `1.5h`. A bare `0` is accepted.
- **Fields** are dotted paths into a record's value, or `$key`, `$timestamp`, `$header.NAME`, `$offset`, `$partition`.
  Where a time is a number, write `{path: ..., unit: s|ms|us|ns}`; without a unit it is ISO 8601 text (no zone
  means UTC).
- **Paths** of files are relative to the configuration file.
- **`${NAME}`** is replaced by an environment variable, **`${file:PATH}`** by the content of a file (less its last line
  end), in any text, after the YAML was read: what they hold can never add a key. A missing one is an error. `$${` is a
  plain `${`. Secrets belong there; the value of an option whose name contains `password`, `secret`, `jaas`, `key`,
  `token` or `credential` is shown as `***` everywhere.
- **Overrides**: `STREAMPROOF__TIMING__IDLE_AFTER=5s` in the environment, then `--set timing.idle_after=5s` over it.
  Values are YAML. List positions count from 0 (`--set inputs.0.topic=clicks`). Below `kafka.options` and
  `spark.options` the rest is one key: `--set kafka.options.security.protocol=SSL`, in the environment with `__` for
  each dot and in lower case; an option with capitals goes in the file or through `--set`.
"""


def render() -> str:
    """The reference as Markdown."""
    schema = json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    lines = [HEAD, "## Keys", ""]
    lines += _table(schema, definitions)
    for heading, definition in _parts(schema, definitions, ""):
        lines += ["", f"### `{heading}`", "", definition["description"], ""]
        lines += _table(definition, definitions)
    lines += ["", "## Not built yet", "", "Asking for one of these is an error that says so.", ""]
    lines += ["| setting | values |", "|---|---|"]
    for setting, values in NOT_BUILT.items():
        shown = "any" if "*" in values else ", ".join(f"`{value}`" for value in sorted(values))
        lines.append(f"| `{setting}` | {shown} |")
    return "\n".join(lines) + "\n"


def _parts(node: dict[str, Any], definitions: dict[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, rendered in node.get("properties", {}).items():
        name, listed = _part_of(rendered, definitions)
        # The two short forms have their own lines at the head of the page.
        if name in (None, "FieldPath", "IdsPath"):
            continue
        below = f"{place}.{key}" if place else key
        heading = f"{below}[]" if listed else below
        yield heading, definitions[name]
        yield from _parts(definitions[name], definitions, heading)


def _part_of(rendered: dict[str, Any], definitions: dict[str, Any]) -> tuple[str | None, bool]:
    for entry in (rendered, rendered.get("items", {}), *rendered.get("anyOf", ())):
        if "$ref" in entry:
            name = str(entry["$ref"]).rsplit("/", 1)[-1]
            if "properties" in definitions[name] or "anyOf" in definitions[name]:
                return name, entry is rendered.get("items")
    return None, False


def _table(node: dict[str, Any], definitions: dict[str, Any]) -> list[str]:
    required = set(node.get("required", ()))
    lines = ["| key | value | default | what it is |", "|---|---|---|---|"]
    for key, rendered in node["properties"].items():
        default = "**required**" if key in required else _default(rendered)
        part = definitions.get(str(rendered.get("$ref", "")).rsplit("/", 1)[-1], {})
        description = str(rendered.get("description") or part.get("description", "")).replace("|", "\\|")
        description = " ".join(description.split())
        lines.append(f"| `{key}` | {_kind(rendered, definitions)} | {default} | {description} |")
    return lines


def _default(rendered: dict[str, Any]) -> str:
    default = rendered.get("default")
    if "default" not in rendered:
        return "see below" if "$ref" in rendered else "`{}`"
    if default is None:
        return "none"
    return f"`{default}`" if not isinstance(default, (list, tuple)) else f"`{list(default)}`"


def _kind(rendered: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in rendered:
        name = str(rendered["$ref"]).rsplit("/", 1)[-1]
        if "enum" in definitions[name]:
            return _kind(definitions[name], definitions)
        return {"FieldPath": "field", "IdsPath": "path, or `{path, input}`"}.get(name, "mapping")
    if "enum" in rendered:
        return " \\| ".join(f"`{value}`" for value in rendered["enum"])
    if "const" in rendered:
        return f"`{rendered['const']}`"
    if "anyOf" in rendered:
        kinds = [_kind(entry, definitions) for entry in rendered["anyOf"] if entry.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if str(rendered.get("pattern", "")).endswith("(ms|s|m|h|d)$"):
        return "duration"
    if rendered.get("type") == "array":
        return f"list of {_kind(rendered['items'], definitions)}"
    named = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "`true` \\| `false`",
        "object": "mapping",
    }
    return named.get(str(rendered.get("type")), "value")


def main(arguments: list[str]) -> int:
    """Write the reference to the file named by the only argument."""
    Path(arguments[0]).write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

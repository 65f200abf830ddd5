"""Avro schemas as trees, from their JSON text. Source: the Avro specification 1.12, "Schema Declaration"."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
TIMES: Final = {
    ("long", "timestamp-millis"): "ms",
    ("long", "timestamp-micros"): "us",
    ("long", "timestamp-nanos"): "ns",
    ("long", "local-timestamp-millis"): "ms",
    ("long", "local-timestamp-micros"): "us",
    ("long", "local-timestamp-nanos"): "ns",
    ("int", "date"): "d",
}
"""Type and logical type -> the unit of an instant. A local timestamp has no zone, and counts as UTC."""
_DEEPEST: Final = 200
_ABSENT: Final = object()


class SchemaInvalid(ValueError):
    """A text is not a schema; the message is a clause."""


@dataclass(eq=False, slots=True)
class Node:
    """A type of a schema. ``kind``: a primitive type, `record`, `enum`, `array`, `map`, `fixed` or `union`.

    ``logical``: the logical type, if it is known and fits the type. ``items``: of an array or map. ``branches``: of a
    union. ``symbols``, ``default_symbol``: of an enum. ``size``: of a fixed. ``scale``: of a decimal.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str | None = None
    scale: int = 0
    fields: list[NodeField] = field(default_factory=list)
    items: Node | None = None
    branches: tuple[Node, ...] = ()
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0

    @property
    def unit(self) -> str | None:
        """The unit, if this is an instant."""
        return TIMES.get((self.kind, self.logical or ""))


@dataclass(eq=False, slots=True)
class NodeField:
    """A field of a record. ``default``: as written in the schema."""

    name: str
    node: Node
    aliases: tuple[str, ...] = ()
    default: Any = _ABSENT

    @property
    def has_default(self) -> bool:
        """Whether the schema states a default."""
        return self.default is not _ABSENT


def parsed_schema(text: str, references: Iterable[tuple[str, str]] = ()) -> Node:
    """The schema of a text. ``references``: names and texts of schemas that it refers to, in the order of their use.

    Raises `SchemaInvalid`.
    """
    names: dict[str, Node] = {}
    try:
        for _, referenced in references:
            _Parser(names).node(json.loads(referenced), "", 0)
        return _Parser(names).node(_loaded(text), "", 0)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, SchemaInvalid):
            raise
        raise SchemaInvalid(f"is not an Avro schema ({type(error).__name__}: {error})") from None


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # A registry may return the name of a primitive type, or of a referenced schema, without quotes.
        if text.isidentifier():
            return text
        raise


class _Parser:
    def __init__(self, names: dict[str, Node]) -> None:
        self._names = names

    def node(self, given: Any, namespace: str, depth: int) -> Node:
        """The type that ``given`` describes, in a namespace."""
        if depth > _DEEPEST:
            raise SchemaInvalid(f"is nested more than {_DEEPEST} levels deep")
        if isinstance(given, list):
            return Node("union", branches=tuple(self.node(one, namespace, depth + 1) for one in given))
        if isinstance(given, str):
            if given in PRIMITIVES:
                return Node(given)
            found = self._names.get(_full(given, namespace)) or self._names.get(given)
            if found is None:
                raise SchemaInvalid(f"names the type {given}, which it does not define")
            return found
        kind = given["type"]
        if isinstance(kind, (dict, list)) or kind not in {"record", "error", "enum", "array", "map", "fixed"}:
            node = self.node(kind, namespace, depth + 1)
            return _with_logical(node, given) if node.kind in PRIMITIVES else node
        if kind in ("array", "map"):
            return Node(kind, items=self.node(given["items" if kind == "array" else "values"], namespace, depth + 1))
        return self._named(given, "record" if kind == "error" else kind, namespace, depth)

    def _named(self, given: Mapping[str, Any], kind: str, namespace: str, depth: int) -> Node:
        name = _full(given["name"], given.get("namespace", namespace))
        inner = name.rpartition(".")[0]
        node = Node(kind, name=name, aliases=tuple(_full(alias, inner) for alias in given.get("aliases", ())))
        self._names[name] = node
        if kind == "enum":
            node.symbols, node.default_symbol = tuple(given["symbols"]), given.get("default")
        elif kind == "fixed":
            node.size = int(given["size"])
            _with_logical(node, given)
        else:
            for one in given["fields"]:
                of_field = self.node(one["type"], inner, depth + 1)
                aliases = tuple(one.get("aliases", ()))
                node.fields.append(NodeField(one["name"], of_field, aliases, one.get("default", _ABSENT)))
        return node


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _with_logical(node: Node, given: Mapping[str, Any]) -> Node:
    """The type with its logical type. One that does not fit the type is ignored, as the specification asks."""
    logical = given.get("logicalType")
    fits = (node.kind, logical) in TIMES
    if logical == "decimal" and node.kind in ("bytes", "fixed"):
        scale, precision = given.get("scale", 0), given.get("precision")
        fits = isinstance(scale, int) and isinstance(precision, int) and 0 <= scale <= precision
        node.scale = scale if fits else 0
    if logical == "uuid":
        fits = node.kind == "string" or (node.kind == "fixed" and node.size == 16)
    node.logical = logical if fits else None
    return node


def node_at(node: Node, path: Iterable[str]) -> Node | None:
    """The type at a path; None if no value has it. Of a union, the first branch that has the rest of the path."""
    names = list(path)
    if node.kind == "union":
        found = (node_at(branch, names) for branch in node.branches if branch.kind != "null")
        return next((one for one in found if one is not None), None)
    if not names:
        return node
    if node.kind == "record":
        inner = next((one.node for one in node.fields if one.name == names[0]), None)
        return None if inner is None else node_at(inner, names[1:])
    if node.items is not None and (node.kind == "map" or names[0].isdigit()):
        return node_at(node.items, names[1:])
    return None

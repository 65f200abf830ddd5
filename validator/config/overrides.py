"""Overrides: ``STREAMPROOF__A__B=value`` overrides the file, and ``--set a.b=value`` overrides both.

A place consists of keys and list positions (``inputs.0.topic``). Below a free map (``kafka.options``,
``spark.options``) the rest of the place is one key with its dots. In the name of an environment variable, ``__`` stands
for a dot, and letters are read in lower case.

Values are YAML. The value of an option in a free map, or of a setting whose type is text, is the given text without
surrounding quotes, so that a password such as ``0123456`` does not become a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

from pydantic import BaseModel

from validator.config.document import FREE_MAPS, parse_value
from validator.config.model import Config
from validator.model.documents import DEPTH_MAX, text_value, texts_within
from validator.settings.errors import OverrideError

PREFIX: Final = "STREAMPROOF__"
_LISTED: Final = ("kafka", "bootstrap_servers")
"""A text setting that may also be given as a list."""


@dataclass(frozen=True)
class Override:
    """One override; ``origin`` names it in errors."""

    place: tuple[str, ...]
    value: Any
    origin: str


def _whole_place(segments: list[str]) -> tuple[str, ...]:
    for free in FREE_MAPS:
        if tuple(segments[: len(free)]) == free and len(segments) > len(free):
            return (*free, ".".join(segments[len(free) :]))
    return tuple(segments)


def from_environment(environment: Mapping[str, str]) -> list[Override]:
    """The overrides in ``environment``, sorted by name. Raises OverrideError for a name without a setting."""
    overrides = []
    for name in sorted(environment):
        if not name.startswith(PREFIX):
            continue
        segments = name.removeprefix(PREFIX).lower().split("__")
        if not all(segments):
            raise OverrideError(
                [f"environment variable {name}: it names no setting; write a name such as {PREFIX}TIMING__IDLE_AFTER."]
            )
        place = _whole_place(segments)
        origin = f"environment variable {name}"
        overrides.append(Override(_bounded(place, origin), _value(place, environment[name]), origin))
    return overrides


def from_assignments(assignments: Iterable[str]) -> list[Override]:
    """The overrides of ``--set path.to.key=value`` texts. Raises OverrideError for a text of another form."""
    overrides = []
    for assignment in assignments:
        left, equals, right = assignment.partition("=")
        segments = left.strip().split(".")
        if not equals or not all(segments):
            # Only the left side is shown: the right side may be a secret.
            raise OverrideError([f"--set {left}: it is not an assignment; write path.to.key=value."])
        place = _whole_place(segments)
        origin = f"--set {left.strip()}"
        overrides.append(Override(_bounded(place, origin), _value(place, right), origin))
    return overrides


def _value(place: tuple[str, ...], text: str) -> Any:
    """The value that ``text`` gives to the setting at ``place``."""
    if place[:2] in FREE_MAPS and len(place) > 2:
        return text_value(text)
    value = parse_value(text, texts=texts_within(FREE_MAPS, place))
    if place in FREE_MAPS:
        return value
    kinds = _kinds(Config, place)
    if not kinds & {str, Path} or not kinds <= {str, Path, NoneType}:
        return value
    if not text.strip() or (NoneType in kinds and text.strip().lower() in ("null", "~")):
        return None
    return value if isinstance(value, list) and place == _LISTED else text_value(text)


def _kinds(annotation: Any, place: tuple[str, ...]) -> set[Any]:
    """The types of the value at ``place`` in a value of type ``annotation``; empty if there is no such place."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _kinds(arguments[0], place)
    if get_origin(annotation) is tuple and place:
        return _kinds(arguments[0], place[1:])
    if get_origin(annotation) is dict:
        return _kinds(arguments[1], place[1:]) if place else {dict}
    if arguments and not isinstance(annotation, type):
        return set().union(*(_kinds(argument, place) for argument in arguments))
    if not place:
        return {annotation}
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if place[0] == (field.alias or name):
                return _kinds(field.annotation, place[1:])
    return set()


def _bounded(place: tuple[str, ...], origin: str) -> tuple[str, ...]:
    if len(place) > DEPTH_MAX:
        raise OverrideError([f"{origin[:100]}: it has more than {DEPTH_MAX} levels; name a setting."])
    return place


def apply(document: Mapping[str, Any], overrides: Iterable[Override]) -> dict[str, Any]:
    """``document`` with ``overrides`` applied in order; the argument is not changed. Raises OverrideError."""
    changed: Any = dict(document)
    for override in overrides:
        changed = _put(changed, override.place, override)
    return dict(changed)


def _put(node: Any, place: tuple[str, ...], override: Override) -> Any:
    if not place:
        return override.value
    head, rest = place[0], place[1:]
    if isinstance(node, list):
        if not head.isdigit() or int(head) > len(node):
            problem = f"{head!r} is not a position in a list of length {len(node)}"
            raise OverrideError([f"{override.origin}: {problem}; use 0 to {len(node)}."])
        position = int(head)
        copy = [*node, None] if position == len(node) else list(node)
        copy[position] = _put(copy[position], rest, override)
        return copy
    if node is None or isinstance(node, dict):
        children = dict(node or {})
        if not children and head == "0":
            return [_put(None, rest, override)]
        children[head] = _put(children.get(head), rest, override)
        return children
    raise OverrideError([f"{override.origin}: {head!r} cannot be set inside a plain value; set that value instead."])

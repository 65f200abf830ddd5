"""Turns pydantic's errors into sentences that name the file, the field, the problem and the fix."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic_core import ErrorDetails

from validator.config.schema import LISTS_OF_ONE, SHORT_FORMS, keys_at
from validator.model.documents import Place, at_setting
from validator.model.references import value_at
from validator.model.wording import meant
from validator.oracles.kinds import built, unbuilt

_SECRET_LENGTH_MIN: Final = 4
"""A shorter value is a part of many words, and no secret."""

TYPES: Final[dict[str, str]] = {
    "string_type": "write a text",
    "int_type": "write a whole number",
    "int_parsing": "write a whole number",
    "int_from_float": "write a whole number",
    "path_type": "write a path",
    "tuple_type": "write a list, each entry on a line with a dash",
    "dict_type": "write a mapping of keys to values",
    "model_type": "write a mapping of keys to values",
    "model_attributes_type": "write a mapping of keys to values",
}
"""pydantic's type errors -> how to fix them."""


def sentences(
    errors: Iterable[ErrorDetails],
    source: str,
    origins: Mapping[Place, str],
    written: Any = None,
    whole: Any = None,
    text: str = "",
) -> list[str]:
    """One sentence for each of ``errors``. ``source``: name of the file. ``origins``: place -> override that set it.
    ``text``: of the file.

    ``written``, ``whole``: the document before and after its references were expanded. A value that has a reference may
    be a secret, so it is quoted as it is written.
    """
    details = list(errors)
    kept = details
    # If pydantic rejects entries of a list, it also reports that the list is too short.
    places = [_location(d) for d in kept]
    kept = [d for d in kept if not (d["type"] == "too_short" and any(_below(p, _location(d)) for p in places))]
    return [_sentence(detail, source, origins, written, whole, text) for detail in kept]


def _below(location: Place, above: Place) -> bool:
    return len(location) > len(above) and location[: len(above)] == above


def _sentence(
    detail: ErrorDetails, source: str, origins: Mapping[Place, str], written: Any, whole: Any, document: str
) -> str:
    location = _location(detail)
    problem, fix = _finding(detail, location)
    at = location + parsed(str((detail.get("ctx") or {}).get("place", "")))
    text, value = value_at(written, at), value_at(whole, at)
    if isinstance(text, str) and isinstance(value, str) and value and text != value:
        for part in sorted({value, *value.split(",")}, key=len, reverse=True):
            problem = problem.replace(repr(part), repr(text))
            if len(part) >= _SECRET_LENGTH_MIN:
                problem = problem.replace(part, text)
    return f"{at_setting(source, document, at, origins)}: {problem}; {fix}."


def parsed(place: str) -> Place:
    """A place that is written as `spell` writes it."""
    return tuple(int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", place))


def _finding(detail: ErrorDetails, location: Place) -> tuple[str, str]:
    kind = detail["type"]
    context: Mapping[str, Any] = detail.get("ctx") or {}
    if kind == "broken_rule":
        return str(context["problem"]), str(context["fix"])
    of_oracle = str(detail["loc"][1]) if detail["loc"][0] == "oracle" and len(detail["loc"]) > 2 else None
    if kind == "missing":
        return "it is missing" if of_oracle is None else f"oracle {of_oracle} needs it", "add it"
    if kind == "extra_forbidden" and of_oracle is not None:
        users = [name for name, one in built().items() if location[-1] in one.model_fields]
        if users:
            return f"oracle {of_oracle} does not use it", f"leave it out, or use {_one_of(users)}"
    if kind == "extra_forbidden":
        return _unknown_key(detail["loc"])
    if kind == "union_tag_not_found":
        return "it is missing", f"write {_one_of([*built()])}"
    if kind == "union_tag_invalid":
        return _kind(str(context["tag"]))
    if kind in ("literal_error", "enum"):
        return f"{_shown(detail)} is not one of its values", f"use {_values_of(str(context['expected']))}"
    if kind == "too_short":
        return "it is empty", "give at least one entry"
    if kind == "string_too_short":
        return "it is empty", "write a text"
    if kind in TYPES:
        return f"{_shown(detail)} does not fit", _of_type(detail, location)
    return f"{_shown(detail)} does not fit", detail["msg"][:1].lower() + detail["msg"][1:]


def _of_type(detail: ErrorDetails, location: Place) -> str:
    kind = detail["type"]
    is_path = (detail.get("ctx") or {}).get("class_name") in SHORT_FORMS
    is_path = is_path or (kind == "tuple_type" and location[-1] in LISTS_OF_ONE)
    fix = "write a path" if is_path else TYPES[kind]
    # YAML reads `on`, `off`, `yes` and `no` as booleans.
    in_quotes = isinstance(detail["input"], bool) and (is_path or kind in ("string_type", "path_type"))
    return f"{fix} in quotes" if in_quotes else fix


def _unknown_key(location: Place) -> tuple[str, str]:
    known = keys_at(location[:-1])
    fix = f"use one of {', '.join(known)}" if known else "remove it"
    return "it is not a known key", meant(str(location[-1]), known) or fix


def _kind(name: str) -> tuple[str, str]:
    problem = f"{name} is not supported yet" if name in unbuilt() else f"{name!r} is not one of its values"
    return problem, f"use {_one_of([*built()])}"


def _location(detail: ErrorDetails) -> Place:
    """The place in the file: pydantic's location without the kind of oracle, which is not a key of the file."""
    found = tuple(detail["loc"])
    if found[:1] != ("oracle",):
        return found
    if detail["type"].startswith("union_tag_"):
        return ("oracle", "kind")
    return (found[0], *found[2:])


def _shown(detail: ErrorDetails) -> str:
    if {"options", "authorization", "basic_auth", "headers"} & set(detail["loc"]):
        return "the value"
    value = detail["input"]
    if value is None:
        return "an empty value"
    return repr(value) if isinstance(value, (str, int, float, bool)) else f"a {_name(value)}"


def _name(value: object) -> str:
    return "mapping" if isinstance(value, dict) else "list" if isinstance(value, (list, tuple)) else "value"


def _values_of(expected: str) -> str:
    """The values in pydantic's list, joined by `or`."""
    return _one_of(re.findall(r"'([^']*)'", expected))


def _one_of(values: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(values[:-1]), values[-1])))

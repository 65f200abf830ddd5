"""Finds the workloads: the classes with a `kind` in the files of this package. Defines the type of the setting
`workload`."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Collection
from typing import Annotated, Any, Final

from pydantic import PlainSerializer, PlainValidator, ValidationError

from generator import workloads
from generator.workloads.seam import Workload
from validator.model.wording import meant

DEFAULT: Final = "sst"
"""The workload of PGVal's published runs."""
_FIRST: Final = (DEFAULT, "mst")


@functools.cache
def built() -> dict[str, type[Workload]]:
    """Name -> class: PGVal's first, the others by name."""
    found: dict[str, type[Workload]] = {}
    for module in pkgutil.iter_modules(workloads.__path__, f"{workloads.__name__}."):
        for _, one in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(one, Workload) and "kind" in vars(one) and one.__module__ == module.name:
                found[one.kind] = one
    return dict(sorted(found.items(), key=lambda entry: (entry[0] not in _FIRST, entry[0] != DEFAULT, entry[0])))


def named(text: str) -> Workload:
    """The workload of ``KIND`` or ``KIND:NAME=VALUE,...``, with default values of the other parameters. Raises
    ValueError with one sentence."""
    kind, _, given = text.partition(":")
    parameters: dict[str, Any] = {}
    for part in given.split(",") if given else ():
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part} is not a parameter; write NAME=VALUE, as in shufflebench:rules=200,zipf=0.4")
        parameters[name] = value
    return _of({**parameters, "kind": kind})


def known(name: str) -> str:
    """Return ``name`` if it is that of a workload. Raises ValueError with one sentence."""
    return _of(name).kind


def _of(value: Any) -> Workload:
    """The workload that ``value`` describes: its name, or a mapping of its name (`kind`) and its parameters."""
    if isinstance(value, Workload):
        return value
    parameters = dict(value) if isinstance(value, dict) else {"kind": value}
    kind = parameters.pop("kind", None)
    found = built().get(kind) if isinstance(kind, str) else None
    if found is None:
        raise ValueError(f"there is no workload {kind}; {_instead(str(kind), built())}")
    for name in parameters.keys() - found.model_fields.keys():
        raise ValueError(f"{kind} has no parameter {name}; {_instead(str(name), found.model_fields)}")
    try:
        return found.model_validate(parameters)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f"{part}: " for part in first["loc"])
        raise ValueError(place + first["msg"].removeprefix("Value error, ")) from error


def _instead(name: str, known: Collection[str]) -> str:
    return meant(name, known) or (f"use {', '.join(known)}" if known else "leave it out")


def written(value: Workload) -> Any:
    """A workload as in the file: its name alone if its parameters have their default values."""
    return {"kind": value.kind, **value.parameters} if value.parameters else value.kind


def text_of(value: Any) -> str:
    """A workload, given as in a file, as the text that `named` reads. Raises ValueError with one sentence."""
    found = named(value) if isinstance(value, str) else _of(value)
    text = ",".join(f"{name}={given}" for name, given in found.parameters.items())
    text = f"{found.kind}:{text}" if text else found.kind
    if named(text).parameters != found.parameters:
        raise ValueError(f"{text}: a text with a comma cannot be used here; use another one")
    return text


AnyWorkload = Annotated[Workload, PlainValidator(_of), PlainSerializer(written)]
"""The setting `workload`."""

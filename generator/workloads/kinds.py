"""Finds the workloads: the classes with a `kind` in the files of this package. Defines the type of the setting
`workload`."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from typing import Annotated, Any, Final

from pydantic import PlainSerializer, PlainValidator, ValidationError

from generator import workloads
from generator.workloads.seam import Workload

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


def named(name: str) -> Workload:
    """The workload ``name`` with its default parameters. Raises ValueError with one sentence."""
    return _of(name)


def known(name: str) -> str:
    """Return ``name`` if it is a workload. Raises ValueError with one sentence."""
    return named(name).kind


def _of(value: Any) -> Workload:
    """The workload that ``value`` describes: its name, or a mapping of its name (`kind`) and its parameters."""
    if isinstance(value, Workload):
        return value
    parameters = dict(value) if isinstance(value, dict) else {"kind": value}
    kind = parameters.pop("kind", None)
    found = built().get(kind) if isinstance(kind, str) else None
    if found is None:
        raise ValueError(f"there is no workload {kind}; use {', '.join(built())}")
    try:
        return found.model_validate(parameters)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def _written(value: Workload) -> Any:
    """A workload as in the file: its name alone if its parameters have their default values."""
    parameters = value.model_dump(mode="json", exclude_defaults=True)
    return {"kind": value.kind, **parameters} if parameters else value.kind


AnyWorkload = Annotated[Workload, PlainValidator(_of), PlainSerializer(_written)]
"""The setting `workload`."""

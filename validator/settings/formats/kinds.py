"""Finds the formats that are built: the concrete classes in the files of this package. Defines the type of the
setting `format`."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import sys
from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, TypeAdapter, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from validator.model.wording import meant
from validator.settings import formats
from validator.settings.errors import broken_rule, broken_rule_at
from validator.settings.formats.seam import Format


@functools.cache
def built() -> dict[str, type[Format]]:
    """Name -> class of each format: `json` first, the others by name."""
    found = {one.kind: one for module in _modules() for one in _formats_of(module)}
    return dict(sorted(found.items(), key=lambda entry: (entry[0] != "json", entry[0])))


def _modules() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(formats.__path__, f"{formats.__name__}.")]


def _formats_of(module: str) -> list[type[Format]]:
    classes = (one for _, one in inspect.getmembers(importlib.import_module(module), inspect.isclass))
    return [one for one in classes if issubclass(one, Format) and hasattr(one, "kind") and one.__module__ == module]


def _named(kind: str) -> type[Format] | None:
    """The format ``kind``. It is looked for in loaded modules first: to load all takes as long as to check a file."""
    in_order = sorted(_modules(), key=lambda module: module not in sys.modules)
    return next((one for module in in_order for one in _formats_of(module) if one.kind == kind), None)


def _of(value: Any, info: ValidationInfo) -> Format:
    """The format that ``value`` describes: its name, or a mapping of its name (`kind`) and its parameters."""
    if isinstance(value, Format):
        return value
    parameters = dict(value) if isinstance(value, dict) else {"kind": value}
    kind = parameters.pop("kind", None)
    found = _named(kind) if isinstance(kind, str) else None
    if found is None:
        raise broken_rule(
            "it has no kind" if kind is None else f"{kind!r} is not a format", f"use {_one_of([*built()])}"
        )
    known = [one.alias or name for name, one in found.model_fields.items()]
    for name in parameters.keys() - known:
        fix = meant(name, known) or (f"use {_one_of(known)}" if known else "leave it out")
        raise broken_rule_at(name, f"format {kind} has no such key", fix)
    return found.model_validate(parameters, context=info.context)


def _one_of(names: list[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _written(value: Format) -> Any:
    """A format as in the file: its name alone if it has no parameters."""
    parameters = value.model_dump(mode="json", by_alias=True)
    return {"kind": value.kind, **parameters} if parameters else value.kind


class _Inner:
    """The pydantic type of a format within a format. Its JSON schema does not repeat that of all formats."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        # Not a union of all formats: their schemas would be built for each topic.
        return core_schema.with_info_plain_validator_function(
            _of, serialization=core_schema.plain_serializer_function_ser_schema(_written)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, {"type": "object"}]}


class _Setting(_Inner):
    """The pydantic type of the setting `format`: the name of a format, or a mapping with its parameters."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        names = [kind for kind, one in built().items() if not _requires(one)]
        mappings = []
        union = core_schema.union_schema([TypeAdapter(one).core_schema for one in built().values()])
        for (kind, one), rendered in zip(built().items(), handler(union)["anyOf"], strict=True):
            if one.model_fields:
                mapping = handler.resolve_ref_schema(rendered)
                mapping["properties"] = {"kind": {"const": kind, "description": "The format."}, **mapping["properties"]}
                mapping["required"] = ["kind", *(name for name in mapping.get("required", ()) if name != "kind")]
                mappings.append(rendered)
        return {"anyOf": [{"enum": names, "type": "string"}, *mappings]}


def _requires(one: type[Format]) -> bool:
    return any(field.is_required() for field in one.model_fields.values())


AnyFormat = Annotated[Format, _Setting()]
"""The setting `format`."""
InnerFormat = Annotated[Format, _Inner()]
"""A format within a format."""

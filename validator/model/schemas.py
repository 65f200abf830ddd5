"""Schemas of a registry, by the ids that records name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class RegisteredSchema(NamedTuple):
    """A schema of a registry. ``kind``: `AVRO`, `PROTOBUF` or `JSON`. ``references``: names and texts of the schemas
    that it refers to; a schema comes after those that it refers to itself."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


Schemas = Mapping[int | str, RegisteredSchema | None]
"""Id or GUID of a schema -> the schema; None if the registry does not have it."""
NO_SCHEMAS: Final[Schemas] = {}


class SchemaUnknown(Exception):
    """Records name ``schemas`` that were not looked up yet: ids of the registry, or GUIDs as texts."""

    def __init__(self, *schemas: int | str) -> None:
        super().__init__(*schemas)
        self.schemas = frozenset(schemas)

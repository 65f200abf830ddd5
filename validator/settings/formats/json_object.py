"""JSON: a value is one JSON value. docs/configuration.md, "What decodes", defines it."""

from __future__ import annotations

from typing import ClassVar

from validator.model.json_text import JsonReader
from validator.model.schemas import Schemas
from validator.settings.formats.seam import Format, Part


class JsonObject(Format):
    """One JSON value: mostly an object. Of a scalar or an array, `$value` is the whole value, and `$value.0` the first
    item."""

    kind: ClassVar[str] = "json"

    def reader(self, part: Part, schemas: Schemas) -> JsonReader:
        """The reader of JSON."""
        del part, schemas
        return JsonReader()

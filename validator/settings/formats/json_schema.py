"""JSON with Confluent's wire prefix, as its JSON Schema serializers write it."""

from __future__ import annotations

from typing import ClassVar

from validator.model.json_text import PrefixedJsonReader
from validator.model.schemas import Schemas
from validator.settings.formats.seam import Format, Part


class JsonSchema(Format):
    """JSON after Confluent's wire prefix (a zero byte, and the id of a JSON Schema in four bytes). The schema is not
    needed to read it. A serializer that puts the id into a header writes plain `json`."""

    kind: ClassVar[str] = "json_schema"

    def reader(self, part: Part, schemas: Schemas) -> PrefixedJsonReader:
        """The reader of JSON after a prefix."""
        del part, schemas
        return PrefixedJsonReader()

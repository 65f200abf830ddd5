"""JSON: a value is one object. docs/configuration.md, "What decodes", defines it; `validator.codecs` implements it."""

from __future__ import annotations

from typing import ClassVar

from validator.settings.formats.seam import Format


class JsonObject(Format):
    """A value is one JSON object."""

    kind: ClassVar[str] = "json"

    def reader(self) -> None:
        """None, because `validator.codecs` reads JSON."""

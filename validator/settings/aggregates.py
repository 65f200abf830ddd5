"""The aggregates over the events of a cell that results may state as values (SEMANTICS 2.23)."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, WithJsonSchema

from validator.settings.built import refuse_unbuilt
from validator.settings.errors import broken_rule

_OF_FIELD: Final = re.compile(r"(\w+)\([^()\s]+\)")


def _aggregate(text: str) -> str:
    if text == "count":
        return text
    of_field = _OF_FIELD.fullmatch(text)
    if of_field is not None:
        refuse_unbuilt("oracle.values", f"{of_field[1]}(PATH)", ("count",))
    raise broken_rule(f"{text!r} is not an aggregate", "use count, the number of events")


Aggregate = Annotated[str, AfterValidator(_aggregate), WithJsonSchema({"enum": ["count"]})]
"""An aggregate over the events of a cell: `count`, their number."""

"""The aggregates over the events of a cell that results may state as values (SEMANTICS 2.23, 2.29)."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from validator.model.stated_values import OF_FIELD, OF_FIELDS
from validator.settings.built import refuse_unbuilt
from validator.settings.errors import broken_rule
from validator.settings.fields import check_path


def _aggregate(text: str) -> str:
    found = OF_FIELD.fullmatch(text)
    if text == "count" or (found is not None and found[1] in OF_FIELDS and check_path(found[2])):
        return text
    if found is not None:
        refuse_unbuilt("oracle.values", f"{found[1]}(PATH)", ("count", *(f"{name}(PATH)" for name in OF_FIELDS)))
    known = ", ".join(f"{name}(PATH)" for name in OF_FIELDS)
    raise broken_rule(f"{text!r} is not an aggregate", f"use count (the number of events) or one of {known}")


Aggregate = Annotated[
    str,
    AfterValidator(_aggregate),
    WithJsonSchema({"type": "string", "pattern": rf"^(count|({'|'.join(OF_FIELDS)})\(\s*[^()\s]+\s*\))$"}),
]
"""An aggregate over the events of a cell: `count`, their number; `count(PATH)`, the number of those in which the field
is not null; or `sum(PATH)`, `min(PATH)`, `max(PATH)`, `avg(PATH)` of a field that is a number. As in SQL, null values
do not count."""

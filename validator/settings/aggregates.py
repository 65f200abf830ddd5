"""The aggregates over the events of a cell that results may state as values (SEMANTICS 1.12)."""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, WithJsonSchema

from validator.settings.errors import broken_rule

UNBUILT_AGGREGATES: Final = frozenset({"count(PATH)", "sum(PATH)", "min(PATH)", "max(PATH)", "avg(PATH)"})
"""Planned aggregates that this version refuses."""
_AGGREGATE: Final = re.compile(r"(?:count|sum|min|max|avg|distinct)(?:\([^()\s]+\))?")


def _aggregate(text: str) -> str:
    if text == "count":
        return text
    known = _AGGREGATE.fullmatch(text)
    problem = f"{text} is not supported yet" if known else f"{text!r} is not an aggregate"
    raise broken_rule(problem, "use count, the number of events")


Aggregate = Annotated[str, AfterValidator(_aggregate), WithJsonSchema({"enum": ["count"]})]
"""An aggregate over the events of a cell: `count`."""

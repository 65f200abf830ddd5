"""The base class of the sections of the fault configuration, and its units."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError
from pydantic_core import ErrorDetails

from validator.model.wording import plural

_UNITS: Final = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_TAGS: Final = ("fault", "group", "duration", "range")
"""Tags of unions, which pydantic adds to the location of an error, and which are not in the file."""
_SIZES: Final = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


class Section(BaseModel):
    """Base of all sections: immutable, and rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True)


def seconds_of(value: object) -> float:
    """Seconds of a duration as written in the file, such as ``90s``. Raises ValueError."""
    if value in (0, "0") and not isinstance(value, bool):
        return 0.0
    matched = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)", value) if isinstance(value, str) else None
    if matched is None:
        raise ValueError("a duration is a number with ms, s, m or h, as in 90s")
    return float(Decimal(matched[1]) * _UNITS[matched[2]])


def _bytes(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    matched = re.fullmatch(r"([0-9]+)\s*(B|KB|MB|GB|KiB|MiB|GiB|)", value) if isinstance(value, str) else None
    if matched is None:
        raise ValueError("a size is a whole number of bytes, or of KB, MB, GB, KiB, MiB or GiB, as in 64MiB")
    return int(matched[1]) * _SIZES[matched[2]]


def how_many(value: object, *words: str) -> str | int:
    """``value`` as one of ``words``, a number from 1, or a share such as ``50%``. Raises ValueError, also for 0."""
    if isinstance(value, str) and (value in words or re.fullmatch(r"[1-9][0-9]?%|100%", value)):
        return value
    if isinstance(value, int | str) and not isinstance(value, bool) and re.fullmatch(r"[1-9][0-9]*", str(value)):
        return int(value)
    raise ValueError(f"write {', '.join(words)}, a number from 1, or a share from 1% to 100%")


def _written(seconds: float) -> str:
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


Seconds = Annotated[
    float,
    BeforeValidator(seconds_of),
    Field(ge=0, le=7 * 24 * 3600),
    PlainSerializer(_written, return_type=str, when_used="json"),
]
"""Written as a duration ("90s"), stored in seconds; at most one week."""
Bytes = Annotated[int, BeforeValidator(_bytes), Field(ge=0)]
"""Written as a size ("64MiB"), stored in bytes."""


def text_of(seconds: float) -> str:
    """``seconds`` as readable text: ``100h 5m``, ``5m 30s``, ``90s``, ``500ms``."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    if seconds < 120:
        return f"{round(seconds, 3):g}s"
    minutes, rest = divmod(round(seconds, 3), 60)
    hours, minutes = divmod(minutes, 60) if minutes >= 120 else (0, minutes)
    parts = [f"{hours:g}h" if hours else "", f"{minutes:g}m" if minutes else "", f"{round(rest, 3):g}s" if rest else ""]
    return " ".join(filter(None, parts))


def with_port(value: str) -> str:
    """``value``, if its port is valid. Raises ValueError."""
    if not 0 < int(value.rpartition(":")[2]) < 2**16:
        raise ValueError("a port is a number from 1 to 65535")
    return value


def first_problem(error: ValidationError) -> str:
    """The first error as text: location, reason, and the number of further errors."""
    problems = problems_of(error)
    first = problems[0]
    where = ".".join(map(str, in_the_file(first["loc"]))) or "as a whole"
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{where}: {_reason(first)}{more}"


def problems_of(error: ValidationError) -> list[ErrorDetails]:
    """The errors of the file. pydantic also reports a list with an invalid entry as too short; those are left out."""
    found = error.errors()
    return [
        one
        for one in found
        if one["type"] != "too_short"
        or not any(
            len(other["loc"]) > len(one["loc"]) and other["loc"][: len(one["loc"])] == one["loc"] for other in found
        )
    ]


def in_the_file(loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """``loc`` without the parts that are not in the file, such as the type after the name of a target."""
    if loc[:1] == ("targets",):
        return (*loc[:2], *loc[3:])
    return tuple(part for part in loc if part not in _TAGS)


def _reason(problem: ErrorDetails) -> str:
    details = problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            return "is not a known key; docs/faults.md lists them"
        case "too_short":
            least = plural(details["min_length"], "entry", "entries")
            return f"needs at least {least} and has {details['actual_length']}"
        case "union_tag_not_found":
            return "has no type; docs/faults.md lists the types, such as process or link"
        case "union_tag_invalid":
            return f"{details['tag']!r} is not a type of target; use one of {details['expected_tags']}"
    return problem["msg"].removeprefix("Value error, ").rstrip(".")

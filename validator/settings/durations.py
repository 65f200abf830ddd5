"""Durations as users write them (``500ms``, ``1.5h``) and as the core has them: whole microseconds."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated, Final

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from validator.settings.errors import broken_rule

UNITS_US: Final[dict[str, int]] = {
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
"""Unit -> microseconds. A day is 24 hours."""

PATTERN: Final = r"^([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)$"
SIGNED_PATTERN: Final = f"^-?{PATTERN[1:]}"
LONGEST_US: Final = 36_500 * UNITS_US["d"]
"""A century. A longer duration is a typing error. The sum of a duration and an instant fits into 64 bits."""

FIX: Final = "write a number with ms, s, m, h or d, as in 30s"


def parse_duration(text: object) -> int:
    """``text`` in microseconds. A bare 0 is accepted; any other number needs a unit.

    Raises PydanticCustomError if it is not a duration, finer than a microsecond, or longer than a century.
    """
    if isinstance(text, int) and not isinstance(text, bool) and text == 0:
        return 0
    if not isinstance(text, str):
        shown = repr(text) if isinstance(text, (int, float)) else f"a {type(text).__name__}"
        raise broken_rule(f"{shown} is not a duration", FIX)
    matched = re.match(PATTERN, text.strip())
    if matched is None:
        if text.strip() == "0":
            return 0
        raise broken_rule(f"{text!r} is not a duration", FIX)
    microseconds = Decimal(matched.group(1)) * UNITS_US[matched.group(2)]
    if microseconds != int(microseconds):
        raise broken_rule(f"{text!r} has a fraction of a microsecond", "write a multiple of 0.001ms")
    if microseconds > LONGEST_US:
        raise broken_rule(f"{text!r} is longer than a century", "write at most 36500d")
    return int(microseconds)


def format_duration(microseconds: int) -> str:
    """The shortest exact text that :func:`parse_duration` reads back, as in ``90s`` or ``0.5ms``."""
    if microseconds == 0:
        return "0s"
    for unit in ("d", "h", "m", "s", "ms"):
        if microseconds % UNITS_US[unit] == 0:
            return f"{microseconds // UNITS_US[unit]}{unit}"
    return f"{Decimal(microseconds) / 1_000}ms"


Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": PATTERN, "examples": ["30s", "500ms", "24h"]}),
]
"""Microseconds in the model, text with a unit in the file and in the JSON form. Zero is allowed."""


def _signed(text: object) -> int:
    if isinstance(text, str) and re.match(SIGNED_PATTERN, text.strip()) and text.strip().startswith("-"):
        return -parse_duration(text.strip()[1:])
    return parse_duration(text)


# As Duration, with a sign.
SignedDuration = Annotated[
    int,
    BeforeValidator(_signed),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": SIGNED_PATTERN, "examples": ["30s", "-5s"]}),
]
"""A :data:`Duration` that may be below zero."""


def _positive(microseconds: int) -> int:
    if microseconds <= 0:
        raise broken_rule("it is zero", "write a duration above zero")
    return microseconds


# As Duration, with a narrower range. pydantic does not validate a default.
PositiveDuration = Annotated[
    int,
    BeforeValidator(lambda text: _positive(parse_duration(text))),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": PATTERN, "examples": ["30s", "500ms", "24h"]}),
]
"""A :data:`Duration` above zero."""

"""Where a new state begins to read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from validator.settings.errors import broken_rule
from validator.settings.fields import Frozen

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIX: Final = "write earliest, latest, an RFC 3339 time such as 2026-01-31T12:00:00Z, or group:ID"


class Start(Frozen):
    """A parsed ``start``: ``time_us`` is set for kind `time`, ``group`` for kind `group`."""

    kind: Literal["earliest", "latest", "time", "group"]
    time_us: int | None = None
    """Microseconds since the epoch; reading starts at the first broker timestamp at or after this time."""
    group: str | None = None
    """The consumer group whose committed offsets are the start."""


EARLIEST: Final = Start(kind="earliest")


def parse_start(value: Any) -> Any:
    """The :class:`Start` that ``value`` describes. Raises PydanticCustomError for any other value."""
    if isinstance(value, Start):
        return value
    if not isinstance(value, str):
        raise broken_rule("it is not a text", FIX)
    text = value.strip()
    if text == "earliest":
        return EARLIEST
    if text == "latest":
        return Start(kind="latest")
    if text.startswith("group:"):
        group = text.removeprefix("group:").strip()
        if not group:
            raise broken_rule("the name of the consumer group after `group:` is missing", FIX)
        return Start(kind="group", group=group)
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        raise broken_rule(f"{text!r} is not a valid start", FIX) from None
    if instant.tzinfo is None or "T" not in text.upper():
        raise broken_rule(f"{text!r} needs a time of day and a time zone", FIX)
    return Start(kind="time", time_us=(instant - EPOCH) // timedelta(microseconds=1))


def format_start(start: Start) -> str:
    """The text that :func:`parse_start` reads back."""
    if start.kind == "group":
        return f"group:{start.group}"
    if start.kind == "time":
        instant = EPOCH + timedelta(microseconds=start.time_us or 0)
        return instant.isoformat().replace("+00:00", "Z")
    return start.kind


StartValue = Annotated[
    Start,
    BeforeValidator(parse_start),
    PlainSerializer(format_start, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "examples": ["earliest", "latest", "2026-01-31T12:00:00Z", "group:my-engine"]}),
]
"""A text in the file and in the JSON form, a :class:`Start` in the model."""

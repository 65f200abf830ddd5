"""Instants for people and scripts: RFC 3339, UTC, with microseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(instant_us: int | None) -> str | None:
    """Return ``instant_us`` (microseconds since the epoch) as text; None if it is None or outside the calendar."""
    if instant_us is None:
        return None
    try:
        instant = EPOCH + timedelta(microseconds=instant_us)
    except OverflowError:
        return None
    return instant.isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> int:
    """Return microseconds since the epoch. Raises ValueError if the text is not a time with a zone."""
    instant = datetime.fromisoformat(text.strip())
    if instant.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write one, as in 2026-01-31T12:00:00Z")
    return (instant - EPOCH) // timedelta(microseconds=1)

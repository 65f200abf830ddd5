"""Counts in sentences: singular and plural."""

from __future__ import annotations


def plural(count: int, one: str, several: str | None = None) -> str:
    """``count``, grouped, and its noun: ``one``, or ``several`` (``one`` with an s unless given)."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"

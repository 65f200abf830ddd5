"""Counts in sentences: singular and plural."""

from __future__ import annotations


def plural(count: int, one: str, several: str | None = None) -> str:
    """Return ``count`` with thousands separators and its noun: ``one`` or ``several`` (default: ``one`` with an s)."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def plural_of(noun: str) -> str:
    """Return the plural of a noun of which the first word changes: `buckets of time`."""
    first_word, _, more = noun.partition(" ")
    return f"{first_word}s {more}".rstrip()

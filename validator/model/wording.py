"""Parts of sentences: counts, plurals, and the name that was meant."""

from __future__ import annotations

from collections.abc import Collection


def plural(count: int, one: str, several: str | None = None) -> str:
    """Return ``count`` with thousands separators and its noun: ``one`` or ``several`` (default: ``one`` with an s)."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def plural_of(noun: str) -> str:
    """Return the plural of a noun of which the first word changes: `buckets of time`."""
    first_word, _, more = noun.partition(" ")
    return f"{first_word}s {more}".rstrip()


def meant(name: str, known: Collection[str]) -> str | None:
    """Return a question for the one of the ``known`` names that ``name`` is most like; None if it is like none."""
    # Few runs meet a wrong name, and importing the module takes a while.
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}" if close else None

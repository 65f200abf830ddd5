"""Texts from records, shortened for people: an id or key of a megabyte must not fill a file or a page.

A shortened text ends with its length and a hash of the whole text. Different texts therefore stay different, and the
whole text can be found again.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

LONGEST: Final = 200
"""Maximum length of a text that is published unchanged, and of a shortened text, in characters."""
KEPT: Final = 120
"""Characters of the text that a shortened text keeps."""
_DIGITS: Final = 16
_MARK: Final = re.compile(rf"…\(([\d,]+) characters, sha256 ([0-9a-f]{{{_DIGITS}}})\)\Z")


class FullText(NamedTuple):
    """The properties of a whole text that its shortened form states: length in characters, and start of its SHA-256."""

    length: int
    digest: str


def shorten(text: str) -> str:
    """Return ``text`` as it is published."""
    if len(text) <= LONGEST:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{text[:KEPT]}…({len(text):,} characters, sha256 {digest})"


def full_text_of(text: str) -> FullText | None:
    """Return what ``text`` states about the text that it shortens; None if it is not shortened."""
    found = _MARK.search(text)
    return None if found is None else FullText(int(found[1].replace(",", "")), found[2])

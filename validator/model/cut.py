"""Texts of other people, cut to what a person reads: an id or key of a megabyte must not fill a file or a page.

A cut text ends with its length and a hash of the whole, so that texts that differ stay different, and the whole can be
found again.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

LONGEST: Final = 200
"""Characters of a text that is published as it is, and at most of one that is cut."""
KEPT: Final = 120
"""Characters of a cut text that are published."""
_DIGITS: Final = 16
_MARK: Final = re.compile(rf"…\(([\d,]+) characters, sha256 ([0-9a-f]{{{_DIGITS}}})\)\Z")


class Whole(NamedTuple):
    """What a cut text says of the whole one: its length in characters, and how its SHA-256 begins."""

    length: int
    digest: str


def cut(text: str) -> str:
    """``text`` as it is published."""
    if len(text) <= LONGEST:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{text[:KEPT]}…({len(text):,} characters, sha256 {digest})"


def whole_of(text: str) -> Whole | None:
    """What ``text`` says of the text that it was cut from; None where it was not cut."""
    found = _MARK.search(text)
    return None if found is None else Whole(int(found[1].replace(",", "")), found[2])

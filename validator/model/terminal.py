"""Untrusted data on a terminal: a key or an id must not move the cursor, change colours or hide text. On a page it must
not change the writing direction of the sentence around it.

Ids, keys, topics and names of faults come from records. A character that a terminal obeys is written as a visible
escape. A command that must contain such a character has it in a form that a shell reads back to the same bytes.
"""

from __future__ import annotations

import json
import re
from shlex import quote
from typing import Any, Final

OBEYED: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters (C0, DEL, C1), line ends, marks that change the writing direction (Unicode's Bidi_Control),
surrogates, which no terminal's encoding can write, and the two other characters that XML does not allow."""


def plain(text: str) -> str:
    """Return ``text`` as one visible line, in which each character that a terminal obeys is an escape."""
    # Nearly every text is printable, and this check is faster: a page has tens of thousands of texts with each batch.
    return text if text.isprintable() else OBEYED.sub(_escape, text)


def plain_lines(text: str) -> str:
    """Return ``text`` of several lines, such as HTML, with each line as :func:`plain` returns it."""
    return OBEYED.sub(lambda found: found[0] if found[0] == "\n" else _escape(found), text)


def plain_values(value: Any) -> Any:
    """Return ``value``, plain data as in JSON, with every text in it as :func:`plain` returns it."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain_values(name): plain_values(held) for name, held in value.items()}
    if isinstance(value, list):
        return [plain_values(held) for held in value]
    return value


def plain_json(value: object, indent: int | None = None) -> str:
    """Return ``value`` as JSON text that reads back to it. Characters that a terminal obeys are escaped.

    Raises ValueError for not-a-number, which JSON cannot represent: that is an error of the caller.
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False, separators=separators)
    # Nearly every text is ASCII. JSON itself escapes all of its control characters except DEL.
    if text.isascii() and "\x7f" not in text:
        return text
    return OBEYED.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def shell_word(text: str) -> str:
    """Return ``text`` as one word of a POSIX shell, which can be shown and pasted.

    A character that a terminal obeys is written byte by byte in `$'...'` (POSIX.1-2024, 2.2.4; supported by bash, zsh
    and ksh).
    """
    if not OBEYED.search(text):
        return quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + OBEYED.sub(_octal, escaped) + "'"


def as_value(text: str) -> str:
    """Return ``text`` as the value of an option, with the separator before it. A value may begin with a dash."""
    return ("=" if text.startswith("-") else " ") + shell_word(text)


def _octal(found: re.Match[str]) -> str:
    # Always three digits, so that a digit that follows is not read as part of the escape.
    return "".join(f"\\{byte:03o}" for byte in found[0].encode("utf-8", "surrogatepass"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

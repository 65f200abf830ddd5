"""Other people's data on a terminal: nothing that a key or an id holds may move its cursor, recolour it or hide text.
On a page, nothing of it may turn the direction of the sentence around it.

Ids, keys, topics and names of faults come from records. What a terminal would obey is written as an escape that can be
seen, and a command that must carry such a character carries it in a form that a shell reads back to the same bytes.
"""

from __future__ import annotations

import json
import re
from shlex import quote
from typing import Any, Final

OBEYED: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Control characters (C0, DEL, C1), ends of lines, marks that turn the direction of writing (Unicode's Bidi_Control),
halves of surrogate pairs, which no terminal's encoding can write, and the two others that XML cannot hold."""


def plain(text: str) -> str:
    """``text`` as one line of what can be seen: each character that a terminal obeys as its escape."""
    # Nearly every text is printable as a whole, which is told sooner: a page has tens of thousands with each batch.
    return text if text.isprintable() else OBEYED.sub(_escape, text)


def plain_lines(text: str) -> str:
    """``text`` of several lines, as HTML is, each of them :func:`plain`."""
    return OBEYED.sub(lambda found: found[0] if found[0] == "\n" else _escape(found), text)


def plain_values(value: Any) -> Any:
    """``value``, which is plain data as of JSON, with every text in it made :func:`plain`."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {plain_values(name): plain_values(held) for name, held in value.items()}
    if isinstance(value, list):
        return [plain_values(held) for held in value]
    return value


def plain_json(value: object, indent: int | None = None) -> str:
    """``value`` as JSON text that reads back to it, with what a terminal obeys escaped, and no end of line of its own.

    Not-a-number would be no JSON and is an error of ours (ValueError).
    """
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False, separators=separators)
    # Nearly all is ASCII, of which JSON escapes all but DEL itself.
    if text.isascii() and "\x7f" not in text:
        return text
    return OBEYED.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def shell_word(text: str) -> str:
    """``text`` as one word of a POSIX shell, which can be shown and pasted.

    What a terminal obeys goes byte by byte into `$'...'` (POSIX.1-2024, 2.2.4; bash, zsh and ksh have it).
    """
    if not OBEYED.search(text):
        return quote(text)
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + OBEYED.sub(_octal, escaped) + "'"


def as_value(text: str) -> str:
    """``text`` behind the name of an option, and what is between them: what begins with a dash is a value too."""
    return ("=" if text.startswith("-") else " ") + shell_word(text)


def _octal(found: re.Match[str]) -> str:
    # Always three digits: what follows cannot be taken for one more.
    return "".join(f"\\{byte:03o}" for byte in found[0].encode("utf-8", "surrogatepass"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

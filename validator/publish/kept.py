"""Derived files that an earlier process left in the state: a damaged one is told in a sentence and made anew.

Nothing is decided from them, so that none may stop a start; and what was shown before must not be gone in silence.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from validator.publish.times import parse_rfc3339

Say = Callable[[str], None]

RECORD: Final = (
    "class", "state", "id", "count", "key", "window_start", "fault", "acknowledged", "first", "changed", "ids",
)  # fmt: skip
"""What the status page's sentences and commands need of each violation that is listed."""

DAMAGED: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What reading a file raises that holds anything but what we wrote; bytes that are no UTF-8 are a ValueError too."""


def unreadable(path: Path, error: BaseException) -> str:
    """Why ``path`` cannot be used, as the beginning of a sentence."""
    kinds = {UnicodeDecodeError: "it is not UTF-8", json.JSONDecodeError: "it is not JSON"}
    return f"{path} is damaged or of another version ({kinds.get(type(error), 'it is incomplete')})"


def not_shown(path: Path, error: BaseException) -> str:
    """That the status page goes without a file until it is written again."""
    return f"{unreadable(path, error)}: it is not shown, and the next batch rewrites it"


def text_of(path: Path, say: Say) -> str | None:
    """The text of a file; None where it is absent or damaged. Raises OSError."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        say(not_shown(path, error))
        return None


def json_of(path: Path, say: Say) -> dict[str, Any] | None:
    """The object in a JSON file; None where the file is absent or damaged. Raises OSError."""
    text = text_of(path, say)
    if text is None:
        return None
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise TypeError(f"{path} holds no object")
    except DAMAGED as error:
        say(not_shown(path, error))
        return None
    return found


def violations_of(path: Path, say: Say) -> dict[str, Any] | None:
    """The violations in a JSON file; None where it is absent or damaged. Raises OSError."""
    found = json_of(path, say)
    if found is None:
        return None
    try:
        found["counts"]["confirmed"]
        for record in found["violations"]:
            for name in RECORD:
                record[name]
            parse_rfc3339(record["changed"] or "1970-01-01T00:00:00Z")
    except DAMAGED as error:
        say(not_shown(path, error))
        return None
    return found

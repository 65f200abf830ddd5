"""Derived files that an earlier process left in the state. A damaged file is reported in a sentence and rewritten.

No decision depends on them, so a damaged file does not stop a start. But data that was shown before must not disappear
silently.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from validator.publish.report import records_of
from validator.publish.report_types import ViolationsReport

Say = Callable[[str], None]

DAMAGED: Final = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions of reading a file with unexpected content. Bytes that are not UTF-8 raise a ValueError, too."""


def unreadable(path: Path, error: BaseException) -> str:
    """Return why ``path`` cannot be used, as the beginning of a sentence."""
    kinds = {UnicodeDecodeError: "it is not UTF-8", json.JSONDecodeError: "it is not JSON"}
    return f"{path} is damaged or of another version ({kinds.get(type(error), 'its content is not as expected')})"


def not_shown(path: Path, error: BaseException) -> str:
    """Return a sentence: the status page does not show ``path`` until the next batch rewrites it."""
    return f"{unreadable(path, error)}: the status page does not show it until the next batch rewrites it"


def text_of(path: Path, say: Say) -> str | None:
    """Return the text of a file; None if it is absent or damaged. Raises OSError."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        say(not_shown(path, error))
        return None


def json_of(path: Path, say: Say) -> dict[str, Any] | None:
    """Return the object in a JSON file; None if the file is absent or damaged. Raises OSError."""
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


def violations_of(path: Path, say: Say) -> ViolationsReport | None:
    """Return the violations in a JSON file; None if it is absent or damaged. Raises OSError."""
    found = json_of(path, say)
    if found is None:
        return None
    try:
        found["counts"]["confirmed"]
        records_of(found)
    except DAMAGED as error:
        say(not_shown(path, error))
        return None
    return cast("ViolationsReport", found)

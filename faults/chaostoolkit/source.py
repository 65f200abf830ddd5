"""Reads the documents of a sidecar, over HTTP or from its state folder.

The toolkit turns any exception of a probe or an action into a failed activity with the text of the exception.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

Name = Literal["report.json", "violations.json"]
_ANSWER_SECONDS_MAX: Final = 10.0


class NoAnswer(Exception):
    """The sidecar has no reliable answer. The message is one sentence with the fix."""


def read(source: str, name: Name) -> dict[str, Any]:
    """The document ``name`` of the sidecar at ``source``: its URL, or its state folder. Raises NoAnswer."""
    where = f"{source.rstrip('/')}/{name}"
    try:
        if source.startswith(("http://", "https://")):
            with urllib.request.urlopen(where, timeout=_ANSWER_SECONDS_MAX) as answer:  # noqa: S310
                found = json.load(answer)
        else:
            found = json.loads(Path(source, name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        fix = "name the URL or the state folder of a sidecar that has committed a batch"
        raise NoAnswer(f"{where}: cannot be read ({why}); {fix}.") from error
    if not isinstance(found, dict):
        raise NoAnswer(f"{where}: is not a document of a sidecar; name its URL or its state folder.")
    return found


def fresh_report(source: str, fresh_within_seconds: float | None) -> dict[str, Any]:
    """The report, at most ``fresh_within_seconds`` old (None: of any age). Raises NoAnswer.

    A sidecar that has ended leaves its last report. An old pass says nothing about the present.
    """
    report = read(source, "report.json")
    age = (datetime.now(UTC) - taken(report)).total_seconds()
    if fresh_within_seconds is not None and age > fresh_within_seconds:
        raise NoAnswer(
            f"{source}: the last report is {age:.0f} s old, so it says nothing about now; start the sidecar, or set"
            " fresh_within_seconds to null for a run that has ended."
        )
    return report


def taken(report: dict[str, Any]) -> datetime:
    """The time of the report, by the sidecar's clock."""
    return instant(str(report["time"]))


def instant(text: str) -> datetime:
    """The time of an RFC 3339 text. Raises ValueError, also if it has no time zone."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{text}: has no time zone; write an RFC 3339 time such as 2026-01-31T12:00:00Z.")
    return found

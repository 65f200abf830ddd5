"""An exact count of what a pipeline did, from the topics alone and after the fact: every id, where it came out."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.engines.reading import messages

Record = Mapping[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Count:
    """Per id; a window that is answered twice with different ids is no error, and counted aside."""

    events: int
    processed: int
    """Ids that a result carries."""
    missing: int
    duplicates: int
    """Times an id came out again."""
    misplaced: int
    """Ids in a result of another page or window than theirs, or of no input."""
    late: int
    """Ids that are on the late topic and in no result."""
    second_results: int
    newest: int
    """The highest id that came out."""


def count(clicks: Iterable[Record], results: Iterable[Record], late: Iterable[Record], window_ms: int) -> Count:
    """Compare the clicks whose windows had to close with the results and the late records."""
    cell_of = {e["id"]: (e["page"], window_of(e["timestamp"], window_ms)) for e in clicks}
    answered: Counter[int] = Counter()
    answers: Counter[tuple[str, int]] = Counter()
    misplaced = 0
    for result in results:
        cell = (result["page"], window_of(result["windowStart"], window_ms))
        answers[cell] += 1
        for event in result["clickIds"]:
            answered[event] += 1
            misplaced += cell_of.get(event) != cell
    aside = Counter(record["clickId"] for record in late)
    misplaced += sum(event not in cell_of for event in aside)
    handled = answered + aside
    newest = max(cell[1] for cell in cell_of.values())  # that of the events that closed all others
    due = {event for event, cell in cell_of.items() if cell[1] < newest}
    return Count(
        events=len(due),
        processed=len(answered),
        missing=len(due - handled.keys()),
        duplicates=sum(n - 1 for n in handled.values()),
        misplaced=misplaced,
        late=len(aside.keys() - answered.keys()),
        second_results=sum(n - 1 for n in answers.values()),
        newest=max(handled, default=0),
    )


def records(bootstrap_servers: str, topic: str) -> list[Record]:
    """All that a reader of committed records finds in ``topic`` now."""
    return [json.loads(message.value() or b"") for message in messages(bootstrap_servers, topic)]


def window_of(timestamp: str, window_ms: int) -> int:
    since = datetime.fromisoformat(timestamp).replace(tzinfo=UTC) - _EPOCH
    return since // timedelta(milliseconds=window_ms)

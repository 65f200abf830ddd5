"""An exact count of a pipeline's output, from its topics alone: the results of every id."""

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
    """Counts of ids. Two results of a window with different ids are not an error, and have a separate count."""

    events: int
    processed: int
    """Ids in a result."""
    missing: int
    duplicates: int
    """Number of repeated occurrences of ids."""
    misplaced: int
    """Ids in a result of another page or window, or of no input event."""
    late: int
    """Ids that are on the late topic and in no result."""
    second_results: int
    newest: int
    """The highest id in the output."""


def count(clicks: Iterable[Record], results: Iterable[Record], late: Iterable[Record], window_ms: int) -> Count:
    """Compare the clicks of closed windows with the results and the late records."""
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
    newest = max(cell[1] for cell in cell_of.values())  # the window of the events that closed all others
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
    """Return all records of ``topic`` that a read_committed consumer sees now."""
    return [json.loads(message.value() or b"") for message in messages(bootstrap_servers, topic)]


def window_of(timestamp: str, window_ms: int) -> int:
    since = datetime.fromisoformat(timestamp).replace(tzinfo=UTC) - _EPOCH
    return since // timedelta(milliseconds=window_ms)

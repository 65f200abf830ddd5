"""An exact count of a join from its topics alone: the events of each page and window, and the results.

An event belongs to one input: ``(0, 7)`` is click 7, ``(1, 7)`` update 7. A cell is a page and the start of a window.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from testbed.engines.join import Join
from tests.engines.offline_count import Record, window_of

Event = tuple[int, int]
Cell = tuple[str, int]
IDS = ("clickIds", "updateIds")
LATE_IDS = ("clickId", "updateId")


@dataclass(frozen=True)
class JoinCount:
    """Counts of events, in cells whose windows are closed by later events."""

    owed: int
    """Events of cells in which both inputs (left join: the clicks) have an event that was not set aside. Events that
    are set aside or dropped, and in no result, do not count."""
    processed: int
    """Events that a result carries."""
    late: int
    """Events that are on a late topic and in no result."""
    missing: int
    """Owed events without a result or late record."""
    duplicates: int
    """Number of repeated occurrences of events."""
    misplaced: int
    """Number of ids in results that belong to an event of another cell, or to no event."""
    clicks_alone: int
    """Results with ids of clicks only."""
    updates_alone: int
    second_results: int


def count(
    inputs: list[list[Record]],
    results: Iterable[Record],
    late: list[list[Record]],
    window_ms: int,
    dropped: Collection[Event] = (),
    join: Join = "inner",
) -> JoinCount:
    """Count the topics. ``inputs`` and ``late`` are per input, clicks first. ``dropped`` are late events that need
    no output."""
    cell_of: dict[Event, Cell] = {}
    for side, records in enumerate(inputs):
        cell_of |= {(side, e["id"]): (e["page"], window_of(e["timestamp"], window_ms)) for e in records}
    # The last events of each input only close the windows before them.
    newest = min(max(cell[1] for event, cell in cell_of.items() if event[0] == side) for side in (0, 1))
    answered: Counter[Event] = Counter()
    answers: Counter[Cell] = Counter()
    misplaced = 0
    alone = [0, 0]
    for result in results:
        cell = (result["page"], window_of(result["windowStart"], window_ms))
        answers[cell] += 1
        for side, name in enumerate(reversed(IDS)):
            alone[side] += not result[name]
        for side, name in enumerate(IDS):
            for number in result[name]:
                answered[side, number] += 1
                misplaced += cell_of.get((side, number)) != cell
    aside = Counter((side, record[LATE_IDS[side]]) for side, records in enumerate(late) for record in records)
    misplaced += sum(event not in cell_of for event in aside)
    cells: dict[Cell, list[Event]] = defaultdict(list)
    for event, cell in cell_of.items():
        if cell[1] < newest and (event in answered or (event not in aside and event not in dropped)):
            cells[cell].append(event)
    needed = {0, 1} if join == "inner" else {0}
    owed = {event for events in cells.values() if {side for side, _ in events} >= needed for event in events}
    out = answered + aside
    return JoinCount(
        owed=len(owed),
        processed=len(answered),
        late=len(aside.keys() - answered.keys()),
        missing=len(owed - out.keys()),
        duplicates=sum(n - 1 for n in out.values()),
        misplaced=misplaced,
        clicks_alone=alone[0],
        updates_alone=alone[1],
        second_results=sum(n - 1 for n in answers.values()),
    )

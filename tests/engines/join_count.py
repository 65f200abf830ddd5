"""An exact count of a join, from the topics alone and after the fact: what each page and window had, and what came out.

An event is one of an input: ``(0, 7)`` is click 7, ``(1, 7)`` update 7. A cell is a page and the start of a window.
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
    """Counts of events, in the cells whose windows had to close."""

    owed: int
    """Events of cells in which both inputs have one that was not set aside, in a left join the clicks; those set aside
    are not among them."""
    processed: int
    """Events that a result of their cell carries."""
    late: int
    """Events that came out on a late topic and in no result."""
    missing: int
    """Owed, and in neither."""
    duplicates: int
    """Times an event came out again."""
    misplaced: int
    """Events in a result of another cell than theirs, or of no input."""
    clicks_alone: int
    """Results with the ids of clicks only."""
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
    """``inputs`` and ``late`` by input, clicks first; ``dropped``: what came so late that it may come out nowhere."""
    cell_of: dict[Event, Cell] = {}
    for side, records in enumerate(inputs):
        cell_of |= {(side, e["id"]): (e["page"], window_of(e["timestamp"], window_ms)) for e in records}
    # The last events of both inputs only close the windows before them.
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

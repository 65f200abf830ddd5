"""Settling of positions by an operator: `ack --position` appends to a journal, the sidecar commits marks from it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Final

from validator.model.frontier import PartitionId
from validator.state.acknowledgements import append_lines
from validator.state.positions import Positions, Settlement, Stretch, joined, positions_of, within
from validator.state.tables import StateTables, Table, has_rows
from validator.stream.retention import retired_so_far

FILE: Final = "settled.jsonl"
_POSITION: Final = re.compile(r"(?P<topic>[^/]+)/(?P<partition>\d+)/(?P<first>\d+)(-(?P<last>\d+))?")


class NothingToSettle(Exception):
    """No record at a position can be settled, or the text is not a position."""

    exit_status = 2


class SettlementJournal:
    """The journal of positions that operators settled."""

    def __init__(self, state: Path) -> None:
        self._path = state / FILE
        self._size = 0
        self._found: list[Settlement] = []

    def read(self) -> list[Settlement]:
        """All settlements. Incomplete lines are ignored."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size != self._size:
            self._size, self._found = size, []
            for line in self._path.read_bytes().splitlines() if size else ():
                try:
                    self._found.append(Settlement.from_json(json.loads(line)))
                except (ValueError, KeyError, TypeError):
                    continue
        return self._found


def settle(state: Path, position: str, reason: str) -> Settlement:
    """Settle the undecodable records at ``TOPIC/PARTITION/OFFSET[-OFFSET]``.

    The sidecar applies this with its next batch. Raises `NothingToSettle`.
    """
    found = _POSITION.fullmatch(position)
    if found is None:
        raise NothingToSettle(
            f"ack: {position!r} is not a position; write TOPIC/PARTITION/OFFSET or TOPIC/PARTITION/OFFSET-OFFSET"
        )
    place = PartitionId(found["topic"], int(found["partition"]))
    first, last = int(found["first"]), int(found["last"] or found["first"])
    if last < first:
        raise NothingToSettle(f"ack: in {position!r} the last offset is below the first; write the smaller one first")
    known = _known(state)
    already = SettlementJournal(state).read()
    known.settle(already)
    hidden = known.hidden.get(place, ())
    parts = within(hidden, [Stretch(first, last, 0)])
    if not parts:
        raise NothingToSettle(_why_not(state, known, place, first, last))
    one = Settlement(place, joined(parts), reason, batch=known.batch)
    append_lines(state / FILE, [json.dumps({**one.to_json(), "time_us": time.time_ns() // 1000})])
    return one


def _known(state: Path) -> Positions:
    if not has_rows(state, Table.FACTS):
        return Positions()
    tables = StateTables(state)
    return positions_of(tables, retired_so_far(tables).known_positions())


def _why_not(state: Path, known: Positions, place: PartitionId, first: int, last: int) -> str:
    offsets = f"offset {first}" if first == last else f"offsets {first} to {last}"
    where = f"{place.topic}-{place.partition} {offsets}"
    hidden = known.hidden.get(place, ())
    if any(stretch.first <= last and first <= stretch.last for stretch in hidden):
        [near, *_] = [stretch for stretch in hidden if stretch.first <= last and first <= stretch.last]
        return (
            f"ack: the state keeps {near.records} undecodable records from offset {near.first} to {near.last} of "
            f"{place.topic}-{place.partition} as a unit: write {place.topic}/{place.partition}/{near.first}-{near.last}"
        )
    if any(stretch.first <= last and first <= stretch.last for stretch in known.settled_stretches.get(place, ())):
        return f"ack: {where} is settled already: there is nothing to do"
    some = ", ".join(f"{stretch.first}-{stretch.last}" for stretch in hidden[:5])
    elsewhere = f"; its undecodable records are at {some}" if some else ""
    return (
        f"ack: the state {state} has no undecodable input, late or rejected record at {where}{elsewhere}. "
        "An undecodable result is a violation: acknowledge it with --class undecodable"
    )

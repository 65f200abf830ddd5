"""Settling of positions by an operator: `ack --position` appends to a journal, the sidecar commits marks from it."""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_right
from pathlib import Path
from typing import Final

from validator.model.frontier import PartitionId
from validator.state.acknowledgements import append_lines
from validator.state.positions import Positions, Settlement, Stretch, positions_of, split
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


def known_positions(state: Path) -> Positions:
    """The positions that the facts of a state contain."""
    if not has_rows(state, Table.FACTS):
        return Positions()
    tables = StateTables(state)
    return positions_of(tables, retired_so_far(tables).known_positions())


def settle(state: Path, known: Positions, position: str, reason: str) -> Settlement:
    """Settle those of the ``known`` undecodable records that are at ``TOPIC/PARTITION/OFFSET[-OFFSET]``.

    The sidecar applies this with its next batch. Raises `NothingToSettle`.
    """
    matched = _POSITION.fullmatch(position)
    if matched is None:
        raise NothingToSettle(
            f"ack: {position!r} is not a position; write TOPIC/PARTITION/OFFSET or TOPIC/PARTITION/OFFSET-OFFSET"
        )
    partition = PartitionId(matched["topic"], int(matched["partition"]))
    first, last = int(matched["first"]), int(matched["last"] or matched["first"])
    if last < first:
        raise NothingToSettle(f"ack: in {position!r} the last offset is below the first; write the smaller one first")
    known.settle(SettlementJournal(state).read())
    hidden = known.hidden(partition)
    parts, _ = split(hidden, [Stretch(first, last, last - first + 1)])
    if not parts:
        near = hidden[max(0, bisect_right(hidden, (first,)) - 1) :][:5]
        some = ", ".join(f"{stretch.first}-{stretch.last}" for stretch in near)
        elsewhere = f"; its undecodable records are at {some}: settle whole ranges of these" if some else ""
        raise NothingToSettle(
            f"ack: the state {state} has no undecodable input, late or rejected record at {position} that is not "
            f"settled yet{elsewhere}. An undecodable result is a violation: acknowledge it with --class undecodable"
        )
    one = Settlement(partition, parts, reason, batch=known.batch)
    append_lines(state / FILE, [json.dumps({**one.to_json(), "time_us": time.time_ns() // 1000})])
    return one

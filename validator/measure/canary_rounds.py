"""The content of a canary round: events and results with exactly known violations. Pure.

A round follows from its number and its owner alone, so judging it needs no memory. Round n belongs to the instant
n x every. Its cells lie in the canary's window before that instant, and its last event is at the instant itself, so
that the watermark passes the cells at once. No event is ahead of the clock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from validator.model.classes import PLANTED

RIGHT: Final = "right"
"""The cell with a correct result: a violation in it is a false alarm."""
CELLS: Final = (RIGHT, *PLANTED)

_IDS_OF_A_ROUND: Final = 16
_CLOCK: Final = "clock"


@dataclass(frozen=True)
class Round:
    """Round ``number`` of ``owner``, a text that is unique to this start of this sidecar."""

    number: int
    every_us: int
    owner: str

    @property
    def window_start_us(self) -> int:
        """Start of the window of all judged cells of the round."""
        return (self.number - 1) * self.every_us

    def key(self, cell: str) -> str:
        """Return the key of one of `CELLS`."""
        return f"{self.owner}/{self.number}/{cell}"

    def events(self) -> list[bytes]:
        """Return the values for the input topic: two events for each cell, then the one that closes them."""
        events = [
            (number, self.key(cell), self.window_start_us + number % _IDS_OF_A_ROUND)
            for cell in CELLS
            for number in self._ids(cell)
        ]
        events.append((self._id(_IDS_OF_A_ROUND - 1), self.key(_CLOCK), self.window_start_us + self.every_us))
        return [_json({"id": number, "key": key, "time": time_us}) for number, key, time_us in events]

    def results(self) -> list[bytes]:
        """Return the values for the output topic: the results of each cell, with the violation that gives the cell its
        name."""
        answers = [
            (RIGHT, self._ids(RIGHT)),
            # Only one of two events is in the result: a result for the cell must not hide the loss of the other.
            ("missing", self._ids("missing")[:1]),
            ("duplicate", self._ids("duplicate")),
            ("duplicate", self._ids("duplicate")[:1]),
            # An event of the same round that belongs to another cell.
            ("misplaced", [*self._ids("misplaced"), self._ids(RIGHT)[0]]),
            ("unknown_id", [*self._ids("unknown_id"), self._id(_IDS_OF_A_ROUND - 2)]),
        ]
        results = [(self.key(cell), self.window_start_us, ids) for cell, ids in answers]
        results.append((self.key(_CLOCK), self.window_start_us + self.every_us, [self._id(_IDS_OF_A_ROUND - 1)]))
        return [_json({"key": key, "window": window_us, "ids": ids}) for key, window_us, ids in results]

    def _ids(self, cell: str) -> list[int]:
        at = 2 * CELLS.index(cell)
        return [self._id(at), self._id(at + 1)]

    def _id(self, at: int) -> int:
        return self.number * _IDS_OF_A_ROUND + at


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value).encode()

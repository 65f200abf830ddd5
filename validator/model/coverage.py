"""Coverage: every record that was read is found again (SEMANTICS section 5). Plain values, no I/O.

The reader counts the offsets that it passes before anything is decoded. The facts count the records of each partition,
the cells count the records again, after the fold. A second reading compares the topic itself with the stored facts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from validator.model.frontier import PartitionId
from validator.model.wording import plural

DIFFERENCES_KEPT: Final = 20
"""Number of differences that are kept. One is enough to make the verdict unknown for good."""
_GAPS_KEPT: Final = 8
"""Number of gaps that the reader names per range: with transactions each of them has one."""
_MARK: Final = "coverage_differs "


class RangeCount(NamedTuple):
    """What the reader counted in one range of a partition before it decoded anything.

    ``skipped``: offsets without a visible record. ``gaps``: some of the stretches of such offsets, (first, end), where
    the end is exclusive.
    """

    topic: str
    partition: int
    skipped: int
    gaps: tuple[tuple[int, int], ...] = ()

    @property
    def partition_id(self) -> PartitionId:
        """The partition."""
        return PartitionId(self.topic, self.partition)


class Counting:
    """Counts the offsets without a record in one range, while its records are read in the order of their offsets."""

    def __init__(self, start: int, end: int) -> None:
        self._start, self._end, self._next = start, end, start
        self._skipped = 0
        self._gaps: list[npt.NDArray[np.int64]] = []

    def add(self, offsets: npt.NDArray[np.int64]) -> None:
        """Note that the records at these offsets, one or more, were read."""
        self._skip(np.concatenate([[self._next], offsets[:-1] + 1]), offsets)
        self._next = int(offsets[-1]) + 1

    def _skip(self, firsts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> None:
        is_gap = ends > firsts
        if is_gap.any():
            found = np.stack([firsts[is_gap], ends[is_gap]], axis=1)
            self._skipped += int((found[:, 1] - found[:, 0]).sum())
            self._gaps.append(found)

    def result(self, topic: str, partition: int) -> RangeCount:
        """The count, once the whole range was read."""
        self._skip(np.array([self._next]), np.array([self._end]))
        gaps = np.concatenate(self._gaps) if self._gaps else np.empty((0, 2), dtype=np.int64)
        if len(gaps) > _GAPS_KEPT:
            # The choice is the same in each reading of the range, since a repeated task must return the same.
            gaps = gaps[np.sort(np.random.default_rng(self._start).choice(len(gaps), _GAPS_KEPT, replace=False))]
        return RangeCount(topic, partition, self._skipped, tuple((int(first), int(end)) for first, end in gaps))


def skipped_of(counts: Iterable[RangeCount]) -> dict[PartitionId, int]:
    """Return partition -> offsets that the reader passed without a record."""
    found: dict[PartitionId, int] = {}
    for count in counts:
        found[count.partition_id] = found.get(count.partition_id, 0) + count.skipped
    return found


@dataclass
class ReadTwice:
    """How much was read a second time: ranges, and the offsets in them. ``not_done``: ranges that could not be read
    again, for example because the brokers did not answer or records had expired."""

    ranges: int = 0
    offsets: int = 0
    not_done: int = 0


class Difference(NamedTuple):
    """A second reading of a range that differs from the stored facts. ``stored``, ``found``: the number of records in
    the facts, and that of the second reading. If they are equal, the ids or offsets of the records differ."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    stored: int
    found: int

    @property
    def sentence(self) -> str:
        """The difference in words."""
        last = self.next_offset - 1
        offsets = f"at offset {last}" if last == self.first_offset else f"from offset {self.first_offset} to {last}"
        read = f"a second reading of {self.topic}-{self.partition} {offsets} found {plural(self.found, 'record')}"
        if self.stored == self.found:
            return f"{read} as in the stored facts, but with other ids or offsets"
        return f"{read}, but the stored facts count {self.stored:,}"

    def to_mark(self) -> str:
        """The text of a mark in the facts table."""
        return _MARK + json.dumps(self)

    @classmethod
    def of_mark(cls, mark: str) -> Self | None:
        """The difference of a mark of `to_mark`; None for another mark."""
        return cls(*json.loads(mark.removeprefix(_MARK))) if mark.startswith(_MARK) else None


def differences_by(marks: Iterable[str]) -> tuple[Difference, ...]:
    """Return the differences that the marks of `Difference.to_mark` name. Other marks are ignored."""
    found = (Difference.of_mark(mark) for mark in marks)
    return tuple(difference for difference in found if difference is not None)

"""Fields of variable place in packed bytes, a column at once: variable-length integers, texts and lists of them.

A batch is one text of bytes in which each row has a place, which advances field by field. A row that may be invalid is
marked as bad, and its place no longer matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from validator.model.arrays import Bools, Ints, texts_of
from validator.settings.encodings.float32 import shortest_of

Words = npt.NDArray[np.uint64]

_PADDING: Final = 24
"""Bytes after the last row, so that an integer may be read at each place."""
_CONTINUES: Final = np.uint64(0x8080808080808080)
_MASKS: Final = [
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
]
"""Two neighbouring groups of seven bits become one of 14, then of 28 and 56."""
_ONE: Final = np.uint64(1)
_SHORT_BYTES: Final = 5


class Packed:
    """The rows of a batch. ``at``: the place of each row. ``ends``: where each row ends. ``bad``: rows to leave out."""

    def __init__(self, content: npt.NDArray[np.uint8], starts: Ints, ends: Ints) -> None:
        self.content = np.concatenate([content, np.zeros(_PADDING, np.uint8)])
        self._words: Words = np.ndarray((len(self.content) - 7,), "<u8", self.content.data, strides=(1,))
        self._last = len(content)
        self.at = starts.copy()
        self.ends = ends
        self.bad = np.zeros(len(starts), np.bool_)

    def unsigned(self, rows: Ints) -> Words:
        """The variable-length integer of each of ``rows``, as unsigned; their places advance behind it."""
        found, sizes = self._unsigned_at(self.at[rows])
        self.advance(rows, sizes)
        return found

    def short(self, rows: Ints) -> Words:
        """As `unsigned`, of integers of at most five bytes."""
        found, sizes = self._unsigned_at(self.at[rows])
        self.advance(rows, np.where(sizes > _SHORT_BYTES, self._last + 1, sizes))
        return found

    def signed(self, rows: Ints) -> Ints:
        """As `unsigned`, of integers in zigzag encoding."""
        return of_zigzag(self.unsigned(rows))

    def _unsigned_at(self, places: Ints) -> tuple[Words, Ints]:
        """The integers at ``places``, and their sizes in bytes. One of more than 64 bits has a size beyond any row."""
        words = self._words[places]
        ends = ~words & _CONTINUES
        lowest = ends & (~ends + _ONE)
        # The last byte of the integer is the one whose highest bit is `lowest`; 0: it is beyond these eight bytes.
        words &= (lowest << _ONE) - _ONE
        words &= ~_CONTINUES
        for low, high, shift in _MASKS:
            words = (words & low) | ((words & high) >> shift)
        sizes = (lowest.astype(np.float64).view(np.int64) >> 52) - 1023
        sizes = (sizes + 1) >> 3
        (longer,) = np.nonzero(lowest == 0)
        if len(longer):
            ninth, tenth = (self.content[places[longer] + place].astype(np.uint64) for place in (8, 9))
            words[longer] |= (ninth & np.uint64(0x7F)) << np.uint64(56)
            has_tenth = ninth >= 128
            words[longer] |= np.where(has_tenth, tenth, 0).astype(np.uint64) << np.uint64(63)
            sizes[longer] = np.where(has_tenth, np.where(tenth <= 1, 10, 2**40), 9)
        return words, sizes

    def fixed(self, rows: Ints, size: int) -> Ints:
        """The signed integer of four or eight little-endian bytes of each row. The places advance behind it."""
        words = self._words[self.at[rows]]
        self.advance(rows, size)
        found: Ints = words.view(np.int64) if size == 8 else words.astype(np.uint32).view(np.int32).astype(np.int64)
        return found

    def advance(self, rows: Ints, sizes: Ints | int) -> None:
        """Move the places of ``rows``. Rows that leave their bytes are bad."""
        at = self.at[rows] + sizes
        wrong = (at > self.ends[rows]) | (at < self.at[rows])
        self.at[rows] = np.where(wrong, self._last, at)
        if wrong.any():
            self.bad[rows[wrong]] = True

    def refuse(self, rows: Ints, wrong: Bools) -> None:
        """Mark those of ``rows`` as bad that are ``wrong``."""
        if wrong.any():
            self.bad[rows[wrong]] = True
            self.at[rows[wrong]] = self._last

    def good(self, rows: Ints) -> Ints:
        """Those of ``rows`` that are not bad."""
        bad = self.bad[rows]
        return rows[~bad] if bad.any() else rows

    def spans(self, rows: Ints, sizes: Ints) -> tuple[Ints, Ints]:
        """Starts and ends of the next ``sizes`` bytes of each row. The places advance behind them."""
        starts = self.at[rows]
        self.advance(rows, sizes)
        wrong = self.bad[rows]
        if wrong.any():
            return np.where(wrong, self._last, starts), np.where(wrong, self._last, starts + sizes)
        return starts, starts + sizes

    def texts(self, rows: Ints, starts: Ints, ends: Ints) -> pa.Array:
        """A span of each of ``rows``, in ascending order, as texts. A row whose span is not UTF-8 is bad, and its text
        null."""
        raw = self._bytes(starts, ends)
        try:
            return raw.cast(pa.string())
        except pa.ArrowInvalid:
            found = texts_of(raw)
            self.bad[rows[~found.is_valid().to_numpy(zero_copy_only=False)]] = True
            return found

    def texts_of_good(self, rows: Ints, starts: Ints, ends: Ints) -> pa.Array:
        """As `texts`, of rows that may be bad: their texts are null."""
        good = np.flatnonzero(~self.bad[rows])
        found = self.texts(rows[good], starts[good], ends[good])
        order = np.full(len(starts), -1, np.int64)
        order[good] = np.arange(len(good))
        return found.take(pa.array(order, mask=order < 0))

    def _bytes(self, starts: Ints, ends: Ints) -> pa.Array:
        places = np.empty(2 * len(starts) + 1, np.int32)
        places[:-1:2], places[1::2] = starts, ends
        places[-1] = ends[-1] if len(ends) else 0
        buffers = [None, pa.py_buffer(places), pa.py_buffer(self.content)]
        parts = pa.Array.from_buffers(pa.binary(), 2 * len(starts), buffers)
        return parts.take(pa.array(np.arange(0, 2 * len(starts), 2)))

    def run_of_signed(self, rows: Ints, counts: Ints) -> tuple[Ints, Ints]:
        """As `run_of_unsigned`, of integers in zigzag encoding."""
        found, counts = self.run_of_unsigned(rows, counts)
        return of_zigzag(found), counts

    @cached_property
    def _last_bytes(self) -> Ints:
        """The places of all bytes that may end an integer."""
        return np.flatnonzero(self.content[: self._last] < 0x80)

    def count_in(self, starts: Ints, ends: Ints) -> Ints:
        """The number of integers in each span, if it has nothing else."""
        last_bytes = self._last_bytes
        return np.searchsorted(last_bytes, ends) - np.searchsorted(last_bytes, starts)

    def run_of_unsigned(self, rows: Ints, counts: Ints) -> tuple[Words, Ints]:
        """The next integers of each row, row after row, and how many of them a row has: its one of ``counts``, or none
        if it is bad. The places advance behind them."""
        # Each integer has at least one byte.
        wrong = (counts < 0) | (counts > self.ends[rows] - self.at[rows])
        last_bytes = self._last_bytes
        first = np.searchsorted(last_bytes, self.at[rows])
        wrong |= first + counts > len(last_bytes)
        self.refuse(rows, wrong)
        counts = np.where(wrong, 0, counts)
        offsets = np.cumsum(counts) - counts
        number = np.arange(int(counts.sum())) - np.repeat(offsets, counts)
        starts = np.repeat(self.at[rows], counts)
        later = number > 0
        starts[later] = last_bytes[(np.repeat(first, counts) + number)[later] - 1] + 1
        found, sizes = self._unsigned_at(starts)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        self.advance(rows, ends[offsets + counts] - ends[offsets])
        return found, counts


def of_zigzag(words: Words) -> Ints:
    """Integers in zigzag encoding as signed ones."""
    found: Ints = ((words >> _ONE) ^ (~(words & _ONE) + _ONE)).view(np.int64)
    return found


def floats_of(bits: Ints, size: int) -> pa.Array:
    """Floating-point numbers of four or eight bytes, from what `Packed.fixed` returns; null where they are NaN."""
    found = bits.view(np.float64) if size == 8 else shortest_of(bits.astype(np.int32).view(np.float32))
    return pa.array(found, from_pandas=True)


Columns = Mapping[tuple[str, ...], pa.Array]
"""A column for each path."""


def of_good(packed: Packed, rows: Ints, columns: Columns) -> tuple[Ints, Columns]:
    """Those of ``rows`` that are not bad, and their columns."""
    if not packed.bad.any():
        return rows, columns
    good = np.flatnonzero(~packed.bad)
    chosen = pa.array(good)
    return rows[good], {path: column.take(chosen) for path, column in columns.items()}


def joined(count: int, groups: Sequence[tuple[Ints, Columns]]) -> Columns | None:
    """The columns of groups of rows as those of ``count`` rows, null elsewhere. Groups whose columns have other types
    than those of the largest group are left out."""
    if not groups:
        return None
    largest = max(groups, key=lambda group: len(group[0]))[1]
    if len(groups) == 1 and len(groups[0][0]) == count:
        return groups[0][1]
    alike = [(rows, found) for rows, found in groups if all(found[path].type == largest[path].type for path in largest)]
    order = np.full(count, -1, np.int64)
    order[np.concatenate([rows for rows, _ in alike])] = np.arange(sum(len(rows) for rows, _ in alike))
    chosen = pa.array(order, mask=order < 0)
    return {path: pa.concat_arrays([found[path] for _, found in alike]).take(chosen) for path in largest}

"""Row numbers of cells by window start and key: a hash table in arrays, without a Python object per cell.

Open addressing with linear probing (Knuth, TAOCP volume 3, section 6.4), for many cells at a time. If hashes are equal,
window starts and keys are compared, so a collision costs only time.
"""

from __future__ import annotations

import secrets
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.fingerprints import hash_a, xxh64
from validator.model.arrays import Bools, Ints, one_array

_Words = npt.NDArray[np.uint64]
_Bytes = npt.NDArray[np.uint8]

_FREE: Final = -1
_SLOTS_LEAST: Final = 1024
_SLOTS_PER_ROW_LEAST: Final = 2

# It differs in each process, so that a producer cannot choose keys whose hashes are equal.
_SEED: Final = secrets.randbits(64)


class CellIndex:
    """The row numbers of cells, from 0 in the order in which they are added."""

    def __init__(self) -> None:
        self._size = 0
        self._room = _batch(np.empty(0, dtype=np.int64), pa.array([], pa.large_string()))
        self._slots = _free_slots(0)

    def __len__(self) -> int:
        return self._size

    def find(self, windows: Ints, keys: pa.Array | pa.ChunkedArray) -> Ints:
        """Return the number of each cell, -1 if it was not added. ``keys``: texts; null is a key of its own."""
        return self._find(_batch(windows, keys))

    def add(self, windows: Ints, keys: pa.Array | pa.ChunkedArray) -> Ints:
        """Return the number of each cell. A new cell gets the next number."""
        given = _batch(windows, keys)
        found = self._find(given)
        missing = np.flatnonzero(found < 0)
        if not len(missing):
            return found
        new = given.take(missing)
        if (self._size + len(missing)) * _SLOTS_PER_ROW_LEAST > len(self._slots):
            self._rebuild(self._size + len(missing))
        # Among equal cells in ``new``, the first one owns the slot.
        owner, slot = _claimed(self._slots, new.hashes, first=self._size, cells=new)
        owns = owner == np.arange(len(missing))
        number = self._size + np.cumsum(owns) - 1
        self._slots[slot[owns]] = number[owns]
        self._append(new if owns.all() else new.take(np.flatnonzero(owns)))
        found[missing] = number[owner]
        return found

    def keep(self, rows: Ints) -> None:
        """Remove all cells except ``rows``, and renumber those from 0 in the order of ``rows``."""
        self._room = self._cells().take(rows)
        self._size = len(rows)
        self._rebuild(self._size)

    def keys(self, rows: Ints) -> pa.Array:
        """Return the keys of the cells with these numbers: texts or null."""
        cells = self._cells()
        return pc.if_else(pa.array(cells.is_null[rows]), pa.scalar(None, pa.large_string()), cells.texts(rows))

    @property
    def starts(self) -> Ints:
        """The window start of each cell, by number."""
        return self._cells().windows

    def _find(self, given: _Batch) -> Ints:
        cells = self._cells()
        found = np.full(len(given.windows), -1, dtype=np.int64)
        slot = _first_slots(given.hashes, self._slots)
        pending = np.arange(len(found))
        while len(pending):
            row = self._slots[slot[pending]]
            pending, row = pending[row != _FREE], row[row != _FREE]
            same = cells.equal(row, given, pending)
            found[pending[same]] = row[same]
            pending = pending[~same]
            slot[pending] = (slot[pending] + 1) % len(self._slots)
        return found

    def _cells(self) -> _Batch:
        room, size = self._room, self._size
        return _Batch(
            room.windows[:size],
            room.hashes[:size],
            room.is_null[:size],
            room.ends[: size + 1],
            room.data[: room.ends[size]],
        )

    def _append(self, new: _Batch) -> None:
        room, size = self._room, self._size
        used = int(room.ends[size])
        self._room = _Batch(
            _appended(room.windows, size, new.windows),
            _appended(room.hashes, size, new.hashes),
            _appended(room.is_null, size, new.is_null),
            _appended(room.ends, size + 1, used + new.ends[1:]),
            _appended(room.data, used, new.data),
        )
        self._size += len(new.windows)

    def _rebuild(self, rows: int) -> None:
        """Make slots for ``rows`` cells, and enter the present cells."""
        self._slots = _free_slots(rows)
        _claimed(self._slots, self._cells().hashes, first=0, cells=None)


class _Batch(NamedTuple):
    """Cells as arrays. The key of cell i is ``data[ends[i]:ends[i + 1]]``, which is empty if the key is null."""

    windows: Ints
    hashes: _Words
    is_null: Bools
    ends: Ints
    data: _Bytes

    def texts(self, rows: Ints) -> pa.Array:
        """Return the keys of the cells ``rows``; an empty text if the key is null."""
        whole = pa.LargeStringArray.from_buffers(len(self.windows), pa.py_buffer(self.ends), pa.py_buffer(self.data))
        return whole.take(pa.array(rows))

    def take(self, rows: Ints) -> _Batch:
        """Return the cells ``rows``."""
        return _Batch(self.windows[rows], self.hashes[rows], self.is_null[rows], *_bytes_of(self.texts(rows)))

    def equal(self, rows: Ints, other: _Batch, others: Ints) -> Bools:
        """Return which of the cells ``rows`` equal the cells ``others`` of ``other``, one by one."""
        same: Bools = (self.hashes[rows] == other.hashes[others]) & (self.windows[rows] == other.windows[others])
        same &= self.is_null[rows] == other.is_null[others]
        at = np.flatnonzero(same)
        texts = pc.equal(self.texts(rows[at]), other.texts(others[at]))
        same[at] = np.asarray(texts.to_numpy(zero_copy_only=False), dtype=np.bool_)
        return same


def _batch(windows: Ints, keys: pa.Array | pa.ChunkedArray) -> _Batch:
    texts = one_array(keys)
    is_null = np.asarray(texts.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)
    ends, data = _bytes_of(pc.fill_null(texts.cast(pa.large_string()), ""))
    return _Batch(windows, _hashes(windows, is_null, ends, data), is_null, ends, data)


def _bytes_of(texts: pa.Array) -> tuple[Ints, _Bytes]:
    """Return ends and bytes of texts without nulls."""
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
    if not len(ends):
        ends = np.zeros(1, dtype=np.int64)
    return ends - ends[0], np.frombuffer(data or b"", dtype=np.uint8)[ends[0] : ends[-1]]


def _hashes(windows: Ints, is_null: Bools, ends: Ints, data: _Bytes) -> _Words:
    of_keys = xxh64(data, ends, _SEED).view(np.int64)
    with np.errstate(over="ignore"):
        return hash_a(of_keys + windows + is_null).view(np.uint64)


def _free_slots(rows: int) -> Ints:
    size = _SLOTS_LEAST
    # Twice the least size, so that the number of rows can double before the next growth.
    while size < 2 * _SLOTS_PER_ROW_LEAST * rows:
        size *= 2
    return np.full(size, _FREE, dtype=np.int64)


def _first_slots(hashes: _Words, slots: Ints) -> Ints:
    return (hashes % np.uint64(len(slots))).astype(np.int64)


def _claimed(slots: Ints, hashes: _Words, *, first: int, cells: _Batch | None) -> tuple[Ints, Ints]:
    """Put ``first + i`` into a slot for each i; none of them is in ``slots`` yet.

    ``cells``: the cells with these ``hashes``, if some of them may be equal; None if all differ. Returns, for each i,
    the smallest j whose cell is equal, and the slot of j.
    """
    owner, slot = np.arange(len(hashes)), _first_slots(hashes, slots)
    pending = owner.copy()
    while len(pending):
        at = slot[pending]
        free = slots[at] == _FREE
        # NumPy assigns in this order, so the smallest of several numbers remains.
        slots[at[free][::-1]] = first + pending[free][::-1]
        holder = slots[at] - first
        done = holder == pending
        if cells is not None:
            others = np.flatnonzero(~done & (holder >= 0))
            same = others[cells.equal(holder[others], cells, pending[others])]
            owner[pending[same]] = holder[same]
            done[same] = True
        pending = pending[~done]
        slot[pending] = (slot[pending] + 1) % len(slots)
    return owner, slot


def _appended(array: npt.NDArray[Any], used: int, more: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ``array`` with ``more`` after the first ``used`` entries; a longer copy if there is no room."""
    if not len(more):
        # Arrow's arrays are not writable.
        return array
    size = used + len(more)
    if size > len(array):
        grown = np.empty(max(size, 2 * len(array)), dtype=array.dtype)
        grown[:used] = array[:used]
        array = grown
    array[used:size] = more
    return array

"""Arrow columns as NumPy arrays of 64-bit integers, and sums over groups. Sums wrap, as fingerprints need."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

if find_spec("dateutil") is None:
    # PyArrow searches all paths for this module at each conversion of a Python value, which takes five times as long as
    # the conversion. The entry ends the search at once, with the same error.
    sys.modules.setdefault("dateutil", None)  # type: ignore[arg-type]

Ints = npt.NDArray[np.int64]
"""One integer per row."""
Bools = npt.NDArray[np.bool_]
"""One truth value per row."""

ABSENT: Final = int(np.iinfo(np.int64).min)
"""Stands for null. It is earlier than any time, so the maximum of an absent and a present value is the present one."""
NEVER: Final = int(np.iinfo(np.int64).max)
"""Stands for null in minima: the minimum of an absent and a present value is the present one."""


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one array. Nothing is copied if it is one already."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def ints(column: pa.ChunkedArray | pa.Array, absent: int = ABSENT) -> Ints:
    """Return a column of integers, with ``absent`` in place of null."""
    values = one_array(column)
    if values.null_count:
        values = pc.fill_null(values, absent)
    return np.asarray(values.cast(pa.int64()).to_numpy(zero_copy_only=False), dtype=np.int64)


def texts_of(values: pa.Array) -> pa.Array:
    """Return binary values as texts; null if they are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(map(_text_or_none, values.to_pylist()), pa.string())


def _text_or_none(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def nullable(values: Ints, absent: int = ABSENT) -> pa.Array:
    """Return an Arrow column with null in place of ``absent``."""
    return pa.array(values, pa.int64(), mask=values == absent)


def is_one_of(column: pa.ChunkedArray, *texts: str) -> Bools:
    """Return which rows of a column of texts are one of ``texts``. Null is none of them."""
    found = pc.is_in(column, value_set=pa.array(texts, pa.string()))
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)


def totals(groups: Ints, values: Ints, count: int) -> Ints:
    """Return the sum of ``values`` in each of ``count`` groups."""
    found = np.zeros(count, dtype=np.int64)
    np.add.at(found, groups, values)
    return found


def counts(groups: Ints, where: Bools, count: int, times: Ints | None = None) -> Ints:
    """Return the number of rows in each of ``count`` groups for which ``where`` holds. ``times``: how often each row
    counts; None: once."""
    if times is not None:
        return totals(groups[where], times[where], count)
    return np.bincount(groups[where], minlength=count).astype(np.int64)


def present(value: np.int64 | int) -> int | None:
    """Return one value as a number, or None if it stands for null."""
    return None if value in (ABSENT, NEVER) else int(value)


def run_starts(*columns: Ints) -> Bools:
    """Return which of the sorted rows differ from the row before in any column. The first row does."""
    starts = np.zeros(len(columns[0]), dtype=np.bool_)
    starts[:1] = True
    for column in columns:
        starts[1:] |= column[1:] != column[:-1]
    return starts


def listed(column: pa.ChunkedArray | pa.Array) -> tuple[Ints, pa.Array]:
    """Return a column of lists as (row number of each item, items). A null list has no items."""
    lists = one_array(column)
    parents = np.asarray(pc.list_parent_indices(lists).to_numpy(zero_copy_only=False), dtype=np.int64)
    return parents, pc.list_flatten(lists)


def field(structs: pa.Array, name: str) -> pa.Array:
    """Return one field of a column of structs."""
    return pc.struct_field(structs, name)


def coded(texts: Sequence[pa.Array]) -> tuple[list[Ints], list[str]]:
    """Return columns of texts as numbers that sort as the texts do, and the texts by number."""
    joined = pa.concat_arrays([column.cast(pa.string()) for column in texts]) if texts else pa.array([], pa.string())
    encoded = joined.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    rank = np.empty(len(names), dtype=np.int64)
    rank[order] = np.arange(len(names))
    codes = rank[ints(encoded.indices)] if len(names) else np.empty(0, dtype=np.int64)
    parts, start = [], 0
    for column in texts:
        parts.append(codes[start : start + len(column)])
        start += len(column)
    return parts, [names[i] for i in order]


def interleaved(columns: Sequence[pa.Array], size: int, kind: pa.DataType) -> pa.ListArray:
    """Return, for each of ``size`` rows, a list of the row's item in each column. ``kind``: the type of the items."""
    items = pa.concat_arrays(columns) if columns else pa.array([], kind)
    if len(columns) > 1:
        items = items.take(pa.array(np.arange(len(items)).reshape(len(columns), size).T.ravel()))
    return lists_of(len(columns), items, size)


def lists_of(width: int, items: pa.Array, size: int) -> pa.ListArray:
    """Return ``size`` lists of ``width`` consecutive items each."""
    return pa.ListArray.from_arrays(pa.array(np.arange(size + 1, dtype=np.int32) * np.int32(width)), items)

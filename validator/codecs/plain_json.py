"""JSON records that Arrow reads as Spark's parser does: which they are, and their columns."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from validator.codecs.fingerprints import Ints

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

_LONG: Final = 1_000
"""Bytes from which on a record can meet the limits of Spark's parser: digits of a number, depth, length of a name."""
_TOO_LONG: Final = 1_000_000
_MANY_DIGITS: Final = 500
"""Spark's parser takes numbers of 1,000 digits: those of all parts together."""
_IN_NUMBERS: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789+-.eE", np.uint8))
_LONG_NAME: Final = 50_000
"""Bytes; Spark's parser takes names of that many characters."""
_MANY_LEVELS: Final = 500
_MINUS_ZERO: Final = re.compile(rb":\s*-0")


def regular(values: pa.Array) -> Bools:
    """Which values are in braces, hold no escape, no control character and nothing but UTF-8, and are not too long."""
    offsets, data = _raw(values)
    lengths = np.diff(offsets)
    good: Bools = (lengths >= 2) & (lengths <= _TOO_LONG)
    if values.null_count:
        good &= values.is_valid().to_numpy(zero_copy_only=False)
    if not good.any():
        return good
    starts = np.where(good, offsets[:-1], offsets[0])
    lasts = np.where(good, offsets[1:] - 1, offsets[0])
    good &= (data[starts] == ord("{")) & (data[lasts] == ord("}"))
    good[_rows_of(np.flatnonzero((data < 0x20) | (data == ord("\\"))), offsets)] = False
    if len(data) and data.max() >= 0x80:
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            good[_rows_of(np.flatnonzero(data >= 0x80), offsets)] = False
    for row in np.flatnonzero(good & (lengths > _LONG)):
        good[row] = _within_limits(data[offsets[row] : offsets[row + 1]])
    return good


def _within_limits(value: Bytes) -> bool:
    """Whether Spark's parser takes a record so deep, with numbers and names so long."""
    if np.count_nonzero((value == ord("{")) | (value == ord("["))) > _MANY_LEVELS:
        return False
    others = np.flatnonzero(~_IN_NUMBERS[value])
    if np.diff(others).max() > _MANY_DIGITS:
        return False
    quotes = np.flatnonzero(value == ord('"'))
    long = np.flatnonzero(np.diff(quotes) - 1 > _LONG_NAME)
    return not any(value[end + 1 :].tobytes().lstrip().startswith(b":") for end in quotes[long + 1])


def _rows_of(places: Ints, offsets: Ints) -> Ints:
    """The rows that hold these bytes."""
    rows: Ints = np.searchsorted(offsets, places, side="right") - 1
    return rows


def _raw(values: pa.Array) -> tuple[Ints, Bytes]:
    """The bytes of all values as they lie in memory, and where in them each begins and the last ends."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    if data is None:
        return ends - ends[0], np.zeros(0, dtype=np.uint8)
    return ends - ends[0], np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]


def objects(values: pa.Array, schema: pa.Schema) -> pa.Table | None:
    """The values as columns, row by row; None where one of them is not exactly one object of that schema.

    Every value begins with a brace and ends with one and holds no line break, so that no row can begin but at a value's
    beginning: there are as many rows as values, or more where a value holds several objects.
    """
    lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), b"\n")
    text = lines[0].as_buffer()
    reading = pj.ReadOptions(use_threads=False, block_size=max(text.size, 1) + 1)
    parsing = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(pa.BufferReader(text), reading, parsing)
    except pa.ArrowException:
        return None
    if table.num_rows != len(values) or not table.schema.equals(schema):
        return None
    # Spark keeps `-0` as it is written, a text.
    return table if not _holds_zero(table) or _MINUS_ZERO.search(text) is None else None


def _holds_zero(table: pa.Table) -> bool:
    """Whether any number in it is zero."""
    for column in table.columns:
        if pa.types.is_struct(column.type):
            if column.num_chunks and _holds_zero(
                pa.Table.from_arrays(column.combine_chunks().flatten(), schema=pa.schema(list(column.type)))
            ):
                return True
        elif column.type == pa.int64() and pc.any(pc.equal(column, 0)).as_py():
            return True
    return False

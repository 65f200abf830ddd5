"""JSON records that Arrow reads as `validator.codecs.one_record` does: which they are, and their columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from validator.codecs.fingerprints import Ints

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Path = tuple[str, ...]
"""Names from the root of a value."""

_TYPES: Final[dict[type, pa.DataType]] = {int: pa.int64(), str: pa.string()}
_LIST: Final = pa.list_(pa.int64())

_LONG: Final = 1_000
"""Bytes from which on a record can meet the limits of a number's digits and of depth."""
_TOO_LONG: Final = 1_000_000
_MANY_DIGITS: Final = 500
"""Fewer than `validator.codecs.one_record.LONGEST_NUMBER`."""
_IN_NUMBERS: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789+-.eE", np.uint8))
_MANY_LEVELS: Final = 500
_NO_NUMBER: Final = re.compile(rb"[:,\[]\s*-?(?:NaN|Inf)")


BLOCK: Final = 512
"""Records that are tried together where a whole batch did not parse."""
AT_ONCE: Final = 2**28
"""Bytes that are read as one text; Arrow counts them in 32 bits."""


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
    """Whether a record is surely not too deep, and its numbers are not too long."""
    if np.count_nonzero((value == ord("{")) | (value == ord("["))) > _MANY_LEVELS:
        return False
    return bool(np.diff(np.flatnonzero(~_IN_NUMBERS[value])).max() <= _MANY_DIGITS)


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
    return None if _holds_no_json(text.to_pybytes()) else table


def _holds_no_json(text: bytes) -> bool:
    """Whether NaN or Infinity may be among the values."""
    # Of these, looking for a single byte is by far the fastest.
    if b"N" not in text and b"I" not in text:
        return False
    return (b"NaN" in text or b"Inf" in text) and _NO_NUMBER.search(text) is not None


def columns(values: pa.Array, rows: Ints, schema: pa.Schema) -> tuple[pa.Table, Ints] | None:
    """Those ``rows`` of the values that Arrow reads as ``schema``, as columns, and which they are."""
    if values.nbytes <= AT_ONCE:
        table = objects(values if len(rows) == len(values) else values.take(pa.array(rows)), schema)
        if table is not None:
            return table, rows
    found = []
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        table = objects(values.take(pa.array(block)), schema)
        if table is not None:
            found.append((table, block))
    if not found:
        return None
    return pa.concat_tables([table for table, _ in found]), np.concatenate([block for _, block in found])


def schema_like(values: pa.Array, rows: Ints, paths: Sequence[Path], lists: Sequence[Path] = ()) -> pa.Schema | None:
    """``paths`` as numbers or texts, as the first record that can be read has them, and ``lists`` as lists of integers;
    None where no record can be read."""
    for row in rows[[0, len(rows) // 2, -1]] if len(rows) else ():
        try:
            record = json.loads(values[int(row)].as_py())
            tree: dict[str, Any] = {}
            for path in (*paths, *lists):
                node = tree
                at = record
                for name in path[:-1]:
                    node, at = node.setdefault(name, {}), at[name]
                node[path[-1]] = _LIST if path in lists else _TYPES[type(at[path[-1]])]
            return pa.schema(list(_type(tree)))
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return None


def _type(tree: dict[str, Any]) -> Iterator[pa.Field]:
    for name, node in tree.items():
        yield pa.field(name, pa.struct(list(_type(node))) if isinstance(node, dict) else node)


def leaf(table: pa.Table, path: Path) -> pa.Array:
    """The column at the end of a path; null where a name on the way is."""
    column = table[path[0]].combine_chunks()
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column

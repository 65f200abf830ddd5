"""JSON records that Arrow reads in the same way as `validator.codecs.one_record`: their selection and columns."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
_SCALAR_TYPES: Final = {**_TYPES, bool: pa.bool_(), float: pa.float64()}
_NUMBER_TYPES: Final = {**_SCALAR_TYPES, int: pa.float64()}

AMOUNT: Final = pa.decimal256(76, 38)
"""Type of a number whose exact value counts. Arrow reads it from a number or a text, as fast as a double."""

_LONG: Final = 1_000
"""Size in bytes above which a record can reach the limits of a number's digits and of depth."""
_TOO_LONG: Final = 1_000_000
_MANY_DIGITS: Final = 500
"""Fewer than `validator.codecs.one_record.LONGEST_NUMBER`."""
_CHUNK: Final = 200
"""Bytes of a chunk. A number that is too long has 499 bytes or more before or after its `e`. These fill at least
one chunk."""
_IN_NUMBERS: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789+-.eE", np.uint8))
_MANY_LEVELS: Final = 500
_NO_NUMBER: Final = re.compile(rb"[:,\[]\s*-?(?:NaN|Inf)")


BLOCK: Final = 512
"""Number of records that are parsed together if a whole batch did not parse."""
AT_ONCE: Final = 2**28
"""Largest number of bytes that are read as one text. Arrow counts them in 32 bits."""


def regular(values: pa.Array, most: int = _TOO_LONG) -> Bools:
    """Return which values are in braces, are UTF-8, contain no NaN and no control character except white space, and
    have at most ``most`` bytes."""
    offsets, data = raw(values)
    lengths = np.diff(offsets)
    good: Bools = (lengths >= 2) & (lengths <= min(most, _TOO_LONG))
    if values.null_count:
        good &= values.is_valid().to_numpy(zero_copy_only=False)
    if not good.any():
        return good
    starts = np.where(good, offsets[:-1], offsets[0])
    lasts = np.where(good, offsets[1:] - 1, offsets[0])
    good &= (data[starts] == ord("{")) & (data[lasts] == ord("}"))
    control = np.flatnonzero(data < 0x20)
    if len(control):
        found = data[control]
        odd = (found != ord("\n")) & (found != ord("\t")) & (found != ord("\r"))
        good[rows_of(control[odd], offsets)] = False
    if data.max() >= 0x80:
        try:
            values.cast(pa.string())
        except pa.ArrowInvalid:
            good[rows_of(np.flatnonzero(data >= 0x80), offsets)] = False
    for row in _with_constants(data, offsets):
        good[row] &= _NO_NUMBER.search(data[offsets[row] : offsets[row + 1]].tobytes()) is None
    if lengths.max() > _LONG:
        for row in _near_limits(data, offsets):
            good[row] &= _within_limits(data[offsets[row] : offsets[row + 1]])
    return good


def _with_constants(data: Bytes, offsets: Ints) -> Ints:
    """Return the rows that may have NaN or Infinity among their values. A text that begins with N or I does not count:
    a quote precedes its first character."""
    before_one = np.isin(np.arange(256), np.frombuffer(b":,[- \t\r\n", np.uint8))
    places = np.concatenate([np.flatnonzero(data[1:] == ord(letter)) for letter in "NI"])
    return np.unique(rows_of(places[before_one[data[places]]] + 1, offsets))


def _near_limits(data: Bytes, offsets: Ints) -> Ints:
    """Return the rows that may be nested too deeply, or have numbers that are too long."""
    # The comma, which separates numbers, is not in this range.
    digits = (data - np.uint8(ord("-"))) <= ord("9") - ord("-")
    whole = len(data) // _CHUNK
    chunks = np.flatnonzero(digits[: whole * _CHUNK].reshape(whole, _CHUNK).all(axis=1)) * _CHUNK
    rows = [rows_of(chunks, offsets)]
    opening = (data | 0x20) == ord("{")
    if np.count_nonzero(opening) > _MANY_LEVELS:
        of_brackets = rows_of(np.flatnonzero(opening), offsets)
        rows.append(np.flatnonzero(np.bincount(of_brackets, minlength=len(offsets) - 1) > _MANY_LEVELS))
    return np.unique(np.concatenate(rows))


def _within_limits(value: Bytes) -> bool:
    """Return whether a record is surely not nested too deeply and its numbers are surely not too long."""
    if len(value) <= _LONG:
        return True
    if np.count_nonzero((value == ord("{")) | (value == ord("["))) > _MANY_LEVELS:
        return False
    return bool(np.diff(np.flatnonzero(~_IN_NUMBERS[value])).max() <= _MANY_DIGITS)


def rows_of(places: Ints, offsets: Ints) -> Ints:
    """Return the rows that contain the bytes at these places."""
    rows: Ints = np.searchsorted(offsets, places, side="right") - 1
    return rows


def raw(values: pa.Array) -> tuple[Ints, Bytes]:
    """Return the offsets at which each value begins and the last one ends, and the bytes of all values in memory."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    if data is None:
        return ends - ends[0], np.zeros(0, dtype=np.uint8)
    return ends - ends[0], np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]


def objects(values: pa.Array, schema: pa.Schema) -> pa.Table | None:
    """Return the values as columns, row by row; None if one of them is not exactly one object of that schema.

    Every value begins and ends with a brace, and no text contains a line break. If a value leaves an object open and
    ends with a brace, the next value's brace is not valid JSON. So no row spans two values. There
    are as many rows as values, or more if a value contains several objects.
    """
    lines = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values), b"\n")
    text = lines[0].as_buffer()
    reading = pj.ReadOptions(use_threads=False, block_size=max(text.size, 1) + 1)
    parsing = pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        table = pj.read_json(pa.BufferReader(text), reading, parsing)
    except pa.ArrowException:
        return None
    return table if table.num_rows == len(values) and table.schema.equals(schema) else None


def columns(
    values: pa.Array,
    rows: Ints,
    paths: Sequence[Path],
    lists: Sequence[Path] = (),
    any_scalars: Collection[Path] = (),
    amounts: Sequence[Path] = (),
    counted: Sequence[Path] = (),
) -> Iterator[tuple[pa.Table, Ints]]:
    """Yield tables with columns ``paths`` and ``lists``, each with its ``rows``. Rows that Arrow cannot read
    with a schema of `schema_like` are left out."""
    if values.nbytes <= AT_ONCE:
        table = _columns(values, rows, paths, lists, any_scalars, amounts, counted)
        if table is not None:
            yield table, rows
            return
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        table = _columns(values, block, paths, lists, any_scalars, amounts, counted)
        if table is not None:
            yield table, block


def _columns(
    values: pa.Array,
    rows: Ints,
    paths: Sequence[Path],
    lists: Sequence[Path],
    any_scalars: Collection[Path],
    amounts: Sequence[Path],
    counted: Sequence[Path],
) -> pa.Table | None:
    schema = schema_like(values, rows, paths, lists, any_scalars, amounts=amounts, counted=counted)
    if schema is None:
        return None
    chosen = values if len(rows) == len(values) else values.take(pa.array(rows))
    table = objects(chosen, schema)
    if table is not None or not (any_scalars or counted):
        return table
    # Amounts, for example: some are whole numbers, others are not.
    of_numbers = schema_like(values, rows, paths, lists, any_scalars, _NUMBER_TYPES, amounts, counted)
    return None if of_numbers is None or of_numbers == schema else objects(chosen, of_numbers)


def schema_like(
    values: pa.Array,
    rows: Ints,
    paths: Sequence[Path],
    lists: Sequence[Path] = (),
    any_scalars: Collection[Path] = (),
    of_scalars: Mapping[type, pa.DataType] = _SCALAR_TYPES,
    amounts: Sequence[Path] = (),
    counted: Sequence[Path] = (),
) -> pa.Schema | None:
    """Return the schema with ``paths`` as numbers or texts and ``lists`` as lists of these. Three records are tried.
    The types are those of the first one that can be read; None if none can. An empty list has no type, so the next
    record is tried. ``any_scalars``: paths whose types are among ``of_scalars``. ``amounts``: paths of numbers,
    or of texts that are numbers, which may be absent. ``counted``: other paths that may be absent."""
    found = None
    tried = rows[[0, len(rows) // 2, -1]] if len(rows) else ()
    of_counted = _types_of(values, tried, counted, of_scalars) if counted else {}
    for row in tried:
        try:
            record = json.loads(values[int(row)].as_py())
            tree: dict[str, Any] = {}
            empty = False
            for path in amounts:
                _node(tree, path)[path[-1]] = AMOUNT
            for path in counted:
                _node(tree, path)[path[-1]] = of_counted[path]
            for path in (*paths, *lists):
                node = _node(tree, path)
                at = record
                for name in path[:-1]:
                    at = at[name]
                value = at[path[-1]]
                if path in lists:
                    empty |= not value
                    node[path[-1]] = pa.list_(_TYPES[type(value[0])] if value else pa.int64())
                else:
                    node[path[-1]] = (of_scalars if path in any_scalars else _TYPES)[type(value)]
            found = pa.schema(list(_type(tree)))
            if not empty:
                return found
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return found


def _types_of(
    values: pa.Array, rows: Iterable[int], paths: Sequence[Path], of_scalars: Mapping[type, pa.DataType]
) -> dict[Path, pa.DataType]:
    """Return the type that each path has in the last of these records that has one."""
    found = {path: pa.string() for path in paths}
    for row in rows:
        with suppress(ValueError, RecursionError):
            record = json.loads(values[int(row)].as_py())
            for path in paths:
                value = record
                for name in path:
                    value = value.get(name) if isinstance(value, dict) else None
                found[path] = of_scalars.get(type(value), found[path])
    return found


def _node(tree: dict[str, Any], path: Path) -> dict[str, Any]:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    return tree


def _type(tree: dict[str, Any]) -> Iterator[pa.Field]:
    for name, node in tree.items():
        yield pa.field(name, pa.struct(list(_type(node))) if isinstance(node, dict) else node)


def leaf(table: pa.Table, path: Path) -> pa.Array:
    """Return the column at the end of a path; null if a name on the path is null."""
    column = table[path[0]].combine_chunks()
    for name in path[1:]:
        column = pc.struct_field(column, name)
    return column

"""Windowed keys of Kafka Streams, a batch at a time, as `windowed` reads one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from validator.model.arrays import texts_of
from validator.settings.formats.seam import ColumnReader, Path, ValueReader

_START, _END = ("window_start",), ("window_end",)
_LONG: Final = 8
_LARGEST_MS: Final = 2**63 - 1
_TEXT: Final = r"(?s)\A\[(?P<key>.*)@(?P<start>-?[0-9]{1,19})/(?P<end>-?[0-9]{1,19})\]\z"
"""The rule's pattern, for RE2."""
_SURE_DIGITS: Final = 18
"""A number of this length has 64 bits."""


def columns(
    inner: ValueReader,
    values: pa.Array,
    paths: Sequence[Path],
    lists: Sequence[Path],
    headers: pa.Array | None,
    *,
    has_end: bool,
    size_ms: int | None,
) -> Mapping[Path, pa.Array] | None:
    """As `ColumnReader.read_columns`. ``inner``: the reader of the key. ``has_end``, ``size_ms``: as of the reader."""
    tail = 2 * _LONG if has_end else _LONG
    if not isinstance(inner, ColumnReader):
        return None
    long_enough = pc.fill_null(pc.greater_equal(pc.binary_length(values), tail), False)
    known = long_enough.to_numpy(zero_copy_only=False)
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    stops = np.where(known, ends[1:], tail)
    if len(content) < tail:
        return None
    start = _longs(content, stops - _LONG)
    end = _longs(content, stops - tail) if has_end else None
    if end is not None:
        known &= end >= start
    elif size_ms is not None:
        known &= start <= _LARGEST_MS - size_ms
        end = np.where(known, start, 0) + size_ms
    keys = _cut(values, ends[:-1], np.where(known, stops - tail, ends[:-1]), known)
    within = [path for path in paths if path not in (_START, _END)]
    found = inner.read_columns(keys, within, lists, headers)
    return None if found is None else _with_windows(found, paths, start, end, known)


def columns_of_texts(
    inner: ValueReader, values: pa.Array, paths: Sequence[Path], lists: Sequence[Path], headers: pa.Array | None
) -> Mapping[Path, pa.Array] | None:
    """As `ColumnReader.read_columns`, of texts `[key@start/end]`. ``inner``: the reader of the key."""
    if not isinstance(inner, ColumnReader):
        return None
    parts = pc.extract_regex(texts_of(values), _TEXT)
    keys, starts, ends = (pc.struct_field(parts, name) for name in ("key", "start", "end"))
    numbers = [_numbers(each) for each in (starts, ends)]
    start, end = (pc.fill_null(each, 0).to_numpy(zero_copy_only=False) for each in numbers)
    known = pc.and_(*(each.is_valid() for each in numbers)).to_numpy(zero_copy_only=False) & (end >= start)
    within = [path for path in paths if path not in (_START, _END)]
    keys = pc.if_else(pa.array(known), keys.cast(pa.binary()), None)
    found = inner.read_columns(keys, within, lists, headers)
    return None if found is None else _with_windows(found, paths, start, end, known)


def _numbers(texts: pa.Array) -> pa.Array:
    """Digits as integers; null where they may have more than 64 bits."""
    try:
        return texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return pc.if_else(pc.less_equal(pc.binary_length(texts), _SURE_DIGITS), texts, None).cast(pa.int64())


def _with_windows(
    found: Mapping[Path, pa.Array],
    paths: Sequence[Path],
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64] | None,
    known: npt.NDArray[np.bool_],
) -> Mapping[Path, pa.Array]:
    """The columns of the keys, and the windows of those that are ``known``."""
    kept = dict(found)
    for column in found.values():
        known = known & column.is_valid().to_numpy(zero_copy_only=False)
    if _START in paths:
        kept[_START] = pa.array(start, pa.timestamp("ms"), mask=~known)
    if _END in paths and end is not None:
        kept[_END] = pa.array(end, pa.timestamp("ms"), mask=~known)
    return kept


def _longs(content: npt.NDArray[np.uint8], places: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The big-endian integers at these places."""
    found: npt.NDArray[np.int64] = (
        np.ascontiguousarray(content[places[:, None] + np.arange(_LONG)]).view(">i8").ravel().astype(np.int64)
    )
    return found


def _cut(values: pa.Array, starts: npt.NDArray[Any], stops: npt.NDArray[Any], known: npt.NDArray[np.bool_]) -> pa.Array:
    """The bytes from ``starts`` to ``stops``; null where they are not ``known``."""
    places = np.empty(2 * len(starts) + 1, np.int32)
    places[:-1:2], places[1::2], places[-1] = starts, stops, stops[-1] if len(stops) else 0
    parts = pa.Array.from_buffers(pa.binary(), 2 * len(starts), [None, pa.py_buffer(places), values.buffers()[2]])
    return parts.take(pa.array(np.arange(0, 2 * len(starts), 2), mask=~known))

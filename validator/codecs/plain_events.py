"""Events that Arrow decodes exactly as the rule does, grouped where they are read: the fast way of most records.

Arrow reads JSON several times faster than anything that takes one record at a time, but knows fewer forms; so only
records are taken here of which it is certain that the rule (`validator.codecs.one_record`) gives the same. All others
pass through as they came, and are decoded by it. tests/property/test_plain_events.py compares the two ways record by
record. Runs in Spark's Python workers, 16,384 records a call; no Python runs per record, but for a look at those above
1,000 bytes.

Why, and what was measured: docs/decisions/0009-plain-events-through-arrow.md.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type

from validator.codecs.columns import RUN_TYPE
from validator.codecs.fingerprints import Ints, hash_a, hash_b
from validator.codecs.plain_json import Bools, columns, leaf, regular, schema_like
from validator.codecs.times import FARTHEST_US

TAKEN: Final = pa.schema(
    [("value", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64()), ("time_us", pa.int64())]
)
"""What of a Kafka record is looked at."""

RUNS: Final = pa.schema([*TAKEN, ("run", to_arrow_type(RUN_TYPE))])
"""A row is a record as it came, or a run: ``value`` null, ``offset`` and ``time_us`` the smallest of its records."""

_SECOND: Final = 19
"""Length of an ISO 8601 text up to its seconds. Arrow reads some shorter ones differently."""
_FEW: Final = 3
"""Runs must hold that many records on the average to be worth more than the records."""


@dataclass(frozen=True)
class PlainEvents:
    """Where id, key and event time are, and the windows: all in microseconds.

    Paths are names from the root of the value. ``factor``: from a number to microseconds; None for ISO 8601 texts.
    ``key_bytes``: the most that a key may have.
    """

    id: tuple[str, ...]
    key: tuple[tuple[str, ...], ...]
    event_time: tuple[str, ...]
    factor: int | None
    size_us: int
    offset_us: int
    closed_right: bool
    slack_us: int
    key_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The body of `mapInArrow`: batches of `TAKEN` to batches of `RUNS`."""
        for batch in batches:
            yield from self.runs(batch)

    def runs(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The runs of a batch, and the records that are in none."""
        events = self._events(batch["value"])
        rows = events.rows
        if len(rows):
            grouped = self._grouped(batch, events)
            if grouped.num_rows * _FEW <= len(rows):
                yield grouped
            else:
                rows = rows[:0]
        if len(rows) < batch.num_rows:
            others = np.ones(batch.num_rows, dtype=np.bool_)
            others[rows] = False
            kept = batch if not len(rows) else batch.filter(pa.array(others))
            columns = [kept[name] for name in TAKEN.names]
            yield pa.RecordBatch.from_arrays([*columns, pa.nulls(kept.num_rows, RUNS.field("run").type)], schema=RUNS)

    def _events(self, values: pa.Array) -> _Events:
        """The records that decode here."""
        candidates = np.flatnonzero(regular(values))
        schema = schema_like(values, candidates, [self.id, self.event_time, *self.key])
        read = None if schema is None else columns(values, candidates, schema)
        if read is None:
            return _NONE
        table, rows = read
        ids, has_id = _integers(leaf(table, self.id))
        times, has_time = self._times(leaf(table, self.event_time))
        codes, keys, has_key = _keys([leaf(table, path) for path in self.key])
        too_long = pc.greater(pc.binary_length(keys), self.key_bytes).to_numpy(zero_copy_only=False)
        if too_long.any():
            has_key = has_key & ~too_long[codes]
        whole = has_id & has_time & has_key
        if whole.all():
            return _Events(rows, ids, times, codes, keys)
        return _Events(rows[whole], ids[whole], times[whole], codes[whole], keys)

    def _times(self, column: pa.Array) -> tuple[Ints, Bools]:
        """Event times in microseconds, and where they are certain."""
        if self.factor is not None:
            numbers, known = _integers(column)
            farthest = FARTHEST_US // self.factor
            known = known & (numbers >= -farthest) & (numbers <= farthest)
            return np.where(known, numbers, 0) * self.factor, known
        nothing = np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=np.bool_)
        if column.type != pa.string():
            return nothing
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        if lengths.min(initial=_SECOND) < _SECOND:
            column = pc.if_else(pa.array(lengths >= _SECOND), column, None)
        for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC")):
            if kind.tz is not None and not pc.all(pc.ends_with(column, "Z")).as_py():
                continue
            try:
                return _numbers(column.cast(kind).cast(pa.int64()))
            except pa.ArrowInvalid:
                continue
        return nothing

    def _grouped(self, batch: pa.RecordBatch, events: _Events) -> pa.RecordBatch:
        """One row per partition, window, key and reach."""
        rows, times = events.rows, events.times
        whole = len(rows) == batch.num_rows
        places, offsets, stamps = (
            column if whole else column[rows] for column in (_plain(batch[name]) for name in TAKEN.names[1:])
        )
        windows = self._floor(times)
        reaches = self._floor(times - self.slack_us)
        order, starts = _groups([places, reaches, windows, events.codes])
        offsets, stamps, times, ids = offsets[order], stamps[order], times[order], events.ids[order]
        firsts, ends = order[starts], np.append(starts, len(order))
        run = {
            "records": np.diff(ends),
            "window_start_us": windows[firsts],
            "key": pa.DictionaryArray.from_arrays(events.codes[firsts], events.keys).cast(pa.string()),
            "reach_us": reaches[firsts],
            "event_time_us": np.maximum.reduceat(times, starts),
            # Kafka's order is that of offsets, and the order of a group is that of the batch.
            "first_event_time_us": times[starts],
            "last_offset": np.maximum.reduceat(offsets, starts),
            "last_time_us": np.maximum.reduceat(stamps, starts),
            "min_id": np.minimum.reduceat(ids, starts),
            "max_id": np.maximum.reduceat(ids, starts),
            "hash_a": np.add.reduceat(hash_a(ids), starts),
            "hash_b": np.add.reduceat(hash_b(ids), starts),
            "ids": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(ids)),
            "offsets": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(offsets)),
        }
        fields = list(RUNS.field("run").type)
        arrays = [
            pa.nulls(len(starts), pa.binary()),
            pa.array(places[firsts], pa.int32()),
            pa.array(np.minimum.reduceat(offsets, starts)),
            pa.array(np.minimum.reduceat(stamps, starts)),
            pa.StructArray.from_arrays([pa.array(run[field.name], field.type) for field in fields], fields=fields),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=RUNS)

    def _floor(self, times: Ints) -> Ints:
        """As `validator.oracles.tumbling_window`."""
        inside = times - 1 if self.closed_right else times
        return inside - (inside - self.offset_us) % self.size_us


@dataclass(frozen=True)
class _Events:
    """Rows of a batch and what they say. ``codes``: places in ``keys``."""

    rows: Ints
    ids: Ints
    times: Ints
    codes: Ints
    keys: pa.Array


_NO_INTS: Final = np.zeros(0, dtype=np.int64)
_NONE: Final = _Events(_NO_INTS, _NO_INTS, _NO_INTS, _NO_INTS, pa.array([], pa.string()))


def _integers(column: pa.Array) -> tuple[Ints, Bools]:
    """The column's canonical integers, and where they are."""
    if column.type == pa.string():
        try:
            numbers = column.cast(pa.int64())
        except pa.ArrowInvalid:
            return np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=np.bool_)
        same = pc.fill_null(pc.equal(numbers.cast(pa.string()), column), False)
        return _numbers(pc.if_else(same, numbers, None))
    return _numbers(column)


def _numbers(column: pa.Array) -> tuple[Ints, Bools]:
    """An int64 column as an array, zero where it is null, and where it is not."""
    if not column.null_count:
        return _plain(column), np.ones(len(column), dtype=np.bool_)
    return _plain(pc.fill_null(column, 0)), column.is_valid().to_numpy(zero_copy_only=False)


def _plain(column: pa.Array) -> Ints:
    numbers: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return numbers


def _keys(columns: list[pa.Array]) -> tuple[Ints, pa.Array, Bools]:
    """Of each row the place of its key in the list of all keys, that list, and where no part of a key is null.

    The text of a key of several fields is a JSON array; nothing in it needs an escape, or the record were not here.
    """
    known = np.ones(len(columns[0]), dtype=np.bool_)
    parts = []
    for column in columns:
        encoded = column.cast(pa.string()).dictionary_encode()
        if column.null_count:
            known &= column.is_valid().to_numpy(zero_copy_only=False)
        parts.append((_plain(pc.fill_null(encoded.indices, 0)), encoded.dictionary))
    if len(parts) == 1:
        return parts[0][0], parts[0][1], known
    _, first, codes = np.unique(_one_number([codes for codes, _ in parts]), return_index=True, return_inverse=True)
    texts = [pa.array(part).take(pa.array(codes[first])) if len(part) else part for codes, part in parts]
    keys = pa.array(
        [
            json.dumps(key, ensure_ascii=False, separators=(",", ":"))
            for key in zip(*(t.to_pylist() for t in texts), strict=True)
        ],
        pa.string(),
    )
    return codes.astype(np.int64), keys, known


def _groups(columns: list[Ints]) -> tuple[Ints, Ints]:
    """An order in which equal rows are together, otherwise as they were, and where in it each group begins."""
    numbers = _one_number(columns)
    # Small numbers are sorted by counting.
    order = np.argsort(numbers.astype(np.uint16) if numbers.max() < 2**16 else numbers, kind="stable")
    ordered = numbers[order]
    return order, np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))


def _one_number(columns: list[Ints]) -> Ints:
    """One number per row, equal where all columns are."""
    number = np.zeros(len(columns[0]), dtype=np.int64)
    size = 1
    for column in columns:
        lowest = column.min()
        span = int(column.max()) - int(lowest) + 1
        values = column - lowest
        if span > 2**15:
            distinct, values = np.unique(values, return_inverse=True)
            span = len(distinct)
        if size * span > 2**62:
            # The product could leave 64 bits, and two rows that differ would be one.
            distinct, number = np.unique(number, return_inverse=True)
            size = len(distinct)
        number = number * span + values
        size *= span
    return number

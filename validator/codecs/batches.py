"""Batches of Kafka records, decoded in Spark's Python workers: plain events in runs, every other record by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type

from validator.codecs.columns import DECODED, RUN_TYPE, TOMBSTONE, UNDECODABLE, UNEXAMINED
from validator.codecs.fingerprints import Ints
from validator.codecs.id_spaces import IdSpace
from validator.codecs.one_record import Cut, Event, Record, RecordDecoder, Result, Tombstone, Unexamined
from validator.codecs.plain_events import TAKEN, PlainEvents
from validator.codecs.plain_json import Path, columns, leaf, regular, schema_like

_POSITION: Final = ("partition", "offset", "time_us")

EVENTS: Final = pa.schema(
    [
        *[TAKEN.field(name) for name in _POSITION],
        ("id", pa.int64()),
        ("text_id", pa.string()),
        ("key", pa.string()),
        ("event_time_us", pa.int64()),
        ("run", to_arrow_type(RUN_TYPE)),
    ]
)
"""A row is a record or a run. All after the position is null where a record did not decode. The key of one that was not
examined says why, and ``text_id`` of one that did not decode is the position that a rejected record names."""

RESULTS: Final = pa.schema(
    [
        *[TAKEN.field(name) for name in _POSITION],
        ("status", pa.int32()),
        ("window_start_us", pa.int64()),
        ("key", pa.string()),
        ("ids", pa.list_(pa.int64())),
        ("text_ids", pa.list_(pa.string())),
    ]
)
"""All after the status is null where a record did not decode; the key of one that was not examined says why."""


def columns_of(decoder: RecordDecoder) -> list[str]:
    """The columns that batches of records have: those of `TAKEN`, and what else the configured fields need.

    ``key``, and ``value`` of each of the ``headers``, is null where it is too long; ``key_size`` and ``size`` say so.
    """
    key = [] if decoder.most_of_key is None else ["key", "key_size"]
    return [*TAKEN.names, *key, *(["headers"] if decoder.most_of_header else [])]


@dataclass(frozen=True)
class EventBatches:
    """The body of `mapInArrow` for events: batches of records to batches of `EVENTS`.

    ``plain``: what Arrow may take, None where it must not. ``space``: the id space of these events, where inputs have
    their own.
    """

    decoder: RecordDecoder
    plain: PlainEvents | None
    space: IdSpace | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode each batch."""
        for batch in batches:
            if self.plain is None:
                yield self._singly(batch)
                continue
            for part in self.plain.runs(batch):
                yield self._singly(part) if part["run"].null_count else _as_events(part)

    def _singly(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        records = list(_records(batch))
        found = [self.decoder.decode(record) for record in records]
        events = [item if isinstance(item, Event) else None for item in found]
        ids = [event and event.id for event in events]
        if self.space is not None:
            ids = [None if id_ is None else self.space.named(id_) for id_ in ids]
        if self.decoder.names_positions:
            # Of a record that does not decode, the position that it names stands for its id.
            named = zip(ids, records, strict=True)
            ids = [self.decoder.named_position(record) if id_ is None else id_ for id_, record in named]
        columns = [
            *[batch[name] for name in _POSITION],
            pa.array([id_ if type(id_) is int else None for id_ in ids], pa.int64()),
            pa.array([id_ if type(id_) is str else None for id_ in ids], pa.string()),
            pa.array(map(_key, found), pa.string()),
            pa.array([event and event.event_time_us for event in events], pa.int64()),
            pa.nulls(len(events), EVENTS.field("run").type),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=EVENTS)


@dataclass(frozen=True)
class ResultBatches:
    """The body of `mapInArrow` for results: batches of records to batches of `RESULTS`.

    ``spaces``: for each list of a result the id space of its input; empty where inputs share one.
    """

    decoder: RecordDecoder
    spaces: Sequence[IdSpace]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode each batch."""
        for batch in batches:
            taken = self._plain(batch)
            if taken is None:
                yield self._decoded(batch)
                continue
            decoded, rows = taken
            yield decoded
            if len(rows) < batch.num_rows:
                others = np.ones(batch.num_rows, dtype=np.bool_)
                others[rows] = False
                yield self._decoded(batch.filter(pa.array(others)))

    def _plain(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints] | None:
        """Results whose lists Arrow can read, which hold most of the bytes, and which they are."""
        paths, lists = self.decoder.paths, self.decoder.lists
        if not lists or self.spaces or not all([*paths, *lists]) or not self.decoder.takes_integers:
            return None
        values = batch["value"]
        candidates = np.flatnonzero(regular(values))
        schema = schema_like(values, candidates, paths, lists)
        read = None if schema is None else columns(values, candidates, schema)
        if read is None:
            return None
        table, rows = read
        ids = [leaf(table, path) for path in lists]
        if any(column.null_count or column.flatten().null_count for column in ids):
            return None
        scalars = [leaf(table, path).to_pylist() for path in paths]
        every = [*paths, *lists]
        empty: list[list[int]] = [[] for _ in lists]
        nowhere = Record(None)
        found = [
            self.decoder.decode_fields(nowhere, _object(every, [*row, *empty])) for row in zip(*scalars, strict=True)
        ]
        good = np.array([isinstance(item, Result) for item in found], dtype=np.bool_)
        results = [item for item in found if isinstance(item, Result)]
        chosen = pa.array(good)
        arrays = [
            *[batch[name].take(pa.array(rows[good])) for name in _POSITION],
            pa.repeat(pa.scalar(DECODED, pa.int32()), len(results)),
            pa.array([result.window_start_us for result in results], pa.int64()),
            pa.array([result.key for result in results], pa.string()),
            _joined([column.filter(chosen) for column in ids]),
            _lists([()] * len(results), pa.string()),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=RESULTS), rows[good]

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = [self.decoder.decode(record) for record in _records(batch)]
        results = [item if isinstance(item, Result) else None for item in found]
        of_kind = {Result: DECODED, Tombstone: TOMBSTONE, Unexamined: UNEXAMINED}
        ids, texts = zip(*[self._ids(result) for result in results], strict=True) if results else ((), ())
        columns = [
            *[batch[name] for name in _POSITION],
            pa.array([of_kind.get(type(item), UNDECODABLE) for item in found], pa.int32()),
            pa.array([result and result.window_start_us for result in results], pa.int64()),
            pa.array(map(_key, found), pa.string()),
            _lists(ids, pa.int64()),
            _lists(texts, pa.string()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RESULTS)

    def _ids(self, result: Result | None) -> tuple[list[int], list[str]]:
        """Integers and texts apart."""
        if result is None:
            return [], []
        lists = result.ids
        if self.spaces:
            lists = tuple([space.named(id_) for id_ in ids] for space, ids in zip(self.spaces, lists, strict=True))
        ids = lists[0] if len(lists) == 1 else list(chain.from_iterable(lists))
        texts = [id_ for id_ in ids if type(id_) is str]
        return [id_ for id_ in ids if type(id_) is int] if texts else ids, texts  # type: ignore[return-value]


def _key(found: object) -> str | None:
    """The key of a decoded record; of one that was not examined, why."""
    if isinstance(found, Unexamined):
        what = "one of its ids" if found.field == "ids" else f"its {found.field or 'value'}"
        return f"{what} {found.reason}"
    return found.key if isinstance(found, Event | Result) else None


def _records(batch: pa.RecordBatch) -> Iterator[Record]:
    names = batch.schema.names
    keys = map(_part, batch["key"].to_pylist(), batch["key_size"].to_pylist()) if "key" in names else repeat(None)
    headers = map(_headers, batch["headers"].to_pylist()) if "headers" in names else repeat(())
    times, partitions, offsets = (batch[name].to_pylist() for name in ("time_us", "partition", "offset"))
    return map(Record, batch["value"].to_pylist(), keys, headers, times, partitions, offsets)


def _part(content: bytes | None, size: int | None) -> bytes | Cut | None:
    return Cut(size) if content is None and size is not None else content


def _headers(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | Cut | None]]:
    return [(header["key"], _part(header["value"], header["size"])) for header in headers or ()]


def _lists(lists: Sequence[Sequence[int] | Sequence[str]], kind: pa.DataType) -> pa.Array:
    ends = pa.array(accumulate(map(len, lists), initial=0), pa.int32())
    return pa.ListArray.from_arrays(ends, pa.array(list(chain.from_iterable(lists)), kind))


def _joined(lists: list[pa.ListArray]) -> pa.ListArray:
    """Row by row the items of several lists."""
    first, *others = [column for column in lists if len(column.flatten())] or lists[:1]
    if not others:
        return first
    lengths = [_ints(pc.list_value_length(column)) for column in (first, *others)]
    rows = np.arange(len(first))
    order = np.argsort(np.concatenate([np.repeat(rows, length) for length in lengths]), kind="stable")
    items = np.concatenate([_ints(column.flatten()) for column in (first, *others)])[order]
    ends = np.concatenate([[0], np.cumsum(np.sum(lengths, axis=0))])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(items))


def _ints(column: pa.Array) -> Ints:
    numbers: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return numbers


def _object(paths: list[Path], values: list[object]) -> dict[str, object]:
    """The object that has these values at these paths."""
    root: dict[str, object] = {}
    for path, value in zip(paths, values, strict=True):
        node = root
        for name in path[:-1]:
            below = node.setdefault(name, {})
            assert isinstance(below, dict), "no path is inside another"
            node = below
        node[path[-1]] = value
    return root


def _as_events(runs: pa.RecordBatch) -> pa.RecordBatch:
    columns = [runs[field.name] if field.name in runs.schema.names else pa.nulls(runs.num_rows, field.type)
               for field in EVENTS]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=EVENTS)

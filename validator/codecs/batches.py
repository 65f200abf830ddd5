"""Batches of Kafka records to columns, in Spark's Python workers: plain records together, all others one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import (
    DECODED,
    REMOVED,
    RESULT_TYPE,
    SKIPPED,
    TOMBSTONE,
    UNDECODABLE,
    UNEXAMINED,
    UNOWED,
)
from validator.codecs.computed_keys import with_keys
from validator.codecs.fingerprints import Ints
from validator.codecs.one_record import (
    Event,
    OmittedPart,
    Record,
    RecordDecoder,
    Result,
    Tombstone,
    Undecodable,
    Unexamined,
)
from validator.codecs.plain_events import RECORD_SCHEMA, Events, PlainEvents
from validator.codecs.plain_fields import bools, numbers, plain
from validator.codecs.plain_json import AMOUNT
from validator.codecs.plain_results import PlainResults, Results
from validator.model.arrays import interleaved, lists_of, one_array
from validator.model.id_spaces import IdSpace

if TYPE_CHECKING:
    from validator.oracles.seam import Words

_POSITION: Final = ("partition", "offset", "time_us")

_KEY: Final = pa.dictionary(pa.int32(), pa.string())

EVENTS: Final = pa.schema(
    [
        *[RECORD_SCHEMA.field(name) for name in _POSITION],
        ("id", pa.int64()),
        ("text_id", pa.string()),
        ("key", _KEY),
        ("event_time_us", pa.int64()),
        ("status", pa.int32()),
        ("values", pa.list_(AMOUNT)),
    ]
)
"""A row is a record, or one of its events (`RecordDecoder.decode_all`). An event has ``id`` or ``text_id``. ``status``:
null stands for `DECODED`, or `UNDECODABLE` if there is no time. If a record did not decode, the columns between its
position and its status are null, with three exceptions: ``key`` has the reason if the record was not examined,
``text_id`` is the position that an undecodable rejected record names, and a tombstone may have a time. ``values``: a
number or null for each field that results aggregate, in every row."""

ROW: Final = "row"
"""An additional column of `EVENTS` if a record replaces the row of its record key: this key, each byte a character."""

RESULTS: Final = pa.schema(
    [
        *[RECORD_SCHEMA.field(name) for name in _POSITION],
        ("status", pa.int32()),
        ("window_start_us", pa.int64()),
        ("window_end_us", pa.int64()),
        ("key", _KEY),
        ("ids", RESULT_TYPE.field("ids").type),
        ("text_ids", RESULT_TYPE.field("text_ids").type),
        ("count", pa.int64()),
        ("values", pa.list_(AMOUNT)),
    ]
)
"""A row is a record. ``window_start_us``: the instant that names the result's cell; null if results name none.
``window_end_us``: the end that a result names, if it does not follow from the start. ``count``: as in `RESULT_TYPE`.
``values``: a number or null for each stated value, in every row. If
a record did not decode, its window and its key are null, and the lists of ids are empty. If a record was not examined,
``key`` has the reason. A tombstone has a key if it withdraws the result of that key."""


def columns_of(decoder: RecordDecoder) -> list[str]:
    """Return the columns of batches of records: those of `RECORD_SCHEMA`, and others that the configured fields need.

    ``key``, and ``value`` of each of the ``headers``, is null if it is too long; ``key_size`` and ``size`` are then
    set.
    """
    key = [] if decoder.most_of_key is None else ["key", "key_size"]
    return [*RECORD_SCHEMA.names, *key, *(["headers"] if decoder.most_of_header else [])]


@dataclass(frozen=True)
class EventBatches:
    """Batches of records of events to batches of `EVENTS`.

    ``plain``: the decoder by Arrow; None if Arrow cannot decode these records. ``space``: the id space of the events,
    if inputs have id spaces. ``words``: how keys are split; None if an event counts once.
    """

    decoder: RecordDecoder
    plain: PlainEvents | None
    space: IdSpace | None
    words: Words | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode each batch."""
        for batch in batches:
            decoded = self._decoded(batch)
            if self.decoder.replaces_rows:
                # SEMANTICS 2.35: which row a record replaces is the order of offsets, also where a task is cut.
                whole = pa.Table.from_batches(decoded).unify_dictionaries()
                yield from whole.sort_by("offset").combine_chunks().to_batches()
            else:
                yield from decoded

    def _decoded(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        others = np.ones(batch.num_rows, dtype=np.bool_)
        events = self.plain.read(batch) if self.plain else None
        if events and len(events.rows):
            condition = self.decoder.condition
            unowed: int | Ints = SKIPPED if condition is not None and condition.others == "skipped" else UNOWED
            if (rule := self.decoder.key_rule) is not None:
                fields, most = len(self.decoder.key_places), self.decoder.most.key_bytes
                events, skipped = with_keys(events, rule, fields, most)
                unowed = np.where(skipped, SKIPPED, unowed)
            if self.decoder.replaces_rows:
                events = events.of(bools(batch["key"].is_valid())[events.rows])
            others[events.rows] = False
            yield self._with_row(_event_batch(batch, events, unowed), batch, events.rows)
        if others.all():
            yield self._singly(batch)
        elif others.any():
            yield self._singly(batch.filter(pa.array(others)))

    def _with_row(self, events: pa.RecordBatch, batch: pa.RecordBatch, rows: Ints) -> pa.RecordBatch:
        """Return ``events`` with the column `ROW`, if a record replaces the row of its key. ``rows``: their records."""
        if not self.decoder.replaces_rows:
            return events
        return events.append_column(ROW, _characters(batch["key"].take(pa.array(rows))))

    def _singly(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        records = list(_records(batch))
        of_records = [self.decoder.decode_all(record) for record in records]
        found = list(chain.from_iterable(of_records))
        if len(found) > len(records):
            rows = [row for row, of_one in enumerate(of_records) for _ in of_one]
            batch, records = batch.take(pa.array(rows)), [records[row] for row in rows]
        events = [item if isinstance(item, Event) else None for item in found]
        ids = [event and event.id for event in events]
        if self.space is not None:
            ids = [None if id_ is None else self.space.named(id_) for id_ in ids]
        if self.decoder.names_positions:
            # The id of a record that does not decode is the position that it names.
            named = zip(ids, found, records, strict=True)
            ids = [
                self.decoder.named_position(record) if isinstance(item, Undecodable) else id_
                for id_, item, record in named
            ]
        columns = [
            *[batch[name] for name in _POSITION],
            pa.array([id_ if type(id_) is int else None for id_ in ids], pa.int64()),
            pa.array([id_ if type(id_) is str else None for id_ in ids], pa.string()),
            pa.array(map(_key, found), pa.string()).dictionary_encode(),
            pa.array([getattr(item, "event_time_us", None) for item in found], pa.int64()),
            pa.array(map(_status, found), pa.int32()),
            _amounts([event.addends if event else None for event in events], len(self.decoder.value_places)),
        ]
        return self._with_row(
            pa.RecordBatch.from_arrays(columns, schema=EVENTS), batch, np.arange(batch.num_rows, dtype=np.int64)
        )


@dataclass(frozen=True)
class ResultBatches:
    """Batches of records of results to batches of `RESULTS`.

    ``spaces``: the id space of the input of each list of ids; empty if inputs share one.
    """

    decoder: RecordDecoder
    spaces: Sequence[IdSpace]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Decode each batch."""
        plain = PlainResults(self.decoder, self.spaces)
        for batch in batches:
            others = np.ones(batch.num_rows, dtype=np.bool_)
            for results in plain.read(batch):
                others[results.rows] = False
                yield _result_batch(batch, results)
            if others.all():
                yield self._decoded(batch)
            elif others.any():
                yield self._decoded(batch.filter(pa.array(others)))

    def _decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = [self.decoder.decode(record) for record in _records(batch)]
        results = [item if isinstance(item, Result) else None for item in found]
        statuses = {Result: DECODED, Tombstone: TOMBSTONE, Unexamined: UNEXAMINED}
        ids, texts = zip(*[self._ids(result) for result in results], strict=True) if results else ((), ())
        columns = [
            *[batch[name] for name in _POSITION],
            pa.array([statuses.get(type(item), UNDECODABLE) for item in found], pa.int32()),
            pa.array([result and result.window_start_us for result in results], pa.int64()),
            pa.array([result and result.window_end_us for result in results], pa.int64()),
            pa.array(map(_key, found), pa.string()).dictionary_encode(),
            _lists(ids, "ids"),
            _lists(texts, "text_ids"),
            pa.array([result and result.stated_count for result in results], pa.int64()),
            _amounts([result.values if result else None for result in results], len(self.decoder.value_places)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RESULTS)

    def _ids(self, result: Result | None) -> tuple[list[int], list[str]]:
        """Return the integers and the texts among the ids."""
        if result is None:
            return [], []
        lists = result.ids
        if self.spaces:
            lists = tuple([space.named(id_) for id_ in ids] for space, ids in zip(self.spaces, lists, strict=True))
        ids = lists[0] if len(lists) == 1 else list(chain.from_iterable(lists))
        texts = [id_ for id_ in ids if type(id_) is str]
        return [id_ for id_ in ids if type(id_) is int] if texts else ids, texts  # type: ignore[return-value]


def exploded(events: pa.Table, words: Words) -> pa.Table:
    """Return rows of `EVENTS`, with a row for each word of an event's key, one after the other. An event without words
    stays, and owes nothing."""
    keys, statuses = one_array(events["key"].unify_dictionaries()), numbers(one_array(events["status"]))[0]
    found = words.lists(keys.dictionary).take(keys.indices)
    rows, items = pc.list_parent_indices(found), found.flatten()
    counts = pc.and_(pc.not_equal(items, ""), pa.array(statuses == DECODED).take(rows))
    rows, items = plain(rows.filter(counts)), items.filter(counts)
    without = np.ones(events.num_rows, dtype=np.bool_)
    without[rows] = False
    alone = np.flatnonzero(without)
    order = np.argsort(np.concatenate([rows, alone]), kind="stable")
    whole = events.take(pa.array(np.concatenate([rows, alone])[order]))
    key = pa.concat_arrays([items, pa.nulls(len(alone), items.type)]).take(pa.array(order)).dictionary_encode()
    none = np.concatenate([np.zeros(len(rows), np.bool_), statuses[alone] == DECODED])[order]
    status = pc.if_else(pa.array(none), pa.scalar(UNOWED, pa.int32()), whole["status"])
    for name, column in (("key", key), ("status", status)):
        at = EVENTS.get_field_index(name)
        whole = whole.set_column(at, EVENTS.field(at), column.cast(EVENTS.field(at).type))
    return whole


def _characters(keys: pa.Array) -> pa.Array:
    """Return the bytes of keys as texts with a character for each byte: no two keys have the same text."""
    keys = pc.fill_null(keys, b"")
    _, ends, data = keys.buffers()
    ends = np.frombuffer(ends, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    found = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    ends = ends - ends[0]
    if len(found) and found.max() >= _ASCII:
        # A character up to U+00FF has two bytes in UTF-8.
        is_long = found >= _ASCII
        at = np.concatenate([[0], np.cumsum(1 + is_long)])
        texts = np.empty(at[-1], np.uint8)
        texts[at[:-1]] = np.where(is_long, 0xC0 | found >> 6, found)
        texts[at[1:][is_long] - 1] = 0x80 | found[is_long] & 0x3F
        found, ends = texts, at[ends].astype(np.int32)
    buffers = [None, pa.py_buffer(np.ascontiguousarray(ends, np.int32)), pa.py_buffer(found)]
    return pa.Array.from_buffers(pa.string(), len(keys), buffers)


_ASCII: Final = 0x80
"""Bytes below this are characters of one byte."""


def _status(found: object) -> int:
    """Return the status of a record of an input, late or rejected topic."""
    if not isinstance(found, Event):
        return TOMBSTONE if isinstance(found, Tombstone) else UNDECODABLE
    if found.is_skipped:
        return SKIPPED
    if not found.is_owed:
        return UNOWED
    return REMOVED if found.is_removed else DECODED


def _key(found: object) -> str | None:
    """Return the key of a decoded record or a tombstone, or the reason why a record was not examined."""
    if isinstance(found, Unexamined):
        what = "one of its ids" if found.field == "ids" else f"its {found.field or 'value'}"
        return f"{what} {found.reason}"
    return found.key if isinstance(found, Event | Result | Tombstone) else None


def _records(batch: pa.RecordBatch) -> Iterator[Record]:
    names = batch.schema.names
    keys = map(_part, batch["key"].to_pylist(), batch["key_size"].to_pylist()) if "key" in names else repeat(None)
    headers = map(_headers, batch["headers"].to_pylist()) if "headers" in names else repeat(())
    times, partitions, offsets = (batch[name].to_pylist() for name in ("time_us", "partition", "offset"))
    return map(Record, batch["value"].to_pylist(), keys, headers, times, partitions, offsets)


def _part(content: bytes | None, size: int | None) -> bytes | OmittedPart | None:
    return OmittedPart(size) if content is None and size is not None else content


def _headers(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | OmittedPart | None]]:
    return [(header["key"], _part(header["value"], header["size"])) for header in headers or ()]


def _lists(lists: Sequence[Sequence[int] | Sequence[str]], name: str) -> pa.Array:
    kind = RESULTS.field(name).type
    ends = pa.array(accumulate(map(len, lists), initial=0), pa.int32())
    return pa.ListArray.from_arrays(ends, pa.array(list(chain.from_iterable(lists)), kind.value_type), kind)


def _result_batch(batch: pa.RecordBatch, results: Results) -> pa.RecordBatch:
    ids, texts = results.lists.columns
    columns = [
        *_positions(batch, results.rows),
        pa.repeat(pa.scalar(DECODED, pa.int32()), len(results.rows)),
        *(
            pa.nulls(len(results.rows), pa.int64()) if each is None else pa.array(each)
            for each in (results.window_starts, results.window_ends)
        ),
        results.keys.column,
        ids.cast(RESULTS.field("ids").type),
        texts.cast(RESULTS.field("text_ids").type),
        pa.nulls(len(results.rows), pa.int64()) if results.counts is None else pa.array(results.counts),
        interleaved(results.values, len(results.rows), AMOUNT),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RESULTS)


def _event_batch(batch: pa.RecordBatch, events: Events, unowed: int | Ints) -> pa.RecordBatch:
    ids, ignored = events.ids, events.ignored
    decoded = np.where(events.removed, REMOVED, DECODED)
    statuses = np.where(ignored, TOMBSTONE, np.where(events.owed, decoded, unowed))
    columns = [
        *_positions(batch, events.rows),
        pa.array(ids.integers, mask=ids.are_texts | ignored),
        pa.nulls(len(ids.integers), pa.string())
        if ids.texts is None
        else pc.if_else(pa.array(ignored), None, ids.texts),
        pa.DictionaryArray.from_arrays(pa.array(events.keys.codes, pa.int32(), mask=ignored), events.keys.texts),
        pa.array(events.times),
        pa.array(statuses.astype(np.int32)),
        interleaved(events.addends, len(events.rows), AMOUNT),
    ]
    found = pa.RecordBatch.from_arrays(columns, schema=EVENTS)
    # The events of a record stay together.
    return found.take(pa.array(np.argsort(events.rows, kind="stable"))) if events.removed.any() else found


def _amounts(rows: Sequence[tuple[Decimal | None, ...] | None], width: int) -> pa.Array:
    """Return a list of ``width`` numbers or nulls for each row."""
    nothing = (None,) * width
    flat = list(chain.from_iterable(nothing if row is None else row for row in rows))
    return lists_of(width, pa.array(flat, AMOUNT), len(rows))


def _positions(batch: pa.RecordBatch, rows: Ints) -> list[pa.Array]:
    if len(rows) == batch.num_rows and (rows[1:] > rows[:-1]).all():
        return [batch[name] for name in _POSITION]
    return [batch[name].take(pa.array(rows)) for name in _POSITION]

"""Events that Arrow decodes exactly as the rule does, grouped where they are read: the fast way of most records.

Arrow reads JSON several times faster than anything that takes one record at a time, but knows fewer forms; so only
records are taken here of which it is certain that the rule (`validator.codecs.one_record`) gives the same. All others
pass through as they came, and are decoded by it. tests/property/test_plain_events.py compares the two ways record by
record. Runs in Spark's Python workers, 16,384 records a call; no Python runs per record, but for times in rare forms,
and a look at records that may exceed a limit.

Why, and what was measured: docs/decisions/0009-plain-events-through-arrow.md, 0100-one-decoder-in-plain-python.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from validator.codecs.columns import RUN_TYPE
from validator.codecs.fingerprints import Ints, hash_a, hash_b
from validator.codecs.id_spaces import IdSpace
from validator.codecs.plain_fields import Ids, Keys, Read, Unit, ids, instants, keys, one_number, plain, read
from validator.codecs.plain_json import Bools, Path

TAKEN: Final = pa.schema(
    [("value", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64()), ("time_us", pa.int64())]
)
"""What of a Kafka record is looked at."""

RUNS: Final = pa.schema([*TAKEN, ("run", to_arrow_type(RUN_TYPE))])
"""A row is a record as it came, or a run: ``value`` null, ``offset`` and ``time_us`` the smallest of its records."""

_FEW: Final = 3
"""Runs must hold that many records on the average to be worth more than the records."""


@dataclass(frozen=True)
class PlainEvents:
    """Where id, key and event time are (`validator.codecs.plain_fields`), and the windows: all in microseconds.

    ``factor`` and ``divisor``: from a number to microseconds; None for ISO 8601 texts. ``key_bytes``, ``id_bytes``,
    ``value_bytes``: the most that a key, an id and a value may have.
    """

    id: Path
    key: tuple[Path, ...]
    event_time: Path
    factor: int | None
    size_us: int
    offset_us: int
    closed_right: bool
    slack_us: int
    key_bytes: int
    divisor: int = 1
    id_bytes: int = 2**31
    value_bytes: int = 2**31
    id_type: str = "auto"
    space: IdSpace | None = None

    def read(self, batch: pa.RecordBatch) -> Events | None:
        """The records of a batch that decode here; None where none does."""
        places = [self.id, self.event_time, *self.key]
        parts = [self._events(part) for part in read(batch, places, most=self.value_bytes)]
        return Events.joined(parts) if parts else None

    def _events(self, part: Read) -> Events:
        found = ids(part.at(self.id), self.id_type, self.id_bytes, of_part=self.id[0].startswith("$")).named(self.space)
        unit = None if self.factor is None else Unit(self.factor, self.divisor)
        times, has_time = instants(part, self.event_time, unit, "up" if self.closed_right else "down")
        key = keys([part.at(place) for place in self.key], self.key_bytes)
        return Events(part.rows, found, times, key).of(found.known & has_time & key.known)

    def grouped(self, batch: pa.RecordBatch, events: Events) -> pa.RecordBatch | None:
        """One row per partition, window, key and reach of events with integers as ids; None where some are texts, or
        where runs would be short."""
        rows, times, integers = events.rows, events.times, events.ids.integers
        if not len(rows) or events.ids.texts is not None:
            return None
        whole = len(rows) == batch.num_rows
        places, offsets, stamps = (
            column if whole else column[rows] for column in (plain(batch[name]) for name in TAKEN.names[1:])
        )
        windows = self._floor(times)
        reaches = self._floor(times - self.slack_us)
        order, starts = _groups([places, reaches, windows, events.keys.codes])
        if len(starts) * _FEW > len(rows):
            return None
        offsets, stamps, times, integers = offsets[order], stamps[order], times[order], integers[order]
        firsts, ends = order[starts], np.append(starts, len(order))
        run = {
            "records": np.diff(ends),
            "window_start_us": windows[firsts],
            "key": events.keys.texts.take(pa.array(events.keys.codes[firsts])),
            "reach_us": reaches[firsts],
            "event_time_us": np.maximum.reduceat(times, starts),
            # Kafka's order is that of offsets, and the order of a group is that of the batch.
            "first_event_time_us": times[starts],
            "last_offset": np.maximum.reduceat(offsets, starts),
            "last_time_us": np.maximum.reduceat(stamps, starts),
            "min_id": np.minimum.reduceat(integers, starts),
            "max_id": np.maximum.reduceat(integers, starts),
            "hash_a": np.add.reduceat(hash_a(integers), starts),
            "hash_b": np.add.reduceat(hash_b(integers), starts),
            "ids": pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(integers)),
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
class Events:
    """Rows of a batch and what they say."""

    rows: Ints
    ids: Ids
    times: Ints
    keys: Keys

    @staticmethod
    def joined(parts: list[Events]) -> Events:
        """Several as one."""
        if len(parts) == 1:
            return parts[0]
        return Events(
            np.concatenate([part.rows for part in parts]),
            Ids.joined([part.ids for part in parts]),
            np.concatenate([part.times for part in parts]),
            Keys.joined([part.keys for part in parts]),
        )

    def of(self, chosen: Bools) -> Events:
        """Some of them."""
        if chosen.all():
            return self
        return Events(self.rows[chosen], self.ids.of(chosen), self.times[chosen], self.keys.of(chosen))


def _groups(columns: list[Ints]) -> tuple[Ints, Ints]:
    """An order in which equal rows are together, otherwise as they were, and where in it each group begins."""
    numbers = one_number(columns)
    # Small numbers are sorted by counting.
    order = np.argsort(numbers.astype(np.uint16) if numbers.max() < 2**16 else numbers, kind="stable")
    ordered = numbers[order]
    return order, np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))

"""Events that Arrow decodes exactly as the rule does: the fast path of most records.

Arrow reads JSON several times faster than a decoder of single records, but accepts fewer forms. So only those records
are decoded here for which it is certain that the rule (`validator.codecs.one_record`) gives the same result. The rule
decodes all others. tests/property/test_plain_events.py compares the two record by record. The module runs in Spark's
Python workers, with 16,384 records a call. Python code runs per record only for times in rare forms, and for records
that may exceed a limit.

Reasons and measurements: docs/decisions/0006-one-decoder-beside-arrow.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.fingerprints import Ints
from validator.codecs.one_record import NO_ID
from validator.codecs.plain_changes import Changes, Decoded, by_image, read_image
from validator.codecs.plain_conditions import PlainCondition
from validator.codecs.plain_fields import (
    Ids,
    Keys,
    Read,
    Readers,
    Unit,
    amounts_at,
    bools,
    hashes_at,
    identities,
    instants,
    keys,
    modular_at,
    presence_of,
    read,
    repeating,
)
from validator.codecs.plain_json import AMOUNT, Bools, Path
from validator.codecs.times import Rounding
from validator.model.conditions import Condition
from validator.model.envelopes import ROW, Envelope, Image
from validator.model.id_spaces import IdSpace
from validator.model.json_text import JsonReader
from validator.model.stated_values import Digest
from validator.settings.time_patterns import TimePattern

RECORD_SCHEMA: Final = pa.schema(
    [("value", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64()), ("time_us", pa.int64())]
)
"""The columns of a Kafka record that are always read."""


@dataclass(frozen=True)
class PlainEvents:
    """The places of id, key and event time (`validator.codecs.plain_fields`). ``id``: empty if events have none.

    ``factor`` and ``divisor``: from a number to microseconds; ``factor`` is None for texts of the ``pattern``, or of
    ISO 8601 if there is none. ``rounding``: how a finer time is rounded to microseconds. ``key_bytes``, ``id_bytes``,
    ``value_bytes``: the largest sizes of a key, an id and a value. ``condition``: it must hold for an event that
    contributes; ``where`` has the places of its comparisons. ``missing_key``: the setting of the input. The rule
    decodes events without a key. ``readers``: as in `read`. ``addends``: the fields that results aggregate;
    ``present``: the indexes of those that are only counted, ``hashed``: those of which only different values count;
    ``digests``: those whose sums count modulo 2^64; ``repeated``: those that results repeat. ``envelope``: of changes;
    ``operations``: the texts of those that are events. ``is_table``: the changes of a table also remove rows.
    ``own_end``: the place and the form of the time that follows the addends.
    """

    id: tuple[Path, ...]
    key: tuple[Path, ...]
    event_time: Path
    factor: int | None
    key_bytes: int
    rounding: Rounding = "down"
    divisor: int = 1
    id_bytes: int = 2**31
    value_bytes: int = 2**31
    id_type: str = "auto"
    space: IdSpace | None = None
    condition: Condition | None = None
    where: tuple[Path, ...] = ()
    missing_key: str = "undecodable"
    pattern: TimePattern | None = None
    readers: Readers | None = None
    addends: tuple[Path, ...] = ()
    present: frozenset[int] = frozenset()
    hashed: frozenset[int] = frozenset()
    digests: tuple[tuple[int, Digest], ...] = ()
    repeated: tuple[int, ...] = ()
    envelope: Envelope | None = None
    operations: tuple[str, ...] = ()
    is_table: bool = False
    own_end: tuple[Path, Unit | TimePattern | None] | None = None

    def read(self, batch: pa.RecordBatch) -> Events | None:
        """Return the records of a batch that decode here; None if none does."""
        places = [*self.id, self.event_time, *self.key]
        # A field of the condition that is also the id, the key or the time must have the type of these.
        any_scalars = self._tested.beside(places) if self._tested else []
        repeated = [self.addends[i] for i in self.repeated]
        any_scalars += [place for place in repeated if place not in (*places, *any_scalars)]
        places += any_scalars
        texts = self.hashed | {i for i, digest in self.digests if digest.hash is not None}
        numbers = [place for i, place in enumerate(self.addends) if i not in self.present | texts | {*self.repeated}]
        places += [self.addends[i] for i in sorted(texts)]
        places += [self.own_end[0]] if self.own_end else []
        counted = [self.addends[i] for i in self.present]
        if self.envelope is None:
            found = read(batch, places, (), self.value_bytes, any_scalars, self.readers, numbers, counted)
            parts = [self._events(part) for part in found]
            return Events.joined(parts) if parts else None
        envelope = self.envelope

        def decoded(some: pa.RecordBatch, image: Image) -> Iterator[Events]:
            most, readers = self.value_bytes, self.readers
            read_there = read_image(some, envelope, image, places, (), most, any_scalars, readers, numbers, counted)
            return (self._events(one.part, one) for one in read_there)

        if self.is_table and envelope.is_listed:
            return None
        if self.is_table:
            return self._of_table([list(decoded(batch, image)) for image in envelope.images_of_table], batch.num_rows)
        parts = list(by_image(batch, envelope, decoded))
        return Events.joined(parts) if parts else None

    def _of_table(self, images: Sequence[list[Events]], size: int) -> Events | None:
        """Return what changes add, and then what they remove. ``images``: the rows after changes, and those before."""
        parts = [replace(one, removed=~one.removed) if i else one for i, found in enumerate(images) for one in found]
        if not parts:
            return None
        whole = Events.joined(parts)
        halves = np.bincount(whole.rows, minlength=size)[whole.rows]
        events = np.bincount(whole.rows, ~whole.ignored, minlength=size)[whole.rows]
        # An update decodes if both of its rows do. What is not an event is ignored beside an event, or once.
        idle = whole.ignored & (halves > 1) & ((events > 0) | whole.removed)
        return whole.of(((halves > 1) | ~whole.updates) & ~idle)

    def _events(self, part: Read, changes: Changes | None = None) -> Events:
        found = self._ids(part)
        unit = self.pattern if self.factor is None else Unit(self.factor, self.divisor)
        times, has_time = instants(part, self.event_time, unit, self.rounding)
        key = keys([part.at(place) for place in self.key], len(part.rows), self.key_bytes, self.missing_key)
        known = found.known & has_time & key.known
        owed = np.ones(len(part.rows), dtype=np.bool_)
        others = np.zeros(len(part.rows), dtype=np.bool_)
        if self._tested is not None:
            owed, others = self._tested.decided(part)
            known = known & (owed | others)
        addends, digests = [], dict(self.digests)
        for i, place in enumerate(self.addends):
            if i in digests:
                column, is_certain = modular_at(part, place, digests[i])
            elif i in self.hashed or i in self.repeated:
                column, is_certain = hashes_at(part, place)
            elif i in self.present:
                column, is_certain = presence_of(part, place)
            else:
                column, is_certain = amounts_at(part, place, absent=True)
            addends.append(column)
            known = known & (is_certain | ~owed)
        # The rule ignores the fields if the condition does not hold.
        addends = [
            column if owed.all() else pc.if_else(pa.array(owed), column, None)
            for column in repeating(addends, self.repeated)
        ]
        if self.own_end is not None:
            ends, is_certain = instants(part, *self.own_end, self.rounding)
            known = known & (is_certain | ~owed)
            addends.append(pa.array(ends, mask=~(owed & is_certain)).cast(AMOUNT))
        nothing = np.zeros(len(part.rows), dtype=np.bool_)
        ignored, updates = nothing, nothing
        if self.condition is not None and self.condition.others == "ignored":
            ignored = others
        if changes is not None and self.is_table:
            updates = _are_any(changes.operations, self._updating)
        elif changes is not None:
            ignored = ignored | ~_are_any(changes.operations, self.operations)
        # SEMANTICS 2.24: of what is not an event, only the time counts.
        if ignored.any():
            addends = [pc.if_else(pa.array(ignored), None, column) for column in addends]
        known = np.where(ignored, has_time, known)
        if changes is not None:
            known = known & changes.known
        return Events(part.rows, found, times, key, owed, ignored, addends, updates, nothing).of(known)

    @property
    def can_decode(self) -> bool:
        """Whether records of this form decode here at all."""
        # One of these fields may be a scalar where the other lies inside it; `$value` is no field.
        addends = [*self.addends, *([self.own_end[0]] if self.own_end else [])]
        if () in self.where or any(
            inner != outer and inner[: len(outer)] == outer
            for inner, outer in product(addends, (*self.where, *addends))
        ):
            return False
        is_json = self.readers is None or isinstance(self.readers.value, JsonReader)
        places = [*self.id, self.event_time, *self.key, *addends]
        if self._tested is not None and self._tested.is_nested(places) and not (is_json and self.envelope is None):
            return False
        if self.is_table and self.condition is not None and self.event_time[:1] != (ROW,):
            # Of what the condition excludes only the time is known: nothing else shows that there is a row.
            return False
        # Whether a change has the row follows from one of these fields in it.
        in_row = any(place[:1] == (ROW,) for place in [*self.id, self.event_time, *self.key])
        return self.envelope is None or not addends or in_row

    @property
    def _updating(self) -> Sequence[str]:
        """The texts of changes of a table that add a row and remove one."""
        if self.envelope is None:
            return ()
        after, before = self.envelope.images_of_table
        return [text for text in after.operations if text in before.operations]

    @property
    def _tested(self) -> PlainCondition | None:
        return None if self.condition is None else PlainCondition(self.condition, self.where)

    def _ids(self, part: Read) -> Ids:
        if not self.id:
            size = len(part.rows)
            return Ids(np.full(size, NO_ID, dtype=np.int64), None, np.ones(size, dtype=np.bool_))
        return identities(part, self.id, self.id_type, self.id_bytes).named(self.space)


@dataclass(frozen=True)
class Events(Decoded):
    """Decoded rows of a batch; of changes of a table perhaps each twice. ``owed``: the rows for which the condition
    holds. ``ignored``: changes that are not events, which have only a time. ``addends``: a column for each field that
    results aggregate. ``updates``: changes that add a row and remove one. ``removed``: what changes remove."""

    ids: Ids
    times: Ints
    keys: Keys
    owed: Bools
    ignored: Bools
    addends: Sequence[pa.Array]
    updates: Bools
    removed: Bools

    @staticmethod
    def joined(parts: list[Events]) -> Events:
        """Return several parts as one."""
        if len(parts) == 1:
            return parts[0]
        return Events(
            np.concatenate([part.rows for part in parts]),
            Ids.joined([part.ids for part in parts]),
            np.concatenate([part.times for part in parts]),
            Keys.joined([part.keys for part in parts]),
            np.concatenate([part.owed for part in parts]),
            np.concatenate([part.ignored for part in parts]),
            [pa.concat_arrays(columns) for columns in zip(*(part.addends for part in parts), strict=True)],
            np.concatenate([part.updates for part in parts]),
            np.concatenate([part.removed for part in parts]),
        )

    def of(self, chosen: Bools) -> Events:
        """Return the chosen rows."""
        if chosen.all():
            return self
        return Events(
            self.rows[chosen],
            self.ids.of(chosen),
            self.times[chosen],
            self.keys.of(chosen),
            self.owed[chosen],
            self.ignored[chosen],
            [column.filter(pa.array(chosen)) for column in self.addends],
            self.updates[chosen],
            self.removed[chosen],
        )


def _are_any(operations: pa.Array, texts: Sequence[str]) -> Bools:
    return bools(pc.is_in(operations, value_set=pa.array(texts, pa.string())))

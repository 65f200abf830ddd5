"""Decoded records in groups: what a fact row has of the records of its group, in arrays."""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.plain_fields import bools, numbers, one_number, plain
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, one_array
from validator.reconcile.facts import GROUPED
from validator.reconcile.values import fields_of_events, partial_aggregates

Values = TypeVar("Values", Ints, Bools)

_DIGIT: Final = 16
"""Bits per pass of the radix sort."""


class Groups:
    """Records grouped by partition, key and other numbers. Their order within a group is kept."""

    def __init__(self, records: pa.Table, numbered: list[Ints], once: Bools | None = None) -> None:
        """``once``: marks the row that counts a record, if records have several rows."""
        self._once = once
        self._places = plain(one_array(records["partition"]))
        self._offsets, self._stamps = plain(one_array(records["offset"])), one_array(records["time_us"])
        keys = one_array(records["key"].unify_dictionaries())
        self._codes = np.where(bools(keys.is_valid()), plain(pc.fill_null(keys.indices, 0)), -1)
        self._texts = keys.dictionary
        number = one_number([self._places, *numbered, self._codes])
        self._order = _sorted(number)
        ordered = number[self._order]
        self._starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        self._lengths = np.diff(np.append(self._starts, len(self._order)))
        self._firsts = self._order[self._starts]

    def first(self, values: Values) -> Values:
        """Return the value of each group, in which all values are the same."""
        return values[self._firsts]

    def sum(self, values: Ints) -> Ints:
        """Return the sum of each group, modulo 2**64."""
        found: Ints = np.add.reduceat(values[self._order], self._starts)
        return found

    def aggregates(self, columns: list[pa.Array], hashed: frozenset[int]) -> tuple[pa.Array, list[pa.Array]]:
        """Return the partial aggregates of each group (`partial_aggregates`)."""
        group = np.repeat(np.arange(len(self._starts)), self._lengths)
        order = pa.array(self._order)
        return partial_aggregates([column.take(order) for column in columns], group, len(self._starts), hashed)

    def fields_of_ids(self, columns: list[pa.Array], are_integers: Bools, are_texts: Bools) -> pa.Array:
        """Return, for each group, the items of all ``columns`` for each of its ids (`fields_of_events`): first those of
        its integers, then those of its texts, each in the order of `listed`."""
        chosen = are_integers | are_texts
        group = np.repeat(np.arange(len(self._starts)), self._lengths)
        places = np.flatnonzero(chosen[self._order])
        places = places[np.lexsort((are_texts[self._order[places]], group[places]))]
        rows = pa.array(self._order[places])
        ends = np.concatenate([[0], np.cumsum(np.bincount(group[places], minlength=len(self._starts)))])
        return fields_of_events([column.take(rows) for column in columns], ends)

    def smallest(self, values: Ints) -> Ints:
        """Return the smallest value of each group."""
        found: Ints = np.minimum.reduceat(values[self._order], self._starts)
        return found

    def largest(self, values: Ints) -> Ints:
        """Return the largest value of each group."""
        found: Ints = np.maximum.reduceat(values[self._order], self._starts)
        return found

    def any(self, values: Bools) -> Bools:
        """Return whether any value of each group is true."""
        found: Bools = np.logical_or.reduceat(values[self._order], self._starts)
        return found

    def at_first_offset(self, values: Ints) -> Ints:
        """Return the value of the record with the smallest offset of each group."""
        offsets = self._offsets[self._order]
        is_first = np.flatnonzero(offsets == np.repeat(np.minimum.reduceat(offsets, self._starts), self._lengths))
        of_group = np.searchsorted(self._starts, is_first, side="right") - 1
        _, once = np.unique(of_group, return_index=True)
        return values[self._order[is_first[once]]]

    def are_last(self) -> Bools:
        """Return which records have the largest offset of their group."""
        found = np.empty(len(self._order), dtype=np.bool_)
        offsets = self._offsets[self._order]
        found[self._order] = offsets == np.repeat(np.maximum.reduceat(offsets, self._starts), self._lengths)
        return found

    def listed(self, name: str, items: pa.Array, chosen: Bools) -> pa.Array:
        """Return the list of the ``chosen`` items of each group, in the type of the column ``name``. Each id gets
        its offset."""
        rows = self._order if chosen.all() else self._order[chosen[self._order]]
        ends = np.zeros(len(self._starts) + 1, dtype=np.int32)
        if len(rows) == len(self._order):
            ends[:-1], ends[-1] = self._starts, len(rows)
        elif len(rows):
            np.cumsum(self.sum(chosen.astype(np.int64)), out=ends[1:])
        kind = GROUPED.field(name).type
        found = items.take(pa.array(rows))
        if not pa.types.is_struct(items.type):
            offsets = pa.array(self._offsets[rows])
            found = pa.StructArray.from_arrays([found, offsets], fields=list(kind.value_type))
        return pa.ListArray.from_arrays(pa.array(ends), found, kind)

    def stretches(self, bad: Bools) -> pa.Array:
        """Return, for each group, the stretches of offsets of undecodable records (``bad``); null if it has none."""
        kind = GROUPED.field("stretches").type
        if not bad.any():
            return pa.nulls(len(self._starts), kind)
        group = np.empty(len(self._order), dtype=np.int64)
        group[self._order] = np.repeat(np.arange(len(self._starts)), self._lengths)
        group, offsets = group[bad], self._offsets[bad]
        order = np.lexsort((offsets, group))
        group, offsets = group[order], offsets[order]
        breaks = np.concatenate([[True], (np.diff(group) != 0) | (np.diff(offsets) != 1)])
        starts = np.flatnonzero(breaks)
        ends = np.append(starts[1:], len(offsets))
        columns = [offsets[starts], offsets[ends - 1], ends - starts]
        items = pa.StructArray.from_arrays([pa.array(column) for column in columns], fields=list(kind.value_type))
        counted = np.bincount(group[starts], minlength=len(self._starts))
        at = np.concatenate([[0], np.cumsum(counted)]).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(at), items, kind, mask=pa.array(counted == 0))

    def table(self, source: int, columns: dict[str, pa.Array | Ints]) -> pa.Table:
        """Return fact rows: ``columns``, and the columns of all facts. Other columns are null, or empty lists."""
        size = len(self._starts)
        codes = self.first(self._codes)
        stamps, are_stamps = numbers(self._stamps)
        has_stamps = self.any(are_stamps)
        found: dict[str, pa.Array] = {
            "source": pa.repeat(pa.scalar(source, pa.int32()), size),
            "partition": pa.array(self.first(self._places)),
            "key": self._texts.take(pa.array(codes, mask=codes < 0)),
            "records": pa.array(self._lengths if self._once is None else self.sum(self._once.astype(np.int64))),
            "first_offset": pa.array(self.smallest(self._offsets)),
            "last_offset": pa.array(self.largest(self._offsets)),
            "first_time_us": pa.array(self.smallest(np.where(are_stamps, stamps, NEVER)), mask=~has_stamps),
            "last_time_us": pa.array(self.largest(np.where(are_stamps, stamps, ABSENT)), mask=~has_stamps),
            **{
                name: pa.array(column) if isinstance(column, np.ndarray) else column for name, column in columns.items()
            },
        }
        for field in GROUPED:
            if field.name not in found:
                empty = pa.types.is_list(field.type)
                found[field.name] = _no_items(size, field.type) if empty else pa.nulls(size, field.type)
        return pa.table([found[field.name].cast(field.type) for field in GROUPED], schema=GROUPED)


def _no_items(size: int, kind: pa.ListType) -> pa.Array:
    ends = pa.array(np.zeros(size + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(ends, pa.array([], kind.value_type), kind)


def _sorted(numbers: Ints) -> Ints:
    """Return the stable order in which ``numbers`` rise; none of them is negative."""
    highest = int(numbers.max())
    order = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    for shift in range(_DIGIT, highest.bit_length(), _DIGIT):
        digit = (numbers >> shift & 0xFFFF).astype(np.uint16)
        order = order[np.argsort(digit[order], kind="stable")]
    return order

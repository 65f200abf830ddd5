"""Results that Arrow decodes exactly as the rule does (`validator.codecs.one_record`), a batch at once.

tests/property/test_plain_results.py compares the two record by record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.fingerprints import Ints
from validator.codecs.one_record import LARGEST_COUNT, RecordDecoder
from validator.codecs.plain_changes import Decoded, by_image, read_image
from validator.codecs.plain_conditions import PlainCondition
from validator.codecs.plain_fields import (
    Ids,
    Keys,
    Read,
    Readers,
    amounts_at,
    bools,
    form_of,
    hashes_at,
    identities,
    ids,
    instants,
    integers,
    is_part,
    keys,
    plain,
    read,
    repeating,
)
from validator.codecs.plain_json import AMOUNT, Bools
from validator.codecs.times import FARTHEST_US
from validator.model.envelopes import Envelope, Image
from validator.model.id_spaces import IdSpace


@dataclass(frozen=True)
class Lists:
    """A list of ids per row. ``lengths``: the number of ``ids`` of each row."""

    lengths: Ints
    ids: Ids

    @property
    def columns(self) -> tuple[pa.Array, pa.Array]:
        """The integers and the texts of each row."""
        texts, integers = self.ids.texts, self.ids.integers
        none = pa.ListArray.from_arrays(_ends(np.zeros_like(self.lengths)), pa.array([], pa.string()))
        if texts is None:
            return pa.ListArray.from_arrays(_ends(self.lengths), pa.array(integers)), none
        are_texts = self.ids.are_texts
        of_texts = np.bincount(_rows(self.lengths)[are_texts], minlength=len(self.lengths))
        return (
            pa.ListArray.from_arrays(_ends(self.lengths - of_texts), pa.array(integers[~are_texts])),
            pa.ListArray.from_arrays(_ends(of_texts), texts if are_texts.all() else texts.drop_null()),
        )

    @staticmethod
    def chained(lists: list[Lists]) -> Lists:
        """Return one list per row, with the items of several lists."""
        if len(lists) == 1:
            return lists[0]
        order = np.argsort(np.concatenate([_rows(each.lengths) for each in lists]), kind="stable")
        joined = Ids.joined([each.ids for each in lists])
        texts = None if joined.texts is None else joined.texts.take(pa.array(order))
        lengths: Ints = np.sum([each.lengths for each in lists], axis=0)
        return Lists(lengths, Ids(joined.integers[order], texts, joined.known[order]))


@dataclass(frozen=True)
class Results(Decoded):
    """Decoded rows of a batch. ``window_starts``: None if results name no window. ``window_ends``: None if results name
    no end, or if it follows from the start. ``counts``: None if results do not state the number of their events.
    ``values``: a column for each value that they state."""

    window_starts: Ints | None
    window_ends: Ints | None
    keys: Keys
    lists: Lists
    counts: Ints | None = None
    values: Sequence[pa.Array] = ()


@dataclass(frozen=True)
class PlainResults:
    """The decoder of a topic's results. ``spaces``: the id space of each list, if inputs have id spaces."""

    decoder: RecordDecoder
    spaces: Sequence[IdSpace]

    def read(self, batch: pa.RecordBatch) -> Iterator[Results]:
        """Yield the records of a batch that decode here, in one part or several. The rule decodes the others."""
        decoder = self.decoder
        if any(map(is_part, decoder.list_places)) or (decoder.list_places and decoder.id_fields > 1):
            return
        places = [*decoder.places.values(), *decoder.key_places, *decoder.id_places]
        readers = Readers(decoder.reader, decoder.key_reader)
        if decoder.envelope is not None:
            # The rule reads the values of changes.
            if not decoder.value_places:
                yield from by_image(batch, decoder.envelope, partial(self._of_image, decoder.envelope))
            return
        hashed = [decoder.value_places[i] for i in sorted(decoder.hashed)]
        most, any_scalars = decoder.most.value_bytes, [place for place in hashed if place not in places]
        values = [place for i, place in enumerate(decoder.value_places) if i not in decoder.hashed]
        if self._tested is not None:
            if self._tested.is_nested([*places, *hashed, *decoder.list_places, *values]):
                return
            any_scalars += self._tested.beside([*places, *any_scalars])
        places += any_scalars
        for part in read(batch, places, decoder.list_places, most, any_scalars, readers, values):
            results = self._results(part)
            if len(results.rows):
                yield results

    @property
    def _tested(self) -> PlainCondition | None:
        condition = self.decoder.condition
        return None if condition is None else PlainCondition(condition, self.decoder.where_places)

    def _of_image(self, envelope: Envelope, batch: pa.RecordBatch, image: Image) -> Iterator[Results]:
        decoder, lists = self.decoder, self.decoder.list_places
        places = [*decoder.places.values(), *decoder.key_places, *decoder.id_places]
        if image.is_before:
            # SEMANTICS 2.16: a deletion names a result, and uses no events.
            unused = decoder.count_name
            places = [place for name, place in decoder.places.items() if name != unused] + decoder.key_places
            lists = []
        readers = Readers(decoder.reader, decoder.key_reader)
        for one in read_image(batch, envelope, image, places, lists, decoder.most.value_bytes, (), readers):
            results = self._results(one.part, one.known, withdraws=image.is_before)
            if len(results.rows):
                yield results

    def _results(self, part: Read, known: Bools | None = None, *, withdraws: bool = False) -> Results:
        decoder = self.decoder
        starts, named_ends, good = None, None, np.ones(len(part.rows), dtype=np.bool_)
        if decoder.time_name is not None:
            starts, good = self._instants(part, decoder.time_name)
            starts = starts - decoder.back_us
            good = good & (starts >= -FARTHEST_US)
        if known is not None:
            good = good & known
        if self._tested is not None:
            # The rule ignores records of others.
            good = good & self._tested.decided(part)[0]
        if starts is not None and decoder.checks_end:
            ends, has_end = self._instants(part, "window_end")
            good = good & has_end
            if decoder.window_us is None:
                named_ends = ends
            else:
                good &= ends == starts + decoder.window_us
        columns = [part.at(place) for place in decoder.key_places]
        key = keys(columns, len(part.rows), decoder.most.key_bytes, decoder.missing_key)
        good = good & key.known
        # A result of one event counts one.
        counts = np.ones(len(part.rows), dtype=np.int64) if decoder.of_one else None
        if decoder.count_name is not None and withdraws:
            counts = np.zeros(len(part.rows), dtype=np.int64)
        elif decoder.count_name is not None:
            counts, are_counts = self._counts(part.at(decoder.places[decoder.count_name]))
            good = good & are_counts
            if (bound := decoder.count_bound) is not None:
                # The rule refuses results below a bound.
                good = good & (counts >= min(bound.least_integer, LARGEST_COUNT + 1))
        values = []
        for i, (place, bound) in enumerate(zip(decoder.value_places, decoder.value_bounds, strict=True)):
            # The rule knows whether a value is null or absent.
            is_hashed = i in decoder.hashed
            column, is_certain = hashes_at(part, place) if is_hashed else amounts_at(part, place, absent=False)
            values.append(column)
            good = good & is_certain
            if bound is not None:
                test = pc.greater if bound.is_above else pc.greater_equal
                good = good & bools(pc.fill_null(test(column, pa.scalar(bound.least, AMOUNT)), fill_value=False))
        values = repeating(values, decoder.repeated)
        lists = []
        for column in () if withdraws else self._columns(part):
            found, are_known = self._list(column)
            lists.append(found)
            good = good & are_known
        if lists and not good.all():
            chosen = pa.array(good)
            lists = [self._list(column.filter(chosen))[0] for column in self._columns(part)]
        if decoder.id_places and not withdraws:
            # A single id is a list, too.
            one = identities(part, decoder.id_places, decoder.id_type, decoder.most.id_bytes)
            good = good & one.known
            lists = [Lists(np.ones(np.count_nonzero(good), dtype=np.int64), one.of(good))]
        if self.spaces and lists:
            lists = [
                replace(found, ids=found.ids.named(space)) for found, space in zip(lists, self.spaces, strict=True)
            ]
        named, named_ends = (None if each is None else each[good] for each in (starts, named_ends))
        found = Lists.chained(lists) if lists else _none(int(np.count_nonzero(good)))
        counts = None if counts is None else counts[good]
        values = [column.filter(pa.array(good)) for column in values]
        return Results(part.rows[good], named, named_ends, key.of(good), found, counts, values)

    @staticmethod
    def _counts(column: pa.Array) -> tuple[Ints, Bools]:
        """Return the numbers of events, and which rows have one that is written as an integer."""
        found, known = integers(column)
        return found, known & (found >= 0) & (found <= LARGEST_COUNT)

    def _instants(self, part: Read, field: str) -> tuple[Ints, Bools]:
        return instants(part, self.decoder.places[field], form_of(self.decoder.units[field]), "down")

    def _columns(self, part: Read) -> Iterator[pa.Array]:
        """Yield the lists of ids."""
        for place in self.decoder.list_places:
            yield part.at(place)

    def _list(self, column: pa.ListArray) -> tuple[Lists, Bools]:
        """Return the ids of each row, and which rows have only known ids."""
        known = bools(column.is_valid())
        lengths = plain(pc.fill_null(pc.list_value_length(column), 0))
        found = ids(column.flatten(), self.decoder.id_type, self.decoder.most.id_bytes)
        if not found.known.all():
            known[_rows(lengths)[~found.known]] = False
        return Lists(lengths, found), known


def _none(size: int) -> Lists:
    """Return an empty list for each row."""
    nothing = np.empty(0, dtype=np.int64)
    return Lists(np.zeros(size, dtype=np.int64), Ids(nothing, None, nothing.astype(np.bool_)))


def _rows(lengths: Ints) -> Ints:
    return np.repeat(np.arange(len(lengths)), lengths)


def _ends(lengths: Ints) -> pa.Array:
    ends = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=ends[1:])
    return pa.array(ends)

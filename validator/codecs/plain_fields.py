"""Decodes columns to ids, keys and instants, as `validator.codecs.one_record` decodes them from one record.

A value that might decode differently is unknown, and `one_record` decodes its record. A *place*
is a path into the value, empty for the whole value; or the name of a part of the record (`$key`, `$header.NAME`,
`$timestamp`, `$partition`, `$offset`), followed by the path into the key.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.digests import hashes_of, of_prefixes, powers
from validator.codecs.fingerprints import Ints, text_numbers
from validator.codecs.one_record import (
    DIGITS_AFTER,
    LARGEST_AMOUNT,
    NULL_KEY,
    TOO_LARGE,
    WHOLE_VALUE_MAX,
    digest_of,
    joined,
)
from validator.codecs.plain_json import AMOUNT, Bools, Path, columns, leaf, raw, regular
from validator.codecs.plain_lists import extract_lists
from validator.codecs.plain_patterns import instants_of_pattern
from validator.codecs.plain_times import instants_of_texts
from validator.codecs.times import FARTHEST_US, MICROSECONDS, NO_TIMESTAMP_US, Rounding
from validator.model.arrays import texts_of
from validator.model.id_spaces import IdSpace
from validator.model.json_text import JsonReader
from validator.model.stated_values import Digest
from validator.settings.time_patterns import TimePattern

if TYPE_CHECKING:
    # Spark's workers decode, and start faster without the configuration's models.
    from validator.settings.formats.seam import ColumnReader, ValueReader

_INTEGER: Final = r"\A(?:0|-?[1-9][0-9]{0,18})\z"
"""The rule's pattern of an integer, for RE2."""
_LONGEST_INTEGER: Final = 20
_SMALLEST: Final = -(2**63)
_WHOLE_BELOW: Final = 2.0**53
"""Below this, a double without a fraction has the digits of its integer."""
_HIGHEST_AMOUNT: Final = LARGEST_AMOUNT * 10**DIGITS_AFTER >> 192
"""Surely less than the highest 64 bits of the smallest number that is too large."""
_LARGEST: Final = 2**62
"""Upper bound of the numbers that `one_number` gives to rows."""


class Unit(NamedTuple):
    """Unit of a time that is a number: microseconds are the number times ``factor`` divided by ``divisor``."""

    factor: int
    divisor: int = 1


def form_of(unit: str | TimePattern | None) -> Unit | TimePattern | None:
    """Return the `Unit` of a configured unit, or a pattern as it is; None for ISO 8601 texts."""
    if unit is None or isinstance(unit, TimePattern):
        return unit
    return Unit(1, 1_000) if unit == "ns" else Unit(MICROSECONDS[unit])


@dataclass(frozen=True)
class Ids:
    """Integer and text ids. ``texts`` is null for an integer id, and None if all ids are integers."""

    integers: Ints
    texts: pa.Array | None
    known: Bools

    @staticmethod
    def joined(parts: list[Ids]) -> Ids:
        """Return the ids of several parts as one."""
        texts = [pa.nulls(len(part.integers), pa.string()) if part.texts is None else part.texts for part in parts]
        return Ids(
            np.concatenate([part.integers for part in parts]),
            None if all(part.texts is None for part in parts) else pa.concat_arrays(texts),
            np.concatenate([part.known for part in parts]),
        )

    @property
    def are_texts(self) -> Bools:
        """The rows in which a known id is a text."""
        if self.texts is None:
            return np.zeros(len(self.integers), dtype=np.bool_)
        return self.known & bools(self.texts.is_valid())

    def of(self, chosen: Bools) -> Ids:
        """Return the ids of the chosen rows."""
        texts = self.texts.filter(pa.array(chosen)) if self.texts is not None else None
        if texts is not None and texts.null_count == len(texts):
            texts = None
        return Ids(self.integers[chosen], texts, self.known[chosen])

    def named(self, space: IdSpace | None) -> Ids:
        """Return the ids as `IdSpace.named` names them."""
        if space is None or (self.texts is None and space.keeps_integers):
            return self
        texts = self.texts
        if not space.keeps_integers:
            of_integers = pa.array(self.integers).cast(pa.string())
            texts = of_integers if texts is None else pc.coalesce(texts, of_integers)
        return replace(self, texts=pc.binary_join_element_wise(space.prefix, texts, ""))


@dataclass(frozen=True)
class Keys:
    """Keys of rows. ``codes``: the index of each row's key in ``texts``."""

    codes: Ints
    texts: pa.Array
    known: Bools

    @staticmethod
    def joined(parts: list[Keys]) -> Keys:
        """Return the keys of several parts as one."""
        starts = np.cumsum([0, *(len(part.texts) for part in parts)])
        codes = np.concatenate([part.codes + start for part, start in zip(parts, starts[:-1], strict=True)])
        encoded = pa.concat_arrays([part.texts for part in parts]).dictionary_encode()
        known = np.concatenate([part.known for part in parts])
        # Codes are indexes into the texts, unless there are no texts.
        return Keys(plain(encoded.indices)[codes] if starts[-1] else codes, encoded.dictionary, known)

    @property
    def column(self) -> pa.DictionaryArray:
        """The key of each row."""
        return pa.DictionaryArray.from_arrays(pa.array(self.codes, pa.int32()), self.texts)

    def of(self, chosen: Bools) -> Keys:
        """Return the keys of the chosen rows."""
        return Keys(self.codes[chosen], self.texts, self.known[chosen])


class Read(NamedTuple):
    """Rows of a batch whose value is parsed, and the columns of the requested places."""

    batch: pa.RecordBatch
    rows: Ints
    table: pa.Table | None
    columns: Mapping[Path, pa.Array] = MappingProxyType({})
    """The columns that are not in the table."""
    of_key: Mapping[Path, pa.Array] = MappingProxyType({})
    """The columns of fields in the key, of all rows of the batch."""
    paths: Mapping[Path, Path] = MappingProxyType({})
    """Place -> its path in the value, where the two differ."""

    def at(self, place: Path) -> pa.Array:
        """Return the column at a place, for ``rows``."""
        place = self.paths.get(place, place)
        if place in self.columns:
            return self.columns[place]
        if not is_part(place):
            assert self.table is not None, "a field of the value needs a table"
            return leaf(self.table, place)
        whole = len(self.rows) == self.batch.num_rows
        if place in self.of_key:
            return self.of_key[place] if whole else self.of_key[place].take(pa.array(self.rows))
        batch = self.batch if whole else self.batch.take(pa.array(self.rows))
        return _part(batch, place[0])


class Readers(NamedTuple):
    """The readers of values and keys."""

    value: ValueReader
    key: ValueReader


def read(
    batch: pa.RecordBatch,
    places: Sequence[Path],
    lists: Sequence[Path] = (),
    most: int = 2**31,
    any_scalars: Collection[Path] = (),
    readers: Readers | None = None,
    amounts: Sequence[Path] = (),
    counted: Sequence[Path] = (),
) -> Iterator[Read]:
    """Yield the rows of a batch that can be read here, in one part or several. ``most``: largest size of a value in
    bytes. ``any_scalars``: the only places whose values may also be booleans, or numbers as doubles. ``readers``: None:
    values are JSON, and keys texts. ``amounts``: places of numbers (`amounts_of`). ``counted``: places of fields of any
    type that may be absent (`presence_of`)."""
    of_key: Mapping[Path, pa.Array] | None = {}
    if readers is not None:
        of_key = _of_key(batch, [*places, *amounts, *counted], readers.key)
    if of_key is None:
        return
    if not lists and all(map(is_part, (*places, *amounts, *counted))):
        parts = _of_parts_only(batch, most)
    elif readers is None or isinstance(readers.value, JsonReader):
        values = batch["value"]
        if readers is not None:
            values = _after(values, cast("JsonReader", readers.value).prefix_bytes)
        parts = _of_json(batch, values, places, lists, most, any_scalars, amounts, counted)
    else:
        parts = _of_format(batch, [*places, *amounts, *counted], lists, most, readers.value)
    for part in parts:
        yield part._replace(of_key=of_key)


def _after(values: pa.Array, prefix_bytes: int) -> pa.Array:
    """Return values without Confluent's wire prefix of this many bytes; empty if there is none."""
    if not prefix_bytes:
        return values
    offsets, data = raw(values)
    framed = np.diff(offsets) > prefix_bytes
    framed[framed] = data[offsets[:-1][framed]] == 0
    places = np.empty(2 * len(values) + 1, dtype=np.int32)
    places[:-1:2], places[1::2] = np.where(framed, offsets[:-1] + prefix_bytes, offsets[1:]), offsets[1:]
    places[-1] = offsets[-1]
    parts = pa.Array.from_buffers(pa.binary(), 2 * len(values), [None, pa.py_buffer(places), pa.py_buffer(data)])
    return parts.take(pa.array(np.arange(0, 2 * len(values), 2)))


def _of_key(batch: pa.RecordBatch, places: Sequence[Path], reader: ValueReader) -> Mapping[Path, pa.Array] | None:
    """Return the columns of the places in the key; None if the reader has none."""
    paths = list(dict.fromkeys(place[1:] for place in places if place[:1] == ("$key",)))
    if not paths:
        return {}
    found = _columns(reader, batch["key"], paths, (), batch)
    return None if found is None else {("$key", *path): column for path, column in found.items()}


def _columns(
    reader: ValueReader, values: pa.Array, paths: Sequence[Path], lists: Sequence[Path], batch: pa.RecordBatch
) -> Mapping[Path, pa.Array] | None:
    if not hasattr(reader, "read_columns"):
        return None
    headers = None if reader.header is None else _last_headers(batch, reader.header)
    return cast("ColumnReader", reader).read_columns(values, paths, lists, headers)


def _of_parts_only(batch: pa.RecordBatch, most: int) -> Iterator[Read]:
    """Yield the rows of a batch whose values have a valid size: no field is read from a value."""
    values = batch["value"]
    sizes = pc.binary_length(values)
    known = pc.and_(pc.and_(pc.greater(sizes, 0), pc.less_equal(sizes, most)), _are_whole(values))
    yield Read(batch, np.flatnonzero(bools(pc.fill_null(known, False))), None)


def _of_format(
    batch: pa.RecordBatch, places: Sequence[Path], lists: Sequence[Path], most: int, reader: ValueReader
) -> Iterator[Read]:
    """Yield all rows of a batch whose values are not JSON. Columns are null where the rule decides."""
    values = batch["value"]
    paths = list(dict.fromkeys(place for place in places if not is_part(place)))
    sizes = pc.binary_length(values)
    readable = pc.and_(pc.and_(pc.greater(sizes, 0), pc.less_equal(sizes, most)), _are_whole(values))
    readable = pc.fill_null(readable, False)
    found = _columns(reader, pc.if_else(readable, values, None), paths, lists, batch)
    if found is not None:
        yield Read(batch, np.arange(batch.num_rows), None, found)


def _are_whole(values: pa.Array) -> pa.Array:
    """Return which values are not the replacement of a value above the limit."""
    return pc.invert(pc.starts_with(values, TOO_LARGE))


def _of_json(
    batch: pa.RecordBatch,
    values: pa.Array,
    places: Sequence[Path],
    lists: Sequence[Path],
    most: int,
    any_scalars: Collection[Path],
    amounts: Sequence[Path],
    counted: Sequence[Path],
) -> Iterator[Read]:
    """Yield the rows of a batch whose ``values`` are JSON."""
    paths = list(dict.fromkeys(place for place in places if not is_part(place)))
    # A field that is also the time, for example, has one type.
    amounts = [place for place in dict.fromkeys(amounts) if not is_part(place) and place not in paths]
    counted = [place for place in dict.fromkeys(counted) if not is_part(place) and place not in (*paths, *amounts)]
    if () in (*paths, *lists, *amounts, *counted):
        # The whole value is not an object.
        return
    left = np.ones(len(values), dtype=np.bool_)
    without = extract_lists(values, len(lists), most)
    if without is not None:
        for table, rows in columns(
            without.values, np.flatnonzero(regular(without.values)), paths, lists, amounts=amounts
        ):
            good, found = without.lists_at(table, rows, lists)
            if good.any():
                chosen = without.rows[rows[good]]
                left[chosen] = False
                yield Read(batch, chosen, table if good.all() else table.filter(pa.array(good)), found)
    if left.all():
        good_rows = np.flatnonzero(regular(values, most))
        for table, rows in columns(values, good_rows, paths, lists, any_scalars, amounts, counted):
            yield Read(batch, rows, table)
    elif left.any():
        rest = np.flatnonzero(left)
        others = values.take(pa.array(rest))
        for table, rows in columns(others, np.flatnonzero(regular(others, most)), paths, lists, amounts=amounts):
            yield Read(batch, rest[rows], table)


def is_part(place: Path) -> bool:
    """Return whether a place is in a part of the record other than the value."""
    return bool(place) and place[0].startswith("$")


def _part(batch: pa.RecordBatch, name: str) -> pa.Array:
    if name == "$key":
        return texts_of(batch["key"])
    if name == "$timestamp":
        return batch["time_us"]
    if name in ("$offset", "$partition"):
        return batch[name[1:]].cast(pa.int64())
    return texts_of(_last_headers(batch, name.removeprefix("$header.")))


def _last_headers(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return the last header of a name, as bytes."""
    headers = batch["headers"]
    flat = headers.flatten()
    named = bools(pc.fill_null(pc.equal(flat.field("key"), name), False))
    last = np.full(batch.num_rows, -1, dtype=np.int64)
    # The last of several headers with the name counts.
    last[plain(pc.list_parent_indices(headers))[named]] = np.flatnonzero(named)
    return flat.field("value").take(pa.array(last, mask=last < 0))


def integers(column: pa.Array) -> tuple[Ints, Bools]:
    """Return the canonical 64-bit integers of a column, and which values are such integers."""
    if pa.types.is_boolean(column.type) or pa.types.is_binary(column.type):
        # They are no numbers, whatever their texts.
        return np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=np.bool_)
    column = _comparable(column)
    if column.type != pa.string():
        return numbers(column)
    lengths = plain(pc.fill_null(pc.binary_length(column), 0))
    short = np.flatnonzero((lengths > 0) & (lengths <= _LONGEST_INTEGER))
    found = np.zeros(len(column), dtype=np.int64)
    known = np.zeros(len(column), dtype=np.bool_)
    if not len(short):
        return found, known
    texts = column if len(short) == len(column) else column.take(pa.array(short))
    with suppress(pa.ArrowInvalid):
        whole = plain(texts.cast(pa.int64()))
        known[short] = canonical = _are_canonical(texts)
        found[short] = np.where(canonical, whole, 0)
        return found, known
    # Some are not integers.
    rows = short[bools(pc.match_substring_regex(texts, _INTEGER))]
    if not len(rows):
        return found, known
    texts = column if len(rows) == len(column) else column.take(pa.array(rows))
    known[rows] = True
    try:
        found[rows] = plain(texts.cast(pa.int64()))
    except pa.ArrowInvalid:
        # Some are beyond 64 bits.
        exact = [int(text) for text in texts.to_pylist()]
        known[rows] = [_SMALLEST <= number < -_SMALLEST for number in exact]
        found[known] = [number for number in exact if _SMALLEST <= number < -_SMALLEST]
    return found, known


def _are_canonical(texts: pa.Array) -> Bools:
    """Return which texts are as `_INTEGER`, of texts that Arrow casts to integers, in decimals or hexadecimals.

    It is five times as fast as the expression, which ids and times of texts and CSV would need."""
    offsets, data = raw(texts)
    first, lengths = data[offsets[:-1]], np.diff(offsets)
    zero = ord("0")
    second = data[np.minimum(offsets[:-1] + 1, len(data) - 1)]
    canonical: Bools = ((first != zero) | (lengths == 1)) & ((first != ord("-")) | (second != zero))
    return canonical


def identities(of: Read, places: Sequence[Path], id_type: str, most: int) -> Ids:
    """Return the id of each row, of one field or several. ``most``: as in `ids`."""
    columns = [of.at(place) if place else _digested(_comparable(of.at(place))) for place in places]
    if len(columns) == 1:
        return ids(columns[0], id_type, most, of_part=is_part(places[0]))
    known = np.ones(len(of.rows), dtype=np.bool_)
    parts: list[pa.Array | str] = []
    for column in map(_comparable, columns):
        texts = pc.fill_null(column.cast(pa.string()), "")
        # The rule escapes these.
        known &= bools(column.is_valid()) & ~bools(pc.match_substring_regex(texts, r'[\x00-\x1f"\\]'))
        parts += ['","' if parts else '["', texts]
    joined_texts = pc.binary_join_element_wise(*parts, '"]', "")
    lengths = plain(pc.binary_length(joined_texts))
    return Ids(np.zeros(len(known), dtype=np.int64), joined_texts, known & (lengths <= most))


def _digested(column: pa.Array) -> pa.Array:
    """Return whole values as ids have them."""
    if column.type != pa.string():
        return column
    are_long = bools(pc.fill_null(pc.greater(pc.binary_length(column), WHOLE_VALUE_MAX), False))
    if not are_long.any():
        return column
    digests = [digest_of(text) for text in column.filter(pa.array(are_long)).to_pylist()]
    return pc.replace_with_mask(column, pa.array(are_long), pa.array(digests, pa.string()))


def ids(column: pa.Array, id_type: str, most: int, *, of_part: bool = False) -> Ids:
    """Return the ids of a column. ``most``: largest size of a text, and of an integer in a part of the record."""
    found = _ids(_comparable(column), id_type, most)
    if not of_part or column.type != pa.string():
        return found
    lengths = plain(pc.fill_null(pc.binary_length(column), 0))
    return replace(found, known=found.known & (lengths <= most))


def _ids(column: pa.Array, id_type: str, most: int) -> Ids:
    if id_type == "string":
        found, known = np.zeros(len(column), dtype=np.int64), bools(column.is_valid())
        texts = column.cast(pa.string())
    elif column.type != pa.string():
        return Ids(*_with_no_texts(numbers(column)))
    else:
        found, of_integers = integers(column)
        if of_integers.all() or id_type == "integer":
            return Ids(*_with_no_texts((found, of_integers)))
        known = of_integers | bools(column.is_valid())
        texts = column if not of_integers.any() else pc.if_else(pa.array(of_integers), None, column)
    lengths = plain(pc.fill_null(pc.binary_length(texts), 0))
    return Ids(found, texts, known & (lengths <= most))


def _with_no_texts(found: tuple[Ints, Bools]) -> tuple[Ints, None, Bools]:
    return found[0], None, found[1]


def keys(parts: list[pa.Array], rows: int, most: int, missing_key: str) -> Keys:
    """Return the key of each of the ``rows``, from so many columns as a key has fields. ``most``: largest size of a key
    in bytes."""
    known = np.ones(rows, dtype=np.bool_)
    if not parts:
        return Keys(np.zeros(rows, dtype=np.int64), pa.array([joined([])], pa.string()), known)
    encoded = []
    for column in map(_comparable, parts):
        coded = column.cast(pa.string()).dictionary_encode()
        if column.null_count:
            known &= bools(column.is_valid())
        encoded.append((plain(pc.fill_null(coded.indices, 0)), coded.dictionary))
    if not all(len(part) for _, part in encoded):
        known[:] = False
    if len(encoded) == 1 or not known.any():
        codes, texts = encoded[0]
        if missing_key != "undecodable" and len(texts):
            known = known & ~bools(pc.equal(texts, NULL_KEY))[codes]
    else:
        # The text of a key of several fields is a JSON array.
        _, first, codes = np.unique(one_number([codes for codes, _ in encoded]), return_index=True, return_inverse=True)
        chosen = [part.take(pa.array(codes[first])).to_pylist() for codes, part in encoded]
        texts = pa.array([joined(list(key)) for key in zip(*chosen, strict=True)], pa.string())
        codes = codes.astype(np.int64)
    too_long = plain(pc.fill_null(pc.binary_length(texts), 0)) > most
    if too_long.any():
        known = known & ~too_long[codes]
    return Keys(codes, texts, known)


def instants(of: Read, place: Path, unit: Unit | TimePattern | None, rounding: Rounding) -> tuple[Ints, Bools]:
    """Return microseconds since the epoch, and which of them are certain."""
    column = of.at(place)
    if place == ("$timestamp",):
        found, known = numbers(column)
        return found, known & (found != NO_TIMESTAMP_US) & (found >= -FARTHEST_US) & (found <= FARTHEST_US)
    if pa.types.is_timestamp(column.type):
        typed = form_of(column.type.unit)
        if unit not in (None, typed):
            return np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=np.bool_)
        column, unit = column.cast(pa.int64()), typed
    if not isinstance(unit, Unit):
        if column.type != pa.string():
            return np.zeros(len(column), dtype=np.int64), np.zeros(len(column), dtype=np.bool_)
        return instants_of_texts(column, rounding) if unit is None else instants_of_pattern(column, unit, rounding)
    found, known = integers(column)
    if unit.divisor > 1:
        # The smallest integer cannot be negated.
        known = known & (found > _SMALLEST)
        found = np.where(known, found, 0)
        return -(-found // unit.divisor) if rounding == "up" else found // unit.divisor, known
    farthest = FARTHEST_US // unit.factor
    known = known & (found >= -farthest) & (found <= farthest)
    return np.where(known, found, 0) * unit.factor, known


def amounts_of(column: pa.Array, *, absent: bool) -> tuple[pa.Array, Bools]:
    """Return the exact numbers of a column (`AMOUNT`), and which of them are certain. ``absent``: whether null is."""
    found = pa.nulls(len(column), AMOUNT)
    known = np.zeros(len(column), dtype=np.bool_)
    try:
        if pa.types.is_floating(column.type):
            # Its shortest digits are the number, as for the rule. A float of 32 bits has others as a double.
            if column.type != pa.float64():
                return found, known
            column = column.cast(pa.string())
        if pa.types.is_integer(column.type) or pa.types.is_decimal(column.type) or pa.types.is_string(column.type):
            found = column.cast(AMOUNT)
    except pa.ArrowInvalid:
        return found, known
    valid = bools(column.is_valid())
    if found.null_count == len(found) and valid.any():
        return found, known
    # The highest of the four parts of 64 bits.
    highest = np.frombuffer(found.buffers()[1], np.int64)[found.offset * 4 : (found.offset + len(found)) * 4][3::4]
    known = np.abs(highest) < _HIGHEST_AMOUNT
    return found, (known & valid) | (~valid if absent else False)


def amounts_at(of: Read, place: Path, *, absent: bool) -> tuple[pa.Array, Bools]:
    """Return the exact numbers at a place, as `amounts_of`."""
    column = of.at(place)
    if pa.types.is_floating(column.type) and not is_part(place) and place not in of.columns:
        # A number of JSON has other digits than its double.
        return pa.nulls(len(column), AMOUNT), np.zeros(len(column), dtype=np.bool_)
    return amounts_of(column, absent=absent)


def presence_of(of: Read, place: Path) -> tuple[pa.Array, Bools]:
    """Return 1 where a field is not null (`AMOUNT`), and which of them are certain."""
    valid = bools(of.at(place).is_valid())
    # Elsewhere the rule decides what null is.
    is_json = not is_part(place) and place not in of.columns
    found = pa.array(np.ones(len(valid), dtype=np.int64), mask=~valid).cast(AMOUNT)
    return found, valid | is_json


def hashes_at(of: Read, place: Path) -> tuple[pa.Array, Bools]:
    """Return the 64-bit hashes of the texts at a place (`AMOUNT`), and which of them are certain."""
    found = keys([of.at(place)], len(of.rows), 2**31, "undecodable")
    if not len(found.texts):
        return pa.nulls(len(found.codes), AMOUNT), np.zeros(len(found.codes), dtype=np.bool_)
    return pa.array(text_numbers(found.texts)[found.codes], mask=~found.known).cast(AMOUNT), found.known


def repeating(columns: list[pa.Array], places: Sequence[int]) -> list[pa.Array]:
    """Return columns in which each field that a result repeats has the hash of the tuple up to it, as the rule does."""
    hashes = [numbers(columns[i].cast(pa.int64())) for i in places]
    of_tuples = of_prefixes([np.where(valid, found, 0) for found, valid in hashes])
    whole = dict(zip(places, of_tuples, strict=True))
    return [
        pa.array(whole[i], mask=~bools(column.is_valid())).cast(AMOUNT) if i in whole else column
        for i, column in enumerate(columns)
    ]


def modular_at(of: Read, place: Path, digest: Digest) -> tuple[pa.Array, Bools]:
    """Return what the fields at a place add to a sum modulo 2^64 (`AMOUNT`), and which of them are certain."""
    if digest.hash is None:
        amounts, known = amounts_at(of, place, absent=True)
        try:
            column = amounts.cast(pa.int64())
        except pa.ArrowInvalid:
            # The rule decides what is not an integer, and what one of more than 64 bits is.
            return pa.nulls(len(amounts), AMOUNT), np.zeros(len(amounts), dtype=np.bool_)
        found, valid = numbers(column)
    else:
        texts = keys([of.at(place)], len(of.rows), 2**31, "undecodable")
        if not len(texts.texts):
            return pa.nulls(len(texts.codes), AMOUNT), np.zeros(len(texts.codes), dtype=np.bool_)
        found, valid = hashes_of(texts.texts, digest.hash)[texts.codes], texts.known
        known = valid
    return pa.array(powers(found, digest), mask=~valid).cast(AMOUNT), known


def _comparable(column: pa.Array) -> pa.Array:
    """Return a column as integers or texts, as ids and keys are compared; null where that is not certain. The rule
    decides what a time is."""
    if pa.types.is_timestamp(column.type):
        return pa.nulls(len(column), pa.int64())
    if pa.types.is_floating(column.type):
        return _digits(column)
    if pa.types.is_boolean(column.type):
        return column.cast(pa.string())
    if pa.types.is_binary(column.type):
        texts = [None if raw is None else b64encode(raw) for raw in column.to_pylist()]
        return pa.array(texts, pa.binary()).cast(pa.string())
    return column


def _digits(column: pa.Array) -> pa.Array:
    """Return the shortest digits of doubles, of whole ones without a fraction; null if they need an exponent."""
    values = pc.fill_null(column, math.nan).to_numpy(zero_copy_only=False)
    whole = (np.floor(values) == values) & (np.abs(values) < _WHOLE_BELOW)
    of_whole = pa.array(np.where(whole, values, 0).astype(np.int64)).cast(pa.string())
    texts = column.cast(pa.string())
    is_plain = pc.match_substring_regex(texts, r"\A-?[0-9]+\.[0-9]*[1-9]\z")
    return pc.if_else(pa.array(whole), of_whole, pc.if_else(is_plain, texts, None))


def numbers(column: pa.Array) -> tuple[Ints, Bools]:
    """Return an int64 column as an array, with 0 in place of null, and which values are not null."""
    if not column.null_count:
        return plain(column), np.ones(len(column), dtype=np.bool_)
    return plain(pc.fill_null(column, 0)), bools(column.is_valid())


def plain(column: pa.Array) -> Ints:
    """Return a column without nulls as an array."""
    found: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def bools(column: pa.Array) -> Bools:
    """Return a column of booleans without nulls as an array."""
    found: Bools = column.to_numpy(zero_copy_only=False)
    return found


def one_number(columns: list[Ints]) -> Ints:
    """Return one number per row. Two rows have the same number if and only if they are equal in all columns."""
    number = np.zeros(len(columns[0]), dtype=np.int64)
    size = 1
    for column in columns:
        lowest, span = int(column.min()), int(column.max()) - int(column.min()) + 1
        if span == 1:
            continue
        if size * span > _LARGEST:
            # The product could exceed 64 bits, so that two different rows would have one number.
            distinct, values = np.unique(column, return_inverse=True)
            span = len(distinct)
        else:
            values = column - lowest
        if size * span > _LARGEST:
            distinct, number = np.unique(number, return_inverse=True)
            size = len(distinct)
        number = number * span + values
        size *= span
    return number

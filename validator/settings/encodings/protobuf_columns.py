"""Protobuf's binary encoding, a batch at a time: the records for which it is certain that `protobuf_values` finds the
same.

The records of a type are read together, field by field, by NumPy: first the first field of each record, then the second
one. A record that may be invalid is left out. Source: the Protobuf documentation, "Encoding".
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from validator.model.arrays import Bools, Ints
from validator.model.schemas import Schemas
from validator.settings.encodings.framed_columns import framed_columns, known_columns
from validator.settings.encodings.packed_columns import Columns, Packed, floats_of, joined, of_good, of_zigzag
from validator.settings.encodings.protobuf_values import DescriptorsInvalid, MessageReader, message_reader
from validator.settings.formats.registered import GUID_BYTES, PREFIX_BYTES, message_indexes
from validator.settings.formats.seam import Path, Unreadable

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_SECONDS_MAX: Final = 9_000_000_000
_DEEPEST: Final = 50
_FIELDS_MAX: Final = 2_000
"""Largest number of fields of a record: each takes a step for all records."""
_INDEXES_MAX: Final = 8

_F = FieldDescriptor
_SIGNED = frozenset({_F.TYPE_SINT32, _F.TYPE_SINT64})
_INTEGERS: Final = {
    **dict.fromkeys((_F.TYPE_INT64, _F.TYPE_SINT64, _F.TYPE_SFIXED64), (-(2**63), 2**63 - 1)),
    **dict.fromkeys((_F.TYPE_UINT64, _F.TYPE_FIXED64), (0, 2**63 - 1)),
    **dict.fromkeys((_F.TYPE_INT32, _F.TYPE_SINT32, _F.TYPE_SFIXED32), (-(2**31), 2**31 - 1)),
    **dict.fromkeys((_F.TYPE_UINT32, _F.TYPE_FIXED32), (0, 2**32 - 1)),
}
"""Type of an integer -> the smallest and the largest number that is read here."""
_FLOATS: Final = {_F.TYPE_DOUBLE: 8, _F.TYPE_FLOAT: 4}
"""Type of a floating-point number -> its size."""
_DEFAULTS: Final = {_F.TYPE_STRING: "", _F.TYPE_BOOL: False, **dict.fromkeys(_FLOATS, 0.0)}
"""Type -> the value of a field that is not written; 0 for others."""
_WIRES: Final = {
    **dict.fromkeys((_F.TYPE_DOUBLE, _F.TYPE_FIXED64, _F.TYPE_SFIXED64), _FIXED64),
    **dict.fromkeys((_F.TYPE_FLOAT, _F.TYPE_FIXED32, _F.TYPE_SFIXED32), _FIXED32),
    **dict.fromkeys((_F.TYPE_STRING, _F.TYPE_BYTES, _F.TYPE_MESSAGE), _LENGTH),
}
"""Type -> how a single value is written; others are varints."""


class _TooOdd(Exception):
    """Records that this module leaves to `protobuf_values`."""


class _Part(NamedTuple):
    """What was read at a path. ``rows``: one for each value. ``values``: integers, texts, or starts and ends of
    texts."""

    rows: Ints
    values: Ints | pa.Array


def columns_of_file(
    reader: MessageReader,
    values: pa.Array,
    paths: Sequence[Path],
    lists: Sequence[Path],
    headers: pa.Array | None,
    *,
    is_framed: bool,
) -> Columns | None:
    """As `ColumnReader.read_columns`, of messages of one type. ``is_framed``: they name a schema, which is skipped."""
    if is_framed:
        groups = [_indexes_of(values, headers, rows, start) for _, rows, start in framed_columns(values, headers)]
        parts = [group[1:] for group in groups if group is not None]
    else:
        parts = [(np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False)), 0)]
    found = [_columns(reader, values, rows, start, paths, lists) for rows, start in parts]
    return joined(len(values), [one for one in found if one is not None])


def columns_of_registry(
    schemas: Schemas, values: pa.Array, paths: Sequence[Path], lists: Sequence[Path], headers: pa.Array | None
) -> Columns | None:
    """As `ColumnReader.read_columns`, of messages that name their schema and type."""
    found = []
    for schema, rows, start in known_columns(values, headers, schemas, "PROTOBUF"):
        group = _indexes_of(values, headers, rows, start)
        if group is None:
            continue
        indexes, alike, begin = group
        with suppress(DescriptorsInvalid):
            one = _columns(message_reader(schema, indexes), values, alike, begin, paths, lists)
            found += [] if one is None else [one]
    return joined(len(values), found)


def _columns(
    reader: MessageReader, values: pa.Array, rows: Ints, start: int, paths: Sequence[Path], lists: Sequence[Path]
) -> tuple[Ints, Columns] | None:
    """The rows that can be read, of ``rows`` whose messages begin ``start`` bytes after the start of their value, and
    their columns."""
    packed = _packed(values, rows, start)
    if packed is None or _has_required(reader.descriptor):
        return None
    walk = _Walk(packed, frozenset(paths), frozenset(lists))
    try:
        walk.check(reader.descriptor)
        walk.message(reader.descriptor, (), np.arange(len(rows)), 0)
        found = {path: walk.column(path, reader.descriptor) for path in paths}
        found |= {path: walk.list_column(path, reader.descriptor) for path in lists}
    except _TooOdd:
        return None
    return of_good(packed, rows, found)


def _packed(values: pa.Array, rows: Ints, start: int) -> Packed | None:
    _, offsets, data = values.buffers()
    if data is None or not len(rows):
        return None
    places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    first, last = int(places[0]), int(places[-1])
    content = np.frombuffer(data, np.uint8)[first:last]
    return Packed(content, places[:-1][rows] - first + start, places[1:][rows] - first)


def _indexes_of(
    values: pa.Array, headers: pa.Array | None, rows: Ints, start: int
) -> tuple[tuple[int, ...], Ints, int] | None:
    """Confluent's message indexes of the first of ``rows``, the rows with the same bytes, and where their message
    begins."""
    if headers is not None and not start:
        # Rows with the same header.
        header = headers[int(rows[0])].as_py()
        try:
            indexes, _ = message_indexes(header, GUID_BYTES if header[0] else PREFIX_BYTES)
        except Unreadable:
            return None
        return indexes, rows, 0
    packed = _packed(values, rows, start)
    if packed is None:
        return None
    starts, one = packed.at.copy(), np.zeros(1, np.int64)
    before = int(starts[0])
    count = int(packed.signed(one)[0])
    if not 0 <= count <= _INDEXES_MAX:
        return None
    found = tuple(int(packed.signed(one)[0]) for _ in range(count)) or (0,)
    if packed.bad[0] or min(found) < 0:
        return None
    size = int(packed.at[0]) - before
    pattern = packed.content[before : before + size]
    fits = starts + size <= packed.ends
    places = np.where(fits, starts, 0)
    same = fits & (packed.content[places[:, None] + np.arange(size)] == pattern).all(axis=1)
    return found, rows[same], start + size


@lru_cache(maxsize=256)
def _has_required(descriptor: Descriptor) -> bool:
    """Whether a message, or one in it, has required fields."""
    seen, left = set[str](), [descriptor]
    while left:
        one = left.pop()
        if one.full_name not in seen:
            seen.add(one.full_name)
            if any(field.is_required or field.type == _F.TYPE_GROUP for field in one.fields):
                return True
            left += [field.message_type for field in one.fields if field.message_type is not None]
    return False


class _Walk:
    """Reads the messages of a batch, and keeps what is at the wanted paths."""

    def __init__(self, packed: Packed, paths: frozenset[Path], lists: frozenset[Path]) -> None:
        self._packed = packed
        self._paths = paths
        self._lists = lists
        self._wanted = {*paths, *lists}
        self._kept: dict[Path, list[_Part]] = {}
        self._has: dict[Path, Bools] = {(): np.ones(len(packed.at), np.bool_)}

    def check(self, root: Descriptor) -> None:
        """Raise `_TooOdd` if the types of the wanted paths are not read here."""
        for path in (*self._paths, *self._lists):
            descriptor = root
            for number, name in enumerate(path):
                field = descriptor.fields_by_name.get(name)
                if field is None or (field.containing_oneof is not None and len(field.containing_oneof.fields) > 1):
                    raise _TooOdd
                is_last = number == len(path) - 1
                if field.is_repeated != (is_last and path in self._lists):
                    raise _TooOdd
                if not is_last:
                    if field.message_type is None or field.message_type.full_name.startswith("google.protobuf."):
                        raise _TooOdd
                    descriptor = field.message_type
                elif not _is_read(field, is_list=path in self._lists):
                    raise _TooOdd
                elif field.message_type is not None:
                    self._wanted |= {(*path, "seconds"), (*path, "nanos")}
            if not path:
                raise _TooOdd

    def message(self, descriptor: Descriptor, path: Path | None, rows: Ints, depth: int) -> None:
        """Read a message of each of ``rows``, up to the end of the row. ``path``: None if nothing in it is wanted."""
        if depth > _DEEPEST:
            raise _TooOdd
        packed = self._packed
        fields = descriptor.fields_by_number
        for _ in range(_FIELDS_MAX):
            rows = packed.good(rows)
            rows = rows[packed.at[rows] < packed.ends[rows]]
            if not len(rows):
                return
            tags = packed.short(rows)
            left = np.ones(len(rows), np.bool_)
            while left.any():
                tag = int(tags[np.argmax(left)])
                chosen = left & (tags == tag)
                left &= ~chosen
                self._field(fields.get(tag >> 3), tag, path, rows[chosen], depth)
        packed.refuse(rows, np.ones(len(rows), np.bool_))

    def _field(self, field: FieldDescriptor | None, tag: int, path: Path | None, rows: Ints, depth: int) -> None:
        packed, wire = self._packed, tag & 7
        rows = packed.good(rows)
        if not len(rows):
            return
        place = None if path is None or field is None else (*path, field.name)
        is_wanted = place in self._wanted
        expected = None if field is None else _WIRES.get(field.type, _VARINT)
        if not 0 < tag >> 3 < 2**29 or wire not in (_VARINT, _FIXED64, _LENGTH, _FIXED32):
            packed.refuse(rows, np.ones(len(rows), np.bool_))
        elif field is not None and wire == expected:
            self._value(field, place, rows, depth, is_wanted=is_wanted)
        elif field is not None and wire == _LENGTH and field.is_repeated and expected is not None:
            self._packed_list(field, place, rows, is_wanted=is_wanted)
        elif field is not None:
            # The library keeps a field of another form as an unknown one.
            packed.refuse(rows, np.ones(len(rows), np.bool_))
        elif wire == _VARINT:
            packed.unsigned(rows)
        elif wire == _LENGTH:
            packed.spans(rows, self._sizes(rows))
        else:
            packed.advance(rows, 8 if wire == _FIXED64 else 4)

    def _sizes(self, rows: Ints) -> Ints:
        sizes = self._packed.short(rows)
        self._packed.refuse(rows, sizes >= 2**31)
        return np.minimum(sizes, 2**31).astype(np.int64)

    def _value(self, field: FieldDescriptor, place: Path | None, rows: Ints, depth: int, *, is_wanted: bool) -> None:
        packed = self._packed
        if field.type == _F.TYPE_MESSAGE:
            self._message_value(field, place, rows, depth)
        elif field.type == _F.TYPE_STRING:
            starts, ends = packed.spans(rows, self._sizes(rows))
            if place in self._lists:
                self._keep(place, rows, np.stack([starts, ends]))
                return
            bad = packed.bad[rows]
            if bad.any():
                rows, starts, ends = rows[~bad], starts[~bad], ends[~bad]
            texts = packed.texts(rows, starts, ends)
            if is_wanted:
                self._keep(place, rows, texts)
        elif field.type == _F.TYPE_BYTES:
            packed.spans(rows, self._sizes(rows))
        else:
            wire = _WIRES.get(field.type, _VARINT)
            if wire == _VARINT:
                words = packed.unsigned(rows)
                numbers = of_zigzag(words) if field.type in _SIGNED else words.view(np.int64)
            else:
                numbers = packed.fixed(rows, 8 if wire == _FIXED64 else 4)
            if is_wanted:
                self._keep(place, rows, self._checked(field, rows, numbers))

    def _checked(self, field: FieldDescriptor, rows: Ints, numbers: Ints) -> Ints | pa.Array:
        """Numbers of a field; rows whose number the rule may change are refused."""
        if field.type in _FLOATS:
            return floats_of(numbers, _FLOATS[field.type])
        if field.type == _F.TYPE_BOOL:
            return pa.array(numbers != 0)
        if field.enum_type is not None:
            known = np.array(sorted(field.enum_type.values_by_number), np.int64)
            self._packed.refuse(rows, ~np.isin(numbers, known))
            return numbers
        least, most = _INTEGERS[field.type]
        if (least, most) != _INTEGERS[_F.TYPE_INT64]:
            self._packed.refuse(rows, (numbers < least) | (numbers > most))
        return numbers

    def _message_value(self, field: FieldDescriptor, place: Path | None, rows: Ints, depth: int) -> None:
        packed = self._packed
        sizes = self._sizes(rows)
        ends = packed.at[rows] + sizes
        packed.refuse(rows, ends > packed.ends[rows])
        good = ~packed.bad[rows]
        rows, ends = rows[good], ends[good]
        if place is not None:
            if not field.is_repeated:
                self._has.setdefault(place, np.zeros(len(packed.at), np.bool_))[rows] = True
            if not any(one[: len(place)] == place for one in self._wanted):
                place = None
        outer = packed.ends[rows].copy()
        packed.ends[rows] = ends
        assert field.message_type is not None, "a message has a type"
        self.message(field.message_type, place, rows, depth + 1)
        packed.refuse(rows, packed.at[rows] != ends)
        packed.ends[rows] = outer

    def _packed_list(self, field: FieldDescriptor, place: Path | None, rows: Ints, *, is_wanted: bool) -> None:
        packed = self._packed
        sizes = self._sizes(rows)
        starts = packed.at[rows]
        packed.refuse(rows, starts + sizes > packed.ends[rows])
        good = ~packed.bad[rows]
        rows, starts, sizes = rows[good], starts[good], sizes[good]
        wire = _WIRES.get(field.type, _VARINT)
        if wire != _VARINT:
            packed.refuse(rows, sizes % (8 if wire == _FIXED64 else 4) != 0)
            if is_wanted:
                raise _TooOdd
            packed.advance(rows, sizes)
            return
        words, counts = packed.run_of_unsigned(rows, packed.count_in(starts, starts + sizes))
        packed.refuse(rows, packed.at[rows] != starts + sizes)
        if is_wanted:
            owners = np.repeat(rows, counts)
            numbers = of_zigzag(words) if field.type in _SIGNED else words.view(np.int64)
            self._keep(place, owners, self._checked(field, owners, numbers))

    def _keep(self, place: Path | None, rows: Ints, values: Ints | pa.Array) -> None:
        assert place is not None, "a wanted field has a place"
        self._kept.setdefault(place, []).append(_Part(rows, values))

    def _parent(self, path: Path) -> Bools:
        """The rows that have all messages around a path."""
        found = np.ones(len(self._packed.at), np.bool_)
        for size in range(1, len(path)):
            found &= self._has.get(path[:size], np.zeros(len(found), np.bool_))
        return found

    def column(self, path: Path, root: Descriptor) -> pa.Array:
        """What was kept at a path, one value per row; the last one, if a field occurs again."""
        field = _field_at(root, path)
        if field.message_type is not None:
            return self._instants(path)
        count = len(self._packed.at)
        parts = self._kept.get(path, [])
        default = _DEFAULTS.get(field.type, 0)
        order = np.full(count, -1, np.int64)
        if parts:
            order[np.concatenate([part.rows for part in parts])] = np.arange(sum(len(part.rows) for part in parts))
        arrays = [pa.array(part.values) if isinstance(part.values, np.ndarray) else part.values for part in parts]
        if not field.has_presence:
            # What is not written is the default, in a message that is there.
            missing = (order < 0) & self._parent(path)
            order[missing] = sum(map(len, arrays))
            arrays.append(pa.array([default]))
        found = pa.concat_arrays([pa.array([default])[:0], *arrays]).take(pa.array(order, mask=order < 0))
        return found if field.enum_type is None else _names(field, found)

    def _instants(self, path: Path) -> pa.Array:
        """The timestamps at a path."""
        present = self._has.get(path, np.zeros(len(self._packed.at), np.bool_))
        seconds, nanos = (self._plain((*path, name)) for name in ("seconds", "nanos"))
        present = present & (np.abs(seconds) < _SECONDS_MAX) & (np.abs(nanos) < 2**31)
        return pa.array(np.where(present, seconds * 1_000_000_000 + nanos, 0), pa.timestamp("ns"), mask=~present)

    def _plain(self, path: Path) -> Ints:
        found = np.zeros(len(self._packed.at), np.int64)
        for part in self._kept.get(path, ()):
            found[part.rows] = part.values
        return found

    def list_column(self, path: Path, root: Descriptor) -> pa.ListArray:
        """The lists at a path; null in rows without the message around it."""
        field = _field_at(root, path)
        parts = self._kept.get(path, [])
        rows = np.concatenate([part.rows for part in parts]) if parts else np.zeros(0, np.int64)
        order: Ints | slice = slice(None) if len(parts) == 1 else np.argsort(rows, kind="stable")
        lengths = np.bincount(rows, minlength=len(self._packed.at))
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        if field.type == _F.TYPE_STRING:
            spans = np.concatenate([part.values for part in parts], axis=1) if parts else np.zeros((2, 0), np.int64)
            starts, stops = spans[:, order]
            items = self._packed.texts_of_good(rows[order], starts, stops)
        else:
            items = pa.array(np.concatenate([part.values for part in parts])[order] if parts else rows)
        return pa.ListArray.from_arrays(pa.array(ends), items, mask=pa.array(~self._parent(path)))


def _is_read(field: FieldDescriptor, *, is_list: bool) -> bool:
    if field.message_type is not None:
        return field.message_type.full_name == _TIMESTAMP and not is_list
    if field.enum_type is not None:
        return not is_list
    return field.type == _F.TYPE_STRING or field.type in _INTEGERS or (field.type in _DEFAULTS and not is_list)


def _field_at(root: Descriptor, path: Path) -> FieldDescriptor:
    descriptor = root
    for name in path[:-1]:
        inner = descriptor.fields_by_name[name].message_type
        assert inner is not None, "`_Walk.check` refuses other paths"
        descriptor = inner
    return descriptor.fields_by_name[path[-1]]


def _names(field: FieldDescriptor, numbers: pa.Array) -> pa.Array:
    """The names of an enum's numbers."""
    assert field.enum_type is not None, "the field is an enum"
    known = {number: value.name for number, value in field.enum_type.values_by_number.items()}
    place = {number: index for index, number in enumerate(known)}
    found, codes = np.unique(numbers.fill_null(0).to_numpy(zero_copy_only=False), return_inverse=True)
    indexes = np.array([place.get(int(number), -1) for number in found], np.int64)[codes]
    wrong = (indexes < 0) | numbers.is_null().to_numpy(zero_copy_only=False)
    return pa.array(list(known.values()), pa.string()).take(pa.array(indexes, mask=wrong))

"""One Kafka record, decoded under its topic's configuration; if it does not decode, the field and the reason.

This module is *the rule* of decoding (docs/configuration.md, "What decodes"). The faster decoders, such as
`validator.codecs.plain_events`, must give the same result for each record that they decode. JSON is RFC 8259, without
the extensions of parsers.
"""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, cast

from validator.codecs.conditions import Condition
from validator.codecs.time_patterns import instant_of_pattern
from validator.codecs.times import (
    FARTHEST_US,
    NO_TIMESTAMP_US,
    Rounding,
    instant_of_decimal,
    instant_of_integer,
    instant_of_text,
    is_zero,
)
from validator.settings.time_patterns import TimePattern

if TYPE_CHECKING:
    # Spark's workers decode, and start faster without the configuration's models.
    from validator.settings.fields import FieldPath, IdsPath
    from validator.settings.formats.seam import ValueReader
    from validator.settings.limits import Limits
    from validator.settings.topics import EventFields, Input, Late, Output, ResultFields

DEEPEST: Final = 500
"""Largest number of nested objects and arrays in a value."""
TOO_LARGE: Final = b"\x00too large: "
"""Replaces a value above the limit; its size follows (`validator.stream.kafka_reading`)."""
NULL_KEY: Final = "[null]"
"""The key of an event whose one key field is absent or null, if null is a key. No other key has this text."""
LONGEST_NUMBER: Final = 1_000
"""Largest length of a number: of its characters as written, and of its digits when its exponent is expanded."""

NO_ID: Final = 0
"""The id of all events if results do not say which events they used (evidence `values`)."""
LARGEST_COUNT: Final = 2**53
"""Largest number of events that a result may state: JSON readers agree on integers up to here."""
_TOPIC_LENGTH_MAX: Final = 249
"""Largest length of a topic's name in Kafka."""
_LARGEST_ID: Final = 2**63 - 1
_SMALLEST_ID: Final = -(2**63)
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SPACES: Final = " \t\n\r"
_NUMBER_BYTES: Final = bytes(ord("0") if chr(byte) in "0123456789+-.eE" else ord(" ") for byte in range(256))
_LONG_RUN: Final = b"0" * (LONGEST_NUMBER + 1)
# It also matches a string that does not end. Otherwise the search would try each quote in it as a start.
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"{}[]")
_ABSENT: Final = object()
_ANY: Final = 2**63
_BYTES_OF_CHARACTER: Final = 4
_DIGITS_OF_SIZE: Final = 19

Json = Any
"""A value that the parser returns: dict, list, str, int, `_Decimal`, bool or None."""


@dataclass(frozen=True, slots=True)
class OmittedPart:
    """Replaces a key or a header of ``size`` bytes, which is above the limit and was not transferred."""

    size: int


class Record(NamedTuple):
    """A Kafka record. ``timestamp_us``: the record's timestamp in microseconds since the epoch."""

    value: bytes | None
    key: bytes | OmittedPart | None = None
    headers: Sequence[tuple[str, bytes | OmittedPart | None]] = ()
    timestamp_us: int = 0
    partition: int = 0
    offset: int = 0


class Event(NamedTuple):
    """A decoded record of an input, late or rejected topic. An ``id`` is a 64-bit integer or a text; `NO_ID` if events
    have none. ``is_owed``: the oracle's condition holds for it, if there is one. ``is_skipped``: it has no key, and the
    pipeline skips it."""

    id: int | str
    key: str
    event_time_us: int
    is_owed: bool = True
    is_skipped: bool = False


class Result(NamedTuple):
    """A decoded record of an output topic. ``window_start_us``: the instant that names its cell, which is the start of
    its window or the time of its event; None if results name none. ``ids``: one list for each path of ``fields.ids``,
    or a list of the one id. ``stated_count``: with evidence `values`, the number of events that the result states."""

    key: str
    window_start_us: int | None
    ids: tuple[list[int | str], ...]
    stated_count: int | None = None


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A null value that is counted and ignored. ``key``: the key whose result it withdraws, if it is on an output topic
    that is cumulative and a record without a value can name the key. ``event_time_us``: its time on an input topic, if
    a record without a value has one."""

    key: str | None = None
    event_time_us: int | None = None


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A record that does not decode. ``field``: the configured field (`id`, `key`, `event_time`, `window_start`,
    `window_end`, `ids`, `where`), None for the whole value. ``path``: the configured path of the field. ``reason``: a
    clause such as "is absent". ``value``: the value of a time."""

    field: str | None
    path: str | None
    reason: str
    value: str | None = dataclass_field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Unexamined(Undecodable):
    """A record with a value, key or id above the limits. It may be correct."""


Decoded = Event | Result


class _Refused(Exception):
    """A field does not decode; the text is the reason. ``value``: the value of a time."""

    value: str | None = None


class _Missing(_Refused):
    """A field is absent or null."""


class _TooLong(_Refused):
    """The key or an id is longer than the limits allow."""


class _Decimal(str):
    """A number with a fraction or an exponent, as written."""

    __slots__ = ()


class _Repeating(dict[str, Json]):
    """A JSON object in which names are repeated. ``repeated``: these names."""

    def __init__(self, pairs: list[tuple[str, Json]]) -> None:
        super().__init__(pairs)
        self.repeated = frozenset(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    names = dict(pairs)
    return names if len(names) == len(pairs) else _Repeating(pairs)


def _no_constant(name: str) -> NoReturn:
    raise _Refused(f"is not JSON: it holds {name}")


def _short(kind: Callable[[str], Json]) -> Callable[[str], Json]:
    def number(text: str) -> Json:
        if len(text) > LONGEST_NUMBER:
            raise _Refused(f"holds a number of more than {LONGEST_NUMBER:,} characters")
        return kind(text)

    return number


_decoder: Final = json.JSONDecoder(object_pairs_hook=_object, parse_float=_Decimal, parse_constant=_no_constant)
_careful_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_object, parse_float=_short(_Decimal), parse_int=_short(int), parse_constant=_no_constant
)


def parsed(raw: bytes) -> Json:
    """Return the JSON value of ``raw``. Raises `_Refused` if ``raw`` is not exactly one JSON value."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise _Refused(f"is not UTF-8 text, at byte {error.start}") from None
    decoder = _decoder
    if len(raw) > LONGEST_NUMBER:
        if raw.count(b"{") + raw.count(b"[") > DEEPEST and _depth(raw) > DEEPEST:
            raise _Refused(f"is nested more than {DEEPEST} levels deep")
        if _LONG_RUN in raw.translate(_NUMBER_BYTES):
            decoder = _careful_decoder
    start = 0 if text[:1] == "{" else len(text) - len(text.lstrip(_SPACES))
    try:
        value, end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise _Refused(_not_json(raw, error)) from None
    except RecursionError:
        raise _Refused(f"is nested more than {DEEPEST} levels deep") from None
    if end < len(text) and text[end:].strip(_SPACES):
        raise _Refused(f"has content after its first JSON value, at character {end}")
    return value


def _not_json(raw: bytes, error: json.JSONDecodeError) -> str:
    if not raw.strip(_SPACES.encode()):
        return "is white space only"
    if raw.startswith(codecs.BOM_UTF8):
        return "begins with a byte order mark"
    return f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]} at character {error.pos}"


def _depth(raw: bytes) -> int:
    """Return the deepest nesting of ``raw``, if it is JSON. Brackets in strings do not count."""
    deepest = depth = 0
    for byte in _STRING.sub(b"", raw).translate(None, _NO_BRACKETS):
        depth += 1 if byte in b"{[" else -1
        deepest = max(deepest, depth)
    return deepest


def _kind(value: Json) -> str:
    """Return the kind of a JSON value, as a clause."""
    if value is None:
        return "is null"
    if isinstance(value, bool):
        return "is a boolean"
    if isinstance(value, (int, _Decimal)):
        return "is a number"
    if isinstance(value, dict):
        return "is an object"
    return "is an array" if isinstance(value, list) else "is a text"


def _plain_number(text: str) -> str:
    """Return a number without an exponent, a sign of zero, or redundant zeros: 1, 1.0 and 1e0 are the same."""
    if is_zero(text):
        return "0"
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise _Refused(f"is a number of more than {LONGEST_NUMBER:,} digits") from None
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "infinity and NaN are not JSON numbers"
    if max(len(digits) + exponent, -exponent) > LONGEST_NUMBER:
        raise _Refused(f"is a number of more than {LONGEST_NUMBER:,} digits")
    plain = format(number, "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _scalar(value: Json) -> str:
    """Return a JSON scalar as text. Raises `_Refused` if it is not a scalar."""
    if type(value) is str:
        if not value.isascii():
            _check_surrogates(value)
        return value
    if value is True:
        return "true"
    if value is False:
        return "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, _Decimal):
        return _plain_number(value)
    raise _Refused(_kind(value))


def _check_surrogates(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _Refused("holds half of a surrogate pair, which is not a character") from None


def _id(value: Json, id_type: str) -> int | str:
    """Return an id. A canonical 64-bit integer is a number, whether written as a number or as a text. Other ids are
    texts."""
    if type(value) is int and id_type != "string" and _SMALLEST_ID <= value <= _LARGEST_ID:
        return value
    text = _scalar(value)
    if id_type == "string":
        return text
    if len(text) <= 20 and _INTEGER.fullmatch(text):
        number = int(text)
        if _SMALLEST_ID <= number <= _LARGEST_ID:
            return number
    if id_type == "integer":
        raise _Refused("is not a 64-bit integer, but id_type is integer")
    return text


def _count(value: Json) -> int:
    """Return a number of events, from 0 to `LARGEST_COUNT`, written as a number or as its text. Raises `_Refused`."""
    text = _scalar(value)
    if isinstance(value, bool) or not (len(text) <= LONGEST_NUMBER and _NUMBER.fullmatch(text)):
        raise _Refused(f"{_kind(value)}, not a number of events")
    text = _plain_number(text)
    if not text.isdigit() or int(text) > LARGEST_COUNT:
        raise _Refused("is not a number of events")
    return int(text)


def _ids(value: Json, id_type: str) -> list[int | str]:
    if type(value) is not list:
        raise _Refused(_kind(value) + ", not an array of ids")
    kinds = set(map(type, value))
    if kinds == {int} and id_type != "string" and min(value) >= _SMALLEST_ID and max(value) <= _LARGEST_ID:
        return value
    found: list[int | str] = []
    for item in value:
        try:
            found.append(_id(item, id_type))
        except _Refused as refused:
            raise _Refused(f"has an item that {refused}") from None
    return found


def _instant(value: Json, unit: str | TimePattern | None, rounding: Rounding) -> int:
    try:
        return _instant_of(value, unit, rounding)
    except _Refused as refused:
        if isinstance(value, str | int):
            refused.value = str(value)
        raise


def _instant_of(value: Json, unit: str | TimePattern | None, rounding: Rounding) -> int:
    if unit is None or isinstance(unit, TimePattern):
        if type(value) is not str:
            also = ", and no unit is configured" if _kind(value) == "is a number" else ""
            raise _Refused(_kind(value) + also)
        instant: int | str | None = (
            instant_of_text(value, rounding) if unit is None else instant_of_pattern(value, unit, rounding)
        )
        if isinstance(instant, str):
            raise _Refused(instant)
    elif type(value) is int:
        instant = instant_of_integer(value, unit, rounding)
    elif isinstance(value, str):
        if type(value) is str and not (len(value) <= LONGEST_NUMBER and _NUMBER.fullmatch(value)):
            is_time = isinstance(instant_of_text(value), int)
            raise _Refused(
                f"is an ISO 8601 time, but the unit {unit} is configured"
                if is_time
                else "is a text that is not a number"
            )
        instant = instant_of_decimal(value, unit, rounding)
    else:
        raise _Refused(_kind(value))
    if instant is None:
        raise _Refused("is a number too far from the epoch to be a time")
    return instant


def _text(raw: bytes | OmittedPart | None, most: int, limit: str) -> str:
    """Return a key or a header of the record as text. Raises `_TooLong` if it has more than ``most`` bytes."""
    if raw is None:
        raise _Missing("is null")
    size = raw.size if isinstance(raw, OmittedPart) else len(raw)
    if size > most or isinstance(raw, OmittedPart):
        raise _TooLong(f"has {size} bytes, above limits.{limit}")
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _Refused(f"is not UTF-8 text, at byte {error.start}") from None


@dataclass(frozen=True, slots=True)
class _Field:
    """A configured field. ``names``: the path into the value; empty if the field is ``part``, a part of the record of
    at most ``most`` bytes. ``limit``: the name of that limit."""

    field: str
    path: str
    names: tuple[str, ...]
    part: str
    unit: str | TimePattern | None
    most: int
    limit: str

    @property
    def place(self) -> tuple[str, ...]:
        """``names`` or ``part``."""
        return self.names or (self.part,)

    def of(self, record: Record, root: Json) -> Json:
        """Return the field's value: JSON, or a part of the record. Raises `_Refused`."""
        if self.part:
            return self._from_record(record)
        value = root
        for name in self.names:
            if not isinstance(value, dict):
                raise (_Missing if value in (None, _ABSENT) else _Refused)("is absent")
            if type(value) is _Repeating and name in value.repeated:
                raise _Refused(f"is ambiguous: the name {name!r} occurs more than once in one object")
            value = value.get(name, _ABSENT)
        if value is _ABSENT:
            raise _Missing("is absent")
        if value is None:
            raise _Missing("is null")
        return value

    def instant(self, record: Record, root: Json, rounding: Rounding) -> int:
        """Return the field as microseconds since the epoch. Raises `_Refused`."""
        if self.part == "$timestamp":
            if record.timestamp_us == NO_TIMESTAMP_US:
                raise _Refused("is absent")
            if not -FARTHEST_US <= record.timestamp_us <= FARTHEST_US:
                raise _Refused("is a number too far from the epoch to be a time")
            return record.timestamp_us
        return _instant(self.of(record, root), self.unit, rounding)

    def ids(self, record: Record, root: Json, id_type: str, reader: ValueReader | None) -> list[int | str]:
        """Return the field as a list of ids. A part of the record is the JSON text of such a list."""
        value = self.of(record, root)
        if self.part:
            value = parsed(value.encode())
        elif reader is not None:
            value = reader.items(value)
        return _ids(value, id_type)

    def _from_record(self, record: Record) -> Json:
        if self.part == "$key":
            return _text(record.key, self.most, self.limit)
        if self.part == "$timestamp":
            return record.timestamp_us
        if self.part in ("$offset", "$partition"):
            return record.offset if self.part == "$offset" else record.partition
        name = self.part.removeprefix("$header.")
        # The last header of the name counts, as in Kafka's `Headers.lastHeader`.
        for key, value in reversed(record.headers):
            if key == name:
                return _text(value, self.most, self.limit)
        raise _Missing("is absent")


def _whole_number(field: _Field, record: Record, root: Json) -> int:
    """Return a non-negative number: digits, or four or eight big-endian bytes of a header. Raises `_Refused`."""
    if field.part.startswith("$header."):
        name = field.part.removeprefix("$header.")
        raw = next((value for key, value in reversed(record.headers) if key == name), None) or b""
        if isinstance(raw, bytes) and len(raw) in (4, 8) and not raw.isdigit():
            number = int.from_bytes(raw, "big", signed=True)
            if number >= 0:
                return number
    text = _scalar(field.of(record, root))
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise _Refused("is not a whole number")
    return int(text)


class SizeLimits(NamedTuple):
    """Largest sizes of a value, a key and an id, in bytes."""

    value_bytes: int
    key_bytes: int
    id_bytes: int


class RecordDecoder:
    """Decodes the records of one topic.

    ``id_type``: that of all inputs together (`auto`, `integer`, `string`). ``window_us``: the length of a window,
    against which a result's ``window_end`` is checked; None: it is not checked. ``limits``: None: sizes are not
    checked. ``rounding``: the oracle's rounding of event times. ``condition``: it must hold for an event that
    contributes. ``missing_key``: as the setting of an input; None: as ``entry`` has it.
    """

    def __init__(
        self,
        entry: Input | Late | Output,
        id_type: str = "auto",
        window_us: int | None = None,
        limits: Limits | None = None,
        rounding: Rounding = "down",
        condition: Condition | None = None,
        missing_key: str | None = None,
    ) -> None:
        # The model of the limits is not kept, so that workers need not import it.
        self.most = (
            SizeLimits(limits.value_bytes, limits.key_bytes, limits.id_bytes)
            if limits
            else SizeLimits(_ANY, _ANY, _ANY)
        )
        self._reader = entry.format.reader()
        self.reads_json = self._reader is None
        """Whether values are JSON, which Arrow may read."""
        self.id_type = id_type
        self.window_us = window_us
        self._end: _Field | None = None
        self._id: _Field | None = None
        self._counted: _Field | None = None
        self._lists: tuple[_Field, ...] = ()
        at = entry.fields
        self._key = tuple(self._field("key", path) for path in at.key)
        # `isinstance` would import the configuration's models.
        self._is_output = hasattr(at, "window_start")
        self._rounding: Rounding = "down" if self._is_output else rounding
        self._time: _Field | None = None
        if not self._is_output:
            self._time = self._field("event_time", cast("EventFields", at).event_time)
        else:
            at = cast("ResultFields", at)
            instant = at.window_start or at.event_time
            if instant is not None:
                self._time = self._field("event_time" if at.window_start is None else "window_start", instant)
            if at.window_end is not None:
                self._end = self._field("window_end", at.window_end)
            self._lists = tuple(self._field("ids", path) for path in at.ids or ())
            for name, path in at.values.items():
                self._counted = self._field(f"values.{name}", path)
        if at.id is not None:
            self._id = self._field("id", at.id)
        self.condition = condition
        self._where = None if condition is None else self._field("where", condition)
        single = [self._time, self._end, self._id, self._counted, self._where]
        fields = [*self._key, *filter(None, single), *self._lists]
        self.missing_key: str = missing_key or str(getattr(entry, "missing_key", "undecodable"))
        self._ignores_null: bool = self._is_output or getattr(entry, "ignores_tombstones", False)
        is_cumulative = getattr(entry, "emission", None) == "cumulative"
        # A record without a value cannot name a window.
        self._names_withdrawn = is_cumulative and self._time is None and all(field.part for field in self._key)
        self._reads_value = any(not field.part for field in fields)
        named = getattr(at, "position", None)
        self._named = (
            ()
            if named is None
            else tuple(self._field(name, getattr(named, name)) for name in ("topic", "partition", "offset"))
        )
        self.names_positions = named is not None
        """Whether a record can name the position of another one (`named_position`)."""
        most_of = {field.part: field.most for field in sorted((*fields, *self._named), key=lambda field: field.most)}
        self.most_of_key = most_of.get("$key")
        """Largest size in bytes of a key that is transferred; None if no field is read from the key."""
        self.most_of_header = {
            part.removeprefix("$header."): most for part, most in most_of.items() if part.startswith("$header.")
        }
        """Name of a header from which a field is read -> its largest size in bytes."""
        of_values = (self._id, self._time, self._end, self._counted)
        self.places = {field.field: field.place for field in of_values if field is not None}
        """Field -> its place: a path into the value, or the name of a part of the record."""
        self.count_name = None if self._counted is None else self._counted.field
        """Name of the configured field with the number of events of a result."""
        self.time_name = None if self._time is None else self._time.field
        """Name of the configured field with the time of an event, or with the instant that names a result's cell."""
        self.units = {field.field: field.unit for field in (self._time, self._end) if field is not None}
        self.key_places = [field.place for field in self._key]
        self.list_places = [field.place for field in self._lists]

    def _field(self, name: str, at: FieldPath | IdsPath | Condition) -> _Field:
        value, key, id_ = self.most
        most, limit = {"key": (key, "key_bytes"), "id": (id_, "id_bytes")}.get(name, (value, "value_bytes"))
        unit: str | TimePattern | None = getattr(at, "unit", None)
        if (pattern := getattr(at, "pattern", None)) is not None:
            unit = TimePattern(pattern, cast("FieldPath", at).time_zone or "UTC")
        if at.path.startswith("$"):
            return _Field(name, at.path, (), at.path, unit, most, limit)
        return _Field(name, at.path, tuple(at.path.split(".")), "", unit, most, limit)

    def named_position(self, record: Record) -> str | None:
        """Return the position that a record names, as ``TOPIC/PARTITION/OFFSET``; None if it names none."""
        root: Json = None
        try:
            in_value = any(not field.part for field in self._named)
            if record.value and in_value and len(record.value) <= self.most[0]:
                root = self._root(record.value)
            topic, partition, offset = self._named
            named = _scalar(topic.of(record, root))
            if len(named) > _TOPIC_LENGTH_MAX:
                return None
            return f"{named}/{_whole_number(partition, record, root)}/{_whole_number(offset, record, root)}"
        except _Refused:
            return None

    def decode(self, record: Record) -> Decoded | Tombstone | Undecodable:
        """Return the decoded record, a tombstone, or the reason why the record does not decode."""
        value = record.value
        if value is None:
            return self._tombstone(record) if self._ignores_null else Undecodable(None, None, "is null")
        if not value:
            return Undecodable(None, None, "has zero bytes")
        size = value.removeprefix(TOO_LARGE) if value.startswith(TOO_LARGE) else b""
        if len(value) > self.most.value_bytes or (size.isdigit() and len(size) <= _DIGITS_OF_SIZE):
            return Unexamined(None, None, f"has {int(size or len(value))} bytes, above limits.value_bytes")
        root: Json = None
        if self._reads_value:
            try:
                root = self._root(value)
            except _Refused as refused:
                return Undecodable(None, None, str(refused))
            if not isinstance(root, dict):
                return Undecodable(None, None, f"{_kind(root)}, not a JSON object")
        _, most_of_key, most_of_id = self.most
        at = self._key[0]
        try:
            one: int | str | None = None
            if self._id is not None:
                at = self._id
                one = _id(at.of(record, root), self.id_type)
                _check_size(one, most_of_id, "id_bytes")
            parts: list[str | None] = []
            for at in self._key:
                parts.append(self._part_of_key(at, record, root))  # noqa: PERF401  # `at` is named where it is refused
            key = parts[0] if len(parts) == 1 else joined(parts)
            if key is None:
                key = NULL_KEY
            elif key == NULL_KEY and self.missing_key != "undecodable" and len(parts) == 1:
                raise _Refused("is the text that stands for an absent key")
            _check_size(key, most_of_key, "key_bytes")
            time = None
            if self._time is not None:
                at = self._time
                time = at.instant(record, root, self._rounding)
            if not self._is_output:
                one = NO_ID if one is None else one
                assert time is not None, "an event has a time"
                if self.missing_key == "skip" and None in parts:
                    return Event(one, key, time, is_owed=False, is_skipped=True)
                if self._where is None or self.condition is None:
                    return Event(one, key, time)
                at = self._where
                return Event(one, key, time, _holds(self.condition, at.of(record, root)))
            if self._end is not None and time is not None:
                at = self._end
                end = at.instant(record, root, self._rounding)
                if self.window_us is not None and end != time + self.window_us:
                    raise _Refused("is not window_start plus the size of the window")
            lists: list[list[int | str]] = [] if one is None else [[one]]
            for at in self._lists:
                lists.append(at.ids(record, root, self.id_type, self._reader))
                # No part of a value is longer than the whole.
                if at.part or len(record.value or b"") > most_of_id:
                    for item in lists[-1]:
                        _check_size(item, most_of_id, "id_bytes")
            if self._counted is None:
                return Result(key, time, tuple(lists))
            at = self._counted
            return Result(key, time, tuple(lists), _count(at.of(record, root)))
        except _TooLong as refused:
            return Unexamined(at.field, at.path, str(refused))
        except _Refused as refused:
            return Undecodable(at.field, at.path, str(refused), refused.value)

    def problems(self, record: Record) -> tuple[Undecodable, ...]:
        """Return every field of a record that does not decode; empty if the record decodes. `decode` stops at the first
        of them."""
        first = self.decode(record)
        if not isinstance(first, Undecodable):
            return ()
        if first.field is None or record.value is None:
            return (first,)
        root = self._root(record.value) if self._reads_value else None
        found = {}
        for at in filter(None, [self._id, *self._key, self._time, self._end, *self._lists, self._counted, self._where]):
            try:
                self._read_alone(at, record, root)
            except _Refused as refused:
                found[at.field, at.path] = Undecodable(at.field, at.path, str(refused), refused.value)
        # What only several fields together break, such as the length of a window, is in `first` alone.
        return (first, *(one for place, one in found.items() if place != (first.field, first.path)))

    def _read_alone(self, at: _Field, record: Record, root: Json) -> None:
        """Decode one field of a record. Raises `_Refused`."""
        if at.field == "id":
            _id(at.of(record, root), self.id_type)
        elif at.field == "key":
            self._part_of_key(at, record, root)
        elif at.field == "ids":
            at.ids(record, root, self.id_type, self._reader)
        elif at is self._counted:
            _count(at.of(record, root))
        elif at.field == "where":
            assert self.condition is not None, "it has the path of the condition"
            _holds(self.condition, at.of(record, root))
        else:
            at.instant(record, root, self._rounding)

    def _part_of_key(self, at: _Field, record: Record, root: Json) -> str | None:
        """Return a field of the key; None if it is absent or null, and an event without it decodes."""
        try:
            return _scalar(at.of(record, root))
        except _Missing:
            if self.missing_key == "undecodable":
                raise
            return None

    def _root(self, value: bytes) -> Json:
        """Return the content of a value. Raises `_Refused` if the value is not in the topic's format."""
        if self._reader is None:
            return parsed(value)
        try:
            return self._reader.fields(value)
        except ValueError as unreadable:
            raise _Refused(str(unreadable)) from None

    def _tombstone(self, record: Record) -> Tombstone:
        """Return a null value, with the key that it withdraws, or with the time that an engine may read from it."""
        if self._is_output:
            return Tombstone(self._withdrawn(record))
        assert self._time is not None, "an event has a time"
        try:
            return Tombstone(event_time_us=self._time.instant(record, {}, self._rounding))
        except _Refused:
            return Tombstone()

    def _withdrawn(self, record: Record) -> str | None:
        """Return the key of a record without a value, if such a record can name one."""
        if not self._names_withdrawn:
            return None
        try:
            parts = [_scalar(field.of(record, None)) for field in self._key]
        except _Refused:
            return None
        return parts[0] if len(parts) == 1 else joined(parts)


def _holds(condition: Condition, value: Json) -> bool:
    """Return whether the condition holds. Raises `_Refused` if the value is not a scalar, or not a number if it must be
    one."""
    text = _scalar(value)
    if condition.is_numeric:
        if isinstance(value, bool):
            raise _Refused(_kind(value))
        if type(value) is str and not (len(value) <= LONGEST_NUMBER and _NUMBER.fullmatch(value)):
            raise _Refused("is a text that is not a number")
        text = _plain_number(text)
    return condition.holds(text)


def canonical(value: str | float) -> str:
    """Return the text by which a scalar is compared: number 1 and text "1" are the same. Raises ValueError if a number
    has no such text."""
    try:
        return _scalar(_Decimal(repr(value)) if isinstance(value, float) else value)
    except (_Refused, InvalidOperation) as refused:
        raise ValueError(str(refused)) from None


def _check_size(item: int | str, most: int, limit: str) -> None:
    """Raise `_TooLong` if an id or a key has more than ``most`` bytes."""
    if type(item) is str and len(item) * _BYTES_OF_CHARACTER > most:
        size = len(item.encode())
        if size > most:
            raise _TooLong(f"has {size} bytes, above limits.{limit}")


def joined(parts: Sequence[str | None]) -> str:
    """Return the key of several fields: the JSON array of their texts."""
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))

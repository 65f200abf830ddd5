"""One Kafka record, decoded under its topic's configuration; if it does not decode, the field and the reason.

This module is *the rule* of decoding (docs/configuration.md, "What decodes"). The faster decoders, such as
`validator.codecs.plain_events`, must give the same result for each record that they decode. JSON is RFC 8259, without
the extensions of parsers.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, cast

from validator.codecs.time_patterns import instant_of_pattern
from validator.codecs.times import (
    FARTHEST_US,
    NO_TIMESTAMP_US,
    Rounding,
    instant_of_decimal,
    instant_of_integer,
    instant_of_text,
)
from validator.model.conditions import Comparison, Condition
from validator.model.envelopes import ENVELOPE, ENVELOPES, EVENTS, MARK, OTHER, ROW, WITHDRAWING, placed
from validator.model.field_values import TypedTime, Windowed
from validator.model.json_text import LONGEST_NUMBER, Json, Number, Repeating, is_zero, parsed, plain_number
from validator.model.json_text import Unreadable as _Refused
from validator.model.schemas import NO_SCHEMAS, Schemas
from validator.model.stated_values import NO_VALUES, Bound, Digest, Values
from validator.settings.time_patterns import TimePattern

if TYPE_CHECKING:
    # Spark's workers decode, and start faster without the configuration's models.
    from validator.settings.fields import FieldPath, IdsPath, ValuePath
    from validator.settings.formats.seam import ValueReader
    from validator.settings.limits import Limits
    from validator.settings.topics import EventFields, Input, Late, Output, ResultFields, TableTopic

TOO_LARGE: Final = b"\x00too large: "
"""Replaces a value above the limit; its size follows (`validator.stream.kafka_reading`)."""
NULL_KEY: Final = "[null]"
"""The key of an event whose one key field is absent or null, if null is a key. No other key has this text."""

DIGITS_BEFORE: Final = 30
DIGITS_AFTER: Final = 38
"""Digits of a number in a field of `oracle.values`. Sums of 10^8 such numbers fit into 256 bits."""
LARGEST_AMOUNT: Final = 10**DIGITS_BEFORE
_AMOUNT: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
"""The texts that Arrow casts to a decimal."""
NO_ID: Final = 0
"""The id of all events if results do not say which events they used (evidence `values`)."""
WHOLE_VALUE_MAX: Final = 64
"""Largest size in bytes of a value that is an id as it is. The id of a longer one is its SHA-256 (`digest_of`)."""
LARGEST_COUNT: Final = 2**53
"""Largest number of events that a result may state: JSON readers agree on integers up to here."""
_TOPIC_LENGTH_MAX: Final = 249
"""Largest length of a topic's name in Kafka."""
_LARGEST_ID: Final = 2**63 - 1
_SMALLEST_ID: Final = -(2**63)
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_ONE: Final = Decimal(1)
_REMOVING: Final = "delete"
_ROW_BEFORE: Final = ", which the topic of a table needs (in PostgreSQL, set REPLICA IDENTITY FULL)"
_ABSENT: Final = object()
_ANY: Final = 2**63
_BYTES_OF_CHARACTER: Final = 4
_DIGITS_OF_SIZE: Final = 19
_SCHEMA_HEADER_BYTES: Final = 1_000
_DAY_SECONDS: Final = 86_400


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
    pipeline skips it. ``addends``: the fields of `Values.paths`, 1 for one that is only counted; None if one is null or
    absent; then its own end (`Oracle.own_end`). ``is_removed``: a change of a table removes it."""

    id: int | str
    key: str
    event_time_us: int
    is_owed: bool = True
    is_skipped: bool = False
    addends: tuple[Decimal | None, ...] = ()
    is_removed: bool = False


class Result(NamedTuple):
    """A decoded record of an output topic. ``window_start_us``: the instant that names its cell, which is the start of
    its window or the time of its event; None if results name none. ``ids``: one list for each path of ``fields.ids``,
    or a list of the one id. ``stated_count``: with evidence `values`, the number of events that the result states.
    ``window_end_us``: the end of its window, if results name it and it does not follow from the start. ``values``:
    those of `Values.stated`; None if one is null."""

    key: str
    window_start_us: int | None
    ids: tuple[list[int | str], ...]
    stated_count: int | None = None
    window_end_us: int | None = None
    values: tuple[Decimal | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Tombstone:
    """A null value that is counted and ignored, or a change that is not an event. ``key``: the key whose result it
    withdraws, if it is on an output topic that is cumulative and the record can name the key. ``event_time_us``: its
    time on an input topic, if it has one."""

    key: str | None = None
    event_time_us: int | None = None


@dataclass(frozen=True, slots=True)
class Undecodable:
    """A record that does not decode. ``field``: the configured field (`id`, `key`, `event_time`, `window_start`,
    `window_end`, `ids`, `where`, `envelope`), None for the whole value. ``path``: the configured path of the field, or
    one in the envelope. ``reason``: a clause such as "is absent". ``value``: the value of a time."""

    field: str | None
    path: str | None
    reason: str
    value: str | None = dataclass_field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Unexamined(Undecodable):
    """A record with a value, key or id above the limits. It may be correct."""


Decoded = Event | Result

Keyless = Literal["undecodable", "skipped", "owed"]


class ComputesKeys(Protocol):
    """An oracle that computes keys."""

    def key(self, fields: tuple[str | None, ...]) -> object:
        """Return the key of an event (`Oracle.key`)."""


@dataclass(frozen=True)
class KeyRule:
    """Computes keys. ``width``: number of fields of a result's key. ``keyless``: what an event is for which the
    oracle returns None: undecodable, ``skipped``, or one whose key is null."""

    # Not its method: Spark pickles functions as names, and a worker cannot import the module of a user's class.
    oracle: ComputesKeys
    width: int
    keyless: Keyless

    def __call__(self, parts: Sequence[str | None]) -> str | None:
        """Return the key for these fields; None if the oracle returns None. Raises `Unreadable`."""
        try:
            found = self.oracle.key(tuple(parts))
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises, the record has no key
            # The text of the error may have what the configuration hides.
            raise _Refused(f"makes oracle.class raise {type(error).__name__}") from None
        if found is None:
            if self.keyless != "undecodable":
                return None
            raise _Refused("makes oracle.class return None, which it may only with windows that do not merge")
        fields = found if isinstance(found, tuple | list) else (found,)
        if len(fields) != self.width:
            raise _Refused(f"makes oracle.class return {len(fields)} fields; the key of a result has {self.width}")
        if not all(isinstance(field, str | int | float) for field in fields):
            raise _Refused("makes oracle.class return a field that is not a text, a number or a boolean")
        try:
            texts = [canonical(field) for field in fields]
        except ValueError as error:
            raise _Refused(f"makes oracle.class return a field that {error}") from None
        key = texts[0] if self.width == 1 else joined(texts)
        if key == NULL_KEY:
            raise _Refused("makes oracle.class return the text that stands for an absent key")
        return key


class _Missing(_Refused):
    """A field is absent or null."""


class _TooLong(_Refused):
    """The key or an id is longer than the limits allow."""


class _NoChange(_Refused):
    """A value is not a change. ``path``: the place in the value that shows it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(reason)
        self.path = path


def _kind(value: Json) -> str:
    """Return the kind of a JSON value, as a clause."""
    if value is None:
        return "is null"
    if isinstance(value, bool):
        return "is a boolean"
    if isinstance(value, (int, Number, float, Decimal)):
        return "is a number"
    if isinstance(value, bytes):
        return "is binary"
    if isinstance(value, dict):
        return "is an object"
    return "is an array" if isinstance(value, list) else "is a text"


def _scalar(value: Json) -> str:
    """Return a scalar as text; binary values as Base64, as JSON writers do. Raises `_Refused` for others."""
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
    if isinstance(value, Number):
        return plain_number(value)
    if isinstance(value, Decimal):
        return plain_number(str(value))
    if isinstance(value, float):
        return plain_number(_digits(value))
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise _Refused(_kind(value))


def _digits(value: float) -> str:
    """Return the shortest digits of a floating-point number, which JSON writers use."""
    if not math.isfinite(value):
        raise _Refused("is not a finite number")
    return repr(value)


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


def digest_of(text: str) -> str:
    """Return the id of a whole value that is too long for one."""
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _count(value: Json) -> int:
    """Return a number of events, from 0 to `LARGEST_COUNT`, written as a number or as its text. Raises `_Refused`."""
    text = _scalar(value)
    if isinstance(value, (bool, bytes)) or not (len(text) <= LONGEST_NUMBER and _NUMBER.fullmatch(text)):
        raise _Refused(f"{_kind(value)}, not a number of events")
    text = plain_number(text)
    if not text.isdigit() or int(text) > LARGEST_COUNT:
        raise _Refused("is not a number of events")
    return int(text)


def amount(value: Json) -> Decimal:
    """Return a number, or the number that a text is, exactly. Raises `_Refused`."""
    if type(value) is int:
        text = str(value) if -LARGEST_AMOUNT < value < LARGEST_AMOUNT else "9" * LONGEST_NUMBER
    elif isinstance(value, float):
        text = _digits(value)
    elif isinstance(value, (Number, Decimal)) or type(value) is str:
        text = str(value)
    else:
        raise _Refused(f"{_kind(value)}, not a number")
    if len(text) > LONGEST_NUMBER or not _AMOUNT.fullmatch(text):
        raise _Refused("is a text that is not a number")
    if is_zero(text):
        return Decimal(0)
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "the pattern has neither infinity nor NaN"
    trailing = len(digits) - len("".join(map(str, digits)).rstrip("0"))
    if len(digits) + exponent > DIGITS_BEFORE or -(exponent + trailing) > DIGITS_AFTER:
        # It may be right: the limit is the sidecar's.
        raise _TooLong(f"has more than {DIGITS_BEFORE} digits before or {DIGITS_AFTER} after the decimal point")
    return number


def _ids(value: Json, id_type: str, fields: int) -> list[int | str]:
    if type(value) is not list:
        raise _Refused(_kind(value) + ", not an array of ids")
    if fields > 1:
        return [_id_of_fields(item, fields) for item in value]
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


def _texts(value: Json) -> list[str]:
    """Return the texts of the items of an array. Raises `_Refused`."""
    if type(value) is not list:
        raise _Refused(_kind(value) + ", not an array")
    try:
        return [_scalar(item) for item in value]
    except _Refused as refused:
        raise _Refused(f"has an item that {refused}") from None


def _id_of_fields(item: Json, fields: int) -> str:
    """Return an id of several fields, which is an array of them, or an object with them in their order."""
    parts = list(item.values()) if isinstance(item, dict) and type(item) is not Repeating else item
    if not isinstance(parts, list) or len(parts) != fields:
        raise _Refused(f"has an item that is not an array or an object of {fields} fields")
    return joined(_texts(parts))


def _instant(value: Json, unit: str | TimePattern | None, rounding: Rounding) -> int:
    try:
        return _instant_of(value, unit, rounding)
    except _Refused as refused:
        if isinstance(value, str | int):
            refused.value = str(value)
        raise


def _instant_of(value: Json, unit: str | TimePattern | None, rounding: Rounding) -> int:
    if type(value) is TypedTime:
        if unit is not None and unit != value.unit:
            what = "a pattern" if isinstance(unit, TimePattern) else f"the unit {unit}"
            raise _Refused(f"is a time in {value.unit} by its type, but {what} is configured")
        found = value * _DAY_SECONDS if value.unit == "d" else int(value)
        instant: int | str | None = instant_of_integer(found, "s" if value.unit == "d" else value.unit, rounding)
    elif unit is None or isinstance(unit, TimePattern):
        if type(value) is not str:
            also = ", and no unit is configured" if _kind(value) == "is a number" else ""
            raise _Refused(_kind(value) + also)
        instant = instant_of_text(value, rounding) if unit is None else instant_of_pattern(value, unit, rounding)
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
    elif isinstance(value, (float, Decimal)):
        instant = instant_of_decimal(_digits(value) if isinstance(value, float) else str(value), unit, rounding)
    else:
        raise _Refused(_kind(value))
    assert not isinstance(instant, str), "a text that is not a time is refused above"
    if instant is None:
        raise _Refused("is a number too far from the epoch to be a time")
    return instant


def _within(raw: bytes | OmittedPart | None, most: int, limit: str) -> bytes:
    """Return a key or a header of the record. Raises `_TooLong` if it has more than ``most`` bytes."""
    if raw is None:
        raise _Missing("is null")
    size = raw.size if isinstance(raw, OmittedPart) else len(raw)
    if size > most or isinstance(raw, OmittedPart):
        raise _TooLong(f"has {size} bytes, above limits.{limit}")
    return raw


def _text(raw: bytes | OmittedPart | None, most: int, limit: str) -> str:
    """Return a key or a header of the record as text. Raises as `_within`."""
    try:
        return _within(raw, most, limit).decode()
    except UnicodeDecodeError as error:
        raise _Refused(f"is not UTF-8 text, at byte {error.start}") from None


def _at(value: Json, names: Sequence[str]) -> Json:
    """Return what is at a path in a value. Raises `_Refused`."""
    if type(value) is Windowed:
        if names and names[0] in ("window_start", "window_end"):
            value, names = getattr(value, names[0]), names[1:]
        else:
            value = value.key
    for name in names:
        if isinstance(value, list):
            is_index = name.isascii() and name.isdigit() and len(name) <= _DIGITS_OF_SIZE
            value = value[int(name)] if is_index and int(name) < len(value) else _ABSENT
            continue
        if not isinstance(value, dict):
            raise (_Missing if value is None or value is _ABSENT else _Refused)("is absent")
        if type(value) is Repeating and name in value.repeated:
            raise _Refused(f"is ambiguous: the name {name!r} occurs more than once in one object")
        value = value.get(name, _ABSENT)
    if value is _ABSENT:
        raise _Missing("is absent")
    if value is None:
        raise _Missing("is null")
    return value


def _last_header(record: Record, name: str) -> bytes | OmittedPart | None:
    """Return the last header of a name, as Kafka's `Headers.lastHeader` does. Raises `_Missing` if there is none."""
    for key, value in reversed(record.headers):
        if key == name:
            return value
    raise _Missing("is absent")


def _schema_header(record: Record, reader: ValueReader) -> bytes | None:
    """Return the header that names the schema for ``reader``, if there is one."""
    name = reader.header
    found = next((value for key, value in reversed(record.headers) if key == name), None) if name else None
    return found if isinstance(found, bytes) else None


@dataclass(frozen=True, slots=True)
class _Field:
    """A configured field. ``part``: the part of the record that it is in, of at most ``most`` bytes; empty for the
    value. ``names``: the path from there on. ``limit``: the name of that limit. ``reader``: it reads the key."""

    field: str
    path: str
    names: tuple[str, ...]
    part: str
    unit: str | TimePattern | None
    most: int
    limit: str
    reader: ValueReader

    @property
    def place(self) -> tuple[str, ...]:
        """The path, after the name of the part."""
        return (self.part, *self.names) if self.part else self.names

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole value."""
        return not self.part and not self.names

    @property
    def needs_object(self) -> bool:
        """Whether the value must have named fields."""
        return not self.part and bool(self.names) and not self.names[0].isdigit()

    def of(self, record: Record, root: Json) -> Json:
        """Return the field's value: JSON, or a part of the record. Raises `_Refused`."""
        return _at(self._from_record(record) if self.part else root, self.names)

    def instant(self, record: Record, root: Json, rounding: Rounding) -> int:
        """Return the field as microseconds since the epoch. Raises `_Refused`."""
        if self.part == "$timestamp":
            if record.timestamp_us == NO_TIMESTAMP_US:
                raise _Refused("is absent")
            if not -FARTHEST_US <= record.timestamp_us <= FARTHEST_US:
                raise _Refused("is a number too far from the epoch to be a time")
            return record.timestamp_us
        return _instant(self.of(record, root), self.unit, rounding)

    def ids(self, record: Record, root: Json, id_type: str, fields: int, reader: ValueReader) -> list[int | str]:
        """Return the field as a list of ids, of ``fields`` each. A part of the record is the JSON text of such a
        list."""
        value = self.of(record, root)
        if not self.part:
            value = reader.items(value)
        elif isinstance(value, str):
            value = parsed(value.encode())
        return _ids(value, id_type, fields)

    def _from_record(self, record: Record) -> Json:
        if self.part == "$key":
            return self.reader.value(_within(record.key, self.most, self.limit), _schema_header(record, self.reader))
        if self.part == "$timestamp":
            return record.timestamp_us
        if self.part in ("$offset", "$partition"):
            return record.offset if self.part == "$offset" else record.partition
        return _text(_last_header(record, self.part.removeprefix("$header.")), self.most, self.limit)


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


class FieldPlace(NamedTuple):
    """The path of a field that needs nothing else."""

    path: str


class SizeLimits(NamedTuple):
    """Largest sizes of a value, a key and an id, in bytes."""

    value_bytes: int
    key_bytes: int
    id_bytes: int


class RecordDecoder:
    """Decodes the records of one topic. A record may have several events: rows of a change, or what a change of a table
    adds and removes.

    ``id_type``: that of all inputs together (`auto`, `integer`, `string`). ``window_us``: the length of a window,
    against which a result's ``window_end`` is checked; None: it is not checked. ``limits``: None: sizes are not
    checked. ``rounding``: the oracle's rounding of event times. ``condition``: it must hold for an event that
    contributes. ``missing_key``: as the setting of an input; None: as ``entry`` has it. ``schemas``: those of a
    registry that are known. ``values``: those that results state. ``id_fields``: number of fields of an id in a list.
    ``key_rule``: computes the key of an event from the fields of ``entry``.
    ``splits_rows``: each row of a change is an event. ``own_end``: a time of an event that follows its addends.
    """

    def __init__(
        self,
        entry: Input | Late | Output | TableTopic,
        id_type: str = "auto",
        window_us: int | None = None,
        limits: Limits | None = None,
        rounding: Rounding = "down",
        condition: Condition | None = None,
        missing_key: str | None = None,
        schemas: Schemas = NO_SCHEMAS,
        values: Values = NO_VALUES,
        id_fields: int = 1,
        key_rule: KeyRule | None = None,
        own_end: FieldPath | None = None,
        *,
        splits_rows: bool = False,
    ) -> None:
        # The model of the limits is not kept, so that workers need not import it.
        self.most = (
            SizeLimits(limits.value_bytes, limits.key_bytes, limits.id_bytes)
            if limits
            else SizeLimits(_ANY, _ANY, _ANY)
        )
        kind: str | None = getattr(entry, "envelope", None)
        self.envelope = None if kind is None else ENVELOPES[kind]
        """The form of the changes that the topic has; None: it has none."""
        self.operations = frozenset(getattr(entry, "operations", None) or EVENTS)
        """The changes that are events, on a topic of events."""
        self.splits_rows = splits_rows and self.envelope is not None and self.envelope.is_listed
        """Whether each row of a change is an event."""
        self.replaces_rows: bool = getattr(entry, "replaces_rows", False)
        """Whether a record replaces the row of its record key."""
        self.is_table: bool = bool(getattr(entry, "table", None)) and not self.replaces_rows
        """Whether a change also removes the row before it."""
        self.reader = entry.format.reader("value", schemas)
        """It reads the values."""
        self.key_reader = entry.key_format.reader("key", schemas)
        """It reads the keys."""
        self.id_type = id_type
        self.id_fields = id_fields
        self.window_us = window_us
        self.back_us = 0
        """How far before the instant that a result names its window starts, in microseconds."""
        self._end: _Field | None = None
        self._counted: _Field | None = None
        self._lists: tuple[_Field, ...] = ()
        self._values: tuple[_Field, ...] = ()
        at = entry.fields
        self._key = tuple(self._field("key", path) for path in at.key)
        # `isinstance` would import the configuration's models.
        self._is_output = hasattr(at, "window_start")
        self.present = frozenset() if self._is_output else values.present
        self.of_one = self._is_output and values.of_one
        """Whether a result is of one event, and states no number."""
        self.repeated = values.repeated
        of_rows = frozenset(i for i, one in enumerate(values.stated) if one.function == "row")
        self.hashed = frozenset(self.repeated) | (of_rows if self._is_output else values.hashed)
        self.digests = {} if self._is_output else dict(values.digests)
        """As in `Values`, like ``present``."""
        self._rounding: Rounding = "down" if self._is_output else rounding
        self._time: _Field | None = None
        if not self._is_output:
            self._time = self._field("event_time", cast("EventFields", at).event_time)
            self._values = tuple(self._field("values", FieldPlace(path)) for path in values.paths)
        else:
            at = cast("ResultFields", at)
            instant = at.window_start or at.event_time
            if instant is not None:
                self._time = self._field("event_time" if at.window_start is None else "window_start", instant)
            if at.window_end is not None and instant is not None:
                self._end = self._field("window_end", at.window_end)
            elif at.window_end is not None:
                assert window_us is not None, "the oracle's windows have one length"
                self._time, self.back_us = self._field("window_end", at.window_end), window_us
            self._lists = tuple(self._field("ids", path) for path in at.ids or ())
            if values.count_name is not None:
                self._counted = self._field(f"values.{values.count_name}", at.values[values.count_name])
            self._values = tuple(self._field(f"values.{one.name}", at.values[one.name]) for one in values.stated)
        self._id = tuple(self._field("id", path) for path in at.id or ())
        self.key_rule = key_rule
        self.condition = condition
        self._where = {
            one: self._field("where", FieldPlace(one.path)) for one in (condition.comparisons if condition else ())
        }
        self._own_end = None if own_end is None else self._field("until", own_end)
        single = [self._time, self._end, self._own_end, self._counted]
        fields = [*self._key, *self._id, *filter(None, single), *self._lists, *self._values, *self._where.values()]
        self._first = fields[0]
        self.count_bound = None if values.count_name is None else values.bound_of(values.count_name)
        """The bound that the number of events reaches in every result."""
        self.value_bounds = tuple(values.bound_of(one.name) for one in values.stated) if self._is_output else ()
        """Those of the other values."""
        self._no_addends = (None,) * (len(self._values) + (self._own_end is not None))
        self.missing_key: str = missing_key or str(getattr(entry, "missing_key", "undecodable"))
        self.has_items: bool = getattr(getattr(entry, "explode", None), "at", None) == "items"
        """Whether the key of an event is an array."""
        self._deletes_rows: bool = getattr(entry, "deletes_rows", False)
        self._ignores_null: bool = self._is_output or getattr(entry, "ignores_tombstones", False)
        is_cumulative = getattr(entry, "emission", None) == "cumulative"
        self._names_withdrawn = is_cumulative and self._time is None and all(field.part for field in self._key)
        of_window = [self._time, self._end] if self._end else [self._time]
        # The timestamp of a record without a value is not known to be that of the window.
        self._names_window = is_cumulative and all(
            field is not None and field.part.startswith(("$key", "$header.")) for field in (*self._key, *of_window)
        )
        self._reads_value = self.envelope is not None or any(not field.part for field in fields)
        self._reads_row = any(field.names[:1] == (ROW,) for field in fields if not field.part)
        self._needs_object = any(field.needs_object for field in fields)
        named = getattr(at, "position", None)
        self._named = (
            ()
            if named is None
            else tuple(self._field(name, getattr(named, name)) for name in ("topic", "partition", "offset"))
        )
        self.names_positions = named is not None
        """Whether a record can name the position of another one (`named_position`)."""
        most_of = {field.part: field.most for field in sorted((*fields, *self._named), key=lambda field: field.most)}
        self.most_of_key = self.most.key_bytes if self.replaces_rows else most_of.get("$key")
        """Largest size in bytes of a key that is transferred; None if no field is read from the key."""
        of_schemas = {self.reader.header} if self._reads_value else set()
        of_schemas |= {self.key_reader.header} if self.most_of_key is not None else set()
        self.most_of_header = {
            **{name: _SCHEMA_HEADER_BYTES for name in of_schemas if name},
            **{part.removeprefix("$header."): most for part, most in most_of.items() if part.startswith("$header.")},
        }
        """Name of a header from which a field is read -> its largest size in bytes."""
        of_values = (self._time, self._end, self._counted)
        self.places = {field.field: field.place for field in of_values if field is not None}
        self.checks_end = self._end is not None
        """Whether results name an end beside their start."""
        """Field -> its place: a path into the value, or the name of a part of the record."""
        self.id_places = [field.place for field in self._id]
        self.where_places = tuple(field.place for field in self._where.values())
        """The places of the comparisons of ``condition``."""
        self.count_name = None if self._counted is None else self._counted.field
        """Name of the configured field with the number of events of a result."""
        self.time_name = None if self._time is None else self._time.field
        """Name of the configured field with the time of an event, or with the instant that names a result's cell."""
        self.units = {field.field: field.unit for field in (self._time, self._end) if field is not None}
        self.key_places = [field.place for field in self._key]
        self.list_places = [field.place for field in self._lists]
        self.value_places = [field.place for field in (*self._values, *filter(None, [self._own_end]))]

    def _field(self, name: str, at: FieldPath | IdsPath | ValuePath | FieldPlace) -> _Field:
        value, key, id_ = self.most
        most, limit = {"key": (key, "key_bytes"), "id": (id_, "id_bytes")}.get(name, (value, "value_bytes"))
        unit: str | TimePattern | None = getattr(at, "unit", None)
        if (pattern := getattr(at, "pattern", None)) is not None:
            unit = TimePattern(pattern, cast("FieldPath", at).time_zone or "UTC")
        part, names = placed(at.path, is_change=self.envelope is not None)
        return _Field(name, at.path, names, part, unit, most, limit, self.key_reader)

    def named_position(self, record: Record) -> str | None:
        """Return the position that a record names, as ``TOPIC/PARTITION/OFFSET``; None if it names none."""
        root: Json = None
        try:
            in_value = any(not field.part for field in self._named)
            if record.value and in_value and len(record.value) <= self.most[0]:
                root = self._root(record, record.value)
                root = root if self.envelope is None else self._change(root)[1]
            topic, partition, offset = self._named
            named = _scalar(topic.of(record, root))
            if len(named) > _TOPIC_LENGTH_MAX:
                return None
            return f"{named}/{_whole_number(partition, record, root)}/{_whole_number(offset, record, root)}"
        except _Refused:
            return None

    def decode(self, record: Record) -> Decoded | Tombstone | Undecodable:
        """Return the decoded record, a tombstone, or the reason why the record does not decode. If it has several
        events, this is the first one, or the reason why one does not decode."""
        return self.decode_all(record)[0]

    def decode_all(self, record: Record) -> Sequence[Decoded | Tombstone | Undecodable]:
        """As `decode`, but all events of a record."""
        found = self._decoded(record)
        return found if isinstance(found, list) else [found]

    def _decoded(self, record: Record) -> Decoded | Tombstone | Undecodable | list[Decoded | Tombstone | Undecodable]:
        value = record.value
        if self.replaces_rows and isinstance(record.key, OmittedPart):
            return Unexamined("key", "$key", f"has {record.key.size} bytes, above limits.key_bytes")
        if self.replaces_rows and record.key is None:
            # SEMANTICS 2.35: it does not show which row it replaces.
            return Undecodable("key", "$key", "is null")
        if value is None and self._deletes_rows:
            return self._fields(record, {})
        if value is None:
            named = self._fields(record, {}, is_withdrawn=True) if self._names_window else None
            if isinstance(named, Result):
                return named
            return self._tombstone(record, {}) if self._ignores_null else Undecodable(None, None, "is null")
        if not value:
            return Undecodable(None, None, "has zero bytes")
        size = value.removeprefix(TOO_LARGE) if value.startswith(TOO_LARGE) else b""
        if len(value) > self.most.value_bytes or (size.isdigit() and len(size) <= _DIGITS_OF_SIZE):
            return Unexamined(None, None, f"has {int(size or len(value))} bytes, above limits.value_bytes")
        root: Json = None
        if self._reads_value:
            try:
                root = self._root(record, value)
            except _Refused as refused:
                return Undecodable(None, None, str(refused))
            if self.envelope is None and self._needs_object and not isinstance(root, (dict, Windowed)):
                return Undecodable(None, None, f"{_kind(root)}, not a JSON object")
        if self.envelope is None:
            return self._fields(record, root)
        try:
            meaning, root = self._change(root)
        except _NoChange as refused:
            return Undecodable("envelope", refused.path, str(refused))
        return self._changed(record, root, meaning)

    def _changed(
        self, record: Record, root: Json, meaning: str
    ) -> Decoded | Tombstone | Undecodable | list[Decoded | Tombstone | Undecodable]:
        """Return what a change is on this topic, or an event for each of its rows. ``root``: as `_change` returns
        it."""
        assert self.envelope is not None, "the topic has changes"
        if meaning == MARK:
            return self._no_event(record, root)
        if self.is_table:
            return self._of_table(record, root, meaning)
        if not self._is_output and meaning not in self.operations:
            return self._tombstone(record, root)
        if meaning == OTHER:
            return Unexamined(None, None, "is a change that may concern any row")
        if self._is_output and meaning in WITHDRAWING:
            # SEMANTICS 2.16: the row before the change has the key and the window of the result that it withdraws.
            found = self._fields(record, root, is_withdrawn=True)
            return found if isinstance(found, Result) else Tombstone(self._withdrawn(record, root))
        if self.splits_rows and len(rows := self._rows_of(root, meaning)) > 1:
            events = [self._of_row(record, _with_row(root, row), meaning) for row in rows]
            # The record is counted as a whole.
            return next((one for one in events if isinstance(one, Undecodable)), events)
        return self._of_row(record, root, meaning)

    def _of_table(
        self, record: Record, root: Json, meaning: str
    ) -> Tombstone | Undecodable | list[Decoded | Tombstone | Undecodable]:
        """Return what a change of a table adds, and what it removes."""
        assert self.envelope is not None, "the topic has changes"
        if meaning == OTHER:
            # It may remove every row: as many contributions as there are rows.
            place = ".".join((*self.envelope.around, self.envelope.operation))
            return Undecodable("envelope", place, "is a change that may concern any row")
        found = []
        rows = self._rows_of(root, meaning) if self.envelope.is_listed else ()
        for number, part in enumerate([_with_row(root, row) for row in rows] if len(rows) > 1 else [root]):
            if meaning not in WITHDRAWING:
                found.append(self._of_row(record, part, meaning))
            if meaning in WITHDRAWING or self.envelope.names_row_before(meaning):
                found.append(self._removed(record, part, meaning, number, max(1, len(rows))))
        bad = next((one for one in found if isinstance(one, Undecodable)), None)
        # The record is counted as a whole.
        return bad or [one for one in found if isinstance(one, Event)] or found[:1]

    def _removed(
        self, record: Record, root: Json, meaning: str, number: int, rows: int
    ) -> Decoded | Tombstone | Undecodable:
        """Return what a change of a table removes. ``root``: the content of the change with the row, of number
        ``number`` among ``rows``, that it is about."""
        form = self.envelope
        assert form is not None, "the topic has changes"
        if meaning not in WITHDRAWING and form.old is not None:
            root = self._overlaid(root, form.old, number, rows) if self._reads_row else root
        elif meaning not in WITHDRAWING:
            root = self._imaged(root[ENVELOPE], form.before)
        removed = root if isinstance(root, Undecodable) else self._of_row(record, root, _REMOVING)
        if isinstance(removed, Event):
            return removed._replace(is_removed=True)
        if isinstance(removed, Undecodable) and removed.reason in ("is null", "is absent") and form.old is None:
            # Debezium omits these columns unless the database logs them.
            return replace(removed, reason=f"{removed.reason} before the change{_ROW_BEFORE}")
        return removed

    def _overlaid(self, root: Json, name: str, number: int, rows: int) -> Json | Undecodable:
        """Return the content of an update with the row before it. ``name``: the field with the fields that changed."""
        assert self.envelope is not None, "the topic has changes"
        whole, row = root[ENVELOPE], root[ROW]
        place, old = ".".join((*self.envelope.around, name)), whole.get(name)
        if type(whole) is Repeating and name in whole.repeated:
            return Undecodable("envelope", place, "is ambiguous: it occurs more than once")
        if self.envelope.is_listed and isinstance(old, list):
            if len(old) != rows:
                return Undecodable("envelope", place, f"has {len(old)} rows, and the change has {rows}")
            old = old[number]
        if not isinstance(old, dict) or not isinstance(row, dict):
            return Undecodable("envelope", place, _kind(row if isinstance(old, dict) else old))
        # What is absent from `old` did not change; a null there is the value before the change.
        repeated = {it for one in (row, old) if type(one) is Repeating for it in one.repeated}
        before = {**row, **old}
        return _with_row(root, Repeating([*before.items(), *((it, None) for it in repeated)]) if repeated else before)

    def _rows_of(self, root: Json, meaning: str) -> Sequence[Json]:
        assert self.envelope is not None, "the topic has changes"
        rows = root[ENVELOPE].get(self.envelope.image_of(meaning))
        return rows if isinstance(rows, list) else ()

    def _of_row(self, record: Record, root: Json, meaning: str) -> Decoded | Tombstone | Undecodable:
        assert self.envelope is not None, "the topic has changes"
        if self._reads_row and not isinstance(root[ROW], dict):
            image = ".".join((*self.envelope.around, self.envelope.image_of(meaning)))
            reason = _kind(root[ROW])
            if isinstance(root[ROW], list):
                reason = f"has {len(root[ROW])} rows, and a record with one row can be read"
            return Undecodable("envelope", image, reason)
        return self._fields(record, root)

    def _fields(self, record: Record, root: Json, *, is_withdrawn: bool = False) -> Decoded | Tombstone | Undecodable:
        """Return the decoded record. ``root``: the content of the value. ``is_withdrawn``: the result that the record
        names used no events."""
        _, most_of_key, most_of_id = self.most
        at, is_other = self._first, False
        try:
            if self.condition is not None:
                decided, refusals = self._decided(self.condition, record, root)
                if decided is None:
                    at, refusal = refusals[0]
                    raise refusal
                # SEMANTICS 2.6: an event of another kind needs no other field.
                is_other = not decided
                if is_other and self.condition.others == "ignored":
                    return self._no_event(record, root)
            one: int | str | None = None
            if self._id and not is_withdrawn:
                named: list[int | str] = []
                for at in self._id:
                    named.append(self._part_of_id(at, record, root))  # noqa: PERF401  # `at` is named where refused
                one = named[0] if len(named) == 1 else joined([str(part) for part in named])
                _check_size(one, most_of_id, "id_bytes")
            parts: list[str | None] = []
            for at in self._key:
                parts.append(self._part_of_key(at, record, root))  # noqa: PERF401  # `at` is named where it is refused
            key, is_skipped = parts[0] if len(parts) == 1 else joined(parts), False
            if self.key_rule is not None:
                key = self.key_rule(parts)
                is_skipped = key is None and self.key_rule.keyless == "skipped"
            if key is None:
                key = NULL_KEY
            elif key == NULL_KEY and self.missing_key != "undecodable" and len(parts) == 1:
                raise _Refused("is the text that stands for an absent key")
            _check_size(key, most_of_key, "key_bytes")
            time = None
            if self._time is not None:
                at = self._time
                time = at.instant(record, root, self._rounding) - self.back_us
                if time < -FARTHEST_US:
                    raise _Refused("is too early for the end of a window")
            if not self._is_output:
                one = NO_ID if one is None else one
                assert time is not None, "an event has a time"
                is_skipped |= self.missing_key == "skip" and None in parts
                if is_other or is_skipped:
                    is_skipped |= self.condition is not None and self.condition.others == "skipped"
                    return Event(one, key, time, False, is_skipped, self._no_addends)
                addends = []
                for i, at in enumerate(self._values):
                    addends.append(self._kind(i)(at, record, root))
                repeated = _repeating(addends, self.repeated)
                if self._own_end is not None:
                    at = self._own_end
                    repeated = (*repeated, Decimal(at.instant(record, root, self._rounding)))
                return Event(one, key, time, addends=repeated)
            end = None
            if self._end is not None and time is not None:
                at = self._end
                end = at.instant(record, root, self._rounding)
                if self.window_us is not None:
                    if end != time + self.window_us:
                        raise _Refused("is not window_start plus the size of the window")
                    end = None
            if is_withdrawn:
                lists_of_none: tuple[list[int | str], ...] = ([],) * max(len(self._lists), 1)
                stated_none = None if self._counted is None else 0
                return Result(key, time, lists_of_none, stated_none, end, (None,) * len(self._values))
            lists: list[list[int | str]] = [] if one is None else [[one]]
            for at in self._lists:
                lists.append(at.ids(record, root, self.id_type, self.id_fields, self.reader))
                # No part of a value is longer than the whole.
                if at.part or len(record.value or b"") > most_of_id:
                    for item in lists[-1]:
                        _check_size(item, most_of_id, "id_bytes")
            # A result of one event counts one.
            stated = 1 if self.of_one else None
            if self._counted is not None:
                at = self._counted
                stated = _count(at.of(record, root))
                _check_bound(stated, self.count_bound)
            values = []
            for i, at in enumerate(self._values):
                values.append(self._kind(i)(at, record, root))
                _check_bound(values[-1], self.value_bounds[i])
            return Result(key, time, tuple(lists), stated, end, _repeating(values, self.repeated))
        except _TooLong as refused:
            return self._no_event(record, root) if is_other else Unexamined(at.field, at.path, str(refused))
        except _Refused as refused:
            if is_other:
                return self._no_event(record, root)
            return Undecodable(at.field, at.path, str(refused), refused.value)

    def problems(self, record: Record) -> tuple[Undecodable, ...]:
        """Return every field of a record that does not decode; empty if the record decodes. `decode` stops at the first
        of them."""
        first = self.decode(record)
        if not isinstance(first, Undecodable):
            return ()
        if first.field is None or record.value is None:
            return (first,)
        root = self._root(record, record.value) if self._reads_value else None
        if self.envelope is not None:
            if first.field == "envelope":
                return (first,)
            meaning, root = self._change(root)
            if (self.splits_rows or self.is_table) and len(self._rows_of(root, meaning)) > 1:
                return (first,)
        found = {}
        others = [self._time, self._end, self._own_end, *self._lists, self._counted, *self._values]
        for at in filter(None, [*self._id, *self._key, *others]):
            try:
                self._read_alone(at, record, root)
            except _Refused as refused:
                found[at.field, at.path] = Undecodable(at.field, at.path, str(refused), refused.value)
        # What only several fields together break, such as the length of a window, is in `first` alone.
        return (first, *(one for place, one in found.items() if place != (first.field, first.path)))

    def _read_alone(self, at: _Field, record: Record, root: Json) -> None:
        """Decode one field of a record. Raises `_Refused`."""
        if at.field == "id":
            self._part_of_id(at, record, root)
        elif at.field == "key":
            self._part_of_key(at, record, root)
        elif at.field == "ids":
            at.ids(record, root, self.id_type, self.id_fields, self.reader)
        elif at is self._counted:
            _count(at.of(record, root))
        elif at in self._values:
            for i, one in enumerate(self._values):
                if one == at:
                    self._kind(i)(at, record, root)
        else:
            at.instant(record, root, self._rounding)

    def _kind(self, i: int) -> Callable[[_Field, Record, Json], Decimal | None]:
        """Return how a value is read, or a field that results aggregate."""
        if i in self.digests:
            return partial(_modular, self.digests[i])
        if i in self.hashed:
            return _hash
        return _stated if self._is_output else _presence if i in self.present else _addend

    def _decided(
        self, condition: Condition, record: Record, root: Json
    ) -> tuple[bool | None, list[tuple[_Field, _Refused]]]:
        """Return whether the condition holds; None if that depends on fields that do not decode, which follow."""
        refusals = []

        def of(one: Comparison) -> tuple[bool, bool]:
            at = self._where[one]
            try:
                holds = _holds(one, at, record, root)
            except _Refused as refused:
                refusals.append((at, refused))
                return False, False
            return holds, not holds

        holds, fails = condition.decided(of)
        return (holds if holds or fails else None), refusals

    def _part_of_id(self, at: _Field, record: Record, root: Json) -> int | str:
        """Return a field of the id. Raises `_Refused`."""
        value = at.of(record, root)
        found = _id(value, self.id_type) if len(self._id) == 1 else _scalar(value)
        is_long = at.is_whole and type(found) is str and len(found.encode()) > WHOLE_VALUE_MAX
        return digest_of(str(found)) if is_long else found

    def _part_of_key(self, at: _Field, record: Record, root: Json) -> str | None:
        """Return a field of the key; None if it is absent or null, and an event without it decodes."""
        try:
            value = at.of(record, root)
            return joined(_texts(value)) if self.has_items else _scalar(value)
        except _Missing:
            if self.missing_key == "undecodable":
                raise
            return None

    def _root(self, record: Record, value: bytes) -> Json:
        """Return the content of a value. Raises `_Refused` if the value is not in the topic's format."""
        return self.reader.value(value, _schema_header(record, self.reader))

    def _change(self, root: Json) -> tuple[str, Json]:
        """Return what a change means, and its content as fields find it: the row that it is about, which may be
        absent, and the envelope. Raises `_NoChange`."""
        form = self.envelope
        assert form is not None, "the topic has changes"
        at = ""
        try:
            for name in form.around:
                at = name
                root = _at(root, (name,))
            if not isinstance(root, dict):
                raise _Refused(f"{_kind(root)}, not a change")
            at = ".".join((*form.around, form.operation))
            text = _at(root, (form.operation,))
            if type(text) is not str:
                raise _Refused(_kind(text))
            meaning = form.meanings.get(text)
            if meaning is None:
                raise _Refused(f"is no operation of {form.kind}")
        except _Refused as refused:
            raise _NoChange(at or "$value", str(refused)) from None
        return meaning, self._imaged(root, form.image_of(meaning))

    def _imaged(self, root: Json, image: str) -> Json:
        """Return the content of a change as fields find it, with the row of a field of the envelope (``root``)."""
        row = root.get(image)
        if self.envelope is not None and self.envelope.is_listed and isinstance(row, list) and len(row) == 1:
            row = row[0]
        found = {ROW: row, ENVELOPE: root}
        if type(root) is Repeating and image in root.repeated:
            # Only a field of the row is ambiguous.
            found = Repeating([(ROW, row), *found.items()])
        return found

    def _tombstone(self, record: Record, root: Json) -> Tombstone:
        """Return what is not an event or a result, with the key that it withdraws, or with the newest time that an
        engine may read from it."""
        if self._is_output:
            return Tombstone(self._withdrawn(record, root))
        assert self._time is not None, "an event has a time"
        rows = [root.get(ROW)]
        if self.envelope is not None and self.envelope.is_listed and isinstance(rows[0], list):
            rows = rows[0] or rows
        times = []
        for row in rows:
            with suppress(_Refused):
                times.append(self._time.instant(record, {**root, ROW: row}, self._rounding))
        return Tombstone(event_time_us=max(times, default=None))

    def _no_event(self, record: Record, root: Json) -> Tombstone:
        """Return what stands for a record that is not of the pipeline, with the time of an event, if it has one."""
        if self._is_output:
            return Tombstone()
        if isinstance(root, dict):
            return self._tombstone(record, root)
        assert self._time is not None, "an event has a time"
        with suppress(_Refused):
            return Tombstone(event_time_us=self._time.instant(record, root, self._rounding))
        return Tombstone()

    def _withdrawn(self, record: Record, root: Json) -> str | None:
        """Return the key of a record without a result, if such a record can name one."""
        if not self._names_withdrawn:
            return None
        try:
            parts = [_scalar(field.of(record, root)) for field in self._key]
        except _Refused:
            return None
        return parts[0] if len(parts) == 1 else joined(parts)


def _with_row(root: Json, row: Json) -> Json:
    """Return the content of a change with one of its rows."""
    found = {**root, ROW: row}
    return Repeating([(ROW, row), *found.items()]) if type(root) is Repeating else found


def _addend(at: _Field, record: Record, root: Json) -> Decimal | None:
    """Return a field of an event that results aggregate; None if it is absent or null. Raises `_Refused`."""
    try:
        return amount(at.of(record, root))
    except _Missing:
        return None


def _presence(at: _Field, record: Record, root: Json) -> Decimal | None:
    """Return 1 if a field of an event is neither absent nor null. Raises `_Refused`."""
    try:
        at.of(record, root)
    except _Missing:
        return None
    return _ONE


def _hash(at: _Field, record: Record, root: Json) -> Decimal | None:
    """Return the 64-bit hash of a field of an event; None if it is absent or null. Raises `_Refused`."""
    try:
        text = _scalar(at.of(record, root))
    except _Missing:
        return None
    # Most decoders do not need the array libraries.
    from validator.codecs.fingerprints import number_of_text

    return Decimal(number_of_text(text))


def _repeating(values: Sequence[Decimal | None], places: Sequence[int]) -> tuple[Decimal | None, ...]:
    """Return values in which each field that a result repeats has the hash of the tuple up to it."""
    found = list(values)
    if places:
        import numpy as np

        from validator.codecs.digests import of_prefixes

        hashes = of_prefixes([np.array([int(values[i] or 0)], dtype=np.int64) for i in places])
        for i, one in zip(places, hashes, strict=True):
            found[i] = None if values[i] is None else Decimal(int(one[0]))
    return tuple(found)


def _modular(digest: Digest, at: _Field, record: Record, root: Json) -> Decimal | None:
    """Return what a field of an event adds to a sum modulo 2^64; None if it is absent or null. Raises `_Refused`."""
    # Most decoders do not need the array libraries.
    from validator.codecs.digests import of_integer, of_text

    try:
        value = at.of(record, root)
    except _Missing:
        return None
    if digest.hash is not None:
        return Decimal(of_text(_scalar(value), digest))
    number = amount(value)
    if number != int(number):
        raise _Refused("is not an integer")
    return Decimal(of_integer(int(number), digest))


def _stated(at: _Field, record: Record, root: Json) -> Decimal | None:
    """Return a value that a result states; None if it is null. Raises `_Refused`."""
    try:
        return amount(at.of(record, root))
    except _Missing as missing:
        # In SQL the sum of no value is null. A path that leads nowhere is more likely wrong.
        if str(missing) == "is null":
            return None
        raise


def _check_bound(number: Decimal | int | None, bound: Bound | None) -> None:
    """Raise `_Refused` if a value that a result states does not reach its bound."""
    # SEMANTICS 2.33: a pipeline with this condition writes no such result.
    if bound is not None and (number is None or not bound.may_hold(number)):
        raise _Refused(f"is {'null' if number is None else number}, and oracle.having requires a value {bound}")


def _holds(one: Comparison, at: _Field, record: Record, root: Json) -> bool:
    """Return whether a comparison holds. Raises `_Refused` if the value is absent or not a scalar, or not a number if
    it must be one."""
    if one.exists is not None:
        with suppress(_Missing):
            at.of(record, root)
            return one.exists
        return not one.exists
    value = at.of(record, root)
    text = _scalar(value)
    if one.is_numeric:
        if isinstance(value, (bool, bytes)):
            raise _Refused(_kind(value))
        if type(value) is str and not (len(value) <= LONGEST_NUMBER and _NUMBER.fullmatch(value)):
            raise _Refused("is a text that is not a number")
        text = plain_number(text)
    return one.holds(text)


def canonical(value: str | float) -> str:
    """Return the text by which a scalar is compared: number 1 and text "1" are the same. Raises ValueError if a number
    has no such text."""
    try:
        return _scalar(Number(repr(value)) if isinstance(value, float) else value)
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

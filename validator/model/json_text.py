"""JSON (RFC 8259) to values, without the extensions of parsers. A number with a fraction stays as it is written."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NoReturn

DEEPEST: Final = 500
"""Largest number of nested objects and arrays in a value."""
LONGEST_NUMBER: Final = 1_000
"""Largest length of a number: of its characters as written, and of its digits when its exponent is expanded."""

_SPACES: Final = " \t\n\r"
_NUMBER_BYTES: Final = bytes(ord("0") if chr(byte) in "0123456789+-.eE" else ord(" ") for byte in range(256))
_LONG_RUN: Final = b"0" * (LONGEST_NUMBER + 1)
# It also matches a string that does not end. Otherwise the search would try each quote in it as a start.
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS: Final = bytes(byte for byte in range(256) if byte not in b"{}[]")

Json = Any
"""A value that the parser returns: dict, list, str, int, `Number`, bool or None."""


class Unreadable(ValueError):
    """Bytes that are not a value of the expected format, or a field that does not decode; the message is a clause, such
    as "is white space only". ``value``: the value of a time."""

    value: str | None = None


class Number(str):
    """A number with a fraction or an exponent, as written."""

    __slots__ = ()


class Repeating(dict[str, Json]):
    """A JSON object in which names are repeated. ``repeated``: these names."""

    def __init__(self, pairs: list[tuple[str, Json]]) -> None:
        super().__init__(pairs)
        self.repeated = frozenset(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)


def object_of(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return an object with these names and values, which knows the names that are repeated."""
    names = dict(pairs)
    return names if len(names) == len(pairs) else Repeating(pairs)


def _no_constant(name: str) -> NoReturn:
    raise Unreadable(f"is not JSON: it holds {name}")


def _short(kind: Callable[[str], Json]) -> Callable[[str], Json]:
    def number(text: str) -> Json:
        if len(text) > LONGEST_NUMBER:
            raise Unreadable(f"holds a number of more than {LONGEST_NUMBER:,} characters")
        return kind(text)

    return number


_DECODER: Final = json.JSONDecoder(object_pairs_hook=object_of, parse_float=Number, parse_constant=_no_constant)
_CAREFUL_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=object_of, parse_float=_short(Number), parse_int=_short(int), parse_constant=_no_constant
)


def parsed(raw: bytes) -> Json:
    """Return the JSON value of ``raw``. Raises `Unreadable` if ``raw`` is not exactly one JSON value."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(_framed(raw) or f"is not UTF-8 text, at byte {error.start}") from None
    decoder = _DECODER
    if len(raw) > LONGEST_NUMBER:
        if raw.count(b"{") + raw.count(b"[") > DEEPEST and _depth(raw) > DEEPEST:
            raise Unreadable(f"is nested more than {DEEPEST} levels deep")
        if _LONG_RUN in raw.translate(_NUMBER_BYTES):
            decoder = _CAREFUL_DECODER
    start = 0 if text[:1] == "{" else len(text) - len(text.lstrip(_SPACES))
    try:
        value, end = decoder.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise Unreadable(_not_json(raw, error)) from None
    except RecursionError:
        raise Unreadable(f"is nested more than {DEEPEST} levels deep") from None
    if end < len(text) and text[end:].strip(_SPACES):
        raise Unreadable(f"has content after its first JSON value, at character {end}")
    return value


def _not_json(raw: bytes, error: json.JSONDecodeError) -> str:
    if not raw.strip(_SPACES.encode()):
        return "is white space only"
    if raw.startswith(codecs.BOM_UTF8):
        return "begins with a byte order mark"
    if (framed := _framed(raw)) is not None:
        return framed
    return f"is not JSON: {error.msg[:1].lower()}{error.msg[1:]} at character {error.pos}"


def _framed(raw: bytes) -> str | None:
    """Return why a value with Confluent's wire prefix is not JSON; None if it has none."""
    schema = wire_prefix(raw)
    if schema is None:
        return None
    what = "Avro or Protobuf after it: name the schema_registry, and write format: avro or protobuf"
    if raw[5:6] in b"{[":
        what = "JSON after it: write format: json_schema"
    return f"is not JSON: it begins with Confluent's wire prefix of schema {schema}, with {what}"


def _depth(raw: bytes) -> int:
    """Return the deepest nesting of ``raw``, if it is JSON. Brackets in strings do not count."""
    deepest = depth = 0
    for byte in _STRING.sub(b"", raw).translate(None, _NO_BRACKETS):
        depth += 1 if byte in b"{[" else -1
        deepest = max(deepest, depth)
    return deepest


WIRE_PREFIX_BYTES: Final = 5


def wire_prefix(raw: bytes) -> int | None:
    """Return the schema id if ``raw`` begins as Confluent's serializers write it: a zero byte, then the id in four
    bytes. JSON never begins with a zero byte."""
    return int.from_bytes(raw[1:WIRE_PREFIX_BYTES], "big") if len(raw) > WIRE_PREFIX_BYTES and raw[0] == 0 else None


class JsonReader:
    """Reads JSON. Arrow may read whole batches of it (`validator.codecs.plain_json`)."""

    header: str | None = None
    prefix_bytes: int = 0
    """Bytes before the JSON."""

    def value(self, raw: bytes, header: bytes | None = None) -> Json:
        """Return the JSON value of ``raw``, as `parsed`."""
        del header
        return parsed(raw)

    def items(self, value: object) -> object:
        """Return ``value`` itself: lists are arrays."""
        return value


class PrefixedJsonReader(JsonReader):
    """Reads JSON after Confluent's wire prefix."""

    prefix_bytes = WIRE_PREFIX_BYTES

    def value(self, raw: bytes, header: bytes | None = None) -> Json:
        """Return the JSON value after the prefix."""
        del header
        if wire_prefix(raw) is None:
            raise Unreadable("does not begin with Confluent's wire prefix (a zero byte and the id of a schema)")
        return parsed(raw[WIRE_PREFIX_BYTES:])


def is_zero(text: str) -> bool:
    """Return whether the text of a JSON number is that of zero, whatever its exponent."""
    mantissa, _, _ = text.lower().partition("e")
    return not mantissa.strip("-0.")


def plain_number(text: str) -> str:
    """Return a number without an exponent, a sign of zero, or redundant zeros: 1, 1.0 and 1e0 are the same. Raises
    `Unreadable`."""
    if is_zero(text):
        return "0"
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise Unreadable(f"is a number of more than {LONGEST_NUMBER:,} digits") from None
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "infinity and NaN are not JSON numbers"
    if max(len(digits) + exponent, -exponent) > LONGEST_NUMBER:
        raise Unreadable(f"is a number of more than {LONGEST_NUMBER:,} digits")
    plain = format(number, "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain

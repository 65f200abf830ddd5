"""Decoders of formats, written from their definitions: other than those of the product, and slow."""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable
from typing import Any, Final

from validator.model.field_values import TypedTime, Windowed

_UTF_8: Final = re.compile(
    rb"(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|[\xe1-\xec\xee\xef][\x80-\xbf]{2}"
    rb"|\xed[\x80-\x9f][\x80-\xbf]|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}|\xf4[\x80-\x8f][\x80-\xbf]{2})*"
)
"""Well-formed UTF-8: table 3-7 of the Unicode standard."""


def text(raw: bytes) -> str:
    """A text."""
    if not _UTF_8.fullmatch(raw):
        raise ValueError
    return raw.decode(errors="replace")


def number(code: str) -> Callable[[bytes], object]:
    """Numbers of a size, in two's complement or as IEEE 754 has them."""
    return lambda raw: struct.unpack(code, raw)[0]


_SINGLE_END = 2.0**128 - 2.0**103
"""From this number on, rounding to 32 bits overflows."""


def single(raw: bytes) -> float:
    """The number with the fewest digits that is the 32-bit number."""
    [wanted] = struct.unpack(">f", raw)
    tries = (float(f"{wanted:.{digits}g}") for digits in range(1, 10))
    return next((one for one in tries if abs(one) < _SINGLE_END and struct.pack(">f", one) == raw), wanted)


def boolean(raw: bytes) -> bool:
    """One byte."""
    return {b"\0": False, b"\1": True}[raw]


def uuid_text(raw: bytes) -> str:
    """The usual text of a UUID."""
    found = str(uuid.UUID(raw.decode("ascii")))
    if found != raw.decode().lower():
        raise ValueError
    return found


def groups(raw: bytes) -> dict[str, str | None]:
    """Texts such as `ab=-5;more`, as the pattern of the test has them."""
    key, sign, rest = text(raw).partition("=")
    digits, end, after = rest.partition(";")
    is_number = digits.removeprefix("-").isdecimal() and digits.isascii()
    if not (sign and end and key and set(key) <= set("abcdefghijklmnopqrstuvwxyz")) or "\n" in after:
        raise ValueError
    if not (is_number or not digits):
        raise ValueError
    return {"key": key, "n": digits or None}


def raw_fields(raw: bytes) -> dict[str, object]:
    """The fields of the test."""
    if len(raw) < 16:
        raise ValueError
    of_number, small = int.from_bytes(raw[8:16], "big", signed=True), int.from_bytes(raw[2:4], "little")
    return {"n": of_number, "small": small, "name": text(raw[4:7]), "rest": raw[7:8]}


EVERY_TYPE: Final = tuple(
    (f"{kind}{bits}", bits // 8, order)
    for kind, sizes in (("int", (8, 16, 32, 64)), ("uint", (8, 16, 32, 64)), ("float", (32, 64)))
    for bits in sizes
    for order in ("big", "little")
)
"""Type, size and byte order of each number that raw bytes may have, in the order of their places."""


def raw_of_every_type(raw: bytes) -> dict[str, object]:
    """All numbers, then a text of two bytes and two bytes."""
    found: dict[str, object] = {}
    for kind, size, order in EVERY_TYPE:
        part, raw = raw[:size], raw[size:]
        if len(part) < size:
            raise ValueError
        part = part if order == "big" else part[::-1]
        found[f"{kind}_{order}"] = (
            {4: single, 8: number(">d")}[size](part)
            if kind.startswith("float")
            else int.from_bytes(part, "big", signed=kind.startswith("int"))
        )
    if len(raw) < 4:
        raise ValueError
    return {**found, "text": text(raw[:2]), "bytes": raw[2:4]}


def windowed(start: int, end: int | None, key: object) -> Windowed:
    """A key and its window."""
    return Windowed(key, TypedTime(start, "ms"), None if end is None else TypedTime(end, "ms"))


def time_window(key: Callable[[bytes], object], size: int | None = None) -> Callable[[bytes], object]:
    """A key, then eight bytes."""

    def decoded(raw: bytes) -> Windowed:
        [start] = struct.unpack(">q", raw[max(0, len(raw) - 8) :])
        end = None if size is None else min(start + size, 2**63 - 1)
        return windowed(start, end, key(raw[:-8]))

    return decoded


def session(raw: bytes) -> Windowed:
    """A text, then the end and the start."""
    end, start = struct.unpack(">qq", raw[max(0, len(raw) - 16) :])
    if end < start:
        raise ValueError
    return windowed(start, end, text(raw[:-16]))


def window_text(raw: bytes) -> Windowed:
    """`[key@start/end]`."""
    if raw[:1] != b"[" or raw[-1:] != b"]" or len(raw) < 2:
        raise ValueError
    key, at, span = raw[1:-1].rpartition(b"@")
    start, slash, end = span.partition(b"/")
    for one in (start, end):
        if not (at and slash and one.removeprefix(b"-").isdigit() and len(one.removeprefix(b"-")) <= 19):
            raise ValueError
    if int(end) < int(start):
        raise ValueError
    return windowed(int(start), int(end), text(key))


def messagepack(raw: bytes) -> object:
    """One object of the MessagePack specification."""
    found, end = _object(raw, 0)
    if end != len(raw):
        raise ValueError
    return found


_FIXED: Final = {0xCA + n: code for n, code in enumerate((">f", ">d", ">B", ">H", ">I", ">Q", ">b", ">h", ">i", ">q"))}
_SIZES: Final = {
    **{0xC4 + n: ("bin", 1 << n) for n in range(3)}, **{0xC7 + n: ("ext", 1 << n) for n in range(3)},
    **{0xD9 + n: ("str", 1 << n) for n in range(3)}, **{0xDC + n: ("array", 2 << n) for n in range(2)},
    **{0xDE + n: ("map", 2 << n) for n in range(2)},
}  # fmt: skip


def _object(raw: bytes, at: int) -> tuple[Any, int]:
    byte, at = raw[at], at + 1
    if byte < 0x80 or byte >= 0xE0:
        return (byte if byte < 0x80 else byte - 256), at
    if byte in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[byte], at
    if byte in _FIXED:
        content, at = _bytes(raw, at, struct.calcsize(_FIXED[byte]))
        return struct.unpack(_FIXED[byte], content)[0], at
    if byte < 0xC0:
        kind = "map" if byte < 0x90 else "array" if byte < 0xA0 else "str"
        return _sized(raw, at, kind, byte & (0x1F if kind == "str" else 0x0F))
    if 0xD4 <= byte <= 0xD8:
        return _sized(raw, at, "ext", 1 << (byte - 0xD4))
    kind, width = _SIZES[byte]
    head, at = _bytes(raw, at, width)
    return _sized(raw, at, kind, int.from_bytes(head, "big"))


def _sized(raw: bytes, at: int, kind: str, size: int) -> tuple[Any, int]:
    if kind in ("array", "map"):
        items = []
        for _ in range(size * (2 if kind == "map" else 1)):
            item, at = _object(raw, at)
            items.append(item)
        return (items if kind == "array" else dict(zip(items[::2], items[1::2], strict=True))), at
    if kind == "ext":
        [code], at = struct.unpack(">b", raw[at : at + 1]), at + 1
        content, at = _bytes(raw, at, size)
        return (_timestamp(content) if code == -1 else {}), at
    content, at = _bytes(raw, at, size)
    return (text(content) if kind == "str" else content), at


def _timestamp(raw: bytes) -> TypedTime:
    nanoseconds, seconds = {
        4: lambda: (0, int.from_bytes(raw, "big")),
        8: lambda: (int.from_bytes(raw, "big") >> 34, int.from_bytes(raw, "big") & (1 << 34) - 1),
        12: lambda: struct.unpack(">Iq", raw),
    }[len(raw)]()
    if nanoseconds >= 10**9:
        raise ValueError
    return TypedTime(seconds * 10**9 + nanoseconds, "ns")


def _bytes(raw: bytes, at: int, size: int) -> tuple[bytes, int]:
    if at + size > len(raw):
        raise ValueError
    return raw[at : at + size], at + size


_JSON_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_JSON_WORDS: Final = {"true": True, "false": False, "null": None}
_JSON_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def json_after_prefix(raw: bytes) -> object:
    """JSON by the grammar of RFC 8259, after a zero byte and four others. Numbers with a fraction stay texts."""
    if raw[:1] != b"\0" or len(raw) < 6:
        raise ValueError
    source = text(raw[5:])
    value, end = _json(source, _after_blanks(source, 0))
    if _after_blanks(source, end) != len(source):
        raise ValueError
    return value


def _after_blanks(source: str, at: int) -> int:
    while source[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def _json(source: str, at: int) -> tuple[object, int]:
    for word, meaning in _JSON_WORDS.items():
        if source.startswith(word, at):
            return meaning, at + len(word)
    if source[at] == '"':
        return _json_string(source, at + 1)
    if number := _JSON_NUMBER.match(source, at):
        is_whole = number[0].removeprefix("-").isdecimal()
        return int(number[0]) if is_whole else number[0], number.end()
    closing = {"[": "]", "{": "}"}[source[at]]
    found: list[tuple[str, object]] = []
    at = _after_blanks(source, at + 1)
    while source[at] != closing:
        if found:
            at = _after_blanks(source, _expected(source, at, ","))
        name = ""
        if closing == "}":
            name, at = _json_string(source, _expected(source, at, '"'))
            at = _after_blanks(source, _expected(source, _after_blanks(source, at), ":"))
        value, at = _json(source, at)
        found.append((name, value))
        at = _after_blanks(source, at)
    return dict(found) if closing == "}" else [value for _, value in found], at + 1


def _expected(source: str, at: int, character: str) -> int:
    if source[at] != character:
        raise ValueError
    return at + 1


def _json_string(source: str, at: int) -> tuple[str, int]:
    found = ""
    while source[at] != '"':
        if source[at] < " ":
            raise ValueError
        if source[at] != "\\":
            found, at = found + source[at], at + 1
        elif source[at + 1] != "u":
            found, at = found + _JSON_ESCAPES[source[at + 1]], at + 2
        elif digits := re.compile("[0-9a-fA-F]{4}").match(source, at + 2):
            found, at = found + chr(int(digits[0], 16)), at + 6
        else:
            raise ValueError
    # A pair of surrogates is one character.
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"), at + 1

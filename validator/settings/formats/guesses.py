"""The format of the sampled values or keys of a topic: the first setting whose reader, the sidecar's, reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter

from validator.model.field_values import Windowed
from validator.model.json_text import wire_prefix
from validator.model.schemas import Schemas, SchemaUnknown
from validator.settings.formats.kinds import AnyFormat
from validator.settings.formats.registered import HEADERS
from validator.settings.formats.seam import Format, Part, Unreadable, ValueReader

Setting = str | dict[str, Any]
"""A format as in the file."""

ENOUGH: Final = 0.9
"""Share of the values that a format must read. The others may be poison records."""
DELIMITERS: Final = (",", ";", "\t", "|")
_KINDS: Final = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json_schema"}
_OF_SIZE: Final = {8: ("long", "double"), 4: ("int", "float"), 2: ("short",)}
_LARGEST: Final = 2**53
"""A larger number in eight bytes is rather a floating-point number."""
_YEAR_2000_MS, _YEAR_2100_MS = 946_684_800_000, 4_102_444_800_000
_LONG: Final = 8
_FIRST_PACKED: Final = 0x80
"""The least first byte of MessagePack's maps, arrays and texts. Smaller ones are whole values, numbers."""
_FIRST_PRINTED, _LAST_PRINTED = b" ~"
_LAID_OUT_MOST: Final = 1_000
"""Values in which fields at fixed places are looked for."""


@cache
def _formats() -> TypeAdapter[Format]:
    return TypeAdapter(AnyFormat)


@dataclass(frozen=True)
class Decoded:
    """Values and the format that reads them; None where it does not, or where there is none. ``reader``: of the
    format."""

    setting: Setting
    values: tuple[object, ...]
    reader: ValueReader


def decoded(
    raws: Sequence[bytes | None],
    part: Part,
    schemas: Schemas,
    headers: Sequence[bytes | None] = (),
    like: Setting | None = None,
) -> Decoded | None:
    """Read values or keys with the first format that reads nearly all of them; None if there is none. ``headers``: the
    header of each record that may name its schema. ``like``: the format, if it is known."""
    given = [raw for raw in raws if raw]
    if not given:
        return None
    least = ENOUGH * len(given) if like is None else 1
    settings = (
        _settings(given, part, schemas, [header for header in headers if header]) if like is None else iter([like])
    )
    for setting in settings:
        reader = _formats().validate_python(setting).reader(part, schemas)
        values = tuple(_value(reader, raw, headers[i] if headers else None) for i, raw in enumerate(raws))
        if sum(value is not None for value in values) >= least and _is_plausible(setting, values):
            return Decoded(setting, values, reader)
    return None


def schema_header(part: Part) -> str:
    """The header that names the schema of values or keys."""
    return HEADERS[part]


def are_lines(setting: Setting) -> bool:
    """Whether values in a format are lines of text, which a pattern may cut."""
    return setting == "text" or (isinstance(setting, dict) and setting["kind"] == "csv")


def _value(reader: ValueReader, raw: bytes | None, header: bytes | None) -> object:
    if not raw:
        return None
    try:
        return reader.value(raw, header)
    except (Unreadable, SchemaUnknown):
        return None


def _settings(raws: Sequence[bytes], part: Part, schemas: Schemas, headers: Sequence[bytes]) -> Iterator[Setting]:
    named = [schema for raw in raws if (schema := wire_prefix(raw)) is not None]
    kinds = {found.kind for id_ in set(named) if (found := schemas.get(id_)) is not None}
    if len(named) >= ENOUGH * len(raws):
        yield "json_schema"
        yield from (_KINDS[kind] for kind in sorted(kinds) if kind in _KINDS)
    if len(headers) >= ENOUGH * len(raws):
        yield from ({"kind": kind, "schema_id": "headers"} for kind in ("avro", "protobuf"))
    if part == "key":
        yield from _windowed(raws, schemas)
    first = [raw.lstrip()[:1] for raw in raws]
    if sum(one in (b"{", b"[", b'"') for one in first) >= ENOUGH * len(raws):
        yield "json"
    if not _are_texts(raws):
        # Of other binary formats, hardly a value is MessagePack as a whole.
        if sum(raw[0] >= _FIRST_PACKED and len(raw) > 1 for raw in raws) >= ENOUGH * len(raws):
            yield "msgpack"
        sizes = {len(raw) for raw in raws}
        if len(sizes) == 1:
            yield from _OF_SIZE.get(min(sizes), ())
            if part == "value" and not any(named):
                yield from _layouts(raws, sizes.pop())
    elif part == "value":
        yield from _lines(raws)
    if _are_texts(raws):
        yield "text"
    yield "bytes"


def _windowed(raws: Sequence[bytes], schemas: Schemas) -> Iterator[Setting]:
    """The windowed keys of Kafka Streams."""
    if all(raw[:1] == b"[" and raw[-1:] == b"]" and b"@" in raw for raw in raws):
        heads = [raw[1 : raw.rindex(b"@")] for raw in raws]
        yield {"kind": "windowed_text", "inner": _inner(heads, schemas)}
    if not _are_texts(raws):
        for kind, tail in (("session_windowed", 2 * _LONG), ("time_windowed", _LONG)):
            heads = [raw[:-tail] for raw in raws if len(raw) > tail]
            if heads:
                yield {"kind": kind, "inner": _inner(heads, schemas)}


def _inner(heads: Sequence[bytes], schemas: Schemas) -> Setting:
    found = decoded(heads, "key", schemas)
    return "bytes" if found is None or str(found.setting).find("windowed") >= 0 else found.setting


def are_places(setting: Setting) -> bool:
    """Whether fields are found by their places in a value, which a sample does not prove."""
    return isinstance(setting, dict) and setting["kind"] == "raw"


def _layouts(raws: Sequence[bytes], size: int) -> Iterator[Setting]:
    """The fields of raw bytes: places with text in all values, and numbers of eight bytes that all are usual ones."""
    found: dict[str, Any] = {}
    raws = raws[:: -(-len(raws) // _LAID_OUT_MOST)]
    start = 0
    while start + _LONG <= size:
        end = start
        while end < size and all(_FIRST_PRINTED <= raw[end] <= _LAST_PRINTED for raw in raws):
            end += 1
        name = f"field{len(found) + 1}"
        if end - start >= _LONG:
            found[name] = {"offset": start, "type": "text", "size": end - start}
        elif _are_usual([int.from_bytes(raw[start : start + _LONG], "big") for raw in raws]):
            found[name] = {"offset": start, "type": "int64"}
        # Numbers begin at multiples of eight bytes, and the texts beside them, too.
        start = -(-max(end, start + 1) // _LONG) * _LONG
    if found and size > _LONG:
        yield {"kind": "raw", "fields": found}


def _are_usual(numbers: Sequence[int]) -> bool:
    return any(numbers) and all(number < _LARGEST for number in numbers)


def _lines(raws: Sequence[bytes]) -> Iterator[Setting]:
    for delimiter in DELIMITERS:
        counts = {raw.count(delimiter.encode()) for raw in raws if b'"' not in raw}
        if len(counts) == 1 and (count := counts.pop()):
            columns = [f"column{number}" for number in range(1, count + 2)]
            listed = ";" if delimiter != ";" else ","
            yield {"kind": "csv", "columns": columns, "delimiter": delimiter, "list_delimiter": listed}


def _are_texts(raws: Sequence[bytes]) -> bool:
    """Whether all of them, but a few, are texts without control characters."""
    return sum(map(_is_text, raws)) >= ENOUGH * len(raws)


def _is_text(raw: bytes) -> bool:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\t\r\n" for character in text)


def _is_plausible(setting: Setting, values: Sequence[object]) -> bool:
    """Whether bytes that any format of their size reads give usual numbers and times."""
    if setting == "long":
        return all(isinstance(value, int) and abs(value) < _LARGEST for value in values if value is not None)
    starts = [value.window_start for value in values if isinstance(value, Windowed)]
    return all(_YEAR_2000_MS <= start < _YEAR_2100_MS for start in starts)

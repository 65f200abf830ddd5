"""The sampled records of a topic as columns: the values of each field, of each list, and of each time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from validator.cli.proposal.changes import Change, Changes, changes_in
from validator.cli.proposal.lines import log_patterns, word_patterns
from validator.cli.proposal.times import Time, times_of
from validator.codecs.one_record import Record, canonical, joined
from validator.model.field_values import Windowed
from validator.model.json_text import Unreadable
from validator.model.schemas import NO_SCHEMAS, Schemas
from validator.settings.fields import SEGMENT
from validator.settings.formats.guesses import ENOUGH, Decoded, Setting, are_lines, decoded, schema_header

_DEEPEST: Final = 5
_LISTS: Final = 100_000
"""A list with more items is not compared."""


@dataclass(frozen=True)
class TopicSample:
    """Records of a topic, in the order of each partition. ``is_whole``: they are all records that the topic has.
    ``formats``: those that its values may have; empty: any."""

    topic: str
    records: tuple[Record, ...]
    is_whole: bool
    formats: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class Columns:
    """A topic's records that have a value. Each column has an entry per record, None where the record has none.

    ``texts``: path -> scalars in the form in which ids and keys are compared. ``scalars``: the same as they are.
    ``lists``: path -> the items of a list, as texts. ``times``: the fields that hold a time. ``format``,
    ``key_format``: as in the file; None: no format reads them. ``plain_format``: that of lines if no pattern cuts them.
    ``changes``: the values are these, and paths lead into rows. ``may_be``: the changes that the values are or may be.
    """

    sample: TopicSample
    records: tuple[Record, ...]
    format: Setting | None
    key_format: Setting | None
    texts: Mapping[str, Sequence[str | None]]
    scalars: Mapping[str, Sequence[object]]
    lists: Mapping[str, Sequence[tuple[str, ...] | None]]
    times: tuple[Time, ...]
    plain_format: Setting | None
    changes: Changes | None = None
    may_be: Changes | None = None

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.sample.topic

    def share(self, path: str) -> float:
        """Share of the records that have the field."""
        column = self.texts[path]
        return sum(text is not None for text in column) / max(1, len(column))


def columns_of(
    sample: TopicSample, schemas: Schemas, like: Columns | None = None, changes: Changes | None = None
) -> Columns:
    """Read the records with the formats that fit, or with those of ``like``. ``changes``: the only records to read."""
    # A null value is a tombstone.
    records = tuple(record for record in sample.records if record.value is not None)
    raws = [record.value for record in records]
    headers = [_header(record, schema_header("value")) for record in records]
    if like is not None and like.format is not None:
        values = plain = decoded(raws, "value", schemas, headers, like.format)
    elif sample.formats:
        tried = (decoded(raws, "value", schemas, headers, setting) for setting in sample.formats)
        values = plain = _first_good(tried, raws)
    else:
        plain = decoded(raws, "value", schemas, headers)
        values = None if plain is None else _by_pattern(raws, plain)
    rows: list[Change | None] = []
    if values is not None and changes is not None:
        rows = [changes.of(value) for value in values.values]
    if changes is not None:
        records = tuple(record for record, row in zip(records, rows, strict=True) if row is not None)
    keys = [record.key if isinstance(record.key, bytes) else None for record in records]
    key_like = None if like is None else like.key_format
    key = decoded(keys, "key", schemas, [_header(record, schema_header("key")) for record in records], key_like)
    scalars: dict[str, list[object]] = {}
    lists: dict[str, list[object]] = {}
    if changes is not None:
        of_rows = [row for row in rows if row is not None]
        _add([row.row for row in of_rows], "$value", "", scalars, lists)
        _add([row.around for row in of_rows], "$envelope", "$envelope.", scalars, lists)
    elif values is not None:
        _add(values.values, "$value", "", scalars, lists)
        if values.reader.items("a") != "a":
            # The format writes lists as texts.
            split = {path: [_items(values.reader.items, one) for one in column] for path, column in scalars.items()}
            lists |= {path: of for path, of in split.items() if any(isinstance(it, list) and len(it) > 1 for it in of)}
    if key is not None and sum(value is not None for value in key.values) >= ENOUGH * len(records):
        _add(key.values, "$key", "$key.", scalars, {})
    for name in sorted({name for record in records for name, _ in record.headers}):
        scalars[f"$header.{name}"] = [_text(_header(record, name)) for record in records]
    texts = {path: [_canonical(one) for one in column] for path, column in scalars.items()}
    texts = {path: column for path, column in texts.items() if any(one is not None for one in column)}
    found = {path: [_texts(one) for one in column] for path, column in lists.items()}
    return Columns(
        sample,
        records,
        None if values is None else values.setting,
        None if key is None else key.setting,
        texts,
        {path: scalars[path] for path in texts},
        {path: column for path, column in found.items() if any(column)},
        tuple(times_of(scalars, [record.timestamp_us for record in records])),
        None if plain is None else plain.setting,
        changes,
        None if values is None else changes_in(values.values),
    )


def _first_good(found: Iterable[Decoded | None], raws: Sequence[bytes | None]) -> Decoded | None:
    """Return the first that reads nearly all values."""
    least = ENOUGH * sum(bool(raw) for raw in raws)
    good = (one for one in found if one is not None and sum(value is not None for value in one.values) >= least)
    return next(good, None)


def _by_pattern(raws: Sequence[bytes | None], values: Decoded) -> Decoded:
    """Read lines with a pattern that cuts them into fields, if there is one."""
    if not are_lines(values.setting):
        return values
    lines = [text for raw in raws if (text := _text(raw))]
    patterns = chain(log_patterns(lines), word_patterns(lines) if values.setting == "text" else ())
    settings = ({"kind": "text", "pattern": pattern} for pattern in patterns)
    return _first_good((decoded(raws, "value", NO_SCHEMAS, like=setting) for setting in settings), raws) or values


def _header(record: Record, name: str) -> bytes | None:
    found = next((value for key, value in reversed(record.headers) if key == name), None)
    return found if isinstance(found, bytes) else None


def _text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode()
    except UnicodeDecodeError:
        return None


def _items(items: object, value: object) -> object:
    assert callable(items)
    try:
        return None if value is None else items(value)
    except Unreadable:
        return None


def _canonical(value: object) -> str | None:
    if value is None or isinstance(value, (list, dict, Windowed)):
        return None
    try:
        return canonical(value)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return None


def _texts(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list) or len(value) > _LISTS:
        return None
    found = tuple(_id(item) for item in value)
    return None if None in found else found  # type: ignore[return-value]


def _id(item: object) -> str | None:
    """An id of one field, or of several."""
    if not isinstance(item, list) or not item:
        return _canonical(item)
    parts = [_canonical(part) for part in item]
    return None if None in parts else joined(parts)


def _add(
    values: Sequence[object],
    whole: str,
    prefix: str,
    scalars: dict[str, list[object]],
    lists: dict[str, list[object]],
) -> None:
    """Add the columns of values. ``whole``: the path of a value without fields. ``prefix``: of the others."""
    of_scalars: dict[str, dict[int, object]] = defaultdict(dict)
    of_lists: dict[str, dict[int, object]] = defaultdict(dict)
    for row, value in enumerate(values):
        for path, one in _fields(value, ()):
            name = prefix + ".".join(path) if path else whole
            (of_lists if isinstance(one, list) else of_scalars)[name][row] = one
    for of, into in ((of_scalars, scalars), (of_lists, lists)):
        for name, column in of.items():
            into[name] = [column.get(row) for row in range(len(values))]
    for name, items in lists.items():
        # A list that always has one item is a field.
        if all(isinstance(of, list) and len(of) == 1 for of in items):
            scalars[f"{name}.0"] = [of[0] for of in items if isinstance(of, list)]


def _fields(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, Windowed):
        yield from _fields(value.key, path)
        yield ("window_start",), value.window_start
        if value.window_end is not None:
            yield ("window_end",), value.window_end
    elif isinstance(value, Mapping):
        for name, one in value.items():
            if len(path) < _DEEPEST and SEGMENT.match(str(name)):
                yield from _fields(one, (*path, str(name)))
    elif value is not None:
        yield path, value

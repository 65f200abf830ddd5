"""Patterns of text: regular expressions with named groups for lines as servers and loggers write them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from validator.settings.formats.guesses import ENOUGH

_ACCESS: Final = (
    r'(?P<host>\S+) \S+ (?P<user>\S+) \[(?P<time>[^\]]+)\] "(?P<method>\S+) (?P<path>\S+)[^"]*" (?P<status>\d+) '
    r"(?P<bytes>\d+|-)"
)
_BY_SERVERS: Final = (_ACCESS + r' "(?P<referer>[^"]*)" "(?P<agent>[^"]*)"', _ACCESS, _ACCESS + " .*")
"""Access logs of Apache and nginx: combined, common, and with further fields."""
_SEPARATORS: Final = (",", ";", "&")
_DELIMITERS: Final = ("::", "||")
"""Those of more than one character, which CSV does not have."""
_PAIR: Final = re.compile(r" *([A-Za-z_][\w.-]*)=(.*)", re.ASCII)
_TOKEN: Final = re.compile(
    r"(?:(?P<name>[A-Za-z_][\w.-]*)=)?"
    r'(?P<value>"[^"]*"|\[[^\]]*\]|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\S*|\S*) *',
    re.ASCII,
)
_TIME: Final = re.compile(r"\[?(?:\d{4}-\d\d-\d\d(?:[ T]\S*)?|\d{10}|\d{13})\]?", re.ASCII)
_LINES: Final = 1_000
_FIELDS_MOST: Final = 40


class _Token(NamedTuple):
    """A part of a line between spaces, quotes or brackets, and the name before it, as in ``id=17``."""

    name: str | None
    value: str


_Column = Sequence[_Token]


def log_patterns(lines: Sequence[str]) -> Iterator[str]:
    """Yield patterns of lines that show their fields: of access logs, with names of values, or with a time."""
    yield from _BY_SERVERS
    some = lines[:_LINES]
    for separator in _SEPARATORS:
        yield from _of_pairs(some, separator)
    rows = [list(_tokens(line)) for line in some]
    columns, rest = _columns(rows), ""
    if not columns and rows:
        # A message at the end has any number of words.
        least = sorted(map(len, rows))[int((1 - ENOUGH) * len(rows))]
        columns, rest = _first_columns(rows, least - 1), " +(?P<rest>.*)"
    if any(_name(column) or _is_time(column) for column in columns):
        yield _pattern(columns) + rest


def word_patterns(lines: Sequence[str]) -> Iterator[str]:
    """Yield patterns of lines that have the same number of fields, whatever these are."""
    some = lines[:_LINES]
    for delimiter in _DELIMITERS:
        width = _usual(line.count(delimiter) + 1 for line in some)
        if 1 < width <= _FIELDS_MOST:
            value = f"[^{delimiter[0]}]*"
            yield re.escape(delimiter).join(f"(?P<field{number}>{value})" for number in range(1, width + 1))
    columns = _columns([list(_tokens(line)) for line in some])
    if columns:
        yield _pattern(columns)


def _usual(lengths: Iterable[int]) -> int:
    """Return the length that nearly all have; 0 if there is none."""
    found = Counter(lengths)
    length, times = max(found.items(), key=lambda it: it[1], default=(0, 0))
    return length if times >= ENOUGH * found.total() else 0


def _of_pairs(lines: Sequence[str], separator: str) -> Iterator[str]:
    """Yield the pattern of lines such as ``id=17, page=/help``."""
    named: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        pairs = [_PAIR.fullmatch(part) for part in line.split(separator)]
        names = tuple(pair[1] for pair in pairs if pair is not None)
        if len(names) == len(pairs) > 1:
            named[names] += 1
    names, times = max(named.items(), key=lambda it: it[1], default=((), 0))
    if times and times >= ENOUGH * len(lines) and len(names) <= _FIELDS_MOST:
        groups = zip(names, _groups(names), strict=True)
        yield f"{separator} *".join(f"{re.escape(name)}=(?P<{group}>[^{separator}]*)" for name, group in groups)


def _tokens(line: str) -> Iterator[_Token]:
    at = 0
    while at < len(line):
        found = _TOKEN.match(line, at)
        if found is None or found.end() == at:
            return
        yield _Token(found["name"], found["value"])
        at = found.end()


def _columns(rows: Sequence[Sequence[_Token]]) -> list[_Column]:
    """Return the tokens of rows by their position; none if the rows differ in length."""
    width = _usual(map(len, rows))
    return _first_columns([row for row in rows if len(row) == width], width) if width > 1 else []


def _first_columns(rows: Sequence[Sequence[_Token]], width: int) -> list[_Column]:
    some = [row for row in rows if len(row) >= width]
    return [[row[at] for row in some] for at in range(width)] if width <= _FIELDS_MOST else []


def _name(column: _Column) -> str | None:
    names = {one.name for one in column}
    return names.pop() if len(names) == 1 else None


def _is_time(column: _Column) -> bool:
    return all(one.name is None and _TIME.fullmatch(one.value) for one in column)


def _pattern(columns: Sequence[_Column]) -> str:
    given = [
        _name(column) or ("time" if _is_time(column) else f"field{number}") for number, column in enumerate(columns, 1)
    ]
    return " +".join(_part(column, group) for column, group in zip(columns, _groups(given), strict=True))


def _part(column: _Column, group: str) -> str:
    """Return the part of a pattern for one column."""
    values, has_names = {one.value for one in column}, any(one.name for one in column)
    name = _name(column)
    if has_names and name is None:
        # Each line has another name here.
        return rf"(?P<{group}>\S+)"
    if name is None and len(values) == 1 and not re.search(r"\w", "".join(values)):
        return re.escape(values.pop())
    before = "" if name is None else f"{re.escape(name)}="
    for first, last in (('"', '"'), ("[", "]")):
        if all(len(value) > 1 and value[0] == first and value[-1] == last for value in values):
            return rf"{before}{re.escape(first)}(?P<{group}>[^{re.escape(last)}]*){re.escape(last)}"
    if all(" " in value and value[0] not in '"[' for value in values):
        return rf"{before}(?P<{group}>\S+ \S+)"
    if any(" " in value for value in values):
        return rf'{before}(?P<{group}>"[^"]*"|\[[^\]]*\]|\S+)'
    return rf"{before}(?P<{group}>\S*)" if name is not None else rf"(?P<{group}>\S+)"


def _groups(names: Sequence[str]) -> list[str]:
    """Return a name of a group for each name of a field."""
    found: list[str] = []
    for name in names:
        group = re.sub(r"\W", "_", name, flags=re.ASCII)
        while group in found:
            group += "_"
        found.append(group)
    return found

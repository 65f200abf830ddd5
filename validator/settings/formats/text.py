"""Plain text: the whole value is one field, or the named groups of a regular expression are the fields."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Self

from pydantic import model_validator

from validator.model.schemas import Schemas
from validator.settings.errors import broken_rule_at
from validator.settings.formats.seam import Format, Part, Path, Unreadable

if TYPE_CHECKING:
    import pyarrow as pa


class Text(Format):
    """Text in UTF-8, as Kafka's `StringSerializer` writes it. `$value` (or `$key`) is the whole text."""

    kind: ClassVar[str] = "text"
    pattern: str | None = None
    r"""Regular expression of the whole text (Python's syntax, ASCII classes), such as
    `(?P<user>\w+) bought (?P<item>.*)`. Its named groups are the fields; `$value` then has none."""

    @model_validator(mode="after")
    def _has_groups(self) -> Self:
        if self.pattern is not None:
            try:
                groups = _compiled(self.pattern).groupindex
            except re.error as error:
                raise broken_rule_at("pattern", f"it is not a regular expression: {error}", "correct it") from None
            if not groups:
                raise broken_rule_at("pattern", "it has no named group", "write (?P<name>...) around each field")
        return self

    def reader(self, part: Part, schemas: Schemas) -> TextReader:
        """The reader of texts."""
        del part, schemas
        return TextReader(self.pattern)

    def check(self, paths: Iterable[tuple[str, Path]]) -> None:
        """Refuse a path that is not a group, or without a pattern, not the whole text."""
        groups = list(_compiled(self.pattern).groupindex) if self.pattern is not None else []
        for place, path in paths:
            if groups and (len(path) != 1 or path[0] not in groups):
                name = ".".join(path) or "the whole text"
                raise broken_rule_at(place, f"{name} is not a group of the pattern", f"use one of {', '.join(groups)}")
            if path and not groups:
                problem = f"{'.'.join(path)} is not a field of a text without a pattern"
                raise broken_rule_at(place, problem, "use $value or $key, or write a pattern with named groups")


@cache
def _reads_alike(pattern: str) -> bool:
    """Whether RE2 certainly finds the same groups as Python: no flags, no groups within repetitions, no syntax that has
    another meaning."""
    return re.search(r"\(\?(?!P<|:)|\)[*+{]|\{,|\[\[:", pattern) is None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def _has_tab(texts: pa.Array) -> bool:
    """Whether a vertical tab is in the memory of ``texts``."""
    data = texts.buffers()[2]
    return data is not None and b"\v" in data.to_pybytes()


@dataclass(frozen=True)
class TextReader:
    """Reads texts. ``pattern``: as in `Text`."""

    pattern: str | None = None
    header: str | None = None

    def value(self, raw: bytes, header: bytes | None = None) -> str | Mapping[str, str | None]:
        """The text, or group -> its text; None for a group that did not take part. Raises Unreadable."""
        del header
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise Unreadable(f"is not UTF-8 text, at byte {error.start}") from None
        if self.pattern is None:
            return text
        found = _compiled(self.pattern).fullmatch(text)
        if found is None:
            raise Unreadable("is a text that the pattern does not match")
        return found.groupdict()

    def items(self, value: object) -> object:
        """Return ``value`` itself: a text has no lists."""
        return value

    def read_columns(
        self, values: pa.Array, paths: Sequence[Path], lists: Sequence[Path], headers: pa.Array | None = None
    ) -> Mapping[Path, pa.Array] | None:
        """As `ColumnReader.read_columns`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from validator.model.arrays import texts_of

        del headers
        if lists:
            return None
        texts = texts_of(values)
        if self.pattern is None:
            return dict.fromkeys(paths, texts)
        if not _reads_alike(self.pattern):
            return None
        try:
            # RE2 has other rules than Python for a vertical tab, and for groups that take no part or are empty.
            found = pc.extract_regex(texts, rf"\A(?:{self.pattern})\z")
        except pa.ArrowInvalid:
            return None
        named = {path: pc.struct_field(found, path[0]) for path in paths}
        certain = pc.invert(pc.match_substring(texts, "\v")) if _has_tab(texts) else pc.is_valid(found)
        for column in named.values():
            certain = pc.and_(certain, pc.greater(pc.binary_length(column), 0))
        if pc.all(certain, skip_nulls=False).as_py():
            return named
        return {path: pc.if_else(certain, column, None) for path, column in named.items()}

"""CSV: a value is one line of fields, by RFC 4180 with a delimiter of choice.

An empty field is null, and `""` is an empty text, as in PostgreSQL's COPY. Any other field is its text, including
white space.
"""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from validator.model.schemas import Schemas
from validator.settings.errors import broken_rule_at
from validator.settings.fields import check_path
from validator.settings.formats.seam import Format, Part, Path, Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

Character = Annotated[str, Field(min_length=1, max_length=1)]


class Csv(Format):
    """A value is one line of CSV (RFC 4180), without a header ([details](#what-decodes)). A field in quotes may hold
    delimiters, line ends and doubled quotes."""

    kind: ClassVar[str] = "csv"
    columns: tuple[str, ...] = Field(min_length=1)
    """The names of the fields, from left to right. The paths in `fields` are these names."""
    delimiter: Character = ","
    """Separator of two fields."""
    list_delimiter: Character = ";"
    """Separator of two ids in a field that is a list of ids."""

    @model_validator(mode="after")
    def _unambiguous(self) -> Self:
        for column in self.columns:
            if "." in check_path(column) or column.startswith("$"):
                raise broken_rule_at("columns", f"{column!r} is not a valid column name", "leave out dots and $")
            if self.columns.count(column) > 1:
                raise broken_rule_at("columns", f"{column} is named twice", "give each column a name of its own")
        for name in ("delimiter", "list_delimiter"):
            if getattr(self, name) in '"\r\n':
                raise broken_rule_at(name, "it is a quote or a line end", "use another character, such as ; or |")
        if self.delimiter == self.list_delimiter:
            raise broken_rule_at("list_delimiter", "it equals delimiter", "use another character")
        return self

    def reader(self, part: Part, schemas: Schemas) -> CsvReader:
        """The reader of lines with these columns and delimiters."""
        del part, schemas
        return CsvReader(self.columns, self.delimiter, self.list_delimiter)

    def check(self, paths: Iterable[tuple[str, Path]]) -> None:
        """Refuse a path that is not a column."""
        for place, path in paths:
            if len(path) != 1 or path[0] not in self.columns:
                name = ".".join(path) or "the whole value"
                raise broken_rule_at(
                    place, f"{name} is not a column of the format", f"use one of {', '.join(self.columns)}"
                )


@dataclass(frozen=True)
class CsvReader:
    """Reads lines with these columns."""

    columns: tuple[str, ...]
    delimiter: str
    list_delimiter: str
    header: str | None = None

    def value(self, raw: bytes, header: bytes | None = None) -> Mapping[str, str | None]:
        """Column -> its text; None for an empty field. Raises Unreadable."""
        del header
        try:
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise Unreadable(f"is not UTF-8 text, at byte {error.start}") from None
        if raw.startswith(codecs.BOM_UTF8):
            raise Unreadable("begins with a byte order mark")
        found = self._fields(text) if '"' in text else self._plain(text)
        if len(found) != len(self.columns):
            raise Unreadable(f"has {len(found)} fields, and {len(self.columns)} columns are configured")
        return dict(zip(self.columns, found, strict=True))

    def items(self, value: object) -> object:
        """The ids in a field, split at the list delimiter; ``value`` itself if it is not a text."""
        if not isinstance(value, str):
            return value
        return value.split(self.list_delimiter) if value else []

    def read_columns(
        self, values: pa.Array, paths: Sequence[Path], lists: Sequence[Path], headers: pa.Array | None = None
    ) -> Mapping[Path, pa.Array] | None:
        """As `ColumnReader.read_columns`, of lines without quotes, line ends inside and byte order marks."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from validator.model.arrays import texts_of

        del headers
        lines = pc.replace_substring_regex(texts_of(values), r"\r?\n\z", "")
        fields = pc.split_pattern(lines, self.delimiter)
        plain = pc.equal(pc.list_value_length(fields), len(self.columns))
        plain = pc.and_(plain, pc.invert(pc.match_substring_regex(lines, '["\r\n]|\\A\ufeff')))
        fields = fields.filter(pc.fill_null(plain, False))
        known = np.flatnonzero(plain.fill_null(False).to_numpy(zero_copy_only=False))
        order = np.full(len(values), -1, np.int64)
        order[known] = np.arange(len(known))
        chosen = pa.array(order, mask=order < 0)
        found = {}
        for path in (*paths, *lists):
            column = pc.list_element(fields, self.columns.index(path[0]))
            column = pc.if_else(pc.equal(column, ""), None, column)
            if path in lists:
                column = pc.split_pattern(column, self.list_delimiter)
            found[path] = column.take(chosen)
        return found

    def _plain(self, text: str) -> list[str | None]:
        """The fields of a line without quotes."""
        line = text.removesuffix("\n").removesuffix("\r") if text[-1:] == "\n" else text
        if "\n" in line or "\r" in line:
            raise Unreadable(_MORE)
        return [field or None for field in line.split(self.delimiter)]

    def _fields(self, text: str) -> list[str | None]:
        """The fields of a line, of which some are in quotes."""
        field = _field_of(self.delimiter)
        found: list[str | None] = []
        at = 0
        while True:
            match = field.match(text, at)
            assert match is not None, "the expression also matches the empty text"
            quoted, plain = match.groups()
            found.append(quoted.replace('""', '"') if quoted is not None else plain or None)
            at = match.end()
            if text[at : at + 1] != self.delimiter:
                break
            at += 1
        if text[at:] not in ("", "\n", "\r\n"):
            raise Unreadable(_MORE if text[at] in "\r\n" else f"has a misplaced quote in field {len(found)}")
        return found


_MORE: Final = "has more than one line"


@functools.cache
def _field_of(delimiter: str) -> re.Pattern[str]:
    """The pattern of one field, in quotes (first group) or without (second group)."""
    return re.compile(rf'"((?:[^"]|"")*)"|([^"\r\n{re.escape(delimiter)}]*)')

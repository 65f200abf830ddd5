"""The interface of a format: its parameters, the fields that a value or a key can have, and how bytes become fields.

docs/ARCHITECTURE.md says how to add one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

from validator.model.json_text import Unreadable
from validator.model.schemas import Schemas
from validator.settings.fields import Frozen

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ColumnReader", "Format", "Part", "Unreadable", "ValueReader"]

Part = Literal["value", "key"]
"""The part of a record that a format is configured for."""
Path = tuple[str, ...]
"""Names from the root of a value; empty for the whole value."""


class ValueReader(Protocol):
    """Reads values, or keys, in Spark's Python workers. It is pickled, so it only has plain values."""

    @property
    def header(self) -> str | None:
        """The header that may name the schema of a record."""

    def value(self, raw: bytes, header: bytes | None = None) -> object:
        """The content of ``raw``: a scalar, a list, or a mapping of fields, in the types of JSON, or float, Decimal,
        bytes, `TypedTime` or `Windowed`. ``header``: that of the record. Raises Unreadable, and `SchemaUnknown` if a
        schema must be looked up first."""

    def items(self, value: object) -> object:
        """The ids in the field ``value``, if the format encodes a list as text; else ``value``. Raises Unreadable."""


@runtime_checkable
class ColumnReader(Protocol):
    """A reader that also reads most records of a batch at once."""

    def read_columns(
        self, values: pa.Array, paths: Sequence[Path], lists: Sequence[Path], headers: pa.Array | None = None
    ) -> Mapping[Path, pa.Array] | None:
        """A column for each of ``paths`` and ``lists``: integers, texts, doubles, booleans, bytes, timestamps, or lists
        of integers or texts. A row is null in all columns unless `ValueReader.value` certainly finds the same; None if
        there is no such row. ``values``: binary, null where a row is not to be read. ``headers``: likewise, if the
        reader has a header."""


class Format(Frozen, ABC):
    """The base of all formats. The docstrings of a format and of its parameters are the text of the reference."""

    kind: ClassVar[str]
    names_all_fields: ClassVar[bool] = False
    """Whether every object has all fields of its schema: none is absent."""

    @property
    def needs_registry(self) -> bool:
        """Whether records name a schema that only a registry has."""
        return False

    @abstractmethod
    def reader(self, part: Part, schemas: Schemas) -> ValueReader:
        """The reader of values or keys. ``schemas``: those of the registry that are known."""

    def check(self, paths: Iterable[tuple[str, Path]]) -> None:
        """Refuse a path that no value can have. ``paths``: pairs of the place in the configuration and the path.
        Raises the error of `broken_rule_at`."""

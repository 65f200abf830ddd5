"""The interface of a format: its parameters, the fields that a value can have, and how bytes become fields.

docs/ARCHITECTURE.md says how to add one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar, Protocol

from validator.settings.fields import Frozen


class Unreadable(ValueError):
    """A value that is not of the format; the message is a clause, such as "is white space only"."""


class ValueReader(Protocol):
    """Reads values in Spark's Python workers. It is pickled, so it only has plain values."""

    def fields(self, raw: bytes) -> Mapping[str, object]:
        """The fields of a value, in the types of JSON: texts, integers, None, lists, objects. Raises Unreadable."""

    def items(self, value: object) -> object:
        """The ids in the field ``value``, if the format encodes a list as text; else ``value``. Raises Unreadable."""


class Format(Frozen, ABC):
    """The base of all formats. The docstrings of a format and of its parameters are the text of the reference."""

    kind: ClassVar[str]

    @abstractmethod
    def reader(self) -> ValueReader | None:
        """The reader of values. None: the value is a JSON object, and `validator.codecs` reads whole batches."""

    def check(self, paths: Iterable[tuple[str, str]]) -> None:
        """Refuse a path that no value can have. ``paths``: pairs of the place in the configuration and the path.
        There are no pairs for parts of the record such as `$key`. Raises the error of `broken_rule_at`."""

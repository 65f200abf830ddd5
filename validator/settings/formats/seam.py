"""What a format of values answers: its parameters, which fields a value can have, and how bytes become fields.

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
    """Reads values in Spark's Python workers. Pickled to them, so that it holds plain values only."""

    def fields(self, raw: bytes) -> Mapping[str, object]:
        """What a JSON object of it would hold: texts, integers, None, lists, objects. Raises Unreadable."""

    def items(self, value: object) -> object:
        """What a list of ids is where a value cannot hold a list; else ``value`` itself. Raises Unreadable."""


class Format(Frozen, ABC):
    """The base of all formats. The docstrings of a format and of its parameters are the text of the reference."""

    kind: ClassVar[str]

    @abstractmethod
    def reader(self) -> ValueReader | None:
        """What reads a value. None: a JSON object, which `validator.codecs` reads, whole batches at once."""

    def check(self, paths: Iterable[tuple[str, str]]) -> None:
        """Refuse a configured field that no value can have (`broken_rule_at`): pairs of place and path. Parts of the
        record (`$key`) are not among them."""

"""Ids of inputs that count apart: (input, id) as one id, so that click 7 and update 7 are two.

One input keeps its integers as they are, for their speed; all other ids become the text ``TOPIC/ID``. No topic name
holds a slash, so that no two collide (docs/decisions/0090-windowed-join.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

SEPARATOR = "/"


@dataclass(frozen=True)
class IdSpace:
    """The ids of the input ``topic``."""

    topic: str
    keeps_integers: bool

    @property
    def prefix(self) -> str:
        """What its text ids begin with."""
        return self.topic + SEPARATOR

    def named(self, number: Column, text: Column) -> tuple[Column, Column]:
        """An id, an integer or else a text, as it is named among the ids of all inputs."""
        if self.keeps_integers:
            return number, self._text(text)
        return F.lit(None).cast("bigint"), self._text(F.coalesce(number.cast("string"), text))

    def named_lists(self, numbers: Column, texts: Column) -> tuple[Column, Column]:
        """Lists of ids, integers and texts apart, likewise. A null id stays null."""
        named_texts = F.transform(texts, self._text)
        if self.keeps_integers:
            return numbers, named_texts
        as_texts = F.transform(numbers, lambda number: self._text(number.cast("string")))
        return F.array().cast("array<bigint>"), F.concat(as_texts, named_texts)

    def _text(self, text: Column) -> Column:
        return F.concat(F.lit(self.prefix), text)

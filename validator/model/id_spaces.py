"""Ids of inputs that count apart: (input, id) as one id, so that click 7 and update 7 are two.

One input keeps its integers as they are, for their speed; all other ids become the text ``TOPIC/ID``. No topic name
holds a slash, so that no two collide (docs/decisions/0090-windowed-join.md).
"""

from __future__ import annotations

from dataclasses import dataclass

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

    def named(self, id_: int | str) -> int | str:
        """An id as it is named among the ids of all inputs."""
        return id_ if self.keeps_integers and type(id_) is int else f"{self.prefix}{id_}"

"""Id spaces of inputs: (input, id) as one id, so that click 7 and update 7 are two ids.

One input keeps its integers, which are faster. All other ids become the text ``TOPIC/ID``. A topic name contains no
slash, so no two ids collide (SEMANTICS 1.2).
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
        """Prefix of its textual ids."""
        return self.topic + SEPARATOR

    def named(self, id_: int | str) -> int | str:
        """Return the name of an id among the ids of all inputs."""
        return id_ if self.keeps_integers and type(id_) is int else f"{self.prefix}{id_}"

"""Commands of the contract that this version does not have yet: refused with a sentence, never half done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Refused:
    """A command that is not built yet; ``instead`` is what helps meanwhile."""

    command: str
    summary: str
    instead: str


REFUSED: Final[tuple[Refused, ...]] = (
    Refused("audit", "recompute everything in one batch", "run `streamproof validate --once` on a new state.path"),
    Refused("bundle", "the smallest set of records that shows a violation", "read violations.json in the state"),
    Refused("replay", "replay a bundle", "read violations.json in the state"),
)
"""Flipped entry by entry: build the command, delete its line."""

CONFIG_INIT: Final = Refused(
    "config init", "propose a configuration from topics", "start from `streamproof config example clickstream`"
)


def sentence(refused: Refused) -> str:
    """The refusal, as the user reads it."""
    return f"{refused.command} is not built yet; {refused.instead}."

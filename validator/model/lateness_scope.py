"""The partitions whose records make an event late to the engine (SEMANTICS 2.9, 2.26)."""

from __future__ import annotations

from typing import Literal

LatenessScope = Literal["partition", "topic", "task", "global"]


def may_move(scope: LatenessScope | None, partition: tuple[str, int], other: tuple[str, int]) -> bool:
    """Return whether records of ``other`` may make an event of ``partition`` late.

    A partition is its topic and its number. ``scope``: None if the pipeline does not declare how its engine measures
    lateness.
    """
    if partition == other or scope == "partition":
        return False
    match scope:
        case "topic":
            return partition[0] == other[0]
        case "task":
            return partition[1] == other[1]
        case _:
            return True

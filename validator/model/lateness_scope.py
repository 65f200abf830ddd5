"""The partitions whose records make an event late to the engine (SEMANTICS 2.9, 2.26, 2.31)."""

from __future__ import annotations

from typing import Literal

LatenessScope = Literal["partition", "idle", "topic", "task", "global"]


def may_move(scope: LatenessScope | None, partition: tuple[str, int], other: tuple[str, int]) -> bool:
    """Return whether records of ``other`` may make an event of ``partition`` late, whatever their order.

    A partition is its topic and its number. ``scope``: None if the pipeline does not declare how its engine measures
    lateness. With `idle` this is the bound for oracles that do not follow pauses.
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

"""Commands of CONTRACT that this version does not implement yet. They are refused with a sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class UnbuiltCommand:
    """A command that is not implemented yet. ``instead``: what the user can do instead."""

    command: str
    summary: str
    instead: str


UNBUILT_COMMANDS: Final[tuple[UnbuiltCommand, ...]] = (
    UnbuiltCommand(
        "audit", "recompute everything in one batch", "run `streamproof validate --once` on a new state.path"
    ),
    UnbuiltCommand("bundle", "the smallest set of records that shows a violation", "read violations.json in the state"),
    UnbuiltCommand("replay", "replay a bundle", "read violations.json in the state"),
)
"""The entry of a command is deleted when the command is implemented."""


def sentence(refused: UnbuiltCommand) -> str:
    """The refusal as a sentence for the user."""
    return f"{refused.command} is not supported yet; {refused.instead}."

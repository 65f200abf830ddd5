"""What ends a run, in a sentence."""

from __future__ import annotations


class CannotVerify(Exception):
    """The validator cannot do its work; the verdict is unknown."""

    exit_status = 3


def first_line(error: BaseException) -> str:
    """The first line of what an error says, cut to what a person reads; its type where it says nothing."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]

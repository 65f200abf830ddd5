"""Findings of the checks of `streamproof doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """The result of one check. A ``note`` requires no action; a ``problem`` says after a semicolon how to fix it."""

    status: Literal["ok", "note", "problem"]
    subject: str
    said: str


def ok(subject: str, said: str) -> Finding:
    """A finding without a problem."""
    return Finding("ok", subject, f"{said}.")


def note(subject: str, said: str) -> Finding:
    """A finding that requires no action but has a consequence."""
    return Finding("note", subject, f"{said}.")


def problem(subject: str, said: str, mend: str) -> Finding:
    """A finding that has to be fixed, and how."""
    return Finding("problem", subject, f"{said}; {mend}.")

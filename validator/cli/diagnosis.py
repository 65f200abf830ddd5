"""What a check of the doctor found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Finding:
    """``note`` is worth knowing and needs no mend; a ``problem`` says its mend after a semicolon."""

    status: Literal["ok", "note", "problem"]
    subject: str
    said: str


def ok(subject: str, said: str) -> Finding:
    """All is well."""
    return Finding("ok", subject, f"{said}.")


def note(subject: str, said: str) -> Finding:
    """Nothing to mend, and a consequence to know."""
    return Finding("note", subject, f"{said}.")


def problem(subject: str, said: str, mend: str) -> Finding:
    """Something to mend."""
    return Finding("problem", subject, f"{said}; {mend}.")

"""The results of the checks of `streamproof doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class CheckResult:
    """The result of one check. A ``note`` requires no action; a ``problem`` says after a semicolon how to fix it."""

    status: Literal["ok", "note", "problem"]
    subject: str
    text: str


def ok(subject: str, text: str) -> CheckResult:
    """A finding without a problem."""
    return CheckResult("ok", subject, f"{text}.")


def note(subject: str, text: str) -> CheckResult:
    """A finding that requires no action but has a consequence."""
    return CheckResult("note", subject, f"{text}.")


def problem(subject: str, text: str, fix: str) -> CheckResult:
    """A finding that has to be fixed, and how."""
    return CheckResult("problem", subject, f"{text}; {fix}.")

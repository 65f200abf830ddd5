"""Exit statuses, and which error ends with which: the table that scripts rely on.

An exception may carry an ``exit_status`` of its own; else it is looked up here by its name. What is in neither is a
failure of ours, and "could not verify" is the honest answer to it.
"""

from __future__ import annotations

from typing import Final

PASS: Final = 0
FAIL: Final = 1
USAGE: Final = 2
UNKNOWN: Final = 3
INTERRUPTED: Final = 130

OF_OUTCOME: Final = {"pass": PASS, "fail": FAIL, "unknown": UNKNOWN}
"""A report's outcome -> exit status."""

OF_ERROR: Final = {
    "validator.state.lock.StateLocked": USAGE,
    "validator.state.identity.StateMismatch": USAGE,
    "validator.state.acknowledgements.UnknownViolation": USAGE,
    "validator.stream.session.SessionUnfit": USAGE,
    "generator.config.GeneratorConfigError": USAGE,
}
"""Errors of others that mean "bad usage or configuration"; by name, since importing them would start Spark."""

EXTRA_OF: Final = {"grafana_api": "grafana", "requests": "grafana"}
"""A package that the base installation lacks -> the extra that brings it (pyproject.toml)."""

OWN_PACKAGES: Final = ("validator.", "generator.", "testbed.", "faults.", "dashboards.")


class UsageError(Exception):
    """A command cannot be done as it was given; the text is one sentence with the mend."""

    exit_status = USAGE


def status_of(error: BaseException) -> int:
    """The exit status that ``error`` ends the command with."""
    if _extra_of(error) is not None:
        return USAGE
    own = getattr(error, "exit_status", None)
    if isinstance(own, int):
        return own
    return OF_ERROR.get(f"{type(error).__module__}.{type(error).__qualname__}", UNKNOWN)


def sentence_of(error: BaseException) -> str:
    """What ``error`` says, as lines for people; a stranger is named by its type and points to --debug."""
    text = str(error).strip()
    if (extra := _extra_of(error)) is not None:
        return f"this command needs more than the base installation: pip install 'streamproof[{extra}]'."
    if isinstance(error, OSError) and error.strerror and not isinstance(error, UsageError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}; fix that and try again."
    if text and type(error).__module__.startswith(OWN_PACKAGES):
        return text
    said = " ".join(text.split()) or "no reason was given"
    return f"{type(error).__name__}: {said}; run with --debug for the traceback, and report it if it looks like ours."


def _extra_of(error: BaseException) -> str | None:
    """The extra that a command lacks, if it is that."""
    lacks = error.name if isinstance(error, ModuleNotFoundError) else None
    return EXTRA_OF.get(lacks.partition(".")[0]) if lacks else None

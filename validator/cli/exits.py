"""Exit statuses and their errors. Scripts rely on this table.

An exception may have an attribute ``exit_status``. Otherwise it is looked up here by its name. Any other exception is
an internal failure, which ends with the status of an unknown verdict ("could not verify").
"""

from __future__ import annotations

from typing import Final

PASS: Final = 0
FAIL: Final = 1
USAGE: Final = 2
UNKNOWN: Final = 3
INTERRUPTED: Final = 130

STATUS_OF_OUTCOME: Final = {"pass": PASS, "fail": FAIL, "unknown": UNKNOWN}
"""A report's outcome -> exit status."""

STATUS_OF_ERROR: Final = {
    "validator.state.lock.StateLocked": USAGE,
    "validator.state.identity.StateMismatch": USAGE,
    "validator.state.acknowledgements.UnknownViolation": USAGE,
    "validator.stream.session.SessionUnfit": USAGE,
    "generator.config.GeneratorConfigError": USAGE,
}
"""Errors of other packages that mean "bad usage or configuration", by name, since importing them would load Spark."""

EXTRA_OF: Final = {"grafana_api": "grafana", "opentelemetry": "otlp", "requests": "grafana"}
"""A package that the base installation lacks -> the extra that installs it (pyproject.toml)."""

OWN_PACKAGES: Final = ("validator.", "generator.", "testbed.", "faults.", "dashboards.")


class UsageError(Exception):
    """A command cannot be executed with the given arguments. The message is one sentence that says how to fix it."""

    exit_status = USAGE


def status_of(error: BaseException) -> int:
    """The exit status of a command that ends with ``error``."""
    if _extra_of(error) is not None:
        return USAGE
    own = getattr(error, "exit_status", None)
    if isinstance(own, int):
        return own
    return STATUS_OF_ERROR.get(f"{type(error).__module__}.{type(error).__qualname__}", UNKNOWN)


def sentence_of(error: BaseException) -> str:
    """The message of ``error`` for users. A foreign exception is shown with its type and a hint at --debug."""
    text = str(error).strip()
    if (extra := _extra_of(error)) is not None:
        return f"this command needs more than the base installation: pip install 'streamproof[{extra}]'."
    if isinstance(error, OSError) and error.strerror and not isinstance(error, UsageError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror}; fix that and try again."
    if text and type(error).__module__.startswith(OWN_PACKAGES):
        return text
    reason = " ".join(text.split()) or "no reason was given"
    return (
        f"{type(error).__name__}: {reason}; run with --debug for the traceback, and report it if it looks like a "
        "defect of streamproof."
    )


def _extra_of(error: BaseException) -> str | None:
    """The extra whose absence caused ``error``; None for any other cause."""
    lacks = error.name if isinstance(error, ModuleNotFoundError) else None
    return EXTRA_OF.get(lacks.partition(".")[0]) if lacks else None

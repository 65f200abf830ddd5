"""Errors of fault injection. Each message is one sentence for the operator.

FaultError
├── FaultConfigError      the file cannot be used as it is                        (exit status 2)
├── FaultRefused          the fault exceeds a limit, or cannot be injected        (exit status 2)
│   └── Unreachable       a proxy, broker, Docker or cluster does not answer now  (exit status 2)
├── NotVerified           no probe showed that the fault is active                (exit status 3)
├── NotHealed             no probe showed that the fault is healed                (exit status 3)
└── NotPublished          the faults topic did not accept a record                (exit status 3)
"""

from __future__ import annotations


class FaultError(Exception):
    """Base of the errors of fault injection."""

    exit_status = 3


class FaultConfigError(FaultError):
    """The configuration cannot be used. The message names the file, the field and the fix."""

    exit_status = 2


class FaultRefused(FaultError):
    """A fault, or a step of it, was refused. A run that ends with this error has changed nothing."""

    exit_status = 2


class Unreachable(FaultRefused):
    """A proxy, a broker, a container engine or a cluster does not answer now. A retry may succeed."""


class NotVerified(FaultError):
    """The fault was injected and healed, but no probe showed that it was active, or it ended early.

    Also raised if a paused process has ended.
    """


class NotHealed(FaultError):
    """A fault is not known to be healed. The message says which one and what to do."""


class NotPublished(FaultError):
    """The faults topic did not accept a record."""

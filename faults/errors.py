"""What can go wrong with a fault. Each message is one sentence for a person.

FaultError
├── FaultConfigError      the file cannot be used as it is                        (exit status 2)
├── FaultRefused          it would do more harm than was asked for, or cannot be  (exit status 2)
│   └── Unreachable       a proxy, broker, Docker or cluster does not answer now   (exit status 2)
├── NotVerified           a probe did not show that the fault is in               (exit status 3)
├── NotHealed             a probe did not show that the fault is gone             (exit status 3)
└── NotPublished          the faults topic did not accept a record                (exit status 3)
"""

from __future__ import annotations


class FaultError(Exception):
    """Any of them."""

    exit_status = 3


class FaultConfigError(FaultError):
    """The configuration cannot be used; the message names the file, the field and the mend."""

    exit_status = 2


class FaultRefused(FaultError):
    """The fault was not started, and nothing was changed."""

    exit_status = 2


class Unreachable(FaultRefused):
    """A proxy, a broker, a container engine or a cluster that has to be asked does not answer now; later it may."""


class NotVerified(FaultError):
    """The fault was injected and healed, but no probe showed it while it lasted, or it ended early.

    Also: a process that was to be paused ended.
    """


class NotHealed(FaultError):
    """Something is still broken; the message says what and how to go on."""


class NotPublished(FaultError):
    """The faults topic took no record."""

"""A violation: the same value from the core through the table of violations to the report."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """A violation of a class, of a cell or of the results of a partition, after the batch that changed it.

    The core finds it. ``id``: a stable short name. ``state``: suspected, confirmed or retracted. ``count``:
    contributions in it now. ``ids``: examples. ``first_us``: the instant since which it is on record. ``changed_us``:
    the lookup instant of the batch.

    The commit adds ``phase`` and ``fault``, from ``at_us``. The report adds the acknowledgement; ``acknowledged``: its
    reason.

    Not published: ``confirmed``, ``retracted``: contributions that the batch confirmed, and confirmed ones that it
    retracted. ``confirmed_now``: those that are confirmed now; 0 if the violation is read back. ``provable_us``: the
    first instant at which it could be proven.
    """

    id: str
    violation_class: str
    state: str
    window_start_us: int | None
    key: str
    count: int
    ids: tuple[str, ...]
    first_us: int | None
    changed_us: int
    phase: str = "control"
    fault: str | None = None
    acknowledged: str | None = None
    explanation: str = ""
    acknowledged_by: str | None = None
    acknowledged_at_us: int | None = None
    confirmed: int = 0
    retracted: int = 0
    confirmed_now: int = 0
    provable_us: int | None = None
    at_us: int | None = None


def violation_id(name: str, window_start_us: int, key: str | None) -> str:
    """Return a stable short name of the violation of class ``name`` in a cell."""
    parts = [name, str(window_start_us), *([] if key is None else [key])]
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:16]


def state_of(count: int, confirmed_now: int) -> str:
    """Return the state of a violation with these contributions."""
    return "retracted" if count == 0 else "confirmed" if confirmed_now else "suspected"

"""What every kind of fault can do: the package of injector, probes and healing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from faults.errors import FaultError, FaultRefused, Unreachable
from faults.facts import Facts
from faults.fault import Fault

_Item = TypeVar("_Item")


def for_each(items: Iterable[_Item], mend: Callable[[_Item], object]) -> None:
    """``mend`` all, also those behind one that cannot be mended.

    Raises FaultRefused with what each of these said; Unreachable where one of them may be mended if it is tried again.
    """
    failed: list[FaultError | OSError] = []
    for item in items:
        try:
            mend(item)
        except (FaultError, OSError) as error:
            failed.append(error)
    if failed:
        kind = Unreachable if any(isinstance(error, Unreachable) for error in failed) else FaultRefused
        raise kind(" ".join(dict.fromkeys(map(str, failed))))


class Injection(Protocol):
    """One fault on its targets. ``heal`` and ``is_gone`` work from the fault and its facts alone, in any process."""

    facts: Facts

    def prepare(self) -> None:
        """Measure what is there before, into ``facts``. Changes nothing. Raises FaultRefused."""

    def inject(self) -> None:
        """Break it; may add to ``facts``."""

    def hold(self) -> None:
        """Called again and again while the fault lasts. Raises NotVerified where it is seen to be gone already."""

    def is_in(self) -> bool:
        """Measured: whether the fault shows."""

    def heal(self) -> None:
        """Mend it. May be called again, and where nothing was injected. Raises Unreachable to be asked again."""

    def is_gone(self) -> bool:
        """Measured: whether all is as before. Raises Unreachable to be mended and asked again."""


@runtime_checkable
class Explains(Protocol):
    """An injection that is told by another one why it is not in, or not gone."""

    def why_not(self) -> str:
        """What was said last, in one line; nothing where nothing was."""


def why_not(injected: Injection) -> str:
    """What it has to say about a probe that shows nothing, in brackets after a space; or nothing."""
    said = injected.why_not() if isinstance(injected, Explains) else ""
    return f" ({said})" if said else ""


class Maker(Protocol):
    """Makes the injection of a fault: new, or with the facts of the journal."""

    def __call__(self, fault: Fault, facts: Facts, state: Path) -> Injection:
        """``state`` is the state folder of the run."""

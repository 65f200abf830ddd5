"""Which violations a planned fault explains: those that its plan expects, of its own time, and no others.

Alerts leave them out. A fault that never recovers keeps later violations to its name (SEMANTICS section 6), so what a
plan expects ends some time after the healing: a mute without an end would hide a true break.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from validator.measure.phases import healed_us, injected
from validator.model.classes import EXPECTABLE
from validator.model.snapshot import FaultWindow

MINUTE_US: Final = 60_000_000


def expected(
    windows: Sequence[FaultWindow],
    by_fault: Mapping[tuple[str, str], int],
    confirmed_by_minute: Mapping[tuple[str, str], Mapping[int, int]],
    within_us: int,
) -> dict[tuple[str, str], int]:
    """(fault's name, class) -> confirmed violations, not retracted, that the fault's plan expects.

    ``by_fault``: (fault's name, class) -> confirmed less retracted; ``confirmed_by_minute``: of the same, what was
    confirmed in each minute. ``within_us``: how long after the healing they may still be confirmed. Violations are told
    by the fault's name, so where faults share one, all of them must expect the class.
    """
    found: dict[tuple[str, str], int] = {}
    for (name, of_class), count in by_fault.items():
        alike = [window for window in injected(windows) if window.name == name]
        if not alike or any(of_class not in window.expects for window in alike):
            continue
        until = _until_us(alike, within_us)
        later = 0
        if until is not None:
            minutes = confirmed_by_minute.get((name, of_class), {})
            later = sum(confirmed for minute, confirmed in minutes.items() if minute * MINUTE_US > until)
        # What was taken back may be of either time: then less is expected, and an alert may fire that need not.
        if count > later:
            found[name, of_class] = count - later
    return found


def expected_now(windows: Sequence[FaultWindow], now_us: int, within_us: int) -> frozenset[str]:
    """The classes that a fault's plan expects at this instant."""
    found: set[str] = set()
    for window in injected(windows):
        until = _until_us([window], within_us)
        if (window.injected_us or 0) <= now_us and (until is None or now_us <= until):
            found |= window.expects & set(EXPECTABLE)
    return frozenset(found)


def _until_us(windows: Sequence[FaultWindow], within_us: int) -> int | None:
    """None where one of them is not healed."""
    healed = [healed_us(window) for window in windows]
    known = [instant for instant in healed if instant is not None]
    return max(known) + within_us if len(known) == len(healed) else None

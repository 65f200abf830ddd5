"""The violations that a planned fault explains: those that its plan expects, during its own time, and no others.

Alerts leave them out. Later violations stay attributed to a fault, also after its recovery (SEMANTICS 6.3). So a
plan expects violations only until some time after the healing, so that alerts do not leave out real violations.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from validator.measure.phases import healed_us, injected
from validator.model.classes import EXPECTABLE
from validator.model.snapshot import FaultWindow

MINUTE_US: Final = 60_000_000
UNHEALED_US: Final = 24 * 60 * MINUTE_US
"""Longest time of expectation for a fault that is never reported as healed: the fault runner may have died."""
NO_MINUTE: Final = -1
"""Stands for the minute of violations whose minute of confirmation is no longer known. No fault covers it."""


def expected(
    windows: Sequence[FaultWindow],
    by_fault: Mapping[tuple[str, str], int],
    confirmed_by_minute: Mapping[tuple[str, str], Mapping[int, int]],
    within_us: int,
) -> dict[tuple[str, str], int]:
    """Return (fault's name, class) -> confirmed violations, not retracted, that the fault's plan expects.

    ``by_fault``: (fault's name, class) -> confirmed less retracted. ``confirmed_by_minute``: the same key -> minute ->
    violations confirmed in it. ``within_us``: time after the healing within which they may be confirmed. Violations are
    attributed by the fault's name. If faults share a name, all of them must expect the class, and a violation confirmed
    between two of them is expected by neither.
    """
    by_name: dict[str, list[FaultWindow]] = {}
    for window in injected(windows):
        by_name.setdefault(window.name, []).append(window)
    found: dict[tuple[str, str], int] = {}
    for (name, of_class), count in by_fault.items():
        alike = by_name.get(name, [])
        if not alike or any(of_class not in window.expects for window in alike):
            continue
        spans = _spans(alike, within_us)
        minutes = confirmed_by_minute.get((name, of_class), {})
        unexpected = sum(confirmed for minute, confirmed in minutes.items() if not _covers(spans, minute))
        # A retracted violation may have been confirmed within the spans or outside. It is taken from the expected ones,
        # so an alert may fire needlessly.
        if count > unexpected:
            found[name, of_class] = count - unexpected
    return _less_retracted(found, by_fault)


def merged(
    windows: Sequence[FaultWindow], name: str, minutes: Mapping[int, int], oldest: int, within_us: int
) -> dict[int, int]:
    """Return ``minutes`` of the faults ``name``, with those before ``oldest`` merged into at most two.

    ``minutes``: minute -> confirmed in it. ``within_us``: as in `expected`. Merging does not change the result of
    `expected`: a fault covers one of the two minutes; no fault covers the other (`NO_MINUTE`). Minutes since the
    injection of a fault without a reported healing stay, because the report decides which of them the fault covers.
    """
    alike = [window for window in injected(windows) if window.name == name]
    spans = _spans(alike, within_us)
    unhealed = [window.injected_us or 0 for window in alike if healed_us(window) is None]
    oldest = min([oldest, *(since // MINUTE_US for since in unhealed)])
    covered = [minute for minute in minutes if minute < oldest and _covers(spans, minute)]
    found: dict[int, int] = {}
    for minute, confirmed in minutes.items():
        place = minute if minute >= oldest else covered[0] if _covers(spans, minute) else NO_MINUTE
        found[place] = found.get(place, 0) + confirmed
    return found


def expected_now(windows: Sequence[FaultWindow], now_us: int, within_us: int) -> frozenset[str]:
    """Return the classes that the plan of any fault expects at ``now_us``."""
    found: set[str] = set()
    for window in injected(windows):
        [(since, until)] = _spans([window], within_us)
        if since <= now_us <= until:
            found |= window.expects & set(EXPECTABLE)
    return frozenset(found)


def _less_retracted(
    found: dict[tuple[str, str], int], by_fault: Mapping[tuple[str, str], int]
) -> dict[tuple[str, str], int]:
    """Subtract violations that were confirmed under one fault and are recorded as retracted under another."""
    for (_, of_class), count in by_fault.items():
        owed = max(0, -count)
        for place in [place for place in found if place[1] == of_class]:
            taken = min(owed, found[place])
            found[place] -= taken
            owed -= taken
    return {place: count for place, count in found.items() if count}


def _spans(windows: Sequence[FaultWindow], within_us: int) -> list[tuple[int, int]]:
    """Return the spans from each injection to the instant after which no violation of the fault is expected.
    ``windows`` are in order; overlapping spans are merged."""
    spans: list[tuple[int, int]] = []
    for window in windows:
        since = window.injected_us or 0
        healed = healed_us(window)
        until = (since + UNHEALED_US if healed is None else healed) + within_us
        if spans and since <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], until))
        else:
            spans.append((since, until))
    return spans


def _covers(spans: Sequence[tuple[int, int]], minute: int) -> bool:
    start = minute * MINUTE_US
    at = bisect_right(spans, start + MINUTE_US - 1, key=lambda span: span[0])
    return at > 0 and start <= spans[at - 1][1]

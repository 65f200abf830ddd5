"""How the demo's phases are measured: a baseline from a control phase that is short, by the length of its windows."""

from __future__ import annotations

import math
from typing import Final

_RATE_WINDOWS: Final = 8
"""Windows in the mean of the recovery detector's rate at most, as in campaigns, because results come in bursts."""
_RATE_SECONDS_LEAST: Final = 4
_LONG_SECONDS: Final = 60
_LEAST_SECONDS: Final = range(10, 3600)


def window_seconds(seconds: float, *, is_scenario: bool) -> int:
    """Five seconds; one in a short demo and on a chaos day, so that a rate is over several windows: each is answered in
    a burst, and one that comes a second late must be no change."""
    return 5 if seconds >= _LONG_SECONDS and not is_scenario else 1


def control_seconds(seconds: float, *, is_scenario: bool) -> float:
    """Before the fault of a demo of so many seconds; on a day, that of one kind."""
    return seconds / 3 if is_scenario else seconds / 2


def least_seconds(*, is_scenario: bool) -> int:
    """The shortest demo whose control phase holds what a fault is compared with: two rates."""
    return next(seconds for seconds in _LEAST_SECONDS if _has_baseline(seconds, is_scenario=is_scenario))


def measures(control: float, window: int) -> dict[str, object]:
    """The section of that name of the sidecar, for a control phase and windows of so many seconds."""
    rate_over = f"{_rate_seconds(control, window):g}s"
    return {
        # The first results of a real engine are delayed; a baseline that included them would hide a fault's cost.
        "warm_up": f"{_warm_up_seconds(control):g}s",
        "control_least": f"{max(1.0, min(10.0, control / 2)):g}s",
        "moving_rate": rate_over,
        "stable_for": rate_over,
    }


def _has_baseline(seconds: int, *, is_scenario: bool) -> bool:
    """Whether two rates fit."""
    control, window = (
        control_seconds(seconds, is_scenario=is_scenario),
        window_seconds(seconds, is_scenario=is_scenario),
    )
    return _usable_seconds(control) > 2 * _rate_seconds(control, window)


def _rate_seconds(control: float, window: int) -> int:
    """Whole windows, because each produces a burst of results and half a window would look like a change of rate."""
    windows = (_usable_seconds(control) - 1) // 2 // window
    least = max(2, math.ceil(_RATE_SECONDS_LEAST / window))
    return max(least, min(_RATE_WINDOWS, windows)) * window


def _usable_seconds(control: float) -> int:
    """The control phase without its warm-up, in whole seconds, as the sidecar counts."""
    return math.floor(control) - math.ceil(_warm_up_seconds(control))


def _warm_up_seconds(control: float) -> float:
    return max(1.0, control / 5)

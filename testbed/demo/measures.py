"""Settings for the measures of the demo's phases. They give a baseline from a short control phase, and depend on the
length of the windows."""

from __future__ import annotations

import math
from typing import Final

_RATE_WINDOWS: Final = 8
"""Maximum number of windows in the mean rate of the recovery detector, as in campaigns: results come in bursts."""
_RATE_SECONDS_LEAST: Final = 4
_LONG_SECONDS: Final = 60
_LEAST_SECONDS: Final = range(10, 3600)


def window_seconds(seconds: float, *, is_scenario: bool) -> int:
    """Return the window length: 5 s, or 1 s in a short demo and in a scenario. Results come in one burst per window,
    so a rate must span several windows: a burst that is a second late must not look like a change."""
    return 5 if seconds >= _LONG_SECONDS and not is_scenario else 1


def control_seconds(seconds: float, *, is_scenario: bool) -> float:
    """Return the seconds before the fault in a demo of ``seconds``. A scenario here has a single fault."""
    return seconds / 3 if is_scenario else seconds / 2


def least_seconds(*, is_scenario: bool) -> int:
    """Return the shortest length of a demo that gives a baseline: its control phase without the warm-up must be longer
    than two intervals over which a rate is measured."""
    return next(seconds for seconds in _LEAST_SECONDS if _has_baseline(seconds, is_scenario=is_scenario))


def measures(control: float, window: int) -> dict[str, object]:
    """Return the sidecar's section ``measures`` for a control phase and windows of this many seconds."""
    rate_over = f"{_rate_seconds(control, window):g}s"
    return {
        # The first results of a real engine are delayed. A baseline with them would hide a fault's cost.
        "warm_up": f"{_warm_up_seconds(control):g}s",
        "control_least": f"{max(1.0, min(10.0, control / 2)):g}s",
        "moving_rate": rate_over,
        "stable_for": rate_over,
    }


def _has_baseline(seconds: int, *, is_scenario: bool) -> bool:
    """Return whether the control phase without its warm-up is longer than two measuring intervals of the rate."""
    control, window = (
        control_seconds(seconds, is_scenario=is_scenario),
        window_seconds(seconds, is_scenario=is_scenario),
    )
    return _usable_seconds(control) > 2 * _rate_seconds(control, window)


def _rate_seconds(control: float, window: int) -> int:
    """Return the seconds over which a rate is measured: a whole number of windows. Each window produces a burst of
    results, so an interval with half a window would look like a change."""
    windows = (_usable_seconds(control) - 1) // 2 // window
    least = max(2, math.ceil(_RATE_SECONDS_LEAST / window))
    return max(least, min(_RATE_WINDOWS, windows)) * window


def _usable_seconds(control: float) -> int:
    """Return the control phase without its warm-up, in whole seconds, as the sidecar counts."""
    return math.floor(control) - math.ceil(_warm_up_seconds(control))


def _warm_up_seconds(control: float) -> float:
    return max(1.0, control / 5)

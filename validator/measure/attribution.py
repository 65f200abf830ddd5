"""Phase and fault of an instant, from the fault windows of the faults topic.

Source: SEMANTICS section 6: control before a fault, failure from injected to healed, recovery after healed.
"""

from __future__ import annotations

from collections.abc import Sequence

from validator.model.snapshot import FaultWindow


def phase_of(instant_us: int, windows: Sequence[FaultWindow]) -> tuple[str, str | None]:
    """Return (phase, fault name) of an instant: the newest active fault, else the last one that was healed before."""
    active = [w for w in windows if _began(w, instant_us) and not _healed(w, instant_us)]
    if active:
        newest = max(active, key=lambda w: w.injected_us or 0)
        return "failure", newest.name
    over = [w for w in windows if _healed(w, instant_us)]
    if over:
        return "recovery", max(over, key=lambda w: w.healed_us or 0).name
    return "control", None


def _began(window: FaultWindow, instant_us: int) -> bool:
    return window.injected_us is not None and window.injected_us <= instant_us


def _healed(window: FaultWindow, instant_us: int) -> bool:
    return window.healed_us is not None and window.healed_us <= instant_us

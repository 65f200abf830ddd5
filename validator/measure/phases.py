"""The phases of a run: control before a fault, failure until it is healed, recovery until it has recovered.

Source: SEMANTICS 6.1 and 6.3. After a fault that has recovered, control begins again, as the baseline of the next
fault. After one that has not recovered, recovery lasts until the next fault. `phase_at` is the only definition: of the
phases of the report, of the phase of a latency and of the phase of a violation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from validator.model.snapshot import FaultWindow


@dataclass(frozen=True)
class PhaseSpan:
    """One phase: its name, its fault (None: control), from ``start_us`` to before ``end_us`` (None: it lasts)."""

    phase: str
    fault: FaultWindow | None
    start_us: int
    end_us: int | None


def injected(windows: Sequence[FaultWindow]) -> list[FaultWindow]:
    """Return the faults whose injection is known, in order."""
    return sorted((w for w in windows if w.injected_us is not None), key=lambda w: (w.injected_us or 0, w.id))


def healed_us(window: FaultWindow) -> int | None:
    """Return the instant at which a fault was healed. It is not before the injection, even if the reporting clocks
    differ."""
    if window.healed_us is None:
        return None
    return max(window.healed_us, window.injected_us or window.healed_us)


def phases(
    windows: Sequence[FaultWindow], recovered_us: Mapping[str, int], since_us: int | None, until_us: int | None = None
) -> list[PhaseSpan]:
    """Return the phases since ``since_us`` (None: since the first fault), in order and without gaps; none without a
    fault.

    ``recovered_us``: fault's id -> instant of its recovery. ``until_us``: end of the last phase (None: it lasts).
    """
    faults = injected(windows)
    if not faults:
        return []
    changes = {
        instant
        for w in faults
        for instant in (w.injected_us, healed_us(w), _over_us(w, recovered_us))
        if instant is not None
    }
    start = min(changes) if since_us is None else since_us
    edges = [start, *sorted(c for c in changes if c > start and (until_us is None or c < until_us)), until_us]
    found: list[PhaseSpan] = []
    for begin, end in pairwise(edges):
        if begin is None or begin == end:  # only the last edge is None
            continue
        name, fault = phase_at(begin, faults, recovered_us)
        if found and (found[-1].phase, found[-1].fault) == (name, fault):
            found[-1] = PhaseSpan(name, fault, found[-1].start_us, end)
        else:
            found.append(PhaseSpan(name, fault, begin, end))
    return found


def _over_us(window: FaultWindow, recovered_us: Mapping[str, int]) -> int | None:
    """Return the instant from which a fault is both healed and recovered."""
    healed = healed_us(window)
    return None if healed is None or window.id not in recovered_us else max(healed, recovered_us[window.id])


def phase_at(
    instant_us: int, faults: Sequence[FaultWindow], recovered_us: Mapping[str, int]
) -> tuple[str, FaultWindow | None]:
    """Return (phase, its fault) of an instant, as SEMANTICS 6.1 and 6.3 define them. Control has no fault.

    ``faults``: those that `injected` returns. ``recovered_us``: fault's id -> instant of its recovery, as far as it is
    known. Until it is known, recovery lasts.
    """
    fault = fault_at(instant_us, faults)
    if fault is None:
        return "control", None
    if _is_active(fault, instant_us):
        return "failure", fault
    over = _over_us(fault, recovered_us)
    return ("control", None) if over is not None and over <= instant_us else ("recovery", fault)


def fault_at(instant_us: int, faults: Sequence[FaultWindow]) -> FaultWindow | None:
    """Return the fault to which an instant is attributed: the newest active fault, else the last one that was healed;
    None before the first injection.

    ``faults``: those that `injected` returns. An instant after the recovery stays attributed to the fault. Its effects
    can outlast the recovery of the output rate.
    """
    before = [w for w in faults if (w.injected_us or 0) <= instant_us]
    active = [w for w in before if _is_active(w, instant_us)]
    return active[-1] if active else max(before, key=lambda w: healed_us(w) or 0, default=None)


def _is_active(window: FaultWindow, instant_us: int) -> bool:
    healed = healed_us(window)
    return healed is None or healed > instant_us

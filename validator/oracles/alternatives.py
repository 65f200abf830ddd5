"""Other values of one parameter of an oracle, with which results may have been computed, and the starts of its cells
(SEMANTICS 4.28)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from validator.oracles.guesses import MINUTE, ZONES
from validator.oracles.seam import Oracle
from validator.oracles.sliding_window import SlidingWindow
from validator.oracles.windows import UTC_NAMES, Windows
from validator.settings.durations import format_duration

if TYPE_CHECKING:
    from validator.model.arrays import Bools, Ints


_QUARTER: Final = 15 * MINUTE
"""Offsets of time zones are multiples of it."""


class Alternative(NamedTuple):
    """An oracle in which only ``parameter`` differs: it is ``value`` instead of ``configured``.

    ``moves_starts``: whether results show it by other starts. If not, it fits any event that is named in the adjacent
    window, since its time within its own window is not known.
    """

    parameter: str
    configured: str
    value: str
    oracle: Oracle
    moves_starts: bool = True


def alternatives(oracle: Oracle, named: Sequence[Ints]) -> Iterator[Alternative]:
    """Yield the other values of each parameter that may explain the window starts that results name. ``named``: the
    sorted starts of each event. Only windows on a grid have such parameters."""
    import numpy as np

    if not isinstance(oracle, Windows) or not named:
        return
    starts = np.unique(np.concatenate(named))
    steps = np.diff(starts)
    # Windows that no result names leave gaps, so the grid is at most the smallest difference, and divides all of them.
    grids = sorted({int(steps.min()), int(np.gcd.reduce(steps))}) if len(steps) else []
    if isinstance(oracle, SlidingWindow):
        longest = max(int(each[-1] - each[0]) for each in named) + oracle.slide
        found = [("size", longest), *(("slide", grid) for grid in grids)]
    else:
        found = [("size", grid) for grid in grids]
    grid = oracle.grid_us
    found.append(("offset", int(starts[0] % grid)))
    for parameter, value in found:
        if value != getattr(oracle, parameter):
            durations = (format_duration(getattr(oracle, parameter)), format_duration(value))
            yield Alternative(f"oracle.{parameter}", *durations, oracle.model_copy(update={parameter: value}))
    closed = "right" if oracle.closed == "left" else "left"
    yield Alternative("oracle.closed", oracle.closed, closed, oracle.model_copy(update={"closed": closed}), False)
    # Windows of a quarter of an hour or less are the same in all zones.
    for zone in ("UTC", *ZONES) if oracle.closed == "left" and oracle.size > _QUARTER else ():
        if zone != oracle.time_zone and not (zone == "UTC" and oracle.time_zone in UTC_NAMES):
            other = oracle.model_copy(update={"time_zone": zone})
            yield Alternative("oracle.time_zone", oracle.time_zone, zone, other, oracle.named == "instant")


def read_by(oracle: Oracle, other: Oracle, start_us: int) -> int:
    """Return the start that ``other`` reads where ``oracle`` reads ``start_us``: a result may name a wall time."""
    if not (isinstance(oracle, Windows) and isinstance(other, Windows)) or oracle.time_zone == other.time_zone:
        return start_us
    return oracle.read_by(other, start_us)


def begins(oracle: Oracle, starts_us: Ints) -> Bools:
    """Return at which of these instants a cell of the oracle begins. Cells without a start begin anywhere."""
    import numpy as np

    from validator.model.arrays import ABSENT

    found: Bools = starts_us == ABSENT
    # With `closed: right` the start of a window is the last instant of the window before.
    for later_us in (0, 1):
        rows, cells = oracle.assigned(np.where(found, 0, starts_us) + later_us)
        rows = np.arange(len(starts_us)) if rows is None else rows
        found[rows[cells == starts_us[rows]]] = True
    return found

"""Tumbling windows on a wall clock by brute force, and random worlds of them: every instant is looked at one by one.

The clock is a toy one. It skips and repeats times that are about as long as the windows, while the world's events
arrive.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from functools import cached_property
from random import Random
from typing import Final

from pydantic import PrivateAttr

from tests.property.history import Cell, History, Timing
from tests.property.spark_histories import BASE_US, SCALE, Case, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed, World
from validator.model.wall_clock import WallClock
from validator.oracles.tumbling_window import TumblingWindow

CHANGES: Final = (15, 38, 52, 66, 85)
AHEAD: Final = (2, 14, 1, 9, -4, 6)
"""How far the clock is ahead before the first change, between two changes and after the last one."""
_INSTANTS: Final = range(-1_000, 8_000)
"""All events lie in it."""


def shown_at(instant: int) -> int:
    """The time on the toy clock."""
    return instant + AHEAD[sum(change <= instant for change in CHANGES)]


@functools.cache
def windows(size: int, offset: int) -> dict[int, tuple[int, int]]:
    """Number of a window -> its first instant and the instant after its last one."""
    found: dict[int, tuple[int, int]] = {}
    for instant in _INSTANTS:
        number = (shown_at(instant) - offset) // size
        found[number] = (found.get(number, (instant, 0))[0], instant + 1)
    return found


def base_of(unit_us: int) -> int:
    """The instant 0 of the toy clock, of which an instant takes ``unit_us``. Histories are stretched from there on, and
    then perhaps again (`in_runs`)."""
    return BASE_US * unit_us // SCALE if unit_us >= SCALE else 0


@dataclass(frozen=True)
class ZonedTiming(Timing):
    """The declared timing of a pipeline with windows on the toy clock. ``unit_us``: length of one of its instants."""

    unit_us: int = 1

    @property
    def base_us(self) -> int:
        """The instant 0 of the toy clock."""
        return base_of(self.unit_us)

    def cells(self, key: str, event_time_us: int) -> tuple[Cell, ...]:
        """The window of the time on the clock."""
        return ((self.base_us + self.unit_us * self._window(event_time_us)[0], key),)

    def end(self, cell: Cell) -> int:
        """The instant after the last one of the window that contains the cell's start."""
        return self.base_us + self.unit_us * self._window(cell[0])[1]

    def _window(self, instant_us: int) -> tuple[int, int]:
        size, offset = self.window_us // self.unit_us, self.window_offset_us // self.unit_us
        return windows(size, offset)[(shown_at((instant_us - self.base_us) // self.unit_us) - offset) // size]


class ZonedWorld(World):
    """One random world with windows on the toy clock."""

    def _timing(self) -> Timing:
        known = super()._timing()
        return ZonedTiming(**{field.name: getattr(known, field.name) for field in fields(known)})


@dataclass(frozen=True)
class ZonedCase(Case):
    """One history of windows on the toy clock."""

    @cached_property
    def oracle(self) -> TumblingWindow:
        """The oracle with which the core judges it."""
        timing = self.history.timing
        assert isinstance(timing, ZonedTiming)
        # Local times begin at a multiple of every window (`BASE_US`).
        oracle = _OnToyClock.of(timing.window_us, timing.window_offset_us, time_zone="a toy")
        oracle._unit_us = timing.unit_us
        return oracle


class _OnToyClock(TumblingWindow):
    _unit_us: int = PrivateAttr(default=SCALE)

    @property
    def _clock(self) -> WallClock:
        unit_us = self._unit_us
        return WallClock.of(
            [base_of(unit_us) + unit_us * change for change in CHANGES], [unit_us * ahead for ahead in AHEAD]
        )


def zoned_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> ZonedCase:
    """The case that ``seed`` generates."""
    rng = Random(seed)
    history: History = ZonedWorld(rng, allowed, faults=not causal).history()
    if not causal:
        history = odder(history, rng)
    return ZonedCase(seed, causal, stretched(coarser(history, rng, steps_most)))

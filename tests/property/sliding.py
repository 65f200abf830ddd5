"""The sliding window by brute force, and random worlds of it: every window that may hold an event is tested one by
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from math import gcd
from random import Random

from tests.property.history import Cell, History, Timing
from tests.property.spark_histories import Case, Referee, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed, World
from validator.oracles.sliding_window import SlidingWindow


@dataclass(frozen=True)
class SlidingTiming(Timing):
    """The declared timing of a pipeline with windows that start every ``slide_us``."""

    slide_us: int = 10

    def cells(self, key: str, event_time_us: int) -> tuple[Cell, ...]:
        """All windows on the grid that hold the event; the search covers a wider range than necessary."""

        def starts() -> Iterator[int]:
            number = (event_time_us - self.window_offset_us - self.window_us) // self.slide_us - 2
            while (start := self.window_offset_us + number * self.slide_us) <= event_time_us:
                yield start
                number += 1

        return tuple((start, key) for start in starts() if start <= event_time_us < start + self.window_us)


class SlidingReferee(Referee):
    """The reference: an unreadable record may hide an event of each window that an event can be in."""

    def _most(self) -> int:
        timing = self.timing
        assert isinstance(timing, SlidingTiming)
        every_us = gcd(timing.slide_us, timing.window_us)
        return max(len(timing.cells("a", at)) for at in range(0, timing.slide_us, every_us))

    def hidden_inputs(self) -> int:
        """At most one event per window that an event can be in."""
        return super().hidden_inputs() * self._most()

    def hidden_answers(self) -> int:
        """At most one answer per window that an event can be in."""
        return super().hidden_answers() * self._most()


class SlidingWorld(World):
    """One random world with overlapping windows."""

    def __init__(self, rng: Random, allowed: Allowed, faults: bool) -> None:
        self.slides = Random(rng.random())
        super().__init__(rng, allowed, faults)

    def _timing(self) -> Timing:
        known = super()._timing()
        # Includes slides that do not divide the size, and a slide equal to the size. `BASE_US` is a multiple of all.
        slide = self.slides.choice([n for n in (2, 4, 5, 10, 20) if n <= known.window_us])
        values = {field.name: getattr(known, field.name) for field in fields(known)}
        return SlidingTiming(**{**values, "window_offset_us": known.window_offset_us % slide, "slide_us": slide})


def sliding_history(rng: Random, *, causal: bool, allowed: Allowed = EVERYTHING) -> History:
    """A history of an engine that keeps its guarantee (``causal``), or of one that may be broken in any way."""
    return SlidingWorld(rng, allowed, faults=not causal).history()


@dataclass(frozen=True)
class SlidingCase(Case):
    """One history of sliding windows."""

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return SlidingReferee

    @cached_property
    def oracle(self) -> SlidingWindow:
        """The oracle with which the core judges it."""
        timing = self.history.timing
        assert isinstance(timing, SlidingTiming)
        return SlidingWindow.of(timing.window_us, timing.window_offset_us, slide=timing.slide_us)


def sliding_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> SlidingCase:
    """The case that ``seed`` generates."""
    rng = Random(seed)
    history = sliding_history(rng, causal=causal, allowed=allowed)
    if not causal:
        history = odder(history, rng)
    return SlidingCase(seed, causal, stretched(coarser(history, rng, steps_most)))

"""Outputs to measure in tests: one second with one rate and one latency."""

from __future__ import annotations

from collections.abc import Iterable

from validator.measure.output import SECOND_US, Output, Spread
from validator.measure.series import Series
from validator.model.snapshot import FaultWindow

BEGIN = 1_000_000
"""The first second of a run."""


def second(at: int, contributions: int = 100, latency: float = 1.0) -> Output:
    """One result in the middle of the second that begins ``at`` seconds after the beginning."""
    start = BEGIN + at
    instant = start * SECOND_US + SECOND_US // 2
    latency_us = int(latency * SECOND_US)
    spread = Spread({7: 1}, latency_us, latency_us)
    return Output(start, start + 1, 1, contributions, instant, instant, 0, {"window_close": spread})


def series(outputs: Iterable[Output]) -> Series:
    """The series of these outputs."""
    return Series.of(outputs)


def us(at: float) -> int:
    """The instant ``at`` seconds after the beginning."""
    return BEGIN * SECOND_US + int(at * SECOND_US)


def fault(name: str, injected: float | None, healed: float | None) -> FaultWindow:
    """A fault with its own name as id."""
    times = [None if t is None else us(t) for t in (injected, healed)]
    return FaultWindow(name, name, "process_kill", "engine", times[0], times[0], times[1], times[1])

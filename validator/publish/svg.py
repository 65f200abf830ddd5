"""Small plots as SVG text, for a page that is mailed and printed: no script, colours from the style sheet's classes.

Each plot has a `role="img"` and a label that describes its content in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Final, Literal

WIDTH: Final = 460
HEIGHT: Final = 190
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 20, 22
TIME_TICKS_MAX: Final = 6
TIME_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
"""Seconds between two ticks of a time axis: round steps of a clock."""
CHARACTER: Final = 6.8
"""Width of a character of a label, in units of the plot; wide enough to keep labels apart."""


@dataclass(frozen=True)
class Line:
    """A line over time; None is a gap. ``tone`` is a class of the style sheet, `t1` to `t6`.

    ``form``: with `held`, a value is drawn from its instant to the next one, so that a count does not seem to grow
    before it was seen. With `stretches`, a value is drawn from the previous instant to its own, because it is the mean
    over this time.
    """

    name: str
    values: Sequence[float | None]
    tone: str
    form: Literal["held", "stretches"] = "held"


@dataclass(frozen=True)
class Band:
    """A shaded stretch of time (seconds since the epoch), with its name."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Stack:
    """One bar: its label under the axis, and the heights of its parts from the bottom."""

    label: str
    parts: Sequence[float]


@dataclass(frozen=True)
class Shade:
    """Shaded bars, from number ``first`` to ``last``, with a name."""

    name: str
    first: int
    last: int


def over_time(
    label: str, times: Sequence[float], lines: Sequence[Line], bands: Sequence[Band], marks: Sequence[float]
) -> str:
    """Return lines over ``times`` (seconds since the epoch, UTC on the axis), ``bands`` shaded, ``marks`` dashed."""
    first, last = times[0], max(times[-1], times[0] + 1)
    high = max((v for line in lines for v in line.values if v is not None), default=0) * 1.2 or 1.0

    def x(time: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (min(max(time, first), last) - first) / (last - first)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / high

    parts = [
        _shaded(band.name, x(band.start), x(band.end)) for band in bands if band.end >= first and band.start <= last
    ]
    parts += [_value_axis(high)]
    parts += [_text(x(time), HEIGHT - 6, _clock(time, last - first), "middle") for time in _ticks(first, last)]
    parts += [f'<path class="mark" d="M{x(mark):.1f} {TOP}V{HEIGHT - BOTTOM}"/>' for mark in marks if mark >= first]
    for line in lines:
        parts += _drawn(line, [x(time) for time in times], y)
    return _framed(label, parts) + _legend(
        (line.name, f'<path class="{line.tone} line" d="M0 4H24"/>') for line in lines
    )


def stacks(label: str, bars: Sequence[Stack], tones: Sequence[tuple[str, str]], shades: Sequence[Shade] = ()) -> str:
    """Return bars side by side. ``tones``: (name, class) of their parts."""
    high = max((sum(bar.parts) for bar in bars), default=0) * 1.1 or 1.0
    each = (WIDTH - LEFT - RIGHT) / max(len(bars), 1)
    wide = min(each * 0.8, 40)
    # Labels are left out at regular intervals, so that they do not overlap.
    longest = max((len(bar.label) for bar in bars), default=1)
    every = math.ceil(longest * CHARACTER / each)
    parts = [_shaded(shade.name, LEFT + each * shade.first, LEFT + each * (shade.last + 1)) for shade in shades]
    parts += [_value_axis(high)]
    for i, bar in enumerate(bars):
        middle, floor = LEFT + each * (i + 0.5), float(HEIGHT - BOTTOM)
        for height, (_, tone) in zip(bar.parts, tones, strict=True):
            tall = (HEIGHT - TOP - BOTTOM) * height / high
            floor -= tall
            if height:
                place = f'x="{middle - wide / 2:.1f}" y="{floor:.1f}" width="{wide:.1f}" height="{max(tall, 1):.1f}"'
                parts.append(f'<rect class="{tone}" {place}/>')
        if i % every == 0:
            parts.append(_text(middle, HEIGHT - 6, bar.label, "middle"))
    keys = [(name, f'<rect class="{tone}" width="24" height="8"/>') for name, tone in tones]
    return _framed(label, parts) + (_legend(keys) if len(tones) > 1 else "")


def _legend(keys: Iterable[tuple[str, str]]) -> str:
    """Return names beside their drawn keys, as HTML."""
    items = "".join(
        f'<li><svg class="key" viewBox="0 0 24 8" aria-hidden="true">{drawn}</svg>{escape(name)}</li>'
        for name, drawn in keys
    )
    return f'<ul class="legend">{items}</ul>'


def _drawn(line: Line, xs: Sequence[float], y: Callable[[float], float]) -> list[str]:
    if line.form == "stretches":
        return _stretches(line, xs, y)
    path, alone, pen_down = [], [], False
    for i, value in enumerate(line.values):
        if value is None:
            pen_down = False
            continue
        path.append(f"H{xs[i]:.1f}V{y(value):.1f}" if pen_down else f"M{xs[i]:.1f} {y(value):.1f}")
        after = line.values[i + 1] if i + 1 < len(line.values) else None
        if not pen_down and after is None:
            # A value between two gaps would have no visible line.
            alone.append(f'<circle class="{line.tone}" cx="{xs[i]:.1f}" cy="{y(value):.1f}" r="2"/>')
        pen_down = True
    return [f'<path class="{line.tone} line" d="{"".join(path)}"/>', *alone] if path else []


def _stretches(line: Line, xs: Sequence[float], y: Callable[[float], float]) -> list[str]:
    path, pen_down = [], False
    for i, value in enumerate(line.values):
        if value is not None:
            since = xs[max(0, i - 1)]
            path.append(f"V{y(value):.1f}" if pen_down else f"M{since:.1f} {y(value):.1f}")
            path.append(f"H{xs[i]:.1f}")
        pen_down = value is not None
    return [f'<path class="{line.tone} line" d="{"".join(path)}"/>'] if path else []


def _shaded(name: str, left: float, right: float) -> str:
    wide = max(2.0, right - left)
    anchor, at = ("end", right) if left + len(name) * CHARACTER > WIDTH - RIGHT else ("start", left)
    rect = f'<rect class="band" x="{left:.1f}" y="{TOP}" width="{wide:.1f}" height="{HEIGHT - TOP - BOTTOM}"/>'
    return rect + _text(at, TOP - 6, name, anchor)


def _value_axis(high: float) -> str:
    step = _round_step(high / 5)
    drawn = []
    for i in range(int(high / step) + 1):
        at = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * i * step / high
        drawn.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        drawn.append(_text(LEFT - 6, at + 4, f"{i * step:,.12g}", "end"))
    return "".join(drawn)


def _round_step(least: float) -> float:
    """Return the smallest of 1, 2, 5 times a power of ten that is at least ``least``."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least * 0.999)


def _ticks(first: float, last: float) -> list[float]:
    """Return round instants between the two, none so near the end that its label would be cut off."""
    step = next((s for s in TIME_STEPS if (last - first) / s <= TIME_TICKS_MAX), (last - first) / TIME_TICKS_MAX)
    margin = (last - first) * 4 * CHARACTER / (WIDTH - LEFT)
    count = int(last // step) - int(first // step)
    ticks = [(int(first // step) + i) * step for i in range(1, count + 1)]
    return [tick for tick in ticks if first <= tick <= last - margin * 0.6]


def _clock(time: float, span: float) -> str:
    form = "%H:%M:%S" if span < 300 else "%H:%M" if span < 86_400 else "%m-%d %H:%M"
    return datetime.fromtimestamp(time, UTC).strftime(form)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _framed(label: str, parts: Iterable[str]) -> str:
    said = escape(label, quote=True)
    return f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{said}">{"".join(parts)}</svg>'

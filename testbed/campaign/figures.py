"""Figures without a script: bars and boxes as SVG, in the colours of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median, quantiles
from typing import Final

_WIDTH, _LEFT, _RIGHT, _ROW = 760, 300, 70, 22
_SPAN: Final = _WIDTH - _LEFT - _RIGHT
_HALF: Final = 7
_QUARTILES_FROM: Final = 4
"""Fewer values have no quartiles: the box is then from the smallest to the largest."""


@dataclass(frozen=True)
class Boxed:
    """A row of boxes: a value for each run or fault. ``censored``: those that never reached one."""

    name: str
    values: Sequence[float]
    censored: int = 0


@dataclass(frozen=True)
class Bars:
    """A row of bars, one for each series; None: not measured."""

    name: str
    values: Sequence[float | None]


def boxes(rows: Sequence[Boxed], unit: str) -> str:
    """A box plot: smallest, quartiles, median, largest, and a dot for each value. Empty without a value."""
    shown = [row for row in rows if row.values or row.censored]
    top = max((value for row in shown for value in row.values), default=0.0)
    if not shown:
        return ""
    parts = [_axis(top, len(shown), unit)]
    for i, row in enumerate(shown):
        parts += [_label(row.name, i), *_box(row, i, top)]
    return _svg(len(shown), parts)


def bars(rows: Sequence[Bars], series: Sequence[str], unit: str) -> str:
    """Horizontal bars, grouped by row. Empty without a value."""
    shown = [row for row in rows if any(value is not None for value in row.values)]
    top = max((value for row in shown for value in row.values if value is not None), default=0.0)
    if not shown:
        return ""
    thick = (_ROW - 4) / len(series)
    parts = [_axis(top, len(shown), unit)]
    for i, row in enumerate(shown):
        parts.append(_label(row.name, i))
        for n, (name, value) in enumerate(zip(series, row.values, strict=True)):
            if value is not None:
                parts.append(
                    f'<rect x="{_LEFT}" y="{i * _ROW + 2 + n * thick:.1f}" width="{_x(value, top) - _LEFT:.1f}" '
                    f'height="{thick:.1f}" fill="var(--c{n + 1})"><title>{escape(f"{row.name}, {name}: {value:.4g}")} '
                    f"{unit}</title></rect>"
                )
    legend = " ".join(
        f'<span><svg width="12" height="12" aria-hidden="true"><rect width="12" height="12" fill="var(--c{n + 1})"/>'
        f"</svg> {escape(name)}</span>"
        for n, name in enumerate(series)
    )
    return f'<p class="dim">{legend}</p>{_svg(len(shown), parts)}'


def _box(row: Boxed, i: int, top: float) -> list[str]:
    middle, found = i * _ROW + _ROW / 2, []
    if row.values:
        least, most, half = min(row.values), max(row.values), median(row.values)
        low, high = least, most
        if len(row.values) >= _QUARTILES_FROM:
            low, _, high = quantiles(row.values, n=4, method="inclusive")
        said = f"{row.name}: {least:.3g} to {most:.3g}, median {half:.3g}"
        box = f'y="{middle - _HALF}" height="{2 * _HALF}" fill="var(--fault)" stroke="var(--c1)"'
        found = [
            f"<g><title>{escape(said)}</title>",
            _line(_x(least, top), _x(most, top), middle, middle, "var(--dim)"),
            f'<rect x="{_x(low, top):.1f}" width="{max(1.0, _x(high, top) - _x(low, top)):.1f}" {box}/>',
            _line(_x(half, top), _x(half, top), middle - _HALF, middle + _HALF, "var(--c1)", 3),
            "</g>",
            *(f'<circle cx="{_x(value, top):.1f}" cy="{middle}" r="2" fill="var(--c2)"/>' for value in row.values),
        ]
    if row.censored:
        found.append(_text(_WIDTH - _RIGHT + 6, middle + 4, f"{row.censored} not", "start"))
    return found


def _line(x1: float, x2: float, y1: float, y2: float, colour: str, width: int = 1) -> str:
    ends = f'x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'


def _x(value: float, top: float) -> float:
    return _LEFT + (_SPAN * value / top if top else 0.0)


def _label(name: str, i: int) -> str:
    return _text(_LEFT - 8, i * _ROW + _ROW / 2 + 4, name, "end")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="var(--ink)">{escape(text)}</text>'


def _axis(top: float, rows: int, unit: str) -> str:
    """The grid lines, each with its value."""
    bottom, lines = rows * _ROW, []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _LEFT + share * _SPAN
        lines.append(_line(x, x, 0, bottom, "var(--line)"))
        lines.append(_text(x, bottom + 16, f"{share * top:.3g}" + (f" {unit}" if share == 1.0 else ""), "middle"))
    return "".join(lines)


def _svg(rows: int, parts: Sequence[str]) -> str:
    height = rows * _ROW + 24
    return (
        f'<div class="scroll"><svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" '
        f'font-size="11">{"".join(parts)}</svg></div>'
    )

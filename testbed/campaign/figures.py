"""Figures without a script: bars and boxes as SVG, in the colours of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from statistics import median, quantiles
from typing import Final

_WIDTH, _LEFT, _RIGHT, _ROW = 820, 360, 70, 22
_SPAN: Final = _WIDTH - _LEFT - _RIGHT
_PLOT: Final = 64
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
    return _svg(len(shown) * _ROW, parts)


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
    return f'<p class="dim">{legend}</p>{_svg(len(shown) * _ROW, parts)}'


@dataclass(frozen=True)
class Course:
    """A value by second, None where it was not measured, and the stretches (from, to) in which a fault was active."""

    name: str
    values: Sequence[float | None]
    faults: Sequence[tuple[float, float]] = ()


def courses(rows: Sequence[Course], unit: str) -> str:
    """A plot of each row, one below the other, with a common axis of seconds. Empty without a value."""
    shown = [row for row in rows if any(value is not None for value in row.values)]
    if not shown:
        return ""
    longest = max(len(row.values) for row in shown)
    parts: list[str] = []
    for i, row in enumerate(shown):
        parts += _course(row, i * _PLOT, longest, unit)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = _LEFT + share * _SPAN
        parts.append(
            _text(at, len(shown) * _PLOT + 14, f"{share * longest:.0f}" + (" s" if share == 1.0 else ""), "middle")
        )
    return _svg(len(shown) * _PLOT, parts)


def _course(row: Course, top: float, longest: float, unit: str) -> list[str]:
    most = max(value for value in row.values if value is not None)
    high, bottom = _PLOT - 14, top + _PLOT - 6
    points = [
        f"{_x(second, longest):.1f},{bottom - high * ((value or 0.0) / most if most else 0.0):.1f}"
        for second, value in enumerate(row.values)
    ]
    return [
        *(
            f'<rect x="{_x(begin, longest):.1f}" y="{bottom - high:.1f}" '
            f'width="{_x(end, longest) - _x(begin, longest):.1f}" height="{high}" fill="var(--fault)"/>'
            for begin, end in row.faults
        ),
        _line(_LEFT, _LEFT + _SPAN, bottom, bottom, "var(--line)"),
        f'<polyline points="{" ".join(points)}" fill="none" stroke="var(--c1)"/>',
        _text(_LEFT - 8, bottom - high / 2 + 4, row.name, "end"),
        _text(_WIDTH - _RIGHT + 6, bottom - high + 8, f"{_number(most)} {unit}", "start"),
    ]


def standalone(figure: str, style: str) -> str:
    """The SVG of a figure as a file. ``style``: the colours of the page."""
    _, found, rest = figure.partition("<svg viewBox")
    drawn = (found + rest).removesuffix("</div>")
    ground = '<rect width="100%" height="100%" fill="var(--card)"/>'
    head, _, body = drawn.partition(">")
    sheet = f"<style>{style} text {{ font-family: system-ui, sans-serif; }}</style>"
    return f'{head} xmlns="http://www.w3.org/2000/svg">{sheet}{ground}{body}\n'


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


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


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
        lines.append(_text(x, bottom + 16, _number(share * top) + (f" {unit}" if share == 1.0 else ""), "middle"))
    return "".join(lines)


def _svg(high: int, parts: Sequence[str]) -> str:
    height = high + 24
    return (
        f'<div class="scroll"><svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" role="img" '
        f'font-size="11">{"".join(parts)}</svg></div>'
    )

"""The life of an alert as series: when it must be silent, fire and resolve.

Values are in promtool's notation with one sample per minute: `0x5 3x10` is six zeros, then eleven threes. `_` is a
missing sample.
"""

from __future__ import annotations

from dataclasses import dataclass

PIPELINE = {"pipeline": "clickstream"}


@dataclass(frozen=True)
class Scenario:
    """One alert's life. ``labels`` are the fired alert's, without name and severity. Times are in promtool's
    notation."""

    alert: str
    series: dict[str, str]
    labels: dict[str, str]
    severity: str
    silent: str
    fires: tuple[str, ...]
    resolved: str
    values: tuple[str, ...] = ()  # `.Value` at each of ``fires``, if the description shows it
    interval: str = "1m"  # between two samples
    beside: str = ""  # severity of a second rule, without own labels; it fires at ``fires`` and still at ``resolved``


@dataclass(frozen=True)
class Quiet:
    """Series on which ``alert`` must never fire."""

    why: str
    alert: str
    series: dict[str, str]
    at: tuple[str, ...]
    interval: str = "1m"

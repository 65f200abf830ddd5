"""The life of an alert as series: when it must be silent, fire and resolve.

Values are promtool's notation at one sample a minute: `0x5 3x10` is six zeros, then eleven threes. `_` is no sample.
"""

from __future__ import annotations

from dataclasses import dataclass

PIPELINE = {"pipeline": "clickstream"}


@dataclass(frozen=True)
class Scenario:
    """One alert's life. ``labels`` are those of the fired alert, without name and severity; times are promtool's."""

    alert: str
    series: dict[str, str]
    labels: dict[str, str]
    severity: str
    silent: str
    fires: tuple[str, ...]
    resolved: str
    values: tuple[str, ...] = ()  # what `.Value` is at each of ``fires``, where the description says it
    interval: str = "1m"  # between two samples
    beside: str = ""  # severity of the alert's rule without labels of its own, where that fires with this and goes on


@dataclass(frozen=True)
class Quiet:
    """Series on which ``alert`` must never fire."""

    why: str
    alert: str
    series: dict[str, str]
    at: tuple[str, ...]
    interval: str = "1m"

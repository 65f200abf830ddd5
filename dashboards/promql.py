"""Builds PromQL from the catalogue of metrics; a metric, label or value outside the catalogue is an error."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from validator.model.classes import VIOLATES
from validator.publish.catalogue import CATALOGUE, PREFIX, Metric

METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in CATALOGUE}
INSTANCE: Final = "instance"
"""The label that Prometheus adds: the address that it scrapes."""
HISTOGRAM_SUFFIXES: Final = ("_bucket", "_sum", "_count")
Match = Mapping[str, str | tuple[str, ...]]
"""Label -> one value, or several. A value can be a dashboard variable (``$name``) that has one selection. A
variable with several selections is written as a tuple of only this variable.
"""


class UnknownSeriesError(Exception):
    """A rule or panel uses a series that no sidecar serves; this is a bug in this package, found when it builds."""


def select(name: str, match: Match | None = None, over: str = "") -> str:
    """The selector of metric ``name`` (without prefix; with `_bucket`, `_sum` or `_count` for a histogram).

    ``over`` is a range such as `5m`. Raises UnknownSeriesError for a name that is not in the catalogue.
    """
    metric = metric_of(name)
    known = {label.name: label.values for label in metric.labels} | {"pipeline": None, INSTANCE: None}
    parts = []
    for label, wanted in (match or {}).items():
        if label not in known:
            raise UnknownSeriesError(f"{name} has no label {label}; it has {', '.join(sorted(known))}.")
        values = (wanted,) if isinstance(wanted, str) else wanted
        is_variable = values[0].startswith("$")
        strange = set(values) - set(known[label] or values)
        if strange and not is_variable:
            raise UnknownSeriesError(f"label {label} of {name} has no value {', '.join(sorted(strange))}.")
        if is_variable:
            parts.append(f"{label}{_chosen(wanted)}")
        else:
            parts.append(f'{label}{"=~" if len(values) > 1 else "="}"{"|".join(map(_escaped, values))}"')
    selector = f"{{{','.join(parts)}}}" if parts else ""
    return f"{PREFIX}{name}{selector}" + (f"[{over}]" if over else "")


def _chosen(variable: str | tuple[str, ...]) -> str:
    """Matching operator and quoted text for the selection of the dashboard ``variable``.

    Between double quotes, Grafana's Prometheus data source escapes the selected values incorrectly. Unless its toggle
    `prometheusSpecialCharsInLabelValues` is on (default: off), a single value with `'` finds nothing and any value with
    `"` is invalid PromQL (grafana issues 16275 and 96063). Between backticks PromQL takes every character literally
    except a backtick. With an explicit format (`raw`, `regex`), Grafana escapes only what that format requires.
    """
    if isinstance(variable, str):
        return f"=`${{{variable.removeprefix('$')}:raw}}`"
    return f"=~`${{{variable[0].removeprefix('$')}:regex}}`"


def _escaped(value: str) -> str:
    """``value`` escaped for a quoted PromQL string; a pipeline's name may be any text."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def metric_of(name: str) -> Metric:
    """The catalogue's entry for ``name`` without prefix. Raises UnknownSeriesError."""
    for suffix in HISTOGRAM_SUFFIXES:
        base = METRICS.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if base is not None and base.kind == "histogram":
            return base
    metric = METRICS.get(name)
    if metric is None or metric.kind == "histogram":
        raise UnknownSeriesError(f"{PREFIX}{name} is not in the catalogue of metrics.")
    return metric


def unknown_series(expression: str, recorded: frozenset[str] = frozenset()) -> list[str]:
    """Names in ``expression`` with our prefix that are neither in the catalogue nor ``recorded`` by a rule."""
    bare = re.sub(
        r'"[^"]*"|`[^`]*`|\[[^]]*\]', '""', expression
    )  # remove texts and ranges; the range of a subquery has a colon
    found = []
    for name in re.findall(r"[A-Za-z_:][A-Za-z0-9_:]*", bare):
        if ":" in name:
            known = name in recorded
        elif name.startswith(PREFIX):
            known = _is_known(name.removeprefix(PREFIX))
        else:
            continue
        if not known:
            found.append(name)
    return found


def _is_known(name: str) -> bool:
    try:
        metric_of(name)
    except UnknownSeriesError:
        return False
    return True


def breaking(extra: Match | None = None) -> str:
    """Open violations of the classes that break the declared guarantee, by pipeline and class. Violations that a fault
    plan expects are excluded if the sidecar reports them separately.
    """

    def remaining(classes: Match) -> str:
        unexpected, opened = (
            _sum(select(name, {**(extra or {}), **classes})) for name in ("violations_unexpected", "violations_open")
        )
        return f"({unexpected} or {opened})"

    return _of_declared(remaining, extra)


def error_ratio(over: str, extra: Match | None = None) -> str:
    """Ratio of contributions that broke the declared guarantee to expected contributions, within ``over``; 0 to 1.

    The numerator is confirmed minus retracted violations, per class at least 0, as for the verdict over an hour.
    Violations that a fault plan expects are excluded if the sidecar reports them separately. A new state, whose
    counters start at 0, adds its own confirmed violations. If nothing is expected the ratio is NaN, which does not
    fire, or 1 if a loss is confirmed after the load ended.
    """

    def remaining(classes: Match) -> str:
        counts = [
            _sum(f"increase({select(name, {**(extra or {}), **classes}, over)})")
            for name in ("violations_confirmed_total", "violations_retracted_total")
        ]
        kept = " - ".join(counts)
        return f"clamp_min(({kept} - ({_planned(over, {**(extra or {}), **classes})})) or ({kept}), 0)"

    expected_events = select("events_total", {**(extra or {}), "class": "expected"}, over)
    return (
        f"clamp_max(\nsum by (pipeline) (\n{_of_declared(remaining, extra)}\n)\n/\n"
        f"sum by (pipeline) (increase({expected_events})), 1)"
    )


def _planned(over: str, match: Match) -> str:
    """Increase within ``over`` of the violations that a fault plan expects.

    The metric is a gauge, because retractions decrease it. It also drops when a new state begins, unlike the counters
    in the same expression. Such a drop is treated as a counter reset; otherwise the expected violations of the
    old state would be added to the numerator of the ratio.
    """
    expected, confirmed = (select(name, match, over) for name in ("violations_expected", "violations_confirmed_total"))
    began_anew = f"{_sum(f'resets({confirmed})')} > 0"
    return f"({_sum(f'increase({expected})')} and {began_anew}) or {_sum(f'delta({expected})')}"


def _sum(expression: str) -> str:
    return f"sum by (pipeline, class) ({expression})"


def _of_declared(count: Callable[[Match], str], extra: Match | None) -> str:
    """Apply ``count`` to the classes that break a guarantee, for the pipelines that declare it.

    `VIOLATES` defines the classes (SEMANTICS section 4). A duplicate, for example, does not alert for a pipeline that
    declares at-least-once.
    """
    parts = []
    for guarantee, classes in VIOLATES.items():
        declared = select("guarantee_declared", {**(extra or {}), "guarantee": guarantee.value})
        parts.append(f"({count({'class': tuple(sorted(classes))})} and on (pipeline) ({declared} == 1))")
    return "\nor\n".join(parts)

"""PromQL, written only through the catalogue: a metric, label or value that does not exist is an error here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from validator.model.classes import VIOLATES
from validator.publish.catalogue import CATALOGUE, PREFIX, Metric

METRICS: Final[Mapping[str, Metric]] = {metric.name: metric for metric in CATALOGUE}
HISTOGRAM_SUFFIXES: Final = ("_bucket", "_sum", "_count")
Match = Mapping[str, str | tuple[str, ...]]
"""Label -> a value, or some values. A variable of a dashboard (``$name``) is one value; in a tuple it is some, for one
of which a reader may choose several."""


class UnknownSeriesError(Exception):
    """A rule or panel asks for what no sidecar serves: a mistake in this package, said as it is built."""


def select(name: str, match: Match | None = None, over: str = "") -> str:
    """The selector of metric ``name`` (without prefix; with `_bucket`, `_sum` or `_count` for a histogram).

    ``over`` is a range such as `5m`. Raises UnknownSeriesError for what is not in the catalogue.
    """
    metric = metric_of(name)
    known = {label.name: label.values for label in metric.labels} | {"pipeline": None}
    parts = []
    for label, wanted in (match or {}).items():
        if label not in known:
            raise UnknownSeriesError(f"{name} has no label {label}; it has {', '.join(sorted(known))}.")
        values = (wanted,) if isinstance(wanted, str) else wanted
        is_variable = values[0].startswith("$")
        strange = set(values) - set(known[label] or values)
        if strange and not is_variable:
            raise UnknownSeriesError(f"{name} has no {label} {', '.join(sorted(strange))}.")
        if is_variable:
            parts.append(f"{label}{_chosen(wanted)}")
        else:
            parts.append(f'{label}{"=~" if len(values) > 1 else "="}"{"|".join(map(_escaped, values))}"')
    selector = f"{{{','.join(parts)}}}" if parts else ""
    return f"{PREFIX}{name}{selector}" + (f"[{over}]" if over else "")


def _chosen(variable: str | tuple[str, ...]) -> str:
    """Operator and text for what a reader chooses for ``variable`` of a dashboard.

    Between double quotes Grafana's Prometheus data source escapes what was chosen, and not every name well: without its
    toggle `prometheusSpecialCharsInLabelValues`, which is off by default, one value with `'` finds nothing and any with
    `"` is no PromQL (grafana issues 16275 and 96063). Between backticks PromQL takes all as it is but a backtick, and
    under a named format Grafana escapes nothing more than that format says.
    """
    if isinstance(variable, str):
        return f"=`${{{variable.removeprefix('$')}:raw}}`"
    return f"=~`${{{variable[0].removeprefix('$')}:regex}}`"


def _escaped(value: str) -> str:
    """``value`` within the quotes of PromQL: a pipeline's name is any text."""
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
    """Names in ``expression`` that look like ours, and are neither in the catalogue nor ``recorded`` by a rule."""
    bare = re.sub(r'"[^"]*"|`[^`]*`|\[[^]]*\]', '""', expression)  # texts and ranges, of which a subquery's has a colon
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
    """Open violations by pipeline and class that no fault's plan expects, of those classes only that break what the
    pipeline declares. A sidecar that does not tell them apart alerts with all that are open.
    """

    def remaining(classes: Match) -> str:
        unexpected, opened = (
            _sum(select(name, {**(extra or {}), **classes})) for name in ("violations_unexpected", "violations_open")
        )
        return f"({unexpected} or {opened})"

    return _of_declared(remaining, extra)


def error_ratio(over: str, extra: Match | None = None) -> str:
    """Contributions that broke the declared guarantee over those expected, within ``over``; 0 to 1.

    Confirmed less retracted, and by class never below 0, as the verdict over an hour counts them; without those that
    the plan of a fault expects, from sidecars that tell them apart. A new state, whose counts begin at 0 again, adds
    what it confirmed itself. With nothing expected it is NaN, which fires nothing; a loss that is proven after the load
    ended counts as 1.
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
    """By how much the violations that a plan expects grew within ``over``.

    A gauge, for it falls by what is retracted. It falls too where a new state begins, which the counters beside it
    survive: there it is taken for a counter like them, else all that the old state expected would count as broken.
    """
    expected, confirmed = (select(name, match, over) for name in ("violations_expected", "violations_confirmed_total"))
    began_anew = f"{_sum(f'resets({confirmed})')} > 0"
    return f"({_sum(f'increase({expected})')} and {began_anew}) or {_sum(f'delta({expected})')}"


def _sum(expression: str) -> str:
    return f"sum by (pipeline, class) ({expression})"


def _of_declared(count: Callable[[Match], str], extra: Match | None) -> str:
    """What ``count`` makes of the classes that break a guarantee, for the pipelines that declare it.

    The tolerance table of the model says which (SEMANTICS section 4), so that a duplicate alerts nobody whose pipeline
    claims no more than at-least-once.
    """
    parts = []
    for guarantee, classes in VIOLATES.items():
        declared = select("guarantee_declared", {**(extra or {}), "guarantee": guarantee.value})
        parts.append(f"({count({'class': tuple(sorted(classes))})} and on (pipeline) ({declared} == 1))")
    return "\nor\n".join(parts)

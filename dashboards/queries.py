"""Shared parts of the four dashboards: variables, fault annotations, and query builders."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from dashboards.panels import Dashboard, Link, Query
from dashboards.promql import Match, select
from dashboards.settings import Settings
from dashboards.variables import Annotation, TaggedAnnotation, Variable
from validator.publish.runbook_pages import runbook_place

PIPELINE: Final[Match] = {"pipeline": "$pipeline"}
"""The single pipeline of a dashboard."""
CHOSEN: Final[Match] = {"pipeline": ("$pipeline",)}
"""The selected pipelines of a dashboard for several."""
RATE: Final = "$__rate_interval"

DATASOURCE: Final = Variable("datasource", "data source", "datasource", "prometheus")
PIPELINES: Final = Variable(
    "pipeline", "pipeline", "query", f"label_values({select('build_info')}, pipeline)", many=True
)
ONE_PIPELINE: Final = Variable("pipeline", "pipeline", "query", PIPELINES.query)
SIDECAR: Final = Variable("instance", "sidecar", "query", f"label_values({select('build_info', PIPELINE)}, instance)")
"""Address of the sidecar of the selected pipeline, as Prometheus scrapes it; the sidecar serves its pages there too."""
ONE_OF_CHOSEN: Final = Variable(
    "instance", "runbooks of sidecar", "query", f"label_values({select('build_info', CHOSEN)}, instance)"
)
"""A sidecar of the selected pipelines; all of them serve the same runbooks."""
SCHEME: Final = Variable(
    "scheme",
    "scheme of the sidecar's port",
    "query",
    f"label_values({select('build_info', {'instance': '$instance'})}, scheme)",
    hidden=True,
)
"""`https` if that sidecar's port has a certificate, else `http`."""
PAGE: Final = "${scheme}://${instance}/"
TO_VIOLATIONS: Final = (
    Link("offending ids (violations.json)", f"{PAGE}violations.json"),
    Link("status page", PAGE),
)
"""Links from a count of violations to their key, window and a sample of ids."""


def _fault_windows(pipelines: Match) -> Annotation:
    return Annotation(
        "faults",
        f"max by (pipeline, fault, kind, target) ({select('fault_active', pipelines)}) == 1",
        "{{fault}}",
        "{{kind}} on {{target}}, pipeline {{pipeline}}",
        "red",
    )


FAULTS: Final = _fault_windows(PIPELINE)
FAULTS_OF_CHOSEN: Final = _fault_windows(CHOSEN)

FAULT_TAG: Final = "streamproof-fault"
TAG_MOST: Final = 100
"""Grafana stores this many characters on each side of a tag's colon; a pipeline's name may be longer."""
PIPELINE_TAG: Final = Variable(
    "pipeline_tag",
    "pipeline's tag",
    "query",
    f"label_values({select('build_info', PIPELINE)}, pipeline)",
    part=rf"^([\s\S]{{1,{TAG_MOST}}})",
    hidden=True,
)
PUSHED_FAULTS: Final = TaggedAnnotation("faults, pushed", (FAULT_TAG, "pipeline:$pipeline_tag"), "orange")
"""Faults written by `streamproof dashboards push --faults`: with millisecond precision, and independent of Prometheus'
retention.
"""


def of(name: str, match: Match | None = None, over: str = "") -> str:
    """The selector of metric ``name`` for the single pipeline."""
    return select(name, {**PIPELINE, **(match or {})}, over)


def of_chosen(name: str, match: Match | None = None, over: str = "") -> str:
    """The selector of metric ``name`` for the selected pipelines."""
    return of(name, {**CHOSEN, **(match or {})}, over)


def by(labels: str, expression: str, operation: str = "sum") -> str:
    """``expression`` aggregated, so that several sidecar processes of one pipeline do not show as several series."""
    return f"{operation} by ({labels}) ({expression})"


def quantile(q: float, name: str, match: Match | None = None, labels: str = "pipeline") -> str:
    """Quantile ``q`` of histogram ``name``, by ``labels``."""
    buckets = of(f"{name}_bucket", match, RATE)
    return f"histogram_quantile({q:g}, sum by (le, {labels}) (rate({buckets})))"


RESOLUTION: Final = Query(f"max({of('latency_resolution_seconds')})", "resolution")
"""Resolution of the latencies, shown beside them: 0 if all topics have LogAppendTime."""


def runbook_links(settings: Settings, alerts: Iterable[str], beside: str) -> tuple[Link, ...]:
    """Links to the runbook of each alert: to the published address, else to the sidecar at address ``beside``."""
    published = settings.are_runbooks_links
    return tuple(
        Link(
            f"runbook: {name.removeprefix('Streamproof')}",
            settings.runbook(name) if published else f"{beside}{runbook_place(name)}",
        )
        for name in alerts
    )


def runbook_sources(settings: Settings) -> tuple[Variable, ...]:
    """Variables that a dashboard for several pipelines needs, so that its runbook links work if runbooks are not
    published.
    """
    return () if settings.are_runbooks_links else (ONE_OF_CHOSEN, SCHEME)


def runbook_text(settings: Settings, alerts: Iterable[str]) -> str:
    """The runbooks as paths, for a description."""
    return "Runbooks: " + ", ".join(settings.runbook(name) for name in alerts) + "."


def expressions(dashboard: Dashboard) -> list[tuple[str, str]]:
    """(where, expression) of every panel and annotation with a PromQL query."""
    found = [(f"{dashboard.uid}: {p.title}", q.expression) for p in dashboard.panels for q in p.queries]
    found += [(f"{dashboard.uid}: annotation {a.name}", a.expression) for a in dashboard.annotations]
    return found


def label_values(dashboard: Dashboard) -> list[tuple[str, str, str]]:
    """(where, selector, label) of every variable that lists the values of a label."""
    found = []
    for variable in dashboard.variables:
        if variable.kind == "query":
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable.query)
            assert asked is not None, f"{variable.query} does not query values of a label"
            found.append((f"{dashboard.uid}: variable {variable.name}", asked[1], asked[2]))
    return found


def addresses(dashboard: Dashboard) -> list[tuple[str, str]]:
    """(where, address) of every link of a panel."""
    return [(f"{dashboard.uid}: {p.title}", link.url) for p in dashboard.panels for link in p.links]


SUBSTITUTES: Final = {
    "=`${pipeline:raw}`": "=~`.*`",
    "=~`${pipeline:regex}`": "=~`.*`",
    "=`${instance:raw}`": "=~`.*`",
    "${definition:raw}": "last_input",
    RATE: "5m",
    "$__range": "1h",
    "$__interval": "1s",
}


def substituted(expression: str) -> str:
    """``expression`` with every variable replaced by a value, so that Prometheus can evaluate it."""
    for variable, value in SUBSTITUTES.items():
        expression = expression.replace(variable, value)
    return expression

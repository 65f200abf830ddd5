"""What the four dashboards have in common: variables, the annotation of faults, the form of a pipeline's queries."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from dashboards.panels import Dashboard, Link
from dashboards.promql import Match, select
from dashboards.settings import Settings
from dashboards.variables import Annotation, TaggedAnnotation, Variable
from validator.publish.runbook_pages import runbook_place

PIPELINE: Final[Match] = {"pipeline": "$pipeline"}
"""The one that a dashboard shows."""
CHOSEN: Final[Match] = {"pipeline": ("$pipeline",)}
"""Those that a dashboard of many shows."""
RATE: Final = "$__rate_interval"

DATASOURCE: Final = Variable("datasource", "data source", "datasource", "prometheus")
PIPELINES: Final = Variable(
    "pipeline", "pipeline", "query", f"label_values({select('build_info')}, pipeline)", many=True
)
ONE_PIPELINE: Final = Variable("pipeline", "pipeline", "query", PIPELINES.query)
SIDECAR: Final = Variable("instance", "sidecar", "query", f"label_values({select('build_info', PIPELINE)}, instance)")
"""Address of the sidecar of the chosen pipeline, as Prometheus scrapes it: its pages are there too."""
ONE_OF_CHOSEN: Final = Variable(
    "instance", "runbooks of sidecar", "query", f"label_values({select('build_info', CHOSEN)}, instance)"
)
"""A sidecar of the chosen pipelines, any of which serves the same runbooks."""
PAGE: Final = "http://${instance}/"
TO_VIOLATIONS: Final = (
    Link("offending ids (violations.json)", f"{PAGE}violations.json"),
    Link("status page", PAGE),
)
"""From a count of violations to what they are of: key, window, a sample of ids."""


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
"""Characters that a Grafana keeps of each side of a tag's colon; the name of a pipeline may be longer."""
PIPELINE_TAG: Final = Variable(
    "pipeline_tag",
    "pipeline's tag",
    "query",
    f"label_values({select('build_info', PIPELINE)}, pipeline)",
    part=rf"^([\s\S]{{1,{TAG_MOST}}})",
)
PUSHED_FAULTS: Final = TaggedAnnotation("faults, pushed", (FAULT_TAG, "pipeline:$pipeline_tag"), "orange")
"""What `streamproof dashboards push --faults` wrote: to the millisecond, and kept after Prometheus has forgotten."""


def of(name: str, match: Match | None = None, over: str = "") -> str:
    """The selector of metric ``name`` for the one pipeline."""
    return select(name, {**PIPELINE, **(match or {})}, over)


def of_chosen(name: str, match: Match | None = None, over: str = "") -> str:
    """The selector of metric ``name`` for the pipelines chosen."""
    return of(name, {**CHOSEN, **(match or {})}, over)


def by(labels: str, expression: str, operation: str = "sum") -> str:
    """``expression`` aggregated: several sidecar processes of one pipeline must not show as several."""
    return f"{operation} by ({labels}) ({expression})"


def quantile(q: float, name: str, match: Match | None = None, labels: str = "pipeline") -> str:
    """Quantile ``q`` of histogram ``name``, by ``labels``."""
    buckets = of(f"{name}_bucket", match, RATE)
    return f"histogram_quantile({q:g}, sum by (le, {labels}) (rate({buckets})))"


def runbook_links(settings: Settings, alerts: Iterable[str], beside: str) -> tuple[Link, ...]:
    """A link to each alert's runbook: where they are published, else at the sidecar whose pages are at ``beside``."""
    published = settings.are_runbooks_links
    return tuple(
        Link(
            f"runbook: {name.removeprefix('Streamproof')}",
            settings.runbook(name) if published else f"{beside}{runbook_place(name)}",
        )
        for name in alerts
    )


def runbook_sources(settings: Settings) -> tuple[Variable, ...]:
    """What a dashboard of many pipelines asks for, so that its runbooks are links where nobody published them."""
    return () if settings.are_runbooks_links else (ONE_OF_CHOSEN,)


def runbook_text(settings: Settings, alerts: Iterable[str]) -> str:
    """The same for a description, as paths."""
    return "Runbooks: " + ", ".join(settings.runbook(name) for name in alerts) + "."


def expressions(dashboard: Dashboard) -> list[tuple[str, str]]:
    """(where, expression) of every panel and annotation that asks Prometheus with PromQL."""
    found = [(f"{dashboard.uid}: {p.title}", q.expression) for p in dashboard.panels for q in p.queries]
    found += [(f"{dashboard.uid}: annotation {a.name}", a.expression) for a in dashboard.annotations]
    return found


def label_values(dashboard: Dashboard) -> list[tuple[str, str, str]]:
    """(where, selector, label) of every variable whose values are those of a label."""
    found = []
    for variable in dashboard.variables:
        if variable.kind == "query":
            asked = re.fullmatch(r"label_values\((.+), (\w+)\)", variable.query)
            assert asked is not None, f"{variable.query} asks for no values of a label"
            found.append((f"{dashboard.uid}: variable {variable.name}", asked[1], asked[2]))
    return found


def addresses(dashboard: Dashboard) -> list[tuple[str, str]]:
    """(where, address) of every link of a panel."""
    return [(f"{dashboard.uid}: {p.title}", link.url) for p in dashboard.panels for link in p.links]


SUBSTITUTES: Final = {
    "=`${pipeline:raw}`": "=~`.*`",
    "=~`${pipeline:regex}`": "=~`.*`",
    "${definition:raw}": "last_input",
    RATE: "5m",
    "$__range": "1h",
    "$__interval": "1s",
}


def substituted(expression: str) -> str:
    """``expression`` with each variable of ours given a value, so that a Prometheus can run it."""
    for variable, value in SUBSTITUTES.items():
        expression = expression.replace(variable, value)
    return expression

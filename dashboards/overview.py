"""The overview dashboard: one row per pipeline, and which pipelines need attention."""

from __future__ import annotations

from typing import Final

from dashboards.alerts import SEEN_WITHIN
from dashboards.panels import GREEN_THEN_RED, RED_THEN_GREEN, Cells, Dashboard, Link, Panel, Query, Row, Threshold
from dashboards.promql import breaking, error_ratio
from dashboards.queries import (
    CHOSEN,
    DATASOURCE,
    FAULTS_OF_CHOSEN,
    PAGE,
    PIPELINES,
    RATE,
    by,
    runbook_links,
    runbook_sources,
    runbook_text,
)
from dashboards.queries import of_chosen as of
from dashboards.settings import Settings

UID: Final = "streamproof-overview"
RUNBOOKS: Final = ("StreamproofGuaranteeViolated", "StreamproofErrorBudgetBurn", "StreamproofSidecarSilent")
TO_PIPELINE: Final = Link("pipeline", "/d/streamproof-pipeline?var-pipeline=${__data.fields.pipeline:percentencode}")

SOME: Final = (Threshold(None, "green"), Threshold(1, "orange"))
CELLS: Final = {
    "watched": Cells(RED_THEN_GREEN, {"0": ("SILENT", "red"), "1": ("yes", "green")}),
    "failed, last hour": Cells(GREEN_THEN_RED, {"0": ("no", "green"), "1": ("BROKEN", "red")}),
    "unknown, last hour": Cells(SOME, {"0": ("no", "green"), "1": ("unknown", "orange")}),
    "open violations": Cells(GREEN_THEN_RED),
    "overdue": Cells(SOME),
    "lag (s)": Cells((Threshold(None, "green"), Threshold(30, "orange"), Threshold(300, "red")), unit="s"),
    "coverage complete": Cells(RED_THEN_GREEN, {"0": ("NO", "red"), "1": ("yes", "green")}),
}


def dashboard(settings: Settings) -> Dashboard:
    """The dashboard `streamproof-overview`."""
    return Dashboard(
        UID,
        "streamproof: overview",
        f"All pipelines that a sidecar monitors. {runbook_text(settings, RUNBOOKS)}",
        (DATASOURCE, PIPELINES, *runbook_sources(settings)),
        (Row("Now", (*_counts(), _table())), Row("Over time", _histories(settings))),
        (FAULTS_OF_CHOSEN,),
        links=runbook_links(settings, RUNBOOKS, PAGE),
    )


def _declared(status: str, over: str) -> str:
    """1 for each pipeline whose verdict on its declared guarantee is ``status``, else 0."""
    statuses = by("pipeline, guarantee", of("guarantee_status", {"over": over, "status": status}), "max")
    return by("pipeline", f"{statuses} and on (pipeline, guarantee) {of('guarantee_declared')} == 1", "max")


def _silent() -> str:
    """One series for each pipeline whose sidecar was seen recently and is not seen now."""
    seen = by("pipeline", f"last_over_time({of('build_info', over=SEEN_WITHIN)})", "max")
    return f"{seen} unless {by('pipeline', of('build_info'), 'max')}"


def _counts() -> tuple[Panel, ...]:
    watched = f"count({by('pipeline', of('build_info'), 'max')})"
    verdicts = (("broken in the last hour", "fail"), ("unknown in the last hour", "unknown"))
    return (
        Panel("stat", "pipelines", "Pipelines whose sidecar serves metrics.", (Query(watched),), width=4, height=4),
        Panel(
            "stat",
            "silent",
            f"Pipelines whose sidecar was seen within {SEEN_WITHIN} and serves no metrics now; they are not monitored.",
            (Query(f"count({_silent()}) or vector(0)"),),
            width=4,
            height=4,
            steps=GREEN_THEN_RED,
        ),
        *(
            Panel(
                "stat",
                title,
                f"Pipelines whose verdict on their declared guarantee is {status}.",
                (Query(f"sum({_declared(status, '1h')}) or vector(0)"),),
                width=4,
                height=4,
                steps=GREEN_THEN_RED if status == "fail" else SOME,
            )
            for title, status in verdicts
        ),
        Panel(
            "stat",
            "open violations",
            "Confirmed, not acknowledged, and of a class that the declared guarantee does not tolerate.",
            (Query(f"sum({breaking(CHOSEN)}) or vector(0)"),),
            width=4,
            height=4,
            steps=GREEN_THEN_RED,
        ),
        Panel(
            "stat",
            "active faults",
            "Faults that were injected and not yet verified as healed.",
            (Query(f"sum({by('pipeline, fault, target', of('fault_active'), 'max')}) or vector(0)"),),
            width=4,
            height=4,
            steps=SOME,
        ),
    )


def _table() -> Panel:
    columns = {
        "watched": f"{by('pipeline', of('build_info'), 'max')} or 0 * ({_silent()})",
        "failed, last hour": _declared("fail", "1h"),
        "unknown, last hour": _declared("unknown", "1h"),
        "exact ratio": by("pipeline", of("reliability_ratio", {"measure": "exact"}), "min"),
        "open violations": by("pipeline", of("violations_open")),
        "overdue": by("pipeline", of("outstanding_events", {"state": "overdue"})),
        "lag (s)": by("pipeline", of("read_lag_seconds"), "max"),
        "coverage complete": by("pipeline", of("coverage_complete"), "min"),
    }
    headings = {f"Value #{chr(ord('A') + i)}": heading for i, heading in enumerate(columns)}
    return Panel(
        "table",
        "pipelines",
        "One row per pipeline, including silent ones; open violations here are of all classes. Click a value to "
        "open the pipeline's dashboard.",
        tuple(Query(expression, form="table") for expression in columns.values()),
        width=24,
        columns={"pipeline": "pipeline", **headings},
        cells=CELLS,
        links=(TO_PIPELINE,),
    )


def _histories(settings: Settings) -> tuple[Panel, ...]:
    return (
        Panel(
            "state-timeline",
            "declared guarantee broken",
            "1 if the last hour has a confirmed violation of the declared guarantee.",
            (Query(_declared("fail", "1h"), "{{pipeline}}"),),
            steps=GREEN_THEN_RED,
            mappings={"0": ("kept", "green"), "1": ("broken", "red")},
        ),
        Panel(
            "timeseries",
            "error ratio (1 h)",
            f"Share of contributions that broke the declared guarantee; the budget is {settings.budget_ratio:.12g}.",
            (Query(error_ratio("1h", CHOSEN), "{{pipeline}}"),),
            unit="percentunit",
        ),
        Panel(
            "timeseries",
            "reliable throughput",
            "Distinct contributions processed per second.",
            (Query(by("pipeline", f"rate({of('reliable_events_total', over=RATE)})"), "{{pipeline}}"),),
            unit="cps",
        ),
        Panel(
            "timeseries",
            "read lag",
            "Now minus the instant up to which the sidecar has read its slowest topic.",
            (Query(by("pipeline", of("read_lag_seconds"), "max"), "{{pipeline}}"),),
            unit="s",
        ),
    )

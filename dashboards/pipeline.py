"""The pipeline dashboard: verdicts, reliability, classes, outstanding contributions, latency by definition."""

from __future__ import annotations

from typing import Final

from dashboards.panels import Dashboard, Panel, Query, Row, Threshold
from dashboards.queries import (
    DATASOURCE,
    FAULTS,
    ONE_PIPELINE,
    PAGE,
    PIPELINE_TAG,
    PUSHED_FAULTS,
    RATE,
    RESOLUTION,
    SCHEME,
    SIDECAR,
    TO_VIOLATIONS,
    by,
    of,
    quantile,
    runbook_links,
    runbook_text,
)
from dashboards.settings import Settings
from dashboards.variables import Variable
from validator.publish.catalogue import DEFINITIONS

UID: Final = "streamproof-pipeline"
RUNBOOKS: Final = (
    "StreamproofGuaranteeViolated",
    "StreamproofErrorBudgetBurn",
    "StreamproofOverdueGrowing",
    "StreamproofInputUnconsumed",
    "StreamproofVerdictUnknown",
)
DEFINITION: Final = Variable("definition", "latency from", "custom", ",".join(DEFINITIONS))
OF_DEFINITION: Final = {"definition": "$definition"}
VERDICT: Final = {"0": ("pass", "green"), "1": ("unknown", "orange"), "2": ("fail", "red")}


def dashboard(settings: Settings) -> Dashboard:
    """The dashboard `streamproof-pipeline`."""
    return Dashboard(
        UID,
        "streamproof: pipeline",
        "Verdicts and measures of one pipeline; a count of violations links to their ids. "
        + runbook_text(settings, RUNBOOKS),
        (DATASOURCE, ONE_PIPELINE, PIPELINE_TAG, SIDECAR, SCHEME, DEFINITION),
        (
            Row("Verdicts", _verdicts()),
            Row("Reliability", _reliability()),
            Row("Classes", _classes()),
            Row("Latency", _latency()),
        ),
        (FAULTS,),
        (PUSHED_FAULTS,),
        runbook_links(settings, RUNBOOKS, PAGE),
    )


def _verdict(over: str) -> str:
    """By guarantee: 2 fail, 1 unknown, 0 pass."""
    fail = by("guarantee", of("guarantee_status", {"over": over, "status": "fail"}), "max")
    unknown = by("guarantee", of("guarantee_status", {"over": over, "status": "unknown"}), "max")
    return f"2 * {fail} + {unknown}"


def _verdicts() -> tuple[Panel, ...]:
    steps = (Threshold(None, "green"), Threshold(1, "orange"), Threshold(2, "red"))
    stats = [
        Panel(
            "stat",
            f"verdict over {over}",
            "All three guarantees, judged on the same data. Unknown: the sidecar cannot decide; the report has "
            "the reasons.",
            (Query(_verdict(over), "{{guarantee}}"),),
            width=6,
            height=5,
            steps=steps,
            mappings=VERDICT,
            links=TO_VIOLATIONS,
        )
        for over in ("run", "24h", "1h")
    ]
    declared = Panel(
        "stat",
        "declared",
        "The guarantee that the pipeline declares; alerts are about this guarantee.",
        (Query(f"{by('guarantee', of('guarantee_declared'), 'max')} == 1", "{{guarantee}}"),),
        width=6,
        height=5,
        mappings={"1": ("declared", "blue")},
    )
    history = Panel(
        "state-timeline",
        "verdict over the last hour",
        "Green pass, orange unknown, red fail.",
        (Query(_verdict("1h"), "{{guarantee}}"),),
        width=24,
        height=6,
        steps=steps,
        mappings=VERDICT,
    )
    return (declared, *stats, history)


def _reliability() -> tuple[Panel, ...]:
    ratios = by("measure", of("reliability_ratio"), "min")
    confirmed = f"increase({of('violations_confirmed_total', over='$__range')})"
    return (
        Panel(
            "timeseries",
            "reliability",
            "Shares of settled contributions: handled = processed, late or rejected; exact = processed exactly once.",
            (Query(ratios, "{{measure}}"),),
            unit="percentunit",
        ),
        Panel(
            "timeseries",
            "confirmed violations",
            "Contributions confirmed as violations, by class and phase, since the start of the selected time range. "
            "A diamond marks one violation with its id.",
            (
                Query(
                    f"{by('class, phase', confirmed)} > 0",
                    "{{class}} in {{phase}}",
                    form="exemplars",
                ),
            ),
            links=TO_VIOLATIONS,
        ),
        Panel(
            "timeseries",
            "open violations",
            "Confirmed and not acknowledged. `streamproof ack` removes a violation from the alert.",
            (Query(by("class", of("violations_open")), "{{class}}"),),
            links=TO_VIOLATIONS,
        ),
        Panel(
            "timeseries",
            "retracted violations",
            "Violations that the sidecar retracted because later evidence explained them: the measured false alarms.",
            (Query(by("class", of("violations_retracted_total")), "{{class}}"),),
            links=TO_VIOLATIONS,
        ),
    )


def _classes() -> tuple[Panel, ...]:
    return (
        Panel(
            "timeseries",
            "contributions by class",
            "Current number of contributions in each class.",
            (Query(by("class", of("contributions")), "{{class}}"),),
        ),
        Panel(
            "timeseries",
            "outstanding",
            "Expected contributions without a result, by class.",
            (Query(by("state", of("outstanding_events")), "{{state}}"),),
        ),
        Panel(
            "timeseries",
            "results",
            "Records read from output topics, by class, per second.",
            (Query(by("class", f"rate({of('results_total', over=RATE)})"), "{{class}}"),),
            unit="cps",
        ),
        Panel(
            "timeseries",
            "classifications",
            "Classifications per second by class, and transitions from one class to another.",
            (
                Query(by("class", f"rate({of('events_total', over=RATE)})"), "{{class}}"),
                # Every pair of classes has a series; only transitions that occur are drawn.
                Query(by("from, to", f"rate({of('reclassified_total', over=RATE)})") + " > 0", "{{from}} to {{to}}"),
            ),
            unit="cps",
        ),
    )


def _latency() -> tuple[Panel, ...]:
    quantiles = (0.5, 0.9, 0.99)
    return (
        Panel(
            "timeseries",
            "latency, by the selected definition",
            "Broker time of a result minus the broker time of the input that the definition names. On topics with "
            "CreateTime: the instant at which the sidecar read the result minus the instant at which it read the input."
            " The plot also shows the resolution of this time.",
            (
                *(
                    Query(quantile(q, "latency_seconds", OF_DEFINITION, "definition"), f"p{q * 100:g}")
                    for q in quantiles
                ),
                RESOLUTION,
            ),
            unit="s",
        ),
        Panel(
            "timeseries",
            "99th percentile, by definition",
            "All three definitions for comparison.",
            (Query(quantile(0.99, "latency_seconds", None, "definition"), "{{definition}}"), RESOLUTION),
            unit="s",
        ),
    )

"""Faults: their windows, what they cost, and what they broke."""

from __future__ import annotations

from typing import Final

from dashboards.panels import GREEN_THEN_RED, PLAIN, Cells, Dashboard, Panel, Query, Row, Threshold
from dashboards.pipeline import DEFINITION, OF_DEFINITION
from dashboards.queries import (
    DATASOURCE,
    FAULTS,
    ONE_PIPELINE,
    PAGE,
    PIPELINE_TAG,
    PUSHED_FAULTS,
    RATE,
    SIDECAR,
    TO_VIOLATIONS,
    by,
    of,
    quantile,
    runbook_links,
    runbook_text,
)
from dashboards.settings import Settings

UID: Final = "streamproof-faults"
RUNBOOKS: Final = ("StreamproofFaultNotHealed", "StreamproofGuaranteeViolated")
MEASURES: Final = {
    "fault_failure_cost_seconds": "failure cost",
    "fault_downtime_seconds": "downtime",
    "fault_recovery_seconds": "recovery time",
    "fault_recovered": "recovered",
    "fault_throughput_penalty_ratio": "throughput penalty",
    "fault_latency_penalty_ratio": "latency penalty",
}


def dashboard(settings: Settings) -> Dashboard:
    """The dashboard `streamproof-faults`."""
    return Dashboard(
        UID,
        "streamproof: faults",
        f"What faults did to one pipeline; their windows are marked. {runbook_text(settings, RUNBOOKS)}",
        (DATASOURCE, ONE_PIPELINE, PIPELINE_TAG, SIDECAR, DEFINITION),
        (
            Row("Faults", (_windows(), _costs())),
            Row("Before, during and after", _phases()),
            Row("Under faults", _effects()),
        ),
        (FAULTS,),
        (PUSHED_FAULTS,),
        runbook_links(settings, RUNBOOKS, PAGE),
    )


def _windows() -> Panel:
    return Panel(
        "state-timeline",
        "fault windows",
        "From injection until healing was verified, as the faults topic told it.",
        (Query(by("fault, kind, target", of("fault_active"), "max"), "{{fault}} ({{kind}} on {{target}})"),),
        width=24,
        height=6,
        steps=(Threshold(None, "transparent"), Threshold(1, "red")),
        mappings={"0": ("healed", "green"), "1": ("active", "red")},
    )


def _costs() -> Panel:
    headed = [f"{title} (s)" if name.endswith("_seconds") else title for name, title in MEASURES.items()]
    headings = {f"Value #{chr(ord('A') + i)}": title for i, title in enumerate(headed)}
    return Panel(
        "table",
        "cost of each fault",
        "Failure cost: largest latency under and after the fault less the largest before. Downtime: longest gap of"
        " output beyond the usual. Recovery: from injection until the output rate was back (recovered: 1). Penalties:"
        " failure over control, of the contributions a second and of the mean latency. Empty: not known.",
        tuple(Query(by("fault, kind", of(name), "max"), form="table") for name in MEASURES),
        width=24,
        columns={"fault": "fault", "kind": "kind", **headings},
        cells={"recovered": Cells(PLAIN, {"0": ("not reached", "red"), "1": ("yes", "green")})},
    )


def in_phases() -> dict[str, str]:
    """Phase -> contributions a second at the instants that belong to it.

    Control: no fault is in force, and none waits for recovery. Recovery: until it is known whether the rate came back.
    """
    rate = f"sum(rate({of('reliable_events_total', over=RATE)}))"
    faults = by("fault, kind", of("fault_active"), "max")
    active = f"max({of('fault_active')}) == 1"
    recovering = f"count(({faults} == 0) unless on (fault, kind) {by('fault, kind', of('fault_recovered'), 'max')}) > 0"
    return {
        "control": f"{rate} unless on () ({active}) unless on () ({recovering})",
        "failure": f"{rate} and on () ({active})",
        "recovery": f"{rate} and on () ({recovering}) unless on () ({active})",
    }


def _phases() -> tuple[Panel, ...]:
    """The three phases side by side, over the chosen stretch of time."""
    broken = by("phase", f"increase({of('violations_confirmed_total', over='$__range')})")
    buckets = of("latency_seconds_bucket", OF_DEFINITION, "$__range")
    slow = f"histogram_quantile(0.99, sum by (le, phase) (increase({buckets}))) >= 0"
    return (
        Panel(
            "stat",
            "throughput",
            "Distinct contributions processed per second, the mean over the instants of each phase in the chosen time."
            " A phase that is not in it is left out.",
            tuple(
                Query(f"avg_over_time(({rate})[$__range:$__interval])", phase, form="instant")
                for phase, rate in in_phases().items()
            ),
            unit="cps",
            width=8,
            height=6,
        ),
        Panel(
            "stat",
            "99th percentile of latency",
            "Of the results read in each phase, by the chosen definition. Empty without LogAppendTime.",
            (Query(slow, "{{phase}}", form="instant"),),
            unit="s",
            width=8,
            height=6,
        ),
        Panel(
            "stat",
            "confirmed violations",
            "Contributions confirmed as violations in the chosen time, by the phase that they were seen in.",
            (Query(broken, "{{phase}}", form="instant"),),
            width=8,
            height=6,
            steps=GREEN_THEN_RED,
            links=TO_VIOLATIONS,
        ),
    )


def _effects() -> tuple[Panel, ...]:
    return (
        Panel(
            "timeseries",
            "confirmed violations by phase",
            "Ever confirmed: in control no fault was active.",
            (Query(by("phase", of("violations_confirmed_total")), "{{phase}}", form="exemplars"),),
            links=TO_VIOLATIONS,
        ),
        Panel(
            "timeseries",
            "confirmed violations by class",
            "Ever confirmed, in failure and recovery; and what plans of faults expect of them, which alerts leave out.",
            (
                Query(
                    by("class", of("violations_confirmed_total", {"phase": ("failure", "recovery")})),
                    "{{class}}",
                    form="exemplars",
                ),
                Query(by("class", of("violations_expected")), "{{class}}, expected by a plan"),
            ),
            links=TO_VIOLATIONS,
        ),
        Panel(
            "timeseries",
            "reliable throughput",
            "Distinct contributions processed, per second.",
            (Query(f"sum(rate({of('reliable_events_total', over=RATE)}))", "processed"),),
            unit="cps",
        ),
        Panel(
            "timeseries",
            "99th percentile of latency by phase",
            "By the chosen definition.",
            (Query(quantile(0.99, "latency_seconds", OF_DEFINITION, "phase"), "{{phase}}"),),
            unit="s",
        ),
    )

"""The faults dashboard: fault windows, the cost of faults, and the violations during faults."""

from __future__ import annotations

from dataclasses import replace
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

UID: Final = "streamproof-faults"
RUNBOOKS: Final = ("StreamproofFaultNotHealed", "StreamproofGuaranteeViolated")
MEASURES: Final = {
    "fault_failure_cost_seconds": "failure cost",
    "fault_downtime_seconds": "downtime",
    "fault_recovery_seconds": "recovery time",
    "fault_recovered": "recovered",
    "fault_throughput_penalty_ratio": "throughput penalty",
    "fault_latency_penalty_ratio": "latency penalty",
    "fault_resolution_seconds": "time resolution",
}


def dashboard(settings: Settings) -> Dashboard:
    """The dashboard `streamproof-faults`."""
    return Dashboard(
        UID,
        "streamproof: faults",
        f"Effects of faults on one pipeline; fault windows are marked. {runbook_text(settings, RUNBOOKS)}",
        (DATASOURCE, ONE_PIPELINE, PIPELINE_TAG, SIDECAR, SCHEME, DEFINITION),
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
        "From injection until healing was verified, as reported on the faults topic.",
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
        "Failure cost: largest latency during and after the fault minus the largest before it. Downtime: longest gap "
        "in the output minus the longest gap before the fault. Recovery: from injection until the output rate was "
        "restored. Recovered: whether it was restored. Penalties: contributions per second and mean latency, each as "
        "its value during the fault divided by its value before the fault. Empty cell: unknown.",
        tuple(Query(by("fault, kind", of(name), "max"), form="table") for name in MEASURES),
        width=24,
        columns={"fault": "fault", "kind": "kind", **headings},
        cells={"recovered": Cells(PLAIN, {"0": ("not reached", "red"), "1": ("yes", "green")})},
    )


def in_phases() -> dict[str, str]:
    """Phase -> contributions per second at the instants of that phase.

    Control: no fault is active or waiting for recovery. Recovery: after the fault, until it is known whether the output
    rate was restored.
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
    """The three phases side by side, over the selected time range."""
    broken = by("phase", f"increase({of('violations_confirmed_total', over='$__range')})")
    buckets = of("latency_seconds_bucket", OF_DEFINITION, "$__range")
    slow = f"histogram_quantile(0.99, sum by (le, phase) (increase({buckets}))) >= 0"
    return (
        Panel(
            "stat",
            "throughput",
            "Distinct contributions processed per second, averaged over each phase within the selected time range. "
            "A phase outside the range is not shown.",
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
            "Latency of the results that were read in each phase, by the selected definition. "
            "Resolution: how exactly these latencies are known; 0 if all topics have LogAppendTime.",
            (Query(slow, "{{phase}}", form="instant"), replace(RESOLUTION, form="instant")),
            unit="s",
            width=8,
            height=6,
        ),
        Panel(
            "stat",
            "confirmed violations",
            "Contributions confirmed as violations in the selected time range, by the phase in which they were "
            "observed.",
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
            "All violations ever confirmed. Phase control: no fault was active.",
            (Query(by("phase", of("violations_confirmed_total")), "{{phase}}", form="exemplars"),),
            links=TO_VIOLATIONS,
        ),
        Panel(
            "timeseries",
            "confirmed violations by class",
            "All violations ever confirmed in the phases failure and recovery. Those that fault plans expect are also "
            "shown separately; alerts exclude them.",
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
            "Distinct contributions processed per second.",
            (Query(f"sum(rate({of('reliable_events_total', over=RATE)}))", "processed"),),
            unit="cps",
        ),
        Panel(
            "timeseries",
            "99th percentile of latency by phase",
            "By the selected definition.",
            (Query(quantile(0.99, "latency_seconds", OF_DEFINITION, "phase"), "{{phase}}"), RESOLUTION),
            unit="s",
        ),
    )

"""Faults: their windows, what they cost, and what they broke."""

from __future__ import annotations

from typing import Final

from dashboards.panels import Dashboard, Panel, Query, Row, Step
from dashboards.pipeline import DEFINITION, OF_DEFINITION
from dashboards.queries import DATASOURCE, FAULTS, ONE_PIPELINE, RATE, by, of, quantile, runbook_links, runbook_text
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
        (DATASOURCE, ONE_PIPELINE, DEFINITION),
        (Row("Faults", (_windows(), _costs())), Row("Under faults", _effects())),
        (FAULTS,),
        runbook_links(settings, RUNBOOKS),
    )


def _windows() -> Panel:
    return Panel(
        "state-timeline",
        "fault windows",
        "From injection until healing was verified, as the faults topic told it.",
        (Query(by("fault, kind, target", of("fault_active"), "max"), "{{fault}} ({{kind}} on {{target}})"),),
        width=24,
        height=6,
        steps=(Step(None, "transparent"), Step(1, "red")),
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
    )


def _effects() -> tuple[Panel, ...]:
    return (
        Panel(
            "timeseries",
            "confirmed violations by phase",
            "Ever confirmed: in control no fault was active.",
            (Query(by("phase", of("violations_confirmed_total")), "{{phase}}"),),
        ),
        Panel(
            "timeseries",
            "confirmed violations by class",
            "Ever confirmed, in failure and recovery; and what plans of faults expect of them, which alerts leave out.",
            (
                Query(
                    by("class", of("violations_confirmed_total", {"phase": ("failure", "recovery")})),
                    "{{class}}",
                ),
                Query(by("class", of("violations_expected")), "{{class}}, expected by a plan"),
            ),
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

"""Every metric, as data: the collector, docs/metrics.md and its test are made from this one list.

``python -m validator.publish.catalogue FILE`` writes the reference.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Final, Literal

from validator.model.classes import (
    EXPECTABLE,
    OUTSTANDING,
    PLANTED,
    Contribution,
    Guarantee,
    Result,
    Verdict,
    ViolationClass,
)

PREFIX: Final = "streamproof_"
PHASES: Final = ("control", "failure", "recovery")
OVERS: Final = ("run", "1h", "24h")
DEFINITIONS: Final = ("last_input", "window_close", "first_input")


@dataclass(frozen=True)
class Label:
    """A label and, where they are known beforehand, all of its values."""

    name: str
    values: tuple[str, ...] | None = None
    meaning: str = ""


@dataclass(frozen=True)
class Metric:
    """One metric. ``name`` is without prefix; every one has the label `pipeline` before its own ``labels``.

    ``start`` is the value of each combination of known labels before the first batch; None: no series until then.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    help: str
    labels: tuple[Label, ...] = ()
    start: float | None = 0.0

    def known_labels(self) -> tuple[tuple[str, ...], ...]:
        """Every combination of label values that is known beforehand; none where one label is open."""
        if any(label.values is None for label in self.labels):
            return ()
        combined = product(*(label.values or () for label in self.labels))
        # No value stands twice in one: nothing moves from a class to itself.
        return tuple(values for values in combined if len(set(values)) == len(values))


NAN: Final = float("nan")
CONTRIBUTION: Final = Label("class", tuple(Contribution), "class of a contribution")
MOVED: Final = tuple(name for name in Contribution if name is not Contribution.EXPECTED)
"""Classes between which a contribution moves; what is expected stays expected, whatever becomes of it."""
VIOLATION: Final = Label("class", tuple(ViolationClass), "class of a violation")
PHASE: Final = Label("phase", PHASES, "phase of the run")
TOPIC: Final = Label("topic", None, "a configured topic")
FAULT: Final = Label("fault", None, "the plan's name of the fault")
KIND: Final = Label("kind", None, "kind of the fault")


def _canary(name: str, unit: str, meaning: str, labels: tuple[Label, ...] = ()) -> Metric:
    """A gauge of the canary's last rounds: without a canary there is no series."""
    return Metric(f"canary_{name}", "gauge", unit, meaning, labels, None)


CATALOGUE: Final[tuple[Metric, ...]] = (
    Metric("events_total", "counter", "contributions", "Classifications made, by class.", (CONTRIBUTION,)),
    Metric(
        "reclassified_total",
        "counter",
        "contributions",
        "Contributions that later moved from one class to another.",
        (Label("from", MOVED, "class before"), Label("to", MOVED, "class after")),
    ),
    Metric("contributions", "gauge", "contributions", "Contributions now in each class.", (CONTRIBUTION,)),
    Metric(
        "results_total",
        "counter",
        "records",
        "Records read on output topics, by class.",
        (Label("class", tuple(Result), "class of a result"),),
    ),
    Metric("violations_confirmed_total", "counter", "violations", "Violations ever confirmed.", (VIOLATION, PHASE)),
    Metric(
        "violations_retracted_total",
        "counter",
        "violations",
        "Confirmed violations that evidence explained later: the measured false alarms.",
        (VIOLATION,),
    ),
    Metric("violations_open", "gauge", "violations", "Confirmed violations that are not acknowledged.", (VIOLATION,)),
    Metric(
        "violations_expected",
        "gauge",
        "violations",
        "Confirmed violations of a fault whose plan expects their class, acknowledged or not.",
        (VIOLATION,),
    ),
    Metric(
        "violations_unexpected",
        "gauge",
        "violations",
        "Those of violations_open that no fault's plan expects: what alerts are about.",
        (VIOLATION,),
    ),
    Metric(
        "outstanding_events",
        "gauge",
        "contributions",
        "Expected contributions without an answer, by what is known of them now.",
        (Label("state", tuple(OUTSTANDING), "kind of outstanding"),),
    ),
    Metric(
        "unconsumed_overdue_events",
        "gauge",
        "contributions",
        "Those of the state `unconsumed` that would be missing, had the engine's consumer group read them.",
    ),
    Metric(
        "guarantee_status",
        "gauge",
        "0 or 1",
        "1 for the status that a guarantee has over the run, the last hour and the last day.",
        (
            Label("guarantee", tuple(Guarantee), "a guarantee"),
            Label("over", OVERS, "the stretch that is judged"),
            Label("status", tuple(Verdict), "the verdict"),
        ),
    ),
    Metric(
        "guarantee_declared",
        "gauge",
        "0 or 1",
        "1 for the guarantee that the pipeline declares; alerts are about this one. No series before the first batch.",
        (Label("guarantee", tuple(Guarantee), "a guarantee"),),
        None,
    ),
    Metric(
        "reliability_ratio",
        "gauge",
        "ratio 0-1",
        "Handled, and processed exactly once, over expected contributions of settled cells; NaN before one settled.",
        (Label("measure", ("handled", "exact"), "which of the two"),),
        NAN,
    ),
    Metric("reliable_events_total", "counter", "contributions", "Distinct contributions processed."),
    Metric(
        "latency_seconds",
        "histogram",
        "seconds",
        "Instant of a result less that of the input that the definition names; see `latency_resolution_seconds`.",
        (Label("definition", DEFINITIONS, "which input counts as the start"), PHASE),
    ),
    Metric(
        "latency_resolution_seconds",
        "gauge",
        "seconds",
        "How exactly the instants are known that latencies are measured from: 0 where all topics have LogAppendTime.",
    ),
    Metric(
        "detection_delay_seconds",
        "histogram",
        "seconds",
        "From the instant a violation could be proven to its confirmation being committed.",
    ),
    Metric(
        "fault_active",
        "gauge",
        "0 or 1",
        "1 from a fault's injection until it was verified healed.",
        (FAULT, KIND, Label("target", None, "what was broken")),
    ),
    Metric(
        "fault_expects",
        "gauge",
        "0 or 1",
        "1 while the plan of a fault expects the class: from its injection until some time after its healing.",
        (Label("class", EXPECTABLE, "class of a violation, or of an answer that is late"),),
    ),
    Metric(
        "fault_failure_cost_seconds",
        "gauge",
        "seconds",
        "Largest latency in failure and recovery less the largest in control.",
        (FAULT, KIND),
    ),
    Metric(
        "fault_recovery_seconds",
        "gauge",
        "seconds",
        "From injection until the output rate was back in the control phase's band.",
        (FAULT, KIND),
    ),
    Metric(
        "fault_downtime_seconds",
        "gauge",
        "seconds",
        "Longest gap of output beyond the control phase's longest.",
        (FAULT, KIND),
    ),
    Metric(
        "fault_recovered",
        "gauge",
        "0 or 1",
        "Whether the output rate recovered after the fault; no series while that is undecided or cannot be measured.",
        (FAULT, KIND),
    ),
    Metric(
        "fault_throughput_penalty_ratio",
        "gauge",
        "ratio",
        "Throughput of the failure phase over that of control (TPF).",
        (FAULT, KIND),
    ),
    Metric(
        "fault_latency_penalty_ratio",
        "gauge",
        "ratio",
        "Mean latency of the failure phase over that of control (LPF).",
        (FAULT, KIND),
    ),
    Metric("read_lag_events", "gauge", "offsets", "Offsets that the sidecar has yet to read.", (TOPIC,)),
    Metric(
        "read_lag_seconds",
        "gauge",
        "seconds",
        "Age of the instant through which every partition of the topic was read; NaN before the first.",
        (TOPIC,),
    ),
    Metric(
        "input_watermark_timestamp_seconds",
        "gauge",
        "seconds since the epoch",
        "Event time up to which the inputs are complete; NaN before the first event.",
        (),
        NAN,
    ),
    Metric("batch_duration_seconds", "histogram", "seconds", "Time that a batch took, commit included."),
    Metric(
        "last_batch_timestamp_seconds",
        "gauge",
        "seconds since the epoch",
        "Instant of the last committed batch; NaN before the first.",
        (),
        NAN,
    ),
    Metric("coverage_complete", "gauge", "0 or 1", "1 while the validator's own books balance."),
    _canary(
        "recall_ratio",
        "ratio 0-1",
        "Planted violations that were found in time over those planted, in the last 10 rounds of the canary; no series"
        " before the first, or without a canary.",
    ),
    _canary(
        "class_recall_ratio",
        "ratio 0-1",
        "The same for each class that is planted.",
        (Label("class", PLANTED, "class of a planted violation"),),
    ),
    _canary(
        "detection_delay_seconds",
        "seconds",
        "The slowest of the planted violations that were found in the last 10 rounds: from the round's writing (a"
        " missing one: `missing_after` later) to the verdict.",
    ),
    _canary(
        "false_alarms",
        "violations",
        "Violations in the last 10 rounds of the canary that it had not planted.",
    ),
    _canary(
        "judged_timestamp_seconds",
        "seconds since the epoch",
        "Instant at which the newest round of the canary was judged; before the first, when the canary began.",
    ),
    _canary(
        "silent_after_seconds",
        "seconds",
        "A canary that works judges its next round within so long, by its configuration.",
    ),
    Metric(
        "state_bytes",
        "gauge",
        "bytes",
        "Size of each table of the state.",
        (Label("table", None, "name of the table"),),
    ),
    Metric(
        "start_timestamp_seconds",
        "gauge",
        "seconds since the epoch",
        "Instant at which the sidecar's process began to serve: another one for each start.",
        (),
        None,
    ),
    Metric(
        "build_info",
        "gauge",
        "always 1",
        "The version that runs, and how its port is reached.",
        (
            Label("version", None, "its version"),
            Label("scheme", None, "`https` where the port has a certificate, else `http`"),
        ),
    ),
)
"""In the contract's order."""

BOUNDS_SECONDS: Final[dict[str, tuple[float, ...]]] = {
    "latency_seconds": (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600),
    "detection_delay_seconds": (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600),
    "batch_duration_seconds": (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300),
}
"""Upper bounds of the buckets before the first measure; afterwards the snapshot's own. From tens of milliseconds to
tens of minutes, since streaming latencies under faults span that."""

HEAD: Final = """\
# Metrics

<!-- Written by `python -m validator.publish.catalogue docs/metrics.md`; a test keeps it current. -->

Served at `/metrics` of `metrics.address:metrics.port`. Every metric has the label `pipeline`. Every class exists at 0
from the first scrape of a new state. On a restart `/metrics` answers 503 until the totals are restored, so a counter
never falls. No label carries an id, a key, an offset or a run. Nothing measures the classes `inconsistent` and
`wrong_value` yet: their series stay at 0, and in the report `results` has null for them. In OpenMetrics the samples of
`violations_confirmed_total` carry exemplars: the id of the newest violation of that class and phase.

| metric | type | unit | labels | what it is |
|---|---|---|---|---|
"""


def render() -> str:
    """The reference as Markdown."""
    lines = []
    for metric in CATALOGUE:
        labels = "; ".join(_label(label) for label in metric.labels) or "none"
        lines.append(f"| `{PREFIX}{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.help} |")
    return HEAD + "\n".join(lines) + "\n"


def _label(label: Label) -> str:
    if label.values is None:
        return f"`{label.name}`: {label.meaning}"
    return f"`{label.name}`: " + ", ".join(f"`{value}`" for value in label.values)


def main(arguments: list[str]) -> int:
    """Write the reference to the file named by the only argument."""
    Path(arguments[0]).write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

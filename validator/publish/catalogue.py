"""Every metric, as data: the collector, docs/metrics.md and its test use this one list.

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
    """A label and, if they are known in advance, all of its values."""

    name: str
    values: tuple[str, ...] | None = None
    meaning: str = ""


@dataclass(frozen=True)
class Metric:
    """One metric. ``name`` has no prefix. Every metric has the label `pipeline` before its own ``labels``.

    ``start`` is the value of each combination of known labels before the first batch; None: no series until then.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[Label, ...] = ()
    start: float | None = 0.0

    def known_labels(self) -> tuple[tuple[str, ...], ...]:
        """Return every combination of known label values; none if a label's values are not known in advance."""
        if any(label.values is None for label in self.labels):
            return ()
        combined = product(*(label.values or () for label in self.labels))
        # A combination does not repeat a value: nothing moves from a class to itself.
        return tuple(values for values in combined if len(set(values)) == len(values))


NAN: Final = float("nan")
CONTRIBUTION: Final = Label("class", tuple(Contribution), "class of a contribution")
MOVED: Final = tuple(name for name in Contribution if name is not Contribution.EXPECTED)
"""Classes between which a contribution moves. `expected` is not one: it counts expected contributions of any class."""
VIOLATION: Final = Label("class", tuple(ViolationClass), "class of a violation")
PHASE: Final = Label("phase", PHASES, "phase of the run")
TOPIC: Final = Label("topic", None, "a configured topic")
FAULT: Final = Label("fault", None, "name of the fault in its plan, or its kind if it has no name")
KIND: Final = Label("kind", None, "kind of the fault")


def _canary(name: str, meaning: str, labels: tuple[Label, ...] = ()) -> Metric:
    """Return a gauge of the canary's last rounds. Without a canary it has no series."""
    return Metric(f"canary_{name}", "gauge", meaning, labels, None)


CATALOGUE: Final[tuple[Metric, ...]] = (
    Metric(
        "events_total",
        "counter",
        "Contributions by their first class. While new events arrive, one can be counted in a later class instead.",
        (CONTRIBUTION,),
    ),
    Metric(
        "reclassified_total",
        "counter",
        "Contributions that moved from one class to another. A move can be hidden by new events: events_total then "
        "counts the contribution in the class that it moved to.",
        (Label("from", MOVED, "class before"), Label("to", MOVED, "class after")),
    ),
    Metric("contributions", "gauge", "Contributions now in each class.", (CONTRIBUTION,)),
    Metric(
        "results_total",
        "counter",
        "Records read on output topics, by class.",
        (Label("class", tuple(Result), "class of a result"),),
    ),
    Metric(
        "violations_confirmed_total",
        "counter",
        "Contributions and undecodable results ever confirmed as violations.",
        (VIOLATION, PHASE),
    ),
    Metric(
        "violations_retracted_total",
        "counter",
        "Confirmed violations that were retracted: later evidence explained them (the measured false alarms).",
        (VIOLATION,),
    ),
    Metric("violations_open", "gauge", "Confirmed violations that are not acknowledged.", (VIOLATION,)),
    Metric(
        "violations_expected",
        "gauge",
        "Confirmed violations that a fault's plan expected (`fault_expects`), including acknowledged ones.",
        (VIOLATION,),
    ),
    Metric(
        "violations_unexpected",
        "gauge",
        "Confirmed violations that are neither acknowledged nor expected by a fault's plan; alerts use this metric.",
        (VIOLATION,),
    ),
    Metric(
        "outstanding_events",
        "gauge",
        "Expected contributions without a result, late record or rejected record, by their current state.",
        (Label("state", tuple(OUTSTANDING), "class of the outstanding contribution"),),
    ),
    Metric(
        "unconsumed_overdue_events",
        "gauge",
        "Contributions of class `unconsumed` that have been due for longer than `timing.missing_after`, or were "
        "outstanding at the end of an earlier run with `--once`.",
    ),
    Metric(
        "guarantee_status",
        "gauge",
        "1 if `status` is the verdict on the guarantee over the run, the last hour or the last day, else 0.",
        (
            Label("guarantee", tuple(Guarantee), "a guarantee"),
            Label("over", OVERS, "time span of the verdict"),
            Label("status", tuple(Verdict), "the verdict"),
        ),
    ),
    Metric(
        "guarantee_declared",
        "gauge",
        "1 for the guarantee that the pipeline declares. Alerts use this guarantee. No series before the first batch.",
        (Label("guarantee", tuple(Guarantee), "a guarantee"),),
        None,
    ),
    Metric(
        "reliability_ratio",
        "gauge",
        "Share of the expected contributions of settled cells. `handled`: processed, late or rejected; `exact`:"
        " processed exactly once. NaN until a cell is settled.",
        (Label("measure", ("handled", "exact"), "handled, or processed exactly once"),),
        NAN,
    ),
    Metric("reliable_events_total", "counter", "Distinct contributions processed."),
    Metric(
        "latency_seconds",
        "histogram",
        "Time from an input, selected by the label `definition`, to the result; see `latency_resolution_seconds`.",
        (Label("definition", DEFINITIONS, "which input counts as the start"), PHASE),
    ),
    Metric(
        "latency_resolution_seconds",
        "gauge",
        "Resolution of the times from which latencies are computed: 0 if all topics have LogAppendTime.",
    ),
    Metric(
        "detection_delay_seconds",
        "histogram",
        "Time from the first instant at which a violation could be proven to the commit of its confirmation.",
    ),
    Metric(
        "fault_active",
        "gauge",
        "1 from the injection of a fault until it is verified healed.",
        (FAULT, KIND, Label("target", None, "target of the fault")),
    ),
    Metric(
        "fault_expects",
        "gauge",
        "1 while the plan of a fault expects the class.",
        (Label("class", EXPECTABLE, "class of a violation, or `overdue`"),),
    ),
    Metric(
        "fault_failure_cost_seconds",
        "gauge",
        "Largest latency in the failure and recovery phases minus the largest in the control phase.",
        (FAULT, KIND),
    ),
    Metric(
        "fault_recovery_seconds",
        "gauge",
        "Time from the injection until the output rate was back in the band around the rate of the control phase.",
        (FAULT, KIND),
    ),
    Metric(
        "fault_downtime_seconds",
        "gauge",
        "Longest time without output, minus the longest such time in the control phase.",
        (FAULT, KIND),
    ),
    Metric(
        "fault_recovered",
        "gauge",
        "1 if the output rate recovered after the fault, else 0; no series while undecided or not measurable.",
        (FAULT, KIND),
    ),
    Metric(
        "fault_throughput_penalty_ratio",
        "gauge",
        "Throughput of the failure phase divided by that of the control phase (TPF).",
        (FAULT, KIND),
    ),
    Metric(
        "fault_latency_penalty_ratio",
        "gauge",
        "Mean latency of the failure phase divided by that of the control phase (LPF).",
        (FAULT, KIND),
    ),
    Metric(
        "fault_resolution_seconds",
        "gauge",
        "Resolution of the times from which the fault's measures are computed: 0 if all topics have LogAppendTime; "
        "no series if the resolution is not known.",
        (FAULT, KIND),
    ),
    Metric("read_lag_events", "gauge", "Offsets that the sidecar has not read yet.", (TOPIC,)),
    Metric(
        "read_lag_seconds",
        "gauge",
        "Longest time since a partition of the topic was last read through; NaN until each partition was read through.",
        (TOPIC,),
    ),
    Metric(
        "input_watermark_timestamp_seconds",
        "gauge",
        "Event time up to which the inputs are complete; NaN until each input partition that is not idle has an event.",
        (),
        NAN,
    ),
    Metric("batch_duration_seconds", "histogram", "Duration of a batch, including its commit."),
    Metric(
        "last_batch_timestamp_seconds",
        "gauge",
        "Instant of the last committed batch; NaN before the first.",
        (),
        NAN,
    ),
    Metric(
        "coverage_complete",
        "gauge",
        "0 if the sidecar missed a record (it expired, or its topic was recreated or truncated), or if its coverage"
        " sums do not balance; else 1.",
    ),
    Metric(
        "coverage_differences",
        "gauge",
        "Coverage sums that do not hold, and ranges of offsets of which a second reading differs from the stored"
        " facts.",
    ),
    Metric(
        "second_reading_offsets_total",
        "counter",
        "Offsets that were read a second time, to compare them with the stored facts.",
    ),
    _canary(
        "recall_ratio",
        "Share of the planted violations that the sidecar found in time, in the last 10 rounds of the canary. No"
        " series before the first round, or without a canary.",
    ),
    _canary(
        "class_recall_ratio",
        "As `canary_recall_ratio`, for each class that is planted.",
        (Label("class", PLANTED, "class of a planted violation"),),
    ),
    _canary(
        "detection_delay_seconds",
        "Longest time from the writing of a round (for a missing result, `missing_after` later) to the verdict on it, "
        "in the last 10 rounds.",
    ),
    _canary(
        "false_alarms",
        "Violations that the sidecar reported and the canary had not planted, in the last 10 rounds of the canary.",
    ),
    _canary(
        "judged_timestamp_seconds",
        "Instant at which the newest round of the canary was judged. At first it is the start of the canary.",
    ),
    _canary(
        "silent_after_seconds",
        "Longest time that a working canary takes to judge its next round, computed from the configuration.",
    ),
    Metric(
        "state_bytes",
        "gauge",
        "Size of a table of the state.",
        (Label("table", None, "name of the table"),),
    ),
    Metric(
        "start_timestamp_seconds",
        "gauge",
        "Instant at which the process of the sidecar began to serve. It differs for each start.",
        (),
        None,
    ),
    Metric(
        "build_info",
        "gauge",
        "The running version of the sidecar, and how its port is reached.",
        (
            Label("version", None, "its version"),
            Label("scheme", None, "`https` where the port has a certificate, else `http`"),
        ),
    ),
)
"""The metrics, in the contract's order."""

BOUNDS_SECONDS: Final[dict[str, tuple[float, ...]]] = {
    "latency_seconds": (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600),
    "detection_delay_seconds": (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600),
    "batch_duration_seconds": (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300),
}
"""Upper bounds of the buckets before the first measure; afterwards those of the snapshot apply. They span tens of
milliseconds to tens of minutes, as streaming latencies under faults do."""

HEAD: Final = """\
# Metrics

<!-- Written by `python -m validator.publish.catalogue docs/metrics.md`; a test keeps it current. -->

The sidecar serves these metrics at `/metrics` of `metrics.address:metrics.port`.

- **Labels.** Every metric has the label `pipeline`. No label contains an id, a key, an offset or a run.
- **Start and restart.** Every class starts at 0. After a restart `/metrics` answers 503 until the totals are restored,
  so a counter never falls.
- **Not measured.** `inconsistent` is 0 (null in the report) unless results state values beside ids, `wrong_value`
  unless they state sums or the like without ids.
- **OpenTelemetry.** [`metrics.otlp`](configuration.md#metricsotlp) also sends them to a collector, under the same
  names, without exemplars and values that are NaN (`pip install 'streamproof[otlp]'`; the image lacks it).
  `OTEL_EXPORTER_OTLP_CERTIFICATE` names a private CA.
- **Exemplars.** In OpenMetrics the samples of `violations_confirmed_total` have exemplars: the id of the newest
  violation of that class and phase.

[SEMANTICS](SEMANTICS.md) defines the classes, guarantees and measures.

| metric | type | labels | meaning |
|---|---|---|---|
"""


def render() -> str:
    """Return the reference as Markdown."""
    lines = []
    explained: dict[tuple[str, ...] | str | None, str] = {}
    for metric in CATALOGUE:
        labels = "; ".join(_label(label, metric.name, explained) for label in metric.labels) or "none"
        lines.append(f"| `{PREFIX}{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return HEAD + "\n".join(lines) + "\n"


def _label(label: Label, metric: str, explained: dict[tuple[str, ...] | str | None, str]) -> str:
    """The label with its values or meaning, or with the place where the page has them already."""
    meaning = label.values or label.meaning
    if place := explained.get(meaning):
        return f"`{label.name}`" if label.values is None else f"`{label.name}`: as in `{place}`"
    explained[meaning] = metric
    return f"`{label.name}`: " + (
        label.meaning if label.values is None else ", ".join(f"`{one}`" for one in label.values)
    )


def main(arguments: list[str]) -> int:
    """Write the reference to the file named by the only argument."""
    Path(arguments[0]).write_text(render(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

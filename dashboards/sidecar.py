"""The sidecar dashboard: whether verdicts are trustworthy and timely."""

from __future__ import annotations

from typing import Final

from dashboards.panels import GREEN_THEN_RED, RED_THEN_GREEN, Dashboard, Panel, Query, Row, Threshold
from dashboards.queries import (
    CHOSEN,
    DATASOURCE,
    PAGE,
    PIPELINES,
    by,
    quantile,
    runbook_links,
    runbook_sources,
    runbook_text,
)
from dashboards.queries import of_chosen as of
from dashboards.settings import Settings
from validator.publish.canary import RECALL_MIN

UID: Final = "streamproof-sidecar"
RUNBOOKS: Final = (
    "StreamproofSidecarSilent",
    "StreamproofSidecarRestarting",
    "StreamproofSidecarTwice",
    "StreamproofSidecarStalled",
    "StreamproofSidecarBehind",
    "StreamproofSidecarBlind",
    "StreamproofCoverageIncomplete",
    "StreamproofCoverageWrong",
    "StreamproofCanaryMissed",
)


def dashboard(settings: Settings) -> Dashboard:
    """The dashboard `streamproof-sidecar`."""
    return Dashboard(
        UID,
        "streamproof: sidecar health",
        f"Health of the sidecars. {runbook_text(settings, RUNBOOKS)}",
        (DATASOURCE, PIPELINES, *runbook_sources(settings)),
        (
            Row("Health", _health()),
            Row("Keeping up", _keeping_up()),
            Row("Canary", _canary()),
            Row("State", _state()),
        ),
        links=runbook_links(settings, RUNBOOKS, PAGE),
    )


def _each(metric: str, operation: str, *labels: str) -> Query:
    """``metric`` of the selected pipelines, by pipeline and ``labels``. The legend shows the values of these labels."""
    names = ("pipeline", *labels)
    return Query(by(", ".join(names), of(metric), operation), " ".join(f"{{{{{name}}}}}" for name in names))


def _age(metric: str) -> Query:
    """Seconds since the instant ``metric``, by pipeline."""
    return Query(f"time() - {by('pipeline', of(metric), 'max')}", "{{pipeline}}")


def _quantiles(metric: str) -> tuple[Query, ...]:
    """Median and 99th percentile of the histogram ``metric``, by pipeline."""
    return tuple(Query(quantile(q, metric, CHOSEN), f"{{{{pipeline}}}} p{q * 100:g}") for q in (0.5, 0.99))


def _health() -> tuple[Panel, ...]:
    return (
        Panel(
            "stat",
            "time since the last batch",
            "Age of the last committed batch; a sidecar commits a batch at every tick, even without load.",
            (_age("last_batch_timestamp_seconds"),),
            unit="s",
            width=6,
            steps=(Threshold(None, "green"), Threshold(30, "orange"), Threshold(120, "red")),
        ),
        Panel(
            "stat",
            "coverage complete",
            "1 if the sidecar accounts for every record (SEMANTICS section 5).",
            (_each("coverage_complete", "min"),),
            width=6,
            steps=RED_THEN_GREEN,
            mappings={"0": ("no", "red"), "1": ("yes", "green")},
        ),
        Panel(
            "stat",
            "topics never read through",
            "Until a topic is read through, no contribution can be classified as missing.",
            (
                Query(
                    f"count({by('pipeline, topic', of('read_lag_seconds'), 'max')} != "
                    f"{by('pipeline, topic', of('read_lag_seconds'), 'max')}) or vector(0)"
                ),
            ),
            width=6,
            steps=GREEN_THEN_RED,
        ),
        Panel(
            "stat",
            "uptime",
            "Time since the sidecar's process started to serve metrics.",
            (_age("start_timestamp_seconds"),),
            unit="s",
            width=6,
        ),
        Panel(
            "stat",
            "version",
            "Version of the running sidecar.",
            (_each("build_info", "max", "version"),),
            width=6,
            mappings={"1": ("runs", "blue")},
        ),
    )


def _keeping_up() -> tuple[Panel, ...]:
    return (
        Panel(
            "timeseries",
            "read lag in time",
            "Now minus the instant up to which the sidecar has read every partition of the topic.",
            (_each("read_lag_seconds", "max", "topic"),),
            unit="s",
        ),
        Panel(
            "timeseries",
            "read lag in offsets",
            "Offsets that are not read yet.",
            (_each("read_lag_events", "max", "topic"),),
        ),
        Panel(
            "timeseries",
            "batch duration",
            "Includes the commit.",
            _quantiles("batch_duration_seconds"),
            unit="s",
        ),
        Panel(
            "timeseries",
            "detection delay",
            "From the instant at which a violation could be confirmed until its confirmation was committed.",
            _quantiles("detection_delay_seconds"),
            unit="s",
        ),
        Panel(
            "timeseries",
            "input watermark age",
            "Now minus the event time up to which the inputs are complete; large for replayed history.",
            (_age("input_watermark_timestamp_seconds"),),
            unit="s",
        ),
        Panel(
            "timeseries",
            "retracted violations",
            "Violations that the sidecar retracted because later evidence explained them; the lines must stay flat.",
            (_each("violations_retracted_total", "sum", "class"),),
        ),
    )


def _canary() -> tuple[Panel, ...]:
    """The panels on the canary. They are empty for a pipeline without a canary."""
    return (
        Panel(
            "stat",
            "planted violations found",
            "Share found in the last 10 canary rounds. Below 100%, a report without violations is not reliable.",
            (_each("canary_recall_ratio", "min"),),
            unit="percentunit",
            width=6,
            steps=(Threshold(None, "red"), Threshold(RECALL_MIN, "orange"), Threshold(1, "green")),
        ),
        Panel(
            "stat",
            "false alarms of the canary",
            "Correct canary contributions that the sidecar reported as violations in the last 10 rounds.",
            (_each("canary_false_alarms", "max"),),
            width=6,
            steps=GREEN_THEN_RED,
        ),
        Panel(
            "timeseries",
            "planted violations found, by class",
            "Share found in the last 10 canary rounds, by class. Without new rounds the lines stay constant.",
            (_each("canary_class_recall_ratio", "min", "class"),),
            unit="percentunit",
            maximum=1,
        ),
        Panel(
            "timeseries",
            "canary detection delay",
            "Longest time in the last 10 rounds from the writing of a round until the sidecar found its violations. For"
            " a missing result, the time starts when missing_after has passed.",
            (_each("canary_detection_delay_seconds", "max"),),
            unit="s",
        ),
        Panel(
            "timeseries",
            "age of the last canary round",
            "Age of the newest round that was judged, and the age above which the canary counts as silent.",
            (
                _age("canary_judged_timestamp_seconds"),
                Query(by("pipeline", of("canary_silent_after_seconds"), "max"), "{{pipeline}} silent after"),
            ),
            unit="s",
        ),
    )


def _state() -> tuple[Panel, ...]:
    return (
        Panel(
            "timeseries",
            "state",
            "Size of each table in the state folder.",
            (_each("state_bytes", "max", "table"),),
            unit="bytes",
            width=24,
        ),
    )

"""The dashboard of a running campaign: what each engine uses and counts. `testbed.campaign.live` serves its metrics.

It is no part of the dashboards for production, which has no such metrics, and is in a folder of its own.
"""

from __future__ import annotations

from typing import Final

from dashboards.panels import Dashboard, Panel, Query, Row
from dashboards.queries import DATASOURCE, RATE
from dashboards.settings import Settings
from dashboards.variables import Variable

UID: Final = "streamproof-campaign"
PREFIX: Final = "streamproof_campaign_"
_RUN: Final = f"{PREFIX}run{{engine=~`${{engine:regex}}`}}"
ENGINES: Final = Variable("engine", "engine", "query", f"label_values({PREFIX}run, engine)", many=True)
RUNS: Final = Variable("pipeline", "run", "query", f"label_values({_RUN}, pipeline)", many=True)
COUNTERS: Final = {
    "flink": ("read-records", "write-records", "checkpoints-completed", "checkpoints-failed", "last-checkpoint-ms",
              "last-checkpoint-bytes", "running-tasks"),
    "kafka_streams": ("process-total", "record-send-total", "commit-total", "rebalance-total", "task-created-total"),
    "spark": ("input-rows", "trigger-ms"),
    "spark_dstreams": ("input-rows", "trigger-ms"),
}  # fmt: skip
"""Engine -> those of its counters that are shown; other engines have none."""


def dashboard(settings: Settings) -> Dashboard:
    """The dashboard `streamproof-campaign`, which depends on no setting."""
    del settings
    return Dashboard(
        UID,
        "streamproof: campaign",
        "Load, resources and counters of each engine of a running campaign, which is started with --metrics-port.",
        (DATASOURCE, ENGINES, RUNS),
        (
            Row("Load", _load()),
            Row("Resources", _resources()),
            *(Row(f"Counters of {engine}", _counters(engine, names)) for engine, names in COUNTERS.items()),
        ),
    )


def _of(name: str, match: str = "", over: str = "") -> str:
    """The selector of a metric for the selected runs. ``over``: a range."""
    return f"{PREFIX}{name}{{pipeline=~`${{pipeline:regex}}`{match}}}" + (f"[{over}]" if over else "")


def _by_engine(labels: str, expression: str) -> str:
    """``expression``, which has the label `pipeline`, with the run's engine, for the selected engines."""
    # A variable with the value All matches all runs, whatever the engine.
    engines = f"max by (pipeline, engine) ({_RUN})"
    return f"sum by (engine, {labels}) ({expression} * on (pipeline) group_left (engine) {engines})"


def _each(labels: str, expression: str) -> Query:
    legend = " ".join(f"{{{{{label}}}}}" for label in ("engine", *labels.split(", ")))
    return Query(_by_engine(labels, expression), legend)


def _rate(name: str) -> str:
    return f"rate({_of(f'{name}_total', over=RATE)})"


def _panel(title: str, description: str, query: Query, unit: str = "short") -> Panel:
    return Panel("timeseries", title, description, (query,), unit=unit)


def _load() -> tuple[Panel, ...]:
    return (
        _panel("events produced", "Events per second that the load appended to the inputs, and to each partition.",
               _each("process", _rate("produced_events")), "cps"),
        _panel("events consumed", "Events per second whose offsets the engine committed.",
               _each("process", _rate("consumed_events")), "cps"),
        _panel("lag", "Events that the engine has not committed.", _each("process", _of("lag_events"))),
        _panel("connect time", "Seconds to connect to the broker from the engine's network.",
               _each("name", _of("engine", ',name="connect-seconds"')), "s"),
    )  # fmt: skip


def _resources() -> tuple[Panel, ...]:
    return (
        _panel("processors", "Processor seconds per second.", _each("process", _rate("processor_seconds"))),
        _panel("memory", "Resident memory.", _each("process", _of("memory_bytes")), "bytes"),
        _panel("heap", "Heap of the JVMs after their last collections.", _each("process", _of("heap_bytes")), "bytes"),
        _panel("collections", "Share of time in garbage collections.",
               _each("process", _rate("collection_seconds")), "percentunit"),
        _panel("disk written", "Bytes per second.", _each("process", _rate("disk_written_bytes")), "Bps"),
        _panel("network sent", "Bytes per second, by network namespace.",
               _each("process", _rate("network_sent_bytes")), "Bps"),
    )  # fmt: skip


def _counters(engine: str, names: tuple[str, ...]) -> tuple[Panel, ...]:
    """A panel for each counter: a total as its rate, and a level as it is."""
    found = []
    for name in names:
        is_total = name.endswith(("-total", "-records", "-completed", "-failed"))
        match = f',name="{name}"'
        shown = f"rate({_of('engine', match, RATE)})" if is_total else _of("engine", match)
        unit = "ms" if name.endswith("-ms") else "bytes" if name.endswith("-bytes") else "short"
        text = f"{name} of each part of {engine}{', per second' if is_total else ''}."
        found.append(_panel(name, text, _each("part", shown), unit))
    return tuple(found)

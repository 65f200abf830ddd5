"""The configuration files of one run: for the generator and for the sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from testbed.engines.registry import REGISTRY
from testbed.engines.settings import Guarantee, Workload

PAGES: Final = 6
"""Number of keys in the load, as in PGVal."""
_SHORT_RUN: Final = {
    "spark.driver.memory": "1g",
    # A run of about a minute ends before the second JIT compiler pays off: the first compiler alone halves the time to
    # a verdict. It needs a larger code cache than its default.
    "spark.driver.extraJavaOptions": ("-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xss4m"),
}


UPDATE_PERCENT: Final = 10.0
"""Percentage of updates in MST: the largest value in PGVal's scripts, because small windows must have some updates."""


_CLICK_IDS: Final = ["clickIds", "updateIds"]
_EVENT: Final = {"id": "id", "key": "page", "event_time": "timestamp"}
_LATE: Final = {"id": "clickId", "key": "page", "event_time": "clickTimestamp"}
_REPEATED_SHARE: Final = 0.1
"""Share of the clicks of workload `distinct` that are sent twice."""


def operator_of(workload: Workload, window_ms: int) -> dict[str, Any]:
    """Settings of the reference engine and the mutant, for windows, buckets or bursts of ``window_ms``."""
    settings: dict[Workload, dict[str, Any]] = {
        "mst": {"join": "inner"},
        "sliding_window": {"operator": "sliding", "slide_ms": window_ms // 2},
        # Clicks of several pages have the same time. Without disorder, the first of these clicks could move the
        # watermark to their time; the others would then be behind the watermark, and the engine would have to store the
        # offset of each.
        "session_window": {"operator": "session", "gap_ms": window_ms // 2, "max_disorder_ms": 100},
        "passthrough": {"operator": "passthrough"},
        "distinct": {"operator": "distinct"},
        "running_aggregate": {"operator": "running_aggregate", "emission": "incremental"},
    }
    return settings.get(workload, {})


def _oracle_of(workload: Workload, topics: Topics, window_ms: int) -> dict[str, object]:
    """The oracle for the operator of ``operator_of``."""
    size, half = f"{window_ms}ms", f"{window_ms // 2}ms"
    parameters: dict[Workload, dict[str, object]] = {
        "sst": {"kind": "tumbling_window", "size": size},
        "mst": {
            "kind": "windowed_join", "join": "inner", "left": topics.click, "right": topics.update, "size": size
        },
        "sliding_window": {"size": size, "slide": half},
        "session_window": {"gap": half},
        "passthrough": {"bucket": size},
        "distinct": {"size": size},
    }  # fmt: skip
    return {"kind": workload, **parameters.get(workload, {})}


def _output_of(workload: Workload, topics: Topics) -> dict[str, object]:
    """The settings of the output topic for the operator of ``operator_of``."""
    if workload == "passthrough":
        return {"evidence": "id", "fields": _EVENT}
    if workload == "running_aggregate":
        return {"emission": "incremental", "fields": {"key": "page", "ids": "clickIds"}}
    ids: list[object] = [*_CLICK_IDS]
    if workload == "mst":
        ids = [{"path": "clickIds", "input": topics.click}, {"path": "updateIds", "input": topics.update}]
    return {"fields": {"key": "page", "window_start": "windowStart", "ids": ids}}


def _load_of(workload: Workload, topics: Topics, window_ms: int, events_per_window: int) -> dict[str, object]:
    """Settings of the clicks besides their rate: updates, repeats, or bursts of one window with pauses longer than the
    gap.
    """
    if workload == "mst":
        return {"workload": "mst", "update_percent": UPDATE_PERCENT, "update_topic": topics.update}
    if workload == "distinct":
        return {"duplicates": {"share": _REPEATED_SHARE}}
    if workload == "session_window":
        return {"sessions": {"events": events_per_window, "gap": f"{window_ms // 2}ms"}}
    return {}


@dataclass(frozen=True)
class Topics:
    """The names of a run's topics."""

    click: str = "click"
    output: str = "output"
    late: str = "lateOutput"
    faults: str = "faults"
    update: str = "update"
    late_updates: str = "lateUpdates"

    def inputs(self, workload: Workload) -> tuple[str, ...]:
        """The topics that the generator writes."""
        return (self.click, self.update) if workload == "mst" else (self.click,)

    def partitions(self, workload: Workload) -> dict[str, int]:
        """Name -> partitions of the topics that ``workload`` needs."""
        both = {self.click: 2, self.output: 2, self.late: 1, self.faults: 1}
        return {**both, self.update: 2, self.late_updates: 1} if workload == "mst" else both


@dataclass(frozen=True)
class SidecarFile:
    """The settings in which the sidecars of two runs differ. Durations are milliseconds."""

    pipeline: str
    guarantee: Guarantee
    engine: str
    window_ms: int
    overdue_after_ms: int
    missing_after_ms: int
    topics: Topics = field(default_factory=Topics)
    workload: Workload = "sst"
    measures: Mapping[str, object] = field(default_factory=dict)
    """The section `measures` of the configuration."""
    trigger_ms: int = 500
    effective: str | None = None
    """File beside the configuration with the guarantee that was read back from the engine."""

    def write(self, bootstrap_servers: str, folder: Path) -> Path:
        """Write ``pipeline.yaml`` into ``folder``: the configuration that a user would write for this pipeline, with
        short times.
        """
        entry = REGISTRY.get(self.engine)
        drops_late = entry is not None and entry.drops_late
        own = operator_of(self.workload, self.window_ms)
        return write_yaml(
            folder / "pipeline.yaml",
            {
                "pipeline": self.pipeline,
                "guarantee": self.guarantee,
                "kafka": {"bootstrap_servers": bootstrap_servers},
                "inputs": [{"topic": topic, "fields": _EVENT} for topic in self.topics.inputs(self.workload)],
                "outputs": [{"topic": self.topics.output, **_output_of(self.workload, self.topics)}],
                **({} if drops_late else {"late": self._late()}),
                "faults": {"topic": self.topics.faults},
                **({"engine": {"effective": f"./{self.effective}"}} if self.effective else {}),
                "oracle": _oracle_of(self.workload, self.topics, self.window_ms),
                "timing": {
                    "idle_after": "2s",
                    "max_disorder": f"{entry.slack_ms if entry else own.get('max_disorder_ms', 0)}ms",
                    "late_policy": "drop" if drops_late else "report",
                    # Spark has one watermark for all partitions.
                    **({"lateness_scope": "global"} if drops_late else {}),
                    "overdue_after": f"{self.overdue_after_ms}ms",
                    "missing_after": f"{self.missing_after_ms}ms",
                },
                **({"measures": dict(self.measures)} if self.measures else {}),
                "state": {"path": "./state"},
                "spark": {
                    "trigger": f"{self.trigger_ms}ms",
                    "options": {**_SHORT_RUN, "spark.local.dir": str(folder / "tmp")},
                },
                "metrics": {"port": 0},
            },
        )

    def _late(self) -> list[dict[str, object]]:
        """Topics of late clicks and, in a join, of late updates."""
        if self.workload != "mst":
            return [{"topic": self.topics.late, "fields": _LATE}]
        late_update = {"id": "updateId", "key": "page", "event_time": "updateTimestamp"}
        return [
            {"topic": self.topics.late, "input": self.topics.click, "fields": _LATE},
            {"topic": self.topics.late_updates, "input": self.topics.update, "fields": late_update},
        ]


def write_load(
    bootstrap_servers: str,
    folder: Path,
    *,
    topics: Topics,
    window_ms: int,
    per_second: int,
    seconds: float,
    seed: int,
    workload: Workload = "sst",
) -> Path:
    """Write the generator's configuration file and return its path. The generator writes its journal and
    ``summary.json`` to ``folder/journal``."""
    events_per_window = per_second * window_ms // (PAGES * 1000)
    return write_yaml(
        folder / "load.yaml",
        {
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "topic": topics.click,
            **_load_of(workload, topics, window_ms, events_per_window),
            "window": f"{window_ms}ms",
            "keys": {"pages": PAGES},
            "events_per_window": events_per_window,
            "start": "now",
            "rate": {"shape": "event_time", "speed": 1},
            "limit": {"duration": f"{seconds:g}s"},
            "flush_windows": True,
            "delivery": {"flush_deadline": "10s"},
            "journal": "./journal",
            "seed": seed,
        },
    )


def write_yaml(path: Path, content: Mapping[str, object]) -> Path:
    """Write ``content`` as YAML. Returns the file's path."""
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")
    return path

"""The configuration files of one run: for the generator and for the sidecar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from generator.workloads.kinds import DEFAULT, named, written
from generator.workloads.seam import Workload
from testbed.engines.real import operator_of
from testbed.engines.registry import REGISTRY
from testbed.engines.settings import EngineSettings, Guarantee

CONFIG_FILE: Final = "pipeline.yaml"
"""The configuration of the sidecar in the folder of a run."""
PAGES: Final = 6
"""Number of keys in the load, as in PGVal."""
_DROPPING: Final = ("tumbling", "distinct", "sliding")
"""Operators whose dropped late events the sidecar can excuse."""
_SHORT_RUN: Final = {
    "spark.driver.memory": "1g",
    # A run of about a minute ends before the second JIT compiler pays off: the first compiler alone halves the time to
    # a verdict. It needs a larger code cache than its default.
    "spark.driver.extraJavaOptions": ("-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -Xss4m"),
}


@dataclass(frozen=True)
class Topics:
    """The names of a run's topics: those of the workload's streams and of the others, each after ``prefix``."""

    workload: Workload = field(default_factory=lambda: named(DEFAULT))
    prefix: str = ""
    results: str = "output"
    """The name of the topic of the results. Those of a stage are the events of the next one."""

    @property
    def stages(self) -> tuple[Topics, ...]:
        """The topics of each stage of the workload's chain, in order. These are the last."""
        before = self.workload.stages[:-1]
        names = [stage.streams[0].name for stage in self.workload.stages[1:]]
        return (*(Topics(of, self.prefix, name) for of, name in zip(before, names, strict=True)), self)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The topics that the generator writes."""
        return tuple(self.prefix + stream.name for stream in self.workload.streams)

    @property
    def late(self) -> tuple[str, ...]:
        """The topic for late events of each of ``inputs``."""
        return tuple(self.prefix + stream.late for stream in self.workload.streams)

    @property
    def output(self) -> str:
        """The topic of the results."""
        return self.prefix + self.results

    @property
    def faults(self) -> str:
        """The topic of the faults."""
        return self.prefix + "faults"

    @property
    def partitions(self) -> dict[str, int]:
        """Name -> partitions of all topics, also those of the stages before."""
        shared = {name: 2 for stage in self.stages for name in (*stage.inputs, stage.output)}
        late = {name: 1 for stage in self.stages for name in stage.late}
        return {**shared, **late, self.faults: 1}

    def engine(self, bootstrap_servers: str, window_ms: int, **settings: Any) -> EngineSettings:
        """The settings of the reference engine that runs the workload."""
        given: dict[str, Any] = {
            "inputs": self.inputs,
            "output": self.output,
            "late": self.late[0],
            "late_updates": self.late[-1],
            "window_ms": window_ms,
            **self.workload.operator(window_ms),
            **settings,
        }
        return EngineSettings(bootstrap_servers=bootstrap_servers, workload=self.workload, **given)


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
    measures: Mapping[str, object] = field(default_factory=dict)
    """The section `measures` of the configuration."""
    trigger_ms: int = 500
    grace_ms: int | None = None
    """The grace period of Kafka Streams' windows, if the engine has them."""
    suppress: bool = False
    """Whether such a window has one result."""
    effective: str | None = None
    """File beside the configuration with the guarantee that was read back from the engine."""

    def write(self, bootstrap_servers: str, folder: Path) -> Path:
        """Write ``pipeline.yaml`` into ``folder``: the configuration that a user would write for this pipeline, with
        short times.
        """
        entry = REGISTRY.get(self.engine)
        workload, topics = self.topics.workload, self.topics
        has_grace = self.grace_ms is not None
        lacks_late = has_grace or (entry is not None and entry.drops_late)
        drops_late = lacks_late and operator_of(workload) in _DROPPING
        streams = list(zip(workload.streams, topics.inputs, topics.late, strict=True))
        has_ids = workload.has_ids
        sets_aside = workload.sets_aside and not lacks_late
        # With one stream, late events need not name their input.
        late = [
            {
                "topic": to,
                **({"input": topic} if len(streams) > 1 else {}),
                "fields": {name: path for name, path in stream.set_aside.items() if name != "id" or has_ids},
            }
            for stream, topic, to in streams
        ]
        disorder_ms = workload.operator(self.window_ms).get("max_disorder_ms", 0)
        disorder_ms = max(disorder_ms, entry.slack_ms if entry else 0)
        output = entry.output(workload, topics.inputs) if entry else workload.output(topics.inputs)
        if has_grace and not self.suppress:
            output = output | {"emission": "cumulative"}
        return write_yaml(
            folder / CONFIG_FILE,
            {
                "pipeline": self.pipeline,
                "guarantee": self.guarantee,
                "kafka": {"bootstrap_servers": bootstrap_servers},
                "inputs": [stream.input(topic, has_ids=has_ids) for stream, topic, _ in streams],
                "outputs": [{"topic": topics.output, **output}],
                **({"late": late} if sets_aside else {}),
                "faults": {"topic": self.topics.faults},
                **({"engine": {"effective": f"./{self.effective}"}} if self.effective else {}),
                "oracle": workload.oracle(topics.inputs, self.window_ms),
                "timing": {
                    "idle_after": "2s",
                    "max_disorder": f"{disorder_ms}ms",
                    "late_policy": "drop" if drops_late else "report",
                    # Spark has one watermark for all partitions; a task of Kafka Streams that reads a topic has one.
                    **({"lateness_scope": "partition" if has_grace else "global"} if drops_late else {}),
                    **({"allowed_lateness": f"{self.grace_ms}ms"} if has_grace else {}),
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


def write_load(
    bootstrap_servers: str,
    folder: Path,
    *,
    topics: Topics,
    window_ms: int,
    per_second: int,
    seconds: float,
    seed: int,
    pages: int = PAGES,
) -> Path:
    """Write the generator's configuration file, for the first stage of ``topics``, and return its path. The generator
    writes its journal and ``summary.json`` to ``folder/journal``."""
    topics = topics.stages[0]
    events_per_window = per_second * window_ms // (pages * 1000)
    return write_yaml(
        folder / "load.yaml",
        {
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "workload": written(topics.workload),
            "topic": topics.inputs[0],
            **({"update_topic": topics.inputs[1]} if len(topics.inputs) > 1 else {}),
            **topics.workload.settings(window_ms, events_per_window),
            "window": f"{window_ms}ms",
            "keys": {"pages": pages},
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

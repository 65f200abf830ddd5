"""The real engines by name: their constructors and their requirements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.engines.flink import FlinkEngine
from testbed.engines.kafka_streams import KafkaStreamsEngine
from testbed.engines.real import EngineRefused, RealEngine, RealEngineSettings
from testbed.engines.settings import Guarantee, Workload
from testbed.engines.spark import SparkEngine, kafka_jars
from testbed.engines.storm import StormEngine


@dataclass(frozen=True)
class RegisteredEngine:
    """An engine that can be selected by name."""

    make: Callable[[RealEngineSettings, Path], RealEngine]
    guarantees: tuple[Guarantee, ...]
    require: Callable[[], None]
    """Raises a PrerequisiteError with one sentence about what the machine lacks; downloads nothing."""
    prepare: Callable[[], object]
    """Downloads and compiles what is missing; raises the same errors as ``require``."""
    workloads: tuple[Workload, ...] = ("sst",)
    """Workloads of its job; others are refused."""
    slack_ms: int = 0
    """Disorder that the engine must allow even if partitions are ordered. Its watermark follows the newest event of
    all partitions, so events of a partition that is read a little later are late."""
    drops_late: bool = False
    """The engine has no side output, so it drops late events."""


REGISTRY: Final[Mapping[str, RegisteredEngine]] = {
    "flink": RegisteredEngine(
        FlinkEngine, FlinkEngine.guarantees, FlinkEngine.require, FlinkEngine.class_path, FlinkEngine.workloads
    ),
    "kafka_streams": RegisteredEngine(
        KafkaStreamsEngine,
        KafkaStreamsEngine.guarantees,
        KafkaStreamsEngine.require,
        KafkaStreamsEngine.class_path,
        KafkaStreamsEngine.workloads,
    ),
    "spark": RegisteredEngine(
        SparkEngine,
        SparkEngine.guarantees,
        SparkEngine.require,
        kafka_jars,
        SparkEngine.workloads,
        slack_ms=1000,
        drops_late=True,
    ),
    "storm": RegisteredEngine(
        StormEngine,
        StormEngine.guarantees,
        StormEngine.require,
        StormEngine.class_path,
        StormEngine.workloads,
        slack_ms=1000,
    ),
}


def make_engine(name: str, settings: RealEngineSettings, folder: Path) -> RealEngine:
    """Return the engine ``name``, not started. Raises EngineRefused, PrerequisiteError."""
    entry = REGISTRY.get(name)
    if entry is None:
        raise EngineRefused(f"There is no engine {name}; use one of {', '.join(REGISTRY)}.")
    entry.require()
    entry.prepare()
    return entry.make(settings, folder)

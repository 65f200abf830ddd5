"""The real engines by name: their constructors and their requirements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from generator.workloads.kinds import DEFAULT
from generator.workloads.seam import Workload
from testbed.engines.flink import FlinkEngine
from testbed.engines.kafka_streams import KafkaStreamsEngine
from testbed.engines.real import EngineRefused, RealEngine, RealEngineSettings
from testbed.engines.settings import Guarantee
from testbed.engines.spark import SparkEngine
from testbed.engines.spark_driver import kafka_jars
from testbed.engines.spark_dstreams import SparkDStreamsEngine
from testbed.engines.storm import StormEngine


@dataclass(frozen=True)
class RegisteredEngine:
    """An engine that can be selected by name."""

    engine: type[RealEngine]
    prepare: Callable[[], object]
    """Downloads and compiles what is missing; raises the same errors as ``require``."""
    slack_ms: int = 0
    """Disorder that the engine must allow even if partitions are ordered. Its watermark follows the newest event of
    all partitions, so events of a partition that is read a little later are late."""
    drops_late: bool = False
    """The engine has no side output, so its windows drop late events."""
    workload: str = DEFAULT
    """The demo's workload if none is chosen."""
    restates: bool = False
    """Results of its running aggregates list all ids so far; those of the other engines list the new ones."""

    @property
    def make(self) -> Callable[[RealEngineSettings, Path], RealEngine]:
        """Returns the engine, not started. Raises EngineRefused."""
        return self.engine

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The guarantees that it supports, the strongest first."""
        return self.engine.guarantees

    @property
    def workloads(self) -> tuple[str, ...]:
        """Workloads of its job; others are refused."""
        return self.engine.workloads()

    def output(self, of: Workload, inputs: Sequence[str]) -> dict[str, Any]:
        """The sidecar's settings of its output topic."""
        given = of.output(inputs)
        return given | ({"emission": "cumulative"} if self.restates and "emission" in given else {})

    @property
    def require(self) -> Callable[[], None]:
        """Raises a PrerequisiteError with one sentence about what the machine lacks; downloads nothing."""
        return self.engine.require


REGISTRY: Final[Mapping[str, RegisteredEngine]] = {
    "flink": RegisteredEngine(FlinkEngine, FlinkEngine.class_path),
    "kafka_streams": RegisteredEngine(KafkaStreamsEngine, KafkaStreamsEngine.class_path),
    "spark": RegisteredEngine(SparkEngine, kafka_jars, slack_ms=1000, drops_late=True, restates=True),
    "spark_dstreams": RegisteredEngine(SparkDStreamsEngine, SparkDStreamsEngine.jars, workload="wordcount"),
    "storm": RegisteredEngine(StormEngine, StormEngine.class_path, slack_ms=1000),
}


def make_engine(name: str, settings: RealEngineSettings, folder: Path) -> RealEngine:
    """Return the engine ``name``, not started. Raises EngineRefused, PrerequisiteError."""
    entry = REGISTRY.get(name)
    if entry is None:
        raise EngineRefused(f"There is no engine {name}; use one of {', '.join(REGISTRY)}.")
    entry.require()
    entry.prepare()
    return entry.make(settings, folder)

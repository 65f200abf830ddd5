"""The Spark engine: one Structured Streaming driver as a process, killed and restarted on its checkpoint; on request
with its executors in a cluster."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from testbed.checkout import python_path
from testbed.engines.base import EngineError
from testbed.engines.effective import ClientConfig, Effective, client_configs
from testbed.engines.job import READY
from testbed.engines.real import EngineRefused, RealEngine, RealEngineSettings, operator_of
from testbed.engines.spark_cluster import (
    MASTER,
    STANDALONE,
    environment,
    host_of,
    is_ready,
    is_standalone,
    master_command,
    worker_command,
)
from testbed.engines.spark_jvm import write_log_settings
from testbed.engines.spark_settings import SparkSettings
from testbed.ports import free_port
from validator.stream.jars import SIDECAR_LOCK, find_java, resolve

_DRIVER: Final = "driver"
EFFECTIVE: Final = "effective.json"
"""File beside the configuration with the running query's settings."""
_SIDECAR_ONLY: Final = ("io.delta",)
CHECKPOINT: Final = "checkpoint"
"""Folder of the query's checkpoint beside the configuration."""


@dataclass(frozen=True)
class RunningQuery:
    """What the driver read from its running query. The sink is its Java class; the interval is in seconds."""

    sink: str
    trigger_seconds: float
    checkpoint: str
    resumes: bool = True
    """Whether a start continues from the checkpoint; else it begins at the end of the inputs."""


class SparkEngine(RealEngine):
    """The workloads with PySpark. A JVM is in the process group of its driver, an executor in that of its worker, and
    is killed with it.

    Instances: the driver. With option `spark.master: standalone`, ``parallelism`` workers, then the driver, then the
    master.
    """

    name = "spark"
    guarantees = ("exactly_once", "at_least_once", "at_most_once")
    operators = ("tumbling", "distinct", "sliding", "session", "passthrough", "running_aggregate", "interval")
    commits_without_pause = True
    setups: Mapping[str, tuple[str, ...]] = MappingProxyType({MASTER: ("local", STANDALONE)})
    is_led = True

    def __init__(self, settings: RealEngineSettings, folder: Path) -> None:
        """``folder`` receives configuration, log, checkpoint and temporary files. Raises EngineRefused."""
        if settings.joins and settings.idle_after_seconds is not None:
            raise EngineRefused("The windows of spark's join wait for both inputs; leave out idle_after_seconds.")
        own = SparkSettings.of(settings)
        if own.output_mode == "update" and (own.joins or operator_of(own.configured) == "session"):
            raise EngineRefused("spark's joins and sessions have no output mode update; use append.")
        workers = ["worker"] * own.parallelism if is_standalone(own.options) else []
        super().__init__(own, folder, roles=[*workers, _DRIVER, *(["master"] if workers else [])])
        self._port = free_port()
        self._master = f"spark://{host_of(own)}:{self._port}"
        write_log_settings(folder)

    @classmethod
    def require(cls) -> None:
        """Raise a PrerequisiteError if this machine lacks what the engine needs. Downloads nothing."""
        find_java()

    @property
    def leader(self) -> int:
        """The driver's number."""
        return self._roles.index(_DRIVER)

    def _command(self, instance: int) -> list[str | Path]:
        if self._roles[instance] == "master":
            return master_command(host_of(self.settings), self._port)
        if self._roles[instance] == "worker":
            return worker_command(self._host(instance), self._master, self._work(instance))
        of_cluster = ["--master", self._master] if is_standalone(self.settings.options) else []
        return [sys.executable, "-m", "testbed.engines.spark_job", self._folder / f"{self.name}.json", *of_cluster]

    def _environment(self, instance: int) -> dict[str, str]:
        if instance == self.leader:
            return python_path()
        return environment(self.settings, self._host(instance), self._folder)

    def _host(self, instance: int) -> str:
        is_apart = self.node is not None and self._is_on_node(instance)
        return self.node.address if self.node is not None and is_apart else host_of(self.settings)

    def _work(self, instance: int) -> Path:
        """Return the folder with the logs of a worker's executors."""
        return self._folder / f"executors-{instance}"

    def _is_ready(self, instance: int) -> bool:
        log = self._log_since_start(instance)
        if instance != self.leader:
            return is_ready(self._roles[instance], log)
        return any(line.startswith(READY) for line in log.splitlines())

    def consumed(self) -> dict[tuple[str, int], int] | None:
        """Return (topic, partition) -> the offset up to which the batches are committed; None: none is. Raises
        ValueError."""
        return committed_offsets(self._folder / CHECKPOINT)

    def stop(self, timeout: float = 30.0) -> None:
        """Ask the driver to end after its batch; kill it if it does not, and the cluster. The driver ends the JVM."""
        driver = self.instances[self.leader]
        if driver.alive and driver.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(driver.pid, signal.SIGTERM)
            with suppress(TimeoutError):
                self.process(driver.number).wait(timeout)
        self.kill()

    def effective(self) -> Effective:
        """Return the guarantee from the running query and its Kafka clients. Raises EngineError if the driver is not
        ready."""
        if not (self.instances[self.leader].alive and self._is_ready(self.leader)):
            raise EngineError("The driver of spark has no running query.")
        said = RunningQuery(**json.loads((self._folder / EFFECTIVE).read_text(encoding="utf-8")))
        logs = [path.read_text(errors="replace") for path in self._folder.glob("executors-*/*/*/stderr")]
        return effective_of(said, client_configs("\n".join([self._log_since_start(self.leader), *logs])))


def committed_offsets(checkpoint: Path) -> dict[tuple[str, int], int] | None:
    """Return the end offsets of the newest committed batch of a checkpoint; None: there is none. Raises ValueError.

    A batch's offsets are written before it runs: `offsets` alone is ahead of the results.
    """
    found: dict[tuple[str, int], int] = {}
    try:
        batch = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal())
        _, _, *sources = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None  # no batch yet, or Spark has just removed the file of an old one
    for source in sources:  # "-" is a source without an offset
        of = {} if source == "-" else json.loads(source)
        found |= {(topic, int(partition)): end for topic, ends in of.items() for partition, end in ends.items()}
    return found


def kafka_jars() -> list[Path]:
    """Return Spark's connector for Kafka, from the sidecar's lock. Raises PrerequisiteError."""
    return [jar for jar in resolve(SIDECAR_LOCK) if jar.parent.name not in _SIDECAR_ONLY]


def effective_of(query: RunningQuery, configs: tuple[ClientConfig, ...]) -> Effective:
    """Return the guarantee of a query whose clients have ``configs``. The sink's producer exists only after the
    first result."""
    producers = [c for c in configs if c.kind == "ProducerConfig"]
    consumers = [c for c in configs if c.kind == "ConsumerConfig"]
    evidence = [f"the sink {query.sink.rpartition('.')[2]} does not commit results with the batch"]
    if producers:
        transactional = "set" if all(p.transactional for p in producers) else "not set"
        acknowledged = "all" if all(p.acknowledged for p in producers) else "not all"
        evidence.append(f"transactional.id {transactional} in the producers, acks {acknowledged}")
    if consumers:
        committed = all(c.reads_committed for c in consumers)
        evidence.append(f"isolation.level {'read_committed' if committed else 'read_uncommitted'} in the consumers")
    if query.resumes:
        evidence.append("a batch that is not in the checkpoint is run again")
    else:
        evidence.append("a start begins at the end of the inputs, without the checkpoint")
    return Effective(
        engine="spark",
        # A producer that does not wait for acknowledgements may lose a result of a batch that is then committed.
        guarantee="at_least_once" if query.resumes and all(p.acknowledged for p in producers) else "at_most_once",
        evidence=tuple(evidence),
        commit_interval_seconds=query.trigger_seconds,
        checkpoint_mode="micro-batch: offsets are written first, then the results, then the commit",
    )

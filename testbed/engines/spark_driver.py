"""What the engines on Spark share: a driver as a process, killed and restarted on its checkpoint; on request with its
executors in a cluster."""

from __future__ import annotations

import os
import signal
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from testbed.engines.base import EngineError
from testbed.engines.effective import ClientConfig, Effective, client_configs
from testbed.engines.job import READY
from testbed.engines.real import RealEngine
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
from validator.stream.jars import SIDECAR_LOCK, resolve

_DRIVER: Final = "driver"
CHECKPOINT: Final = "checkpoint"
"""Folder of the driver's checkpoint beside the configuration."""
_SIDECAR_ONLY: Final = ("io.delta",)


@dataclass(frozen=True)
class RunningQuery:
    """What the driver read from its running query. The sink is its Java class; the interval is in seconds."""

    sink: str
    trigger_seconds: float
    checkpoint: str
    resumes: bool = True
    """Whether a start continues from the checkpoint; else it begins at the end of the inputs."""


class DriverEngine(RealEngine):
    """A JVM is in the process group of its driver, an executor in that of its worker, and is killed with it.

    Instances: the driver. With option `spark.master: standalone`, ``parallelism`` workers, then the driver, then the
    master.
    """

    setups: Mapping[str, tuple[str, ...]] = MappingProxyType({MASTER: ("local", STANDALONE)})
    is_led = True

    def __init__(self, settings: SparkSettings, folder: Path) -> None:
        """``folder`` receives configuration, log, checkpoint and temporary files. Raises EngineRefused."""
        workers = ["worker"] * settings.parallelism if is_standalone(settings.options) else []
        super().__init__(settings, folder, roles=[*workers, _DRIVER, *(["master"] if workers else [])])
        self._port = free_port()
        self._master = f"spark://{host_of(settings)}:{self._port}"
        write_log_settings(folder)

    @property
    def leader(self) -> int:
        """The driver's number."""
        return self._roles.index(_DRIVER)

    def _command(self, instance: int) -> list[str | Path]:
        if self._roles[instance] == "master":
            return master_command(host_of(self.settings), self._port)
        if self._roles[instance] == "worker":
            return worker_command(self._host(instance), self._master, self._work(instance))
        options = self.settings.options
        return self._driver_command(self._master if is_standalone(options) else f"local[{self.settings.parallelism}]")

    @abstractmethod
    def _driver_command(self, master: str) -> list[str | Path]:
        """Return the command line of the driver of a cluster, or of a driver that has the tasks' threads."""

    def _environment(self, instance: int) -> dict[str, str]:
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
            raise EngineError(f"The driver of {self.name} has no running query.")
        logs = [path.read_text(errors="replace") for path in self._folder.glob("executors-*/*/*/stderr")]
        configs = client_configs("\n".join([self._log_since_start(self.leader), *logs]))
        return replace(effective_of(self._query(), configs), engine=self.name)

    @abstractmethod
    def _query(self) -> RunningQuery:
        """Return what the running driver does."""


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

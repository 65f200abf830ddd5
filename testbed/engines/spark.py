"""The Spark engine: one Structured Streaming driver as a process, killed and started again on its checkpoint."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from testbed.engines.base import EngineError, ProcessEngine
from testbed.engines.spark_settings import SparkSettings


class SparkEngine(ProcessEngine):
    """PGVal's SST as PySpark runs it. The JVM is in the process group of its driver and is killed with it."""

    module = "testbed.engines.spark_job"
    name = "spark"

    def __init__(self, settings: SparkSettings, folder: Path, *, instances: int = 1) -> None:
        """``folder`` takes configuration, log, checkpoint and scratch files. Raises EngineError for two drivers."""
        if instances != 1:
            raise EngineError(f"Spark has one driver, not {instances}: raise parallelism for more task threads.")
        super().__init__(settings, folder)

    def stop(self, timeout: float = 30.0) -> None:
        """Ask the driver to end after its batch, and kill it where it does not. The JVM is ended by the driver."""
        for instance in self.instances:
            if instance.alive and instance.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(instance.pid, signal.SIGTERM)
                with suppress(TimeoutError):
                    self.process(instance.number).wait(timeout)
        self.kill()

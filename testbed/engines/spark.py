"""The Spark engine: one Structured Streaming query with PySpark."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from testbed.checkout import python_path
from testbed.engines.real import EngineRefused, RealEngineSettings, operator_of
from testbed.engines.spark_driver import CHECKPOINT, DriverEngine, RunningQuery
from testbed.engines.spark_settings import SparkSettings
from validator.stream.jars import find_java

EFFECTIVE: Final = "effective.json"
"""File beside the configuration with the running query's settings."""


class SparkEngine(DriverEngine):
    """The workloads with PySpark."""

    name = "spark"
    guarantees = ("exactly_once", "at_least_once", "at_most_once")
    operators = ("tumbling", "distinct", "sliding", "session", "passthrough", "running_aggregate", "interval")
    commits_without_pause = True

    def __init__(self, settings: RealEngineSettings, folder: Path) -> None:
        """Raises EngineRefused."""
        if settings.joins and settings.idle_after_seconds is not None:
            raise EngineRefused("The windows of spark's join wait for both inputs; leave out idle_after_seconds.")
        own = SparkSettings.of(settings)
        if own.output_mode == "update" and (own.joins or operator_of(own.configured) == "session"):
            raise EngineRefused("spark's joins and sessions have no output mode update; use append.")
        super().__init__(own, folder)

    @classmethod
    def require(cls) -> None:
        """Raise a PrerequisiteError if this machine lacks what the engine needs. Downloads nothing."""
        find_java()

    def _driver_command(self, master: str) -> list[str | Path]:
        job = "testbed.engines.spark_job"
        return [sys.executable, "-m", job, self._folder / f"{self.name}.json", "--master", master]

    def _environment(self, instance: int) -> dict[str, str]:
        return python_path() if instance == self.leader else super()._environment(instance)

    def _query(self) -> RunningQuery:
        return RunningQuery(**json.loads((self._folder / EFFECTIVE).read_text(encoding="utf-8")))

    def consumed(self) -> dict[tuple[str, int], int] | None:
        """Return (topic, partition) -> the offset up to which the batches are committed; None: none is. Raises
        ValueError."""
        return committed_offsets(self._folder / CHECKPOINT)


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

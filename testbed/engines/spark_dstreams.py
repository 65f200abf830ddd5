"""Spark Streaming (DStreams), as StreamBench, Qian et al. and Lopez et al. measured it: a driver with a job in Java."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from testbed.engines.java_build import find_javac, job_jar
from testbed.engines.jvm import GENERIC, HERE, SOURCES
from testbed.engines.real import RealEngineSettings
from testbed.engines.spark_cluster import class_command, spark_jars
from testbed.engines.spark_driver import CHECKPOINT, DriverEngine, RunningQuery, kafka_jars
from testbed.engines.spark_job import MESSAGE_BYTES_MAX, OF_SESSION, spark_options
from testbed.engines.spark_settings import SparkSettings
from testbed.engines.work import work_options
from validator.stream.jars import resolve

_LOCK: Final = HERE / "spark_dstreams.lock"
_SOURCES: Final = (SOURCES / "SparkDStreamsJob.java", *GENERIC)


class SparkDStreamsEngine(DriverEngine):
    """The workloads without event time. Batches begin at the commit interval; offsets are in the checkpoint, and in the
    consumer group after the output. Options without `spark.` are those of the consumer."""

    name = "spark_dstreams"
    guarantees = ("at_least_once",)
    operators = ("passthrough", "running_aggregate")
    commits_without_pause = False

    def __init__(self, settings: RealEngineSettings, folder: Path) -> None:
        """Raises EngineRefused."""
        super().__init__(SparkSettings.of(settings), folder)

    @classmethod
    def require(cls) -> None:
        """Raise a PrerequisiteError if this machine lacks what the engine needs. Downloads nothing."""
        find_javac()

    @classmethod
    def jars(cls) -> list[Path]:
        """Return the job's jar, then those that it needs beside Spark's. Missing jars are downloaded and compiled.

        Raises PrerequisiteError, CompileError.
        """
        cls.require()
        more = [*resolve(_LOCK), *kafka_jars()]
        return [job_jar(_SOURCES, _LOCK, [*more, *spark_jars()]), *more]

    def _driver_command(self, master: str) -> list[str | Path]:
        job, *more = self.jars()
        properties = self._folder / "job.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._job().items()), encoding="utf-8")
        options = spark_options(SparkSettings.of(self.settings), more, self._folder / "tmp")
        given = [text for name, value in options.items() for text in ("--conf", f"{name}={value}")]
        main = _SOURCES[0].stem
        return class_command("SparkSubmit", "--master", master, "--class", main, *given, str(job), str(properties))

    def _job(self) -> dict[str, str]:
        times = self.settings.timeouts
        consumer = {
            "session.timeout.ms": str(round(times.session_timeout_seconds * 1000)),
            "heartbeat.interval.ms": str(round(times.heartbeat_interval_seconds * 1000)),
            **{name: text for name, text in self.settings.options.items() if not name.startswith(OF_SESSION)},
        }
        return {
            "job.bootstrap.servers": self.settings.bootstrap_servers,
            "job.group": self.settings.group,
            "job.checkpoint": str(self._folder / CHECKPOINT),
            "job.batch.ms": str(round(times.commit_interval_seconds * 1000)),
            "job.max.request.size": str(MESSAGE_BYTES_MAX),
            **work_options(self.settings),
            **{f"job.consumer.{name}": text for name, text in consumer.items()},
        }

    def _query(self) -> RunningQuery:
        return RunningQuery(
            sink="foreachRDD",
            trigger_seconds=self.settings.timeouts.commit_interval_seconds,
            checkpoint=str(self._folder / CHECKPOINT),
        )

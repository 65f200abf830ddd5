"""The Spark engine's additional settings, and the common settings that it refuses."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field

from testbed.engines.real import RealEngineSettings, operator_of

StateStore = Literal["memory", "rocksdb"]
OutputMode = Literal["append", "update"]

STATE_STORES: Final[dict[StateStore, str]] = {
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
"""Name -> Spark's provider: state in the heap with delta files, or in RocksDB with snapshots."""


class SparkSettings(RealEngineSettings):
    """The common settings, whose meaning for Spark is below, and Spark's own.

    - ``guarantee``: the declared guarantee. Exactly once has no effect: Spark's sink for Kafka has no transactions. At
      most once starts without the checkpoint of an earlier start, at the end of the inputs.
    - ``parallelism``: task threads of the driver or workers of its cluster, and partitions of the state.
    - ``commit_interval_seconds``: the trigger interval.
    - ``max_disorder_ms`` and ``allowed_lateness_ms``: their sum is the delay of the watermark behind the newest event
      time of all partitions. An idle partition never holds it back.
    - ``idle_after_seconds``: no effect without a join. A join has one watermark per input, and the slower one counts,
      so an input without events holds it back. Therefore a join refuses the setting.
    """

    driver_memory_mb: int = Field(default=768, ge=512)
    state_store: StateStore = "memory"
    output_mode: OutputMode = "append"
    """Of windows: a result when the window has closed, or the newest state after each batch with events of it."""

    @classmethod
    def of(cls, settings: RealEngineSettings) -> Self:
        """Return common settings with Spark's defaults; Spark's own settings unchanged."""
        return settings if isinstance(settings, cls) else cls.model_validate(settings.model_dump())

    @property
    def mode(self) -> OutputMode:
        """The query's output mode. A running aggregate never closes."""
        return "update" if operator_of(self.configured) == "running_aggregate" else self.output_mode

    @property
    def watermark_delay_ms(self) -> int:
        """The delay of the watermark behind the newest event time."""
        return self.max_disorder_ms + self.allowed_lateness_ms

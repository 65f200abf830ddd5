"""The Spark engine's additional settings, and the common settings that it refuses."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field

from testbed.engines.real import RealEngineSettings

StateStore = Literal["memory", "rocksdb"]

STATE_STORES: Final[dict[StateStore, str]] = {
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
"""Name -> Spark's provider: state in the heap with delta files, or in RocksDB with snapshots."""


class SparkSettings(RealEngineSettings):
    """The common settings as Spark takes them, and its own.

    ``guarantee`` is what the pipeline claims; Spark's sink for Kafka has no transactions, whatever is claimed.
    ``parallelism`` is task threads of the one driver, and partitions of the state. ``commit_interval_seconds`` is the
    trigger interval. ``max_disorder_ms`` and ``allowed_lateness_ms`` together are the delay of the watermark, which
    follows the newest event time of all partitions: an idle one never holds it, with or without ``idle_after_seconds``.
    A join has two, and the slower one counts: there an input without events holds it, and ``idle_after_seconds`` is
    refused.
    """

    driver_memory_mb: int = Field(default=768, ge=512)
    state_store: StateStore = "memory"
    batch_records_max: int | None = Field(default=None, gt=0)
    """Records in one micro-batch; None: all there are."""

    @classmethod
    def of(cls, settings: RealEngineSettings) -> Self:
        """Return common settings with Spark's defaults; Spark's own settings unchanged."""
        return settings if isinstance(settings, cls) else cls.model_validate(settings.model_dump())

    @property
    def watermark_delay_ms(self) -> int:
        """The delay of the watermark behind the newest event time."""
        return self.max_disorder_ms + self.allowed_lateness_ms

"""What the Spark engine can be set to, and what of the common settings it refuses, since it would not keep it."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from testbed.engines.settings import EngineSettings

StateStore = Literal["memory", "rocksdb"]

STATE_STORES: Final[dict[StateStore, str]] = {
    "memory": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    "rocksdb": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
}
"""Name -> Spark's provider: state in the heap with deltas as files, or in RocksDB with snapshots."""


class SparkSettings(EngineSettings):
    """The common settings as Spark takes them, and Spark's own.

    ``commit_interval_seconds`` is the trigger interval: each micro-batch is one commit of the checkpoint.
    ``max_disorder_ms`` and ``allowed_lateness_ms`` together are the delay of Spark's watermark. That is one for all
    partitions, the newest event time of the batches before less the delay, so ``idle_after_seconds`` has no use.
    ``guarantee`` is what the pipeline claims: the sink of Spark for Kafka has no transactions, whatever is claimed.
    """

    parallelism: int = Field(default=1, ge=1, le=3)
    """Task threads of the driver, and partitions of the state."""
    driver_memory_mb: int = Field(default=768, ge=512)
    state_store: StateStore = "memory"
    batch_records_max: int | None = Field(default=None, gt=0)
    """Records in one micro-batch; None: all there are."""

    @property
    def watermark_delay_ms(self) -> int:
        """How far the watermark stays behind the newest event time."""
        return self.max_disorder_ms + self.allowed_lateness_ms

    @model_validator(mode="after")
    def _refuse_what_spark_does_not_do(self) -> Self:
        if self.guarantee == "at_most_once":
            raise ValueError("Spark never works at most once: it repeats a batch that it has not committed; "
                             "set guarantee to at_least_once")  # fmt: skip
        if self.rejected is not None:
            raise ValueError("the Spark engine has no topic for undecodable input, it skips it; leave rejected out")
        if self.mutations:
            raise ValueError("the Spark engine breaks nothing on purpose; use the mutant for mutations")
        return self

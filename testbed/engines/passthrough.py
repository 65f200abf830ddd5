"""The passthrough of the reference engine: each event immediately has its own result. Pure, no I/O.

It keeps no state, so no event is late. Events that a filter removes do not reach it: the decoder drops them, because
only the decoder sees fields other than id, key and time.
"""

from __future__ import annotations

from testbed.engines.core import NEVER_MS, EventId, Key, Partition, PartitionProgress, Record, Result, UnwindowedCore


class PassthroughCore(UnwindowedCore):
    """One result per event, with its id, key and time."""

    def _insert(self, state: Partition, offset: int, key: Key, time_ms: int, event_id: EventId) -> bool:
        del state, offset
        self._answers.append(Result(time_ms, time_ms, key, (event_id,), (time_ms,)))
        return True

    def _restore(self, state: Partition, record: Record) -> None:
        """Another operator's progress may request a re-read. All events that are read again already have results."""

    def _next_timer(self, watermark: int) -> int:
        del watermark
        return NEVER_MS

    def _first_offset(self, state: Partition) -> int:
        return state.next_offset

    def _assigned(self, state: Partition, progress: PartitionProgress) -> None:
        """No state is kept."""

    def _forget(self, state: Partition) -> None:
        """No state is kept."""

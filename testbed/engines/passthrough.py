"""The passthrough of the reference engine: each event is answered at once, by itself. Pure, no I/O.

It keeps no state, whatever the time is, and so no event is late. What a filter leaves out never comes here: it is the
decoder's to see fields that are neither key nor id.
"""

from __future__ import annotations

from testbed.engines.core import NEVER_MS, Core, EventId, Key, Partition, PartitionProgress, Record, Result


class PassthroughCore(Core):
    """One answer per event, with its id, key and time."""

    def _insert(self, state: Partition, offset: int, key: Key, time_ms: int, event_id: EventId) -> bool:
        del state, offset
        self._answers.append(Result(time_ms, time_ms, key, (event_id,), (time_ms,)))
        return True

    def _restore(self, state: Partition, record: Record) -> None:
        """Another operator's progress may say to read again; all of it has been answered."""

    def _emit_closed(self) -> None:
        """Nothing is open."""

    def _next_timer(self, watermark: int) -> int:
        del watermark
        return NEVER_MS

    def _last_end(self) -> int | None:
        return None

    def _first_offset(self, state: Partition) -> int:
        return state.next_offset

    def _assigned(self, state: Partition, progress: PartitionProgress) -> None:
        """Nothing is kept."""

    def _recovered(self) -> None:
        """Nothing was open."""

    def _forget(self, state: Partition) -> None:
        """Nothing is kept."""

"""PGVal's multi-source topology workload: the clicks of `sst`, and a burst of updates per page and window.

Source: PGVal's ``ClickDataset`` and ``UpdateDataset``. When the first click passes the middle of a window (30 s of
PGVal's 60 s), ``int(events x updates / 100)`` updates of every key are sent at once, key by key in turn. All have that
click's time. An update lies in the middle of its window or at most one click step later, so each complete window has
exactly that number. If the run ends before the middle of a window, that window has none.

In PGVal, clicks and updates share one counter of ids. Here each stream counts from 1, so a click and an update can have
the same number, as in streams of two independent teams.

Lateness and duplicates apply to updates with the same shares as to clicks. Updates have no disorder because a burst has
one event time.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from generator import seed
from generator.grid import GridPlan, GridSequence
from generator.sends import DELAYED, LATE, PLAIN, SECOND_COPY, SendBatch
from generator.wire import ClickWire, UpdateWire, keys
from generator.workloads.operations import Joined
from generator.workloads.seam import Events, Load, Stream
from generator.workloads.sst import CLICKS

UPDATE_PERCENT: Final = 10.0
"""Percentage of updates in demos and campaigns: the largest value in PGVal's scripts, because small windows must have
some updates."""
UPDATES: Final = Stream(
    "update",
    CLICKS.fields,
    late="lateUpdates",
    late_fields={"id": "updateId", "key": "page", "event_time": "updateTimestamp"},
)


def updates_per_window(events_per_window: int, update_percent: float) -> int:
    """Updates per window and key, of each producer."""
    return int(events_per_window * update_percent / 100)


@dataclass(frozen=True)
class UpdatePlan:
    """The updates of one producer; ``clicks`` is the plan of its clicks. Times are milliseconds."""

    clicks: GridPlan
    window_ms: int
    per_window: int


class Updates:
    """The updates that follow a producer's clicks, in order. The result does not depend on how clicks are batched."""

    def __init__(self, plan: UpdatePlan) -> None:
        self.plan = plan
        self._window = 0
        self._made = 0
        self._newest_ms = -1
        self._held: list[tuple[int, int, int, int]] = []  # a heap of (due time, number, key, time)
        self._fates = seed.stream(plan.clicks.seed, "updates", plan.clicks.producer)

    @property
    def next_number(self) -> int:
        """The id number of the next update."""
        return 1 + self.plan.clicks.producer + self.plan.clicks.producers * self._made

    def after(self, newest_ms: int) -> SendBatch:
        """The updates that are due when the newest click that was sent has the event time ``newest_ms``."""
        batch = SendBatch([], [], [], [])
        self._newest_ms = max(newest_ms, self._newest_ms)
        while (time_ms := self._burst_ms()) <= newest_ms:
            self._release(batch, time_ms)
            self._burst(batch, time_ms)
            self._window += 1
        self._release(batch, newest_ms)
        return batch

    def drain(self) -> SendBatch:
        """End the stream: the delayed updates, in the order in which they are due."""
        batch = SendBatch([], [], [], [])
        self._release(batch, None)
        return batch

    def _burst_ms(self) -> int:
        """The time of the first click at or after the middle of the window."""
        clicks = self.plan.clicks
        half = self._window * self.plan.window_ms + self.plan.window_ms // 2
        rounds = max(0, -(-(half - 1) // clicks.step_ms))
        return clicks.start_ms + 1 + rounds * clicks.step_ms

    def _burst(self, batch: SendBatch, time_ms: int) -> None:
        clicks = self.plan.clicks
        for _ in range(self.plan.per_window):
            for key in range(clicks.keys):
                number, self._made = self.next_number, self._made + 1
                if clicks.late_share and self._fates.random() < clicks.late_share:
                    due_ms = time_ms + clicks.disorder_ms + clicks.late_by_ms
                    heapq.heappush(self._held, (due_ms, number, key, time_ms))
                else:
                    self._send(batch, number, key, time_ms, PLAIN)

    def _release(self, batch: SendBatch, newest_ms: int | None) -> None:
        while self._held and (newest_ms is None or self._held[0][0] <= newest_ms):
            _, number, key, time_ms = heapq.heappop(self._held)
            delay_ms = self._newest_ms - time_ms
            kind = LATE if delay_ms > self.plan.clicks.disorder_ms else DELAYED if delay_ms > 0 else PLAIN
            self._send(batch, number, key, time_ms, kind)

    def _send(self, batch: SendBatch, number: int, key: int, time_ms: int, kind: int) -> None:
        batch.add(number, key, time_ms, kind)
        clicks = self.plan.clicks
        if clicks.duplicate_share and self._fates.random() < clicks.duplicate_share:
            batch.add(number, key, time_ms, SECOND_COPY)


class ClicksAndUpdates:
    """The clicks of a producer, followed by the updates that are due. Only clicks count for rates and limits."""

    def __init__(self, plan: UpdatePlan) -> None:
        self._clicks = GridSequence(plan.clicks)
        self._updates = Updates(plan)
        self.taken = 0

    @property
    def next_numbers(self) -> tuple[int, ...]:
        """See `Events`."""
        return self._clicks.next_number, self._updates.next_number

    def take(self, n: int) -> tuple[SendBatch, ...]:
        """See `Events`."""
        return self._followed(self._clicks.take(n))

    def drain(self) -> tuple[SendBatch, ...]:
        """See `Events`."""
        clicks, updates = self._followed(self._clicks.drain())
        updates.extend(self._updates.drain())
        return clicks, updates

    def _followed(self, clicks: SendBatch) -> tuple[SendBatch, SendBatch]:
        self.taken += len(clicks)
        return clicks, self._updates.after(max(clicks.times_ms)) if len(clicks) else SendBatch([], [], [], [])


class Mst(Joined):
    """Clicks and updates are joined per page and window."""

    kind: ClassVar[str] = "mst"
    streams: ClassVar[tuple[Stream, ...]] = (CLICKS, UPDATES)
    has_text_ids: ClassVar[bool] = True
    rarest_share: ClassVar[float] = UPDATE_PERCENT / 100

    def check(self, load: Load) -> None:
        """Every window needs updates, and clicks that advance past its middle."""
        if not updates_per_window(load.events_per_window, load.update_percent):
            raise ValueError("workload mst has no update per window; raise update_percent or events_per_window")
        if load.plan.silent_steps:
            raise ValueError("sessions apply to clicks only; use workload sst, or omit sessions")

    def events(self, load: Load) -> Events:
        """Clicks and updates."""
        per_window = updates_per_window(load.events_per_window, load.update_percent)
        return ClicksAndUpdates(UpdatePlan(load.plan, load.window_ms, per_window))

    def wire(self, stream: Stream, load: Load) -> ClickWire:
        """PGVal's click and update events."""
        prefix = None if load.id_prefixes is None else load.id_prefixes[stream.name]
        return (UpdateWire if stream is UPDATES else ClickWire)(keys(load.pages, load.regions), prefix)

    def settings(self, window_ms: int, events_per_window: int) -> dict[str, Any]:
        """The updates."""
        del window_ms, events_per_window
        return {"update_percent": UPDATE_PERCENT}

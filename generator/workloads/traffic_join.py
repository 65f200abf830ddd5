"""The first stage of OSPBench's traffic: the flow and the speed of a lane are joined.

Source: OSPBench joins on measurement id, lane and rounded time, within an interval of a second, so only events of one
time are joined. Here measurement id and lane are the key, and the interval is empty.
"""

from __future__ import annotations

from typing import Any, ClassVar

from generator.sections import Count
from generator.traffic import FLOW, SPEED, Observations, ObservationWire, clones_for
from generator.wire import PGVAL_PAGES
from generator.workloads.operations import Paired
from generator.workloads.seam import Events, Load, Stream


class TrafficJoin(Paired):
    """Flow and speed of a lane at the same time are joined."""

    kind: ClassVar[str] = "traffic_join"
    streams: ClassVar[tuple[Stream, ...]] = (FLOW, SPEED)
    rarest_share: ClassVar[float] = 0.5
    carried: ClassVar[tuple[str, ...]] = ("measurementId", "flow", "speed")
    partitioned_by: ClassVar[str | None] = "measurementId"
    clones: Count = 1
    """How often the 12 measurement points exist. In demos and campaigns at least as often as `settings` needs."""

    def events(self, load: Load) -> Events:
        """The flows and speeds of all lanes in turn."""
        return Observations(load.plan, self.clones, load.window_ms)

    def wire(self, stream: Stream, load: Load) -> ObservationWire:
        """An observation."""
        return ObservationWire(load.plan.seed, self.clones, stream.name)

    def settings(self, window_ms: int, events_per_window: int) -> dict[str, Any]:
        """So many clones that a lane has at most one flow and one speed in a window."""
        del window_ms
        least = clones_for(len(PGVAL_PAGES) * events_per_window)
        return {"workload": {"kind": self.kind, "clones": max(self.clones, least)}}

    def after_ms(self, window_ms: int) -> int:
        """Times are rounded, so those of a pair are equal."""
        del window_ms
        return 0
